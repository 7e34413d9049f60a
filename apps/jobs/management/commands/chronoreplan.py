"""`manage.py chronoreplan`: what to do after an update of the time zone data."""

from argparse import ArgumentParser
from typing import Any

import django.db
import psycopg
from django.core.management.base import BaseCommand, CommandError

from apps.jobs.replanning import replan_moved
from apps.tenants.actor import Actor
from chrono.rules.errors import ChronoError
from chrono.rules.zones import data_version

ACTOR = Actor.command("chronoreplan")


class Command(BaseCommand):
    """Print a line for each time zone whose jobs were planned anew."""

    help = (
        "Plan the cron jobs anew whose next instant is another one by the time zone "
        "data that is installed. Run it once every scheduler has that data."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--dry-run", action="store_true", help="say what would be done, and stop"
        )

    def handle(self, *, dry_run: bool, **options: Any) -> None:
        data = f"tzdata {data_version()}"
        try:
            counts = replan_moved(
                dry_run=dry_run,
                actor=ACTOR,
                reason=f"The rules of its time zone have changed: {data}.",
            )
        except ChronoError as error:
            raise CommandError(error.message) from None
        except (django.db.Error, psycopg.Error) as error:
            said = " ".join(str(error).split())
            raise CommandError(f"The database: {said}") from None
        for zone in sorted(counts):
            self.stdout.write(f"{zone}: {counts[zone]}")
        verb = "would be replanned" if dry_run else "replanned"
        self.stdout.write(f"chronoreplan: {counts.total()} jobs {verb}, by {data}")
