"""What a worker process is told when it starts."""

from dataclasses import dataclass
from typing import Any

from apps.worker.egress import Opening, parse_openings
from apps.worker.signature import key_of

DRAIN_S = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The options of the command and the settings it stands on, checked."""

    url: str
    """Of Postgres itself: hot sessions, locks and LISTEN do not go through a pooler."""
    queues: tuple[str, ...]
    concurrency: int
    openings: tuple[Opening, ...] = ()
    webhook_key: bytes | None = None
    drain_s: float = DRAIN_S
    alone: bool = False
    """Executes what was set aside, one run at a time, and ends when nothing is left."""
    hires: bool = False
    """Starts a process that is alone where something was set aside."""


def config_from(
    settings: Any, *, queues: tuple[str, ...], concurrency: int, alone: bool = False
) -> Config:
    """Return the configuration by Django's settings; raises ChronoError."""
    secret = settings.CHRONO_WEBHOOK_SECRET
    return Config(
        url=settings.CHRONO_DIRECT_DATABASE_URL,
        queues=queues,
        concurrency=1 if alone else concurrency,
        alone=alone,
        hires=not alone,
        openings=parse_openings(settings.CHRONO_EGRESS_ALLOW),
        webhook_key=key_of(secret) if secret else None,
    )
