"""System checks of what a worker stands on: its tasks and its settings."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error

from apps.worker.egress import parse_openings
from apps.worker.signature import key_of
from chrono import tasks
from chrono.rules.errors import ChronoError


def check_tasks(app_configs: Any = None, **kwargs: Any) -> Sequence[CheckMessage]:
    """Return an error for each name that two tasks claim."""
    return [
        Error(
            f"Two tasks are named {duplicate.name}: {tasks.where(duplicate.first)} "
            f"and {tasks.where(duplicate.second)}.",
            hint="Jobs find a task by its name: give one of them another.",
            id="chrono.worker.E001",
        )
        for duplicate in tasks.discover().duplicates
    ]


def check_settings(app_configs: Any = None, **kwargs: Any) -> Sequence[CheckMessage]:
    """Return an error for each setting that workers could not use."""
    found: list[CheckMessage] = []
    try:
        parse_openings(settings.CHRONO_EGRESS_ALLOW)
    except ChronoError as error:
        found.append(Error(error.message, id="chrono.worker.E002"))
    try:
        if settings.CHRONO_WEBHOOK_SECRET:
            key_of(settings.CHRONO_WEBHOOK_SECRET)
    except ChronoError as error:
        found.append(
            Error(f"CHRONO_WEBHOOK_SECRET: {error.message}", id="chrono.worker.E003")
        )
    return found
