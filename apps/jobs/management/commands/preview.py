"""`manage.py preview`: when a schedule would fire, before anybody saves it."""

import json
import sys
import time
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandParser

from chrono.rules.errors import ChronoError
from chrono.rules.instants import parse_instant
from chrono.rules.preview import preview


class Command(BaseCommand):
    """Print the next fires of a schedule; looks at no database."""

    help = "Show when a cron expression fires, and what about it may surprise."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the schedule's fields as options."""
        parser.add_argument("expression", help="five columns, or @daily, @every 90s …")
        parser.add_argument("--timezone", default="UTC", help="an IANA name")
        parser.add_argument("--after", help="an instant; the default is now")
        parser.add_argument("--count", type=int, default=10)
        parser.add_argument("--seconds", action="store_true", help="six columns")
        parser.add_argument("--dst-gap", choices=["shift", "skip"], default="shift")
        parser.add_argument(
            "--dst-fold", choices=["first", "second", "both"], default="first"
        )
        parser.add_argument("--job-id", type=UUID, default=UUID(int=0), help="for H")
        parser.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the preview; exit with 1 if the schedule is not valid."""
        answer = self._preview(options)
        failed = "error" in answer
        if options["json"]:
            self.stdout.write(json.dumps(answer, ensure_ascii=False))
        elif failed:
            error = answer["error"]
            self.stderr.write(f"{error['code']}: {error['message']}")
        else:
            for fire, local in zip(answer["fires"], answer["local"], strict=True):
                self.stdout.write(f"{fire}  {local}")
            for warning in answer["warnings"]:
                self.stdout.write(f"{warning['code']}: {warning['text']}")
        if failed:
            sys.exit(1)

    @staticmethod
    def _preview(options: dict[str, Any]) -> dict[str, Any]:
        try:
            after = (
                # Only a default for a person's eyes; nothing is decided by it.
                int(time.time() * 1000)  # noqa: TID251
                if options["after"] is None
                else parse_instant(options["after"], field="after")
            )
        except ChronoError as error:
            return {
                "error": {
                    "code": error.code,
                    "message": error.message,
                    "field": error.field,
                }
            }
        return preview(
            options["expression"],
            after=after,
            timezone=options["timezone"],
            count=options["count"],
            seconds=options["seconds"],
            dst_gap=options["dst_gap"],
            dst_fold=options["dst_fold"],
            job_id=options["job_id"],
        )
