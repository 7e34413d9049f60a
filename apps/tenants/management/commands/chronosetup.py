"""`manage.py chronosetup`: whatever a new installation lacks to be entered."""

import os
import secrets
from argparse import ArgumentParser
from typing import Any

import django.db
import psycopg
from django.contrib.auth import get_user_model
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from apps.runtime.django_session import raw_connection
from apps.tenants import audit, keys
from apps.tenants.actor import Actor, Scope
from apps.tenants.event import Event
from apps.tenants.models import DEFAULT_TENANT, ApiKey, Tenant
from chrono.rules.errors import ChronoError

ACTOR = Actor.command("chronosetup")
KEY_NAME = "first"
SCOPES = (Scope.OPERATE, Scope.WRITE, Scope.ADMIN)


class Command(BaseCommand):
    """Make an administrator and a key where there is none; say each secret once."""

    help = (
        "Make the first administrator and the first API key, and print both once. "
        "Where there are some it does nothing, so every release may run it. "
        "DJANGO_SUPERUSER_USERNAME and DJANGO_SUPERUSER_PASSWORD choose the login; "
        "a password that was given is not printed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--no-key",
            action="store_true",
            help="make no key: where the output is kept, as a release's is",
        )

    def handle(self, *, no_key: bool, **options: Any) -> None:
        try:
            with transaction.atomic():
                # Two releases at once make one of each; jobs are made meanwhile.
                rows = Tenant.objects.select_for_update(no_key=True)
                rows.get(pk=DEFAULT_TENANT)
                said = [self._administrator(), *([] if no_key else [self._key()])]
        except ChronoError as error:
            raise CommandError(error.message) from None
        except (django.db.Error, psycopg.Error) as error:
            reason = " ".join(str(error).split())
            raise CommandError(f"The database: {reason}") from None
        # After the commit: a login that is shown can be used.
        for line in said:
            self.stdout.write(line)

    def _administrator(self) -> str:
        users = get_user_model()
        if users.objects.filter(is_superuser=True, is_active=True).exists():
            return "admin: there is a login already"
        name = os.environ.get("DJANGO_SUPERUSER_USERNAME", "").strip() or "admin"
        given = os.environ.get("DJANGO_SUPERUSER_PASSWORD", "")
        password = given or secrets.token_urlsafe(15)
        try:
            validate_password(password)
        except ValidationError as error:
            raise CommandError(
                f"DJANGO_SUPERUSER_PASSWORD: {' '.join(error.messages)}"
            ) from None
        if users.objects.filter(username=name).exists():
            raise CommandError(
                f"There is a user {name} who is no administrator: "
                "choose another DJANGO_SUPERUSER_USERNAME."
            )
        users.objects.create_superuser(username=name, email="", password=password)
        event = Event(
            tenant=DEFAULT_TENANT,
            action="user.create",
            object_kind="user",
            object_id=name,
            after={"username": name, "is_superuser": True},
        )
        audit.record(raw_connection(), actor=ACTOR, events=[event])
        if given:
            return f"admin: login {name}, with the given password"
        return f"admin: login {name}, password {password} (shown once)"

    def _key(self) -> str:
        if ApiKey.scoped(DEFAULT_TENANT).exists():
            return "key: there is one already; chronokey makes more"
        issued = keys.issue(
            tenant=DEFAULT_TENANT, name=KEY_NAME, scopes=SCOPES, actor=ACTOR
        )
        return f"key: {issued.text} (shown once)"
