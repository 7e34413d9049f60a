"""`manage.py chronoapply FILE`: make the jobs what a file says."""

from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from typing import Any

import django.db
import psycopg
from django.core.management.base import BaseCommand, CommandError

from apps.jobs.applying import apply
from apps.jobs.editing import Outcome
from apps.jobs.listing import read_list
from apps.tenants.actor import Actor
from chrono.rules.errors import ChronoError

ACTOR = Actor.command("chronoapply")
LONGEST_FILE = 64 * 1024 * 1024
WORDS = ("created", "changed", "unchanged", "paused", "resumed", "deleted")


class Command(BaseCommand):
    """Create, change, pause, resume and delete jobs by a file; repeat it at will."""

    help = (
        "Make the jobs what FILE (a YAML or JSON list) says. What is right already is "
        "left alone; one bad entry and nothing is changed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path)
        parser.add_argument(
            "--dry-run", action="store_true", help="say what would be done, and stop"
        )

    def handle(self, *, file: Path, dry_run: bool, **options: Any) -> None:
        try:
            outcomes = apply(read_list(_read(file)), dry_run=dry_run, actor=ACTOR)
        except ChronoError as error:
            raise CommandError(f"{file}: {error.message}") from None
        except (django.db.Error, psycopg.Error) as error:
            raise CommandError(f"The database: {_one_line(error)}") from None
        if dry_run:
            for outcome in outcomes:
                self.stdout.write(f"{outcome.key}: {', '.join(outcome.actions)}")
        self.stdout.write(("would be: " if dry_run else "") + _summary(outcomes))


def _read(file: Path) -> str:
    try:
        if file.is_file() and file.stat().st_size > LONGEST_FILE:
            raise CommandError(f"{file}: It is larger than 64 MiB.")
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise CommandError(f"{file}: It is not UTF-8 text.") from None


def _summary(outcomes: list[Outcome]) -> str:
    counts = Counter(action for outcome in outcomes for action in outcome.actions)
    said = [f"{word} {counts[word]}" for word in WORDS if counts[word]]
    return ", ".join(said) or "nothing to do"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
