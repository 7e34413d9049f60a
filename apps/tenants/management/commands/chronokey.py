"""`manage.py chronokey`: make, list, rotate and revoke API keys from a shell."""

from argparse import ArgumentParser
from typing import Any

import django.db
import psycopg
from django.core.management.base import BaseCommand, CommandError

from apps.runtime import store as runtime
from apps.runtime.django_session import raw_connection
from apps.tenants import keys
from apps.tenants.actor import Actor, Scope
from apps.tenants.directory import find_tenant
from apps.tenants.models import ApiKey
from chrono.rules.durations import parse_duration
from chrono.rules.errors import ChronoError
from chrono.rules.instants import Millis

ACTOR = Actor.command("chronokey")


class Command(BaseCommand):
    """The key itself is the one line of standard output; all else is said beside it."""

    help = (
        "Make, list, rotate and revoke API keys. A key is shown when it is made only."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--tenant", default="default", help="whose keys (default: default)"
        )
        verbs = parser.add_subparsers(dest="verb", required=True)
        issue = verbs.add_parser("issue", help="make a key and show it once")
        issue.add_argument("name", help="what or whom it is for")
        issue.add_argument(
            "--scopes",
            default="read",
            help=f"comma-separated, of {', '.join(Scope)} (default: read)",
        )
        verbs.add_parser("list", help="show all keys, newest first")
        rotate = verbs.add_parser("rotate", help="make a key's successor")
        revoke = verbs.add_parser("revoke", help="end a key for good")
        for verb in (issue, rotate):
            verb.add_argument("--expires", help="after which time it ends, as 90d")
        for verb in (rotate, revoke):
            verb.add_argument("id", help="the 8 characters after chr_live_")
            verb.add_argument("--reason", default="", help="kept in the audit")

    def handle(self, *, verb: str, tenant: str, **options: Any) -> None:
        try:
            getattr(self, f"_{verb}")(find_tenant(tenant).pk, options)
        except ChronoError as error:
            raise CommandError(error.message) from None
        except (django.db.Error, psycopg.Error) as error:
            said = " ".join(str(error).split())
            raise CommandError(f"The database: {said}") from None

    def _issue(self, tenant: int, options: dict[str, Any]) -> None:
        issued = keys.issue(
            tenant=tenant,
            name=options["name"],
            scopes=[word.strip() for word in options["scopes"].split(",")],
            expires_at=_expiry(options["expires"]),
            actor=ACTOR,
        )
        self._show(issued, "made")

    def _rotate(self, tenant: int, options: dict[str, Any]) -> None:
        issued = keys.rotate(
            options["id"],
            tenant=tenant,
            expires_at=_expiry(options["expires"]),
            actor=ACTOR,
            reason=options["reason"],
        )
        self._show(issued, f"made; {options['id']} works until it is revoked")

    def _revoke(self, tenant: int, options: dict[str, Any]) -> None:
        key = keys.revoke(
            options["id"], tenant=tenant, actor=ACTOR, reason=options["reason"]
        )
        self.stdout.write(f"key {key.id} is revoked")

    def _list(self, tenant: int, options: dict[str, Any]) -> None:
        rows = ApiKey.scoped(tenant).order_by("-created_at", "id")
        for shown in map(keys.public, rows):
            state = "revoked" if shown["revoked_at"] else "issued"
            facts = [
                f"{state} {shown['revoked_at'] or shown['created_at']}",
                f"expires {shown['expires_at'] or 'never'}",
                f"used {shown['last_used_at'] or 'never'}",
                *([f"replaces {shown['replaces']}"] if shown["replaces"] else []),
            ]
            scopes = ",".join(shown["scopes"])
            self.stdout.write(
                f"{shown['id']} {shown['name']} [{scopes}] {facts[0]}, "
                + ", ".join(facts[1:])
            )

    def _show(self, issued: keys.Issued, done: str) -> None:
        self.stderr.write(f"key {issued.key.id} {done}; this is shown once:")
        self.stdout.write(issued.text)


def _expiry(text: str | None) -> Millis | None:
    if text is None:
        return None
    lasts = parse_duration(text, field="expires")
    return int(runtime.read_clock(raw_connection())) + lasts
