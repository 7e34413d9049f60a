"""What the database says happened, read when everything has come to rest."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.rigs.ledger import Millis
from tests.support.pg import Connection

FIRED, LATE = 1, 2
SUCCESS, DEAD = 1, 3
PAUSED, OVERLAP, MISSED_SKIP, COLLAPSED, PAST_DEADLINE, WORKER_LOST = 1, 2, 4, 5, 6, 21


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A row of the ledger of occurrences."""

    job: str
    part: int
    scheduled_for: Millis
    last_for: Millis | None
    """The last of those it stands for, where it stands for several."""
    occurrences: int
    fired: bool
    late: bool
    """Whether it fired as one that was missed."""
    reason: int | None
    run: uuid.UUID | None
    fence: int
    version: int
    decided_at: float
    committed_at: float
    """Both in seconds; the commit as the server's own log of commits has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A settled run."""

    job: str
    id: uuid.UUID
    fence: int
    state: int
    attempt: int
    dispatched_at: float
    started_at: float
    finished_at: float

    @property
    def scheduled_for(self) -> Millis:
        """Its instant, which the first 48 bits of its id say."""
        return self.id.int >> 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A failed attempt."""

    run: uuid.UUID
    attempt: int
    error: str
    lost: bool
    """Whether it ended with its worker."""


type Lost = tuple[str, int]
"""A run's key and the number of an attempt that ended with its worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A run that was given up."""

    run: uuid.UUID
    attempt: int
    payload: Any
    errors: list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job as it is now."""

    key: str
    id: uuid.UUID
    version: int
    activated_at: Millis
    """The instant of the edit that its plan began with."""
    committed_at: float
    """When the last change of the row was committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session with the server, as the server shows it."""

    pid: int
    """Of the server's own process for it."""
    name: str
    state: str
    waits_by: str
    """What kind of thing it waits for; empty where it does not."""
    waits_for: str
    statement: str
    """The one that runs, or the last one."""


def read_decisions(conn: Connection, prefix: str = "") -> list[Decision]:
    """Return the ledger of the jobs whose key begins so, by instant."""
    rows = conn.execute(
        f"""
        SELECT j.key, o.part, {_millis("o.scheduled_for")},
            {_millis("o.last_scheduled_for")}, coalesce(o.occurrences, 1),
            o.outcome = {FIRED}, o.outcome = {FIRED} AND o.kind = {LATE}, o.reason,
            o.run_id, o.fence, o.version,
            extract(epoch FROM o.decided_at)::float8,
            extract(epoch FROM pg_catalog.pg_xact_commit_timestamp(o.xmin))::float8
        FROM chrono_occurrence o JOIN chrono_job j ON j.id = o.job_id
        WHERE o.attempt_group = 0 AND starts_with(j.key, %s)
        ORDER BY o.scheduled_for
        """,
        [prefix],
    ).fetchall()
    return [
        Decision(
            job=row[0],
            part=row[1],
            scheduled_for=row[2],
            last_for=row[3],
            occurrences=row[4],
            fired=row[5],
            late=row[6],
            reason=row[7],
            run=row[8],
            fence=row[9],
            version=row[10],
            decided_at=row[11],
            committed_at=row[12],
        )
        for row in rows
    ]


def read_runs(conn: Connection, prefix: str = "") -> list[Run]:
    """Return the settled runs of the jobs whose key begins so."""
    rows = conn.execute(
        """
        SELECT j.key, r.id, r.fence, r.state, r.attempt,
            extract(epoch FROM r.dispatched_at)::float8,
            extract(epoch FROM r.started_at)::float8,
            extract(epoch FROM r.finished_at)::float8
        FROM chrono_run r JOIN chrono_job j ON j.id = r.job_id
        WHERE starts_with(j.key, %s)
        """,
        [prefix],
    ).fetchall()
    return [
        Run(
            job=row[0],
            id=row[1],
            fence=row[2],
            state=row[3],
            attempt=row[4],
            dispatched_at=row[5],
            started_at=row[6],
            finished_at=row[7],
        )
        for row in rows
    ]


def read_lost(conn: Connection) -> set[Lost]:
    """Return the attempts that ended with their worker."""
    return {(str(each.run), each.attempt) for each in read_attempts(conn) if each.lost}


def read_attempts(conn: Connection) -> list[Attempt]:
    """Return all failed attempts, in the order of their numbers."""
    rows = conn.execute(
        "SELECT run_id, attempt, error, reason = %s FROM chrono_attempt "
        "ORDER BY run_id, attempt",
        [WORKER_LOST],
    ).fetchall()
    return [
        Attempt(run=run, attempt=number, error=error, lost=lost)
        for run, number, error, lost in rows
    ]


def read_dead_letters(conn: Connection) -> list[DeadLetter]:
    """Return all dead letters."""
    rows = conn.execute(
        "SELECT run_id, attempt, payload, errors FROM chrono_dead_letter"
    ).fetchall()
    return [
        DeadLetter(run=run, attempt=number, payload=payload, errors=errors)
        for run, number, payload, errors in rows
    ]


