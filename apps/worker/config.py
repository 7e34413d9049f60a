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


def config_from(settings: Any, *, queues: tuple[str, ...], concurrency: int) -> Config:
    """Return the configuration by Django's settings; raises ChronoError."""
    secret = settings.CHRONO_WEBHOOK_SECRET
    return Config(
        url=settings.CHRONO_DIRECT_DATABASE_URL,
        queues=queues,
        concurrency=concurrency,
        openings=parse_openings(settings.CHRONO_EGRESS_ALLOW),
        webhook_key=key_of(secret) if secret else None,
    )
