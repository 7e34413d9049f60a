"""Is the process alive, may it get requests, and does the whole do its work?

Open to everybody, so none names a host, a tenant or a job.
"""

import logging
from typing import Any

import psycopg
from django import db
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from apps.api import store
from apps.jobs.watch_store import count_breaches
from apps.runtime.clock import skew
from apps.runtime.django_session import raw_connection, unapplied_migrations
from apps.runtime.sessions import Connection
from apps.runtime.store import find_old_snapshot
from apps.timers import firing
from chrono.rules.lease import LEASE_TTL
from chrono.rules.partitions import PARTITIONS

log = logging.getLogger("chrono.web")

SKEW_MS = 5_000

MOST_BREACHES = 100
"""So many breaches of jobs are counted; the number stands for that many or more."""

_OPEN = (
    "process {0.pid} of the database's server has held a snapshot for "
    "{0.seconds} s: dead rows stay until it ends; pg_terminate_backend({0.pid}) ends it"
)
_migrated = False


@require_safe
def livez(request: HttpRequest) -> JsonResponse:
    """Answer: this process answers."""
    return JsonResponse({"status": "ok"})


@require_safe
@never_cache
def readyz(request: HttpRequest) -> JsonResponse:
    """Answer 200 where a request would be served, else 503 with what is missing."""
    checks = {"database": "ok", "migrations": "ok"}
    try:
        if store.read_recovery(raw_connection()):
            checks["database"] = "in recovery"
        elif not _is_migrated():
            checks["migrations"] = "not applied"
    except (psycopg.Error, db.Error) as error:
        log.warning("not ready: %s", " ".join(str(error).split())[:300])
        checks["database"] = "unreachable"
    ready = all(said == "ok" for said in checks.values())
    return JsonResponse(
        {"status": "ok" if ready else "unavailable", "checks": checks},
        status=200 if ready else 503,
    )


@require_safe
@never_cache
def status(request: HttpRequest) -> JsonResponse:
    """Answer how the whole does; `problems` is empty where all is well."""
    try:
        found = _look(raw_connection())
    except (psycopg.Error, db.Error) as error:
        log.warning("no status: %s", " ".join(str(error).split())[:300])
        found = {"problems": ["the database does not answer"], "firing": "unknown"}
    well = not found["problems"]
    return JsonResponse({"status": "ok" if well else "degraded", **found})


@require_safe
@never_cache
def fires(request: HttpRequest) -> JsonResponse:
    """Answer 200 where all that is due fires, else 503 with what is the matter."""
    try:
        found = firing.look(raw_connection())
    except (psycopg.Error, db.Error) as error:
        log.warning("no status: %s", " ".join(str(error).split())[:300])
        state, says = "unknown", "The database does not answer."
    else:
        state, says = found.state, found.sentence
    return JsonResponse(
        {"firing": state, "says": says}, status=200 if state == "ok" else 503
    )


def _look(conn: Connection) -> dict[str, Any]:
    found = firing.look(conn)
    ready = store.list_oldest_ready(conn)
    workers = store.list_workers_alive(conn)
    ahead = round(skew(conn))
    snapshot = find_old_snapshot(conn)
    return {
        "problems": _problems(
            partitions=found.leaders.partitions,
            late=found.late,
            workers=workers,
            ahead=ahead,
        )
        + ([] if snapshot is None else [_OPEN.format(snapshot)]),
        "firing": found.state,
        "schedulers": found.leaders.schedulers,
        "partitions_led": found.leaders.partitions,
        "partitions": PARTITIONS,
        "oldest_due_lag_ms": found.late,
        "oldest_ready_age_ms": ready,
        "workers": [
            {
                "id": str(worker.id),
                "queues": list(worker.queues),
                "concurrency": worker.concurrency,
                "last_beat_age_ms": worker.beat_age,
            }
            for worker in workers
        ],
        "open_breaches": count_breaches(conn, limit=MOST_BREACHES),
        "clock_skew_ms": ahead,
    }


def _problems(
    *, partitions: int, late: int, workers: list[store.WorkerAlive], ahead: int
) -> list[str]:
    beating = [worker for worker in workers if worker.beat_age < LEASE_TTL]
    found = {
        f"{PARTITIONS - partitions} partitions have no leader": partitions < PARTITIONS,
        f"the oldest timer is {late} ms late": late > firing.LATE,
        "no worker beats": not beating,
        f"this node's clock is {ahead} ms from the database's": abs(ahead) > SKEW_MS,
    }
    return [text for text, holds in found.items() if holds]


def _is_migrated() -> bool:
    # What this code has cannot change while it runs, and nothing is unapplied again.
    global _migrated
    if not _migrated:
        _migrated = not unapplied_migrations()
    return _migrated
