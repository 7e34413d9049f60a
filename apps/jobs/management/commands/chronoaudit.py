"""`manage.py chronoaudit`: ask the database whether what was promised holds."""

import sys
from argparse import ArgumentParser
from typing import Any

import django.db
import psycopg
from django.core.management.base import BaseCommand, CommandError

from apps.jobs.audit import run_checks
from apps.runtime.django_session import raw_connection
from chrono.rules.durations import parse_duration
from chrono.rules.errors import ChronoError
from chrono.rules.instants import DAY

SHOWN = 10


class Command(BaseCommand):
    """Print a line for each invariant; exit with 1 if one does not hold."""

    help = "Check every invariant of the stored data; exit with 1 if one is violated."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--window",
            default="1d",
            help="how far back to look, at most 7d (default: 1d)",
        )

    def handle(self, *, window: str, **options: Any) -> None:
        checks = violations = 0
        try:
            back = min(parse_duration(window, field="window"), 7 * DAY)
            for check, found in run_checks(raw_connection(), back):
                checks += 1
                violations += len(found)
                verdict = f"{len(found)} violations" if found else "ok"
                self.stdout.write(f"{check.name:<12} {verdict:<15} {check.says}")
                for violation in found[:SHOWN]:
                    self.stdout.write(f"  {violation.subject} {violation.detail}")
                if len(found) > SHOWN:
                    self.stdout.write(f"  and {len(found) - SHOWN} more")
        except ChronoError as error:
            raise CommandError(error.message) from None
        except (django.db.Error, psycopg.Error) as error:
            said = " ".join(str(error).split())
            raise CommandError(f"The database: {said}") from None
        self.stdout.write(f"chronoaudit: {checks} checks, {violations} violations")
        if violations:
            sys.exit(1)
