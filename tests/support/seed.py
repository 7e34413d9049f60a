"""Rows laid straight into the tables, for tests of what comes after the fire."""

import itertools
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from chrono.rules.instants import Millis
from chrono.rules.keys import run_id
from chrono.rules.partitions import partition_of
from tests.support.pg import Connection

DUE: Millis = 1_764_428_400_000
"""2025-11-29T15:00:00Z; each ready row takes the next millisecond unless told."""

_instants = itertools.count(DUE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeededJob:
    """A job row with its one revision."""

    id: uuid.UUID
    part: int
    queue: str


def make_job(
    conn: Connection,
    *,
    target: Mapping[str, Any],
    payload: Any = None,
    retry_policy: Mapping[str, Any] | None = None,
    queue: str = "default",
    deleted: bool = False,
    policy: Mapping[str, Any] | None = None,
) -> SeededJob:
    """Write a job and its first revision; ``conn`` is an autocommit session."""
    job = uuid.uuid4()
    part = partition_of(job)
    conn.execute(
        """
        INSERT INTO chrono_job (id, tenant, key, name, part, version, revision, epoch,
            activated_at, paused, pause_note, created_at, updated_at, deleted_at)
        VALUES (%s, 1, %s, '', %s, 1, 1, 0, now(), false, '', now(), now(),
            CASE WHEN %s THEN now() END)
        """,
        [job, str(job), part, deleted],
    )
    conn.execute(
        """
        INSERT INTO chrono_job_revision (job_id, revision, schedule, jitter_window,
            overlap_policy, queue, priority, target, payload, retry_policy, policy,
            created_at)
        VALUES (%s, 1, '{}', 0, 'allow_all', %s, 2, %s, %s, %s, %s, now())
        """,
        [
            job,
            queue,
            Jsonb(dict(target)),
            None if payload is None else Jsonb(payload),
            Jsonb(dict(retry_policy or {})),
            Jsonb(dict(policy or {})),
        ],
    )
    return SeededJob(id=job, part=part, queue=queue)


def make_ready(
    conn: Connection,
    job: SeededJob,
    *,
    count: int = 1,
    attempt: int = 1,
    priority: int = 2,
    due_at: Millis | None = None,
    fence: int = 1,
    group: int = 0,
) -> list[uuid.UUID]:
    """Write ``count`` runs of a job into ready; return their ids in claim order."""
    instants = [
        next(_instants) if due_at is None else due_at + offset
        for offset in range(count)
    ]
    runs = [run_id(job.id, instant, group, job.part) for instant in instants]
    conn.execute(
        """
        INSERT INTO chrono_ready (due_at, dispatched_at, run_id, job_id, tag, fence,
            revision, tenant, part, priority, attempt, slice, queue)
        SELECT to_timestamp(instant / 1000.0::float8), clock_timestamp(), run, %s,
            instant, %s, 1, 1, %s, %s, %s, 0, %s
        FROM unnest(%s::bigint[], %s::uuid[]) AS r (instant, run)
        """,
        [job.id, fence, job.part, priority, attempt, job.queue, instants, runs],
    )
    return runs


def make_skip(
    conn: Connection,
    job: SeededJob,
    at: Millis,
    *,
    reason: int,
    count: int = 1,
    last: Millis | None = None,
    group: int = 0,
) -> None:
    """Write a skipped occurrence of a job, or a stretch of them, into the ledger."""
    conn.execute(
        """
        INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence, version,
            revision, attempt_group, part, outcome, kind, reason, occurrences,
            last_scheduled_for)
        VALUES (to_timestamp(%s / 1000.0), %s, %s, 0, 1, 1, %s, %s, 2, 1, %s,
            nullif(%s, 1), to_timestamp(%s / 1000.0))
        """,
        [
            at,
            job.id,
            run_id(job.id, at, group, job.part),
            group,
            job.part,
            reason,
            count,
            last,
        ],
    )


def make_ended(
    conn: Connection,
    job: SeededJob,
    at: Millis,
    *,
    state: int = 1,
    ended: Millis | None = None,
    error: str = "it broke",
    group: int = 0,
    table: str = "chrono_run",
) -> uuid.UUID:
    """Write a fired run that is over, a dead one with its dead letter; return its id.

    It ended a second after its instant unless told.
    """
    run = run_id(job.id, at, group, job.part)
    values = {
        "at": at,
        "job": job.id,
        "run": run,
        "group": group,
        "part": job.part,
        "state": state,
        "reason": None if state == 1 else 16,
        "ended": at + 1_000 if ended is None else ended,
        "queue": job.queue,
        "errors": Jsonb([{"attempt": 1, "error": error}]),
    }
    conn.execute(
        """
        INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence, version,
            revision, attempt_group, part, outcome, kind)
        VALUES (to_timestamp(%(at)s / 1000.0), %(job)s, %(run)s, 1, 1, 1, %(group)s,
            %(part)s, 1, 1)
        """,
        values,
    )
    conn.execute(
        f"""
        INSERT INTO {table} (due_at, dispatched_at, started_at, finished_at, id,
            job_id, fence, revision, tenant, part, state, reason, priority, attempt,
            queue)
        VALUES (to_timestamp(%(at)s / 1000.0), to_timestamp(%(at)s / 1000.0),
            to_timestamp(%(at)s / 1000.0), to_timestamp(%(ended)s / 1000.0), %(run)s,
            %(job)s, 1, 1, 1, %(part)s, %(state)s, %(reason)s, 2, 1, %(queue)s)
        """,
        values,
    )
    if state == 3:
        conn.execute(
            """
            INSERT INTO chrono_dead_letter (run_id, part, tenant, job_id, revision,
                queue, reason, attempt, died_at, errors)
            VALUES (%(run)s, %(part)s, 1, %(job)s, 1, %(queue)s, 16, 1,
                to_timestamp(%(ended)s / 1000.0), %(errors)s)
            """,
            values,
        )
    return run