def read_jobs(conn: Connection) -> dict[str, JobRow]:
    """Return all jobs by key."""
    rows = conn.execute(f"""
        SELECT key, id, version, {_millis("activated_at")},
            extract(epoch FROM pg_catalog.pg_xact_commit_timestamp(xmin))::float8
        FROM chrono_job
    """).fetchall()
    return {
        row[0]: JobRow(
            key=row[0],
            id=row[1],
            version=row[2],
            activated_at=row[3],
            committed_at=row[4],
        )
        for row in rows
    }


def read_lags(conn: Connection) -> list[float]:
    """Return, sorted, how many ms after its due time each run's first attempt began.

    No job of the rigs has jitter, so a first attempt is due at its instant, which the
    first 48 bits of the run's id say.
    """
    rows = conn.execute("""
        SELECT (extract(epoch FROM started_at) * 1000 - (
            'x' || substr(replace(run::text, '-', ''), 1, 12)
        )::bit(48)::bigint)::float8 AS lag
        FROM (
            SELECT id AS run, started_at FROM chrono_run WHERE attempt = 1
            UNION ALL SELECT run_id, started_at FROM chrono_attempt
            WHERE attempt = 1 AND run_id NOT IN (
                SELECT id FROM chrono_run WHERE attempt = 1)
        ) first_attempt ORDER BY 1
    """).fetchall()
    return [lag for (lag,) in rows]


def count_live(conn: Connection) -> int:
    """Return how many runs are ready, in execution, or wait for another attempt."""
    [(number,)] = conn.execute("""
        SELECT (SELECT count(*) FROM chrono_ready)
            + (SELECT count(*) FROM chrono_lease)
            + (SELECT count(*) FROM chrono_timer WHERE kind <> 1)
            + (SELECT count(*) FROM chrono_timer_far WHERE kind <> 1)
    """).fetchall()
    return int(number)


def read_shares(conn: Connection) -> dict[str, int]:
    """Return how many partitions each owner took over last; none before the first."""
    rows = conn.execute("""
        SELECT owner, count(*) FROM chrono_partition
        WHERE taken_at IS NOT NULL GROUP BY owner
    """).fetchall()
    return dict(rows)


def read_fired(conn: Connection, prefix: str) -> list[float]:
    """Return when the fires of jobs whose key begins so were committed, in seconds."""
    rows = conn.execute(
        """
        SELECT extract(epoch FROM pg_catalog.pg_xact_commit_timestamp(o.xmin))::float8
        FROM chrono_occurrence o JOIN chrono_job j ON j.id = o.job_id
        WHERE o.outcome = %s AND starts_with(j.key, %s)
        ORDER BY 1
        """,
        [FIRED, prefix],
    ).fetchall()
    return [moment for (moment,) in rows]


def read_sessions(conn: Connection, ports: Sequence[int]) -> list[Session]:
    """Return the sessions that come from these ports."""
    rows = conn.execute(
        """
        SELECT pid, application_name, coalesce(state, ''),
            coalesce(wait_event_type, ''), coalesce(wait_event, ''), query
        FROM pg_stat_activity WHERE client_port = ANY(%s)
        """,
        [list(ports)],
    ).fetchall()
    return [
        Session(
            pid=pid,
            name=name,
            state=state,
            waits_by=waits_by,
            waits_for=waits_for,
            statement=statement,
        )
        for pid, name, state, waits_by, waits_for, statement in rows
    ]


def count_sessions(conn: Connection, name: str, waits_for: str) -> int:
    """Return how many sessions of this name wait for such a thing."""
    [(number,)] = conn.execute(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE application_name = %s AND wait_event = %s",
        [name, waits_for],
    ).fetchall()
    return int(number)


def count_gated(conn: Connection) -> int:
    """Return how many runs wait behind a gate."""
    [(number,)] = conn.execute("SELECT count(*) FROM chrono_blocked").fetchall()
    return int(number)


def count_timers(conn: Connection, before: Millis) -> int:
    """Return how many timers are due before an instant."""
    [(number,)] = conn.execute(
        """
        SELECT (SELECT count(*) FROM chrono_timer WHERE due_at <= m.at)
            + (SELECT count(*) FROM chrono_timer_far WHERE due_at <= m.at)
        FROM (SELECT to_timestamp(%s / 1000.0) AS at OFFSET 0) m
        """,
        [before],
    ).fetchall()
    return int(number)


def count_blocked(conn: Connection, name: str) -> int:
    """Return how many sessions of this name wait for a lock."""
    [(number,)] = conn.execute(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE application_name = %s AND wait_event_type = 'Lock'",
        [name],
    ).fetchall()
    return int(number)


def count_workers(conn: Connection) -> int:
    """Return how many workers are there and not taken for dead."""
    [(number,)] = conn.execute(
        "SELECT count(*) FROM chrono_worker WHERE stopped_at IS NULL AND NOT dead"
    ).fetchall()
    return int(number)


def _millis(column: str) -> str:
    return f"round(extract(epoch FROM {column}) * 1000)::bigint"
