"""What the recent runs of jobs say about their schedules."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction

from apps.jobs import store
from apps.jobs.store import LongRuns
from apps.runs.days import RUN
from apps.runtime.sessions import Connection
from chrono.rules.errors import ChronoError
from chrono.rules.instants import Millis
from chrono.rules.keys import PAST_ID
from chrono.rules.partitions import partition_of
from chrono.rules.schedule import FixedDelay, period, schedule_from_json

LOOK = 500
"""How many jobs a page looks at: up to 20 runs of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRunning:
    """A job whose recent runs took longer than the time between two of its fires."""

    job_id: UUID
    key: str
    name: str
    period: Millis
    runs: LongRuns


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRunningPage:
    """Some of them, and after which job the next page goes on; None at the end."""

    items: list[LongRunning]
    next: UUID | None


def list_long_running(
    conn: Connection, *, tenant: int, now: Millis, after: UUID | None, limit: int
) -> LongRunningPage:
    """Return a tenant's jobs that run longer than their period, newest first.

    A page may be short, even empty, and yet have a ``next``: after 500 jobs it is given
    back. Paused jobs are left out.
    """
    before = PAST_ID if after is None else after
    looked = store.list_schedules(conn, tenant=tenant, before=before, limit=LOOK)
    periods = {
        job.id: length
        for job in looked
        if not job.paused
        and (length := period_of(json.loads(job.schedule), job.id)) is not None
    }
    found = find_long_runs(conn, periods, now=now)
    chosen = [job.id for job in looked if job.id in found]
    following = looked[-1].id if len(looked) == LOOK else None
    if len(chosen) > limit:
        chosen = chosen[:limit]
        following = chosen[-1]
    named = {job.id: job for job in store.load_jobs(conn, jobs=chosen, tenant=tenant)}
    items = [
        LongRunning(
            job_id=job,
            key=named[job].key,
            name=named[job].name,
            period=periods[job],
            runs=found[job],
        )
        for job in chosen
        if job in named
    ]
    return LongRunningPage(items=items, next=following)


def find_long_runs(
    conn: Connection, periods: Mapping[UUID, Millis], *, now: Millis
) -> dict[UUID, LongRuns]:
    """Return those of these jobs whose recent runs took longer than their period.

    ``conn`` is Django's own session.
    """
    if not periods:
        return {}
    looked = [(job, partition_of(job), length) for job, length in periods.items()]
    with transaction.atomic():
        store.forbid_sorts(conn)
        return store.list_long_runs(conn, periods=looked, since=now - RUN.kept)


def period_of(fields: Mapping[str, Any], job: UUID) -> Millis | None:
    """Return the least time between two fires of a job with these fields.

    None where it has none: a one-shot, a fixed delay, which counts from the end of a
    run, and a schedule that cannot be read.
    """
    try:
        schedule = schedule_from_json(fields, job_id=job)
        return None if isinstance(schedule, FixedDelay) else period(schedule)
    except ChronoError:
        return None
