"""`manage.py chronoforecast`: how many runs are to come."""

from argparse import ArgumentParser
from typing import Any

import django.db
import psycopg
from django.core.management.base import BaseCommand, CommandError

from apps.jobs.forecast import Forecast, foretell
from apps.runtime.django_session import raw_connection
from apps.runtime.store import read_clock
from apps.tenants.directory import find_tenant
from chrono.rules.durations import parse_duration
from chrono.rules.errors import ChronoError
from chrono.rules.forecast import WIDTHS, Stretch, stretch_of
from chrono.rules.instants import Millis, format_instant, parse_instant

MOST_ROWS = 1_440


class Command(BaseCommand):
    """Print a row for each bin of a stretch: nominal, and due after jitter."""

    help = "Count the runs that the schedules will bring, hour by hour."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--tenant", default="default", help="whose jobs (default: default)"
        )
        parser.add_argument(
            "--per", choices=list(WIDTHS), default="hour", help="the width of a row"
        )
        parser.add_argument("--from", dest="start", help="an instant (default: now)")
        parser.add_argument(
            "--for", dest="length", default="24h", help="how long (default: 24h)"
        )

    def handle(self, *, tenant: str, **options: Any) -> None:
        try:
            conn = raw_connection()
            stretch = _stretch(options, now=int(read_clock(conn)))
            found = foretell(conn, tenant=find_tenant(tenant).pk, stretch=stretch)
        except ChronoError as error:
            raise CommandError(error.message) from None
        except (django.db.Error, psycopg.Error) as error:
            said = " ".join(str(error).split())
            raise CommandError(f"The database: {said}") from None
        self.stdout.write(f"{'UTC':<20}{'nominal':>12}{'due':>12}")
        for at, nominal, due in found.rows():
            when = format_instant(at).replace("T", " ").removesuffix("Z")
            self.stdout.write(f"{when:<20}{nominal:>12}{due:>12}")
        sums = sum(found.nominal), sum(found.due)
        self.stdout.write(f"{'sum':<20}{sums[0]:>12}{sums[1]:>12}")
        self.stdout.write(_counted(found))


def _stretch(options: dict[str, Any], *, now: Millis) -> Stretch:
    width = WIDTHS[options["per"]]
    given = options["start"]
    start = now if given is None else parse_instant(given, field="from")
    start = start // width * width
    length = parse_duration(options["length"], field="for")
    return stretch_of(start=start, end=start + length, width=width, most=MOST_ROWS)


def _counted(found: Forecast) -> str:
    parts = [f"{found.jobs} jobs counted"]
    if found.unpredictable:
        parts.append(
            f"{found.unpredictable} left out: a fixed delay cannot be foretold"
        )
    if found.broken:
        parts.append(f"{found.broken} left out: their schedule cannot be read")
    if found.last_job is not None:
        parts.append(f"broken off after {found.last_job}: all older jobs are left out")
    return "; ".join(parts) + "."
