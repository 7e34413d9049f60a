"""`manage.py chronoaudit`: ask the database whether what was promised holds."""

import sys
from argparse import ArgumentParser
from typing import Any
from uuid import UUID

import django.db
import psycopg
from django.core.management.base import BaseCommand, CommandError

from apps.jobs import store
from apps.jobs.audit import CHECKS, Report, Scope, examine
from apps.runtime.django_session import raw_connection
from apps.runtime.process import Waiter
from apps.tenants.directory import find_tenant
from chrono.rules.durations import parse_duration
from chrono.rules.errors import ChronoError
from chrono.rules.instants import SECOND

SHOWN = 10
EVERY = 1_000
"""Progress is told after so many jobs."""


class Command(BaseCommand):
    """Print a line for each check; exit with 1 if anything was found."""

    help = "Check every invariant of the stored data; exit with 1 if one is violated."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--since",
            default="1d",
            help="how far back to look, as 6h; up to 29d of the ledger and 6d of the "
            "runs are there (default: 1d)",
        )
        parser.add_argument(
            "--tenant", help="whose jobs (default: all, and the keys of `default`)"
        )
        parser.add_argument(
            "--jobs", nargs="+", metavar="JOB", help="keys or ids (default: all)"
        )
        parser.add_argument(
            "--pause",
            default="20ms",
            help="how long to rest after each batch (default: 20ms)",
        )

    def handle(
        self,
        *,
        since: str,
        tenant: str | None,
        jobs: list[str] | None,
        pause: str,
        **options: Any,
    ) -> None:
        try:
            scope = Scope(
                back=parse_duration(since, field="since"),
                tenant=None if tenant is None else find_tenant(tenant).pk,
                jobs=None if jobs is None else self._find(jobs, tenant or "default"),
            )
            rest = _Rest(parse_duration(pause, field="pause") / SECOND)
            report = examine(raw_connection(), scope, rest=rest, tell=_Progress(self))
        except ChronoError as error:
            raise CommandError(error.message) from None
        except (django.db.Error, psycopg.Error) as error:
            said = " ".join(str(error).split())
            raise CommandError(f"The database: {said}") from None
        self._print(report)
        if report.findings:
            sys.exit(1)

    def _find(self, names: list[str], tenant: str) -> tuple[UUID, ...]:
        found, keys = [], []
        for name in names:
            try:
                found.append(UUID(name))
            except ValueError:
                keys.append(name)
        ids = store.find_jobs(
            raw_connection(), tenant=find_tenant(tenant).pk, keys=keys
        )
        for key in keys:
            if key not in ids:
                raise CommandError(f"The tenant {tenant} has no job {key}.")
        return (*found, *ids.values())

    def _print(self, report: Report) -> None:
        for check in CHECKS:
            number = report.counts[check.name]
            verdict = f"{number} findings" if number else "ok"
            self.stdout.write(
                f"{check.code:<4} {check.name:<12} {verdict:<13} {check.says}"
            )
            if number:
                self._print_findings(report, check.name)
                self.stdout.write(f"  To do: {check.do}")
        for words in report.left_out:
            self.stdout.write(f"Not looked at: {words}.")
        self.stdout.write(
            f"chronoaudit: {report.counts.total()} findings in {report.jobs} jobs, "
            f"{report.occurrences} occurrences"
        )

    def _print_findings(self, report: Report, name: str) -> None:
        found = [one for one in report.findings if one.check.name == name]
        for finding in found[:SHOWN]:
            self.stdout.write(f"  {finding.subject} {finding.detail}")
        if report.counts[name] > SHOWN:
            self.stdout.write(f"  and {report.counts[name] - SHOWN} more")


class _Rest:
    """Waits between batches."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiter = Waiter()

    def __call__(self, seconds: float) -> None:
        self._waiter.wait(max(seconds, self._seconds))


class _Progress:
    """Says to stderr how far it is."""

    def __init__(self, command: BaseCommand) -> None:
        self._command = command
        self._told = 0

    def __call__(self, report: Report) -> None:
        if report.jobs - self._told < EVERY:
            return
        self._told = report.jobs
        self._command.stderr.write(
            f"chronoaudit: {report.jobs} jobs, {report.occurrences} occurrences, "
            f"{report.counts.total()} findings so far"
        )
