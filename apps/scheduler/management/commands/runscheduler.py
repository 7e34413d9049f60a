"""Run one scheduler process."""

import gc
from typing import Any

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from apps.scheduler.process import Scheduler
from chrono.rules.errors import ChronoError

GARBAGE_EVERY = 50_000
"""After how many new objects that were not let go of it looks for cycles of them."""


class Command(BaseCommand):
    """Lead a share of the partitions and fire what comes due, until told to stop."""

    help = "Lead a share of the partitions and fire what comes due, until told to stop."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until SIGTERM or SIGINT; then hand over and return."""
        scheduler = Scheduler(
            settings.CHRONO_DIRECT_DATABASE_URL,
            clock_shift=int(settings.CHRONO_CLOCK_SHIFT * 1000),
            catchup_rate=settings.CHRONO_CATCHUP_RATE,
        )
        scheduler.waiter.stop_on_signals()
        # What is loaded by now stays, and what a wheel holds is in no cycle: to look
        # for such at every 2,000 new objects costs a timer more than its loading.
        gc.freeze()
        gc.set_threshold(GARBAGE_EVERY)
        try:
            scheduler.run()
        except ChronoError as error:
            raise CommandError(_one_line(error)) from error
        except psycopg.errors.UndefinedTable as error:
            raise CommandError(
                f"{_one_line(error)}: run `manage.py migrate`"
            ) from error
        except psycopg.Error as error:
            # What the server calls a mistake in a statement is ours: show it all.
            if error.sqlstate and not isinstance(error, psycopg.OperationalError):
                raise
            raise CommandError(
                f"the database does not answer: {_one_line(error)}"
            ) from error


def _one_line(error: Exception) -> str:
    diagnosis = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return " ".join((diagnosis or str(error)).split())
