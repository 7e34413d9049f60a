"""Run one scheduler process."""

from typing import Any

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from apps.scheduler.process import Scheduler
from chrono.rules.errors import ChronoError


class Command(BaseCommand):
    """Lead a share of the partitions and fire what comes due, until told to stop."""

    help = "Lead a share of the partitions and fire what comes due, until told to stop."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until SIGTERM or SIGINT; then hand over and return."""
        scheduler = Scheduler(
            settings.CHRONO_DIRECT_DATABASE_URL,
            clock_shift=int(settings.CHRONO_CLOCK_SHIFT * 1000),
        )
        scheduler.waiter.stop_on_signals()
        try:
            scheduler.run()
        except ChronoError as error:
            raise CommandError(error.message) from error
        except psycopg.OperationalError as error:
            reason = " ".join(str(error).split())
            raise CommandError(f"the database does not answer: {reason}") from error
