"""Very many pending timers, written in bulk by SQL: each is the next of its own job.

The jobs are as if made one after the other over months: their ids rise, and when their
timers are due has nothing to do with it. Some jobs, evenly chosen among all, have no
timer yet: :func:`plan_due` gives them one, again and again.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psycopg

from benchmarks.rig import make_room, now_ms
from chrono.rules.buckets import bucket_start
from chrono.rules.instants import DAY, HOUR, Millis, format_instant

FIRST_AFTER: Millis = HOUR
"""When the first of the far timers is due: long after all that is measured."""
SPREAD: Millis = 48 * HOUR
"""Over how long they are spread: about half of them lie beyond the horizon."""
STEP = 7_919
"""A prime: steps of it pass through all jobs, whose number is a power of ten."""
SESSIONS = 2
TABLES = ("chrono_job", "chrono_job_revision", "chrono_timer", "chrono_timer_far")
FUNCTIONS = """
    CREATE FUNCTION bench_id(n bigint) RETURNS uuid IMMUTABLE LANGUAGE sql RETURN (
        -- Version 7: milliseconds, the version, then what looks drawn.
        lpad(to_hex(1700000000000 + n * 800), 12, '0') || '7'
        || lpad(to_hex(n & 4095), 3, '0') || '8'
        || lpad(to_hex(hashint8extended(n, 0) & ((1::bigint << 60) - 1)), 15, '0')
    )::uuid;
    CREATE FUNCTION bench_part(id uuid) RETURNS smallint IMMUTABLE LANGUAGE sql
        RETURN (get_byte(sha256(uuid_send(id)), 0) & 63)::smallint;
    CREATE TABLE bench_due AS
        SELECT n, bench_id(n * {every}) AS id, bench_part(bench_id(n * {every})) AS part
        FROM generate_series(1, {due}) AS n;
"""
HORIZON = """
    SELECT (1000 * extract(epoch FROM horizon))::bigint FROM chrono_dispatch_state
"""
JOBS = """
    INSERT INTO chrono_job (
        id, tenant, key, name, part, version, revision, epoch, activated_at, paused,
        pause_note, created_at, updated_at
    ) SELECT id, 1, 'job-' || lpad(n::text, 8, '0'), '', bench_part(id), 1, 1, 0, now(),
        false, '', now(), now()
    FROM (
        SELECT n, bench_id(n) AS id FROM generate_series(1, {pending}) AS n OFFSET 0
    ) x
"""
# Whatever is fired has its next instant half a day later, in one of sixty minutes.
REVISIONS = """
    INSERT INTO chrono_job_revision (
        job_id, revision, schedule, jitter_window, overlap_policy, queue, priority,
        target, payload, retry_policy, created_at
    ) SELECT bench_id(n), 1, (
            '{{"interval": "24h", "starts_at": "{hour}:' || lpad((n % 60)::text, 2, '0')
            || ':00Z"}}'
        )::jsonb, 0, 'skip', 'default', 2,
        '{{"kind": "task", "name": "benchmarks.nothing"}}', 'null', '{{}}', now()
    FROM generate_series(1, {pending}) AS n
"""
# In the order in which they are due; each step goes to a job far from the last.
TIMERS = """
    INSERT INTO {table} (
        due_at, scheduled_for, ref, job_id, version, revision, part, kind
    ) SELECT due, due, id, id, 1, 1, bench_part(id), 1
    FROM (
        SELECT bench_id(n) AS id, to_timestamp(
            ({first} + k * {spread} / {pending}) / 1000.0) AS due
        FROM (
            SELECT k, 1 + k * {step} % {pending} AS n
            FROM generate_series({start}::bigint, {stop}::bigint - 1) AS k
        ) steps
        WHERE n % {every} <> 0 OR n > {every} * {due} OFFSET 0
    ) x
"""
PLAN = """
    INSERT INTO chrono_timer (
        due_at, scheduled_for, ref, job_id, version, revision, part, kind
    ) SELECT at, at, id, id, 1, 1, part, 1
    FROM (
        SELECT id, part, to_timestamp(
            (%(at)s + (n - 1) / %(together)s * %(gap)s::bigint) / 1000.0) AS at
        FROM bench_due
    ) x
"""
# What ran in the day up to now: one job after the other, each again and again.
HISTORY = (
    """
    INSERT INTO chrono_run (
        due_at, dispatched_at, started_at, finished_at, id, job_id, worker, fence,
        revision, tenant, part, state, priority, attempt, queue
    ) SELECT at, at, at, at, run, job, bench_id(0), 1, 1, 1, part, 1, 2, 1, 'default'
    FROM bench_history({runs}, {jobs}, {pending}, {now})
    """,
    """
    INSERT INTO chrono_occurrence (
        scheduled_for, decided_at, job_id, run_id, fence, version, revision, part,
        outcome, kind
    ) SELECT at, at, job, run, 1, 1, 1, part, 1, 1
    FROM bench_history({runs}, {jobs}, {pending}, {now})
    """,
)
HISTORIAN = """
    CREATE FUNCTION bench_run(n bigint, ms bigint, part smallint) RETURNS uuid
        IMMUTABLE LANGUAGE sql RETURN (
            -- As chrono.rules.keys has it: milliseconds, version, partition, a hash.
            lpad(to_hex(ms), 12, '0') || '8' || lpad(to_hex(part::integer << 6), 3, '0')
            || '8' || lpad(to_hex(
                (hashint8extended(n, 1) & ((1::bigint << 59) - 1)) << 1), 15, '0')
        )::uuid;
    CREATE FUNCTION bench_history(
        runs bigint, jobs bigint, pending bigint, now bigint
    ) RETURNS TABLE (run uuid, job uuid, part smallint, at timestamptz)
    LANGUAGE sql AS $$
        SELECT bench_run(n, m.ms, j.part), j.id, j.part, to_timestamp(m.ms / 1000.0)
        FROM (
            SELECT array_agg(id ORDER BY n) AS ids,
                array_agg(bench_part(id) ORDER BY n) AS parts
            FROM (
                SELECT n, bench_id(n * (pending / jobs)) AS id
                FROM generate_series(1, jobs) AS n OFFSET 0
            ) x
        ) a
        CROSS JOIN generate_series(0, runs - 1) AS n
        CROSS JOIN LATERAL (SELECT now - {day} + n * {day} / runs AS ms) m
        CROSS JOIN LATERAL (
            SELECT a.ids[1 + n % jobs] AS id, a.parts[1 + n % jobs] AS part
        ) j
    $$
"""
FORGET = """
    DELETE FROM chrono_timer t USING bench_due d
    WHERE t.part = d.part AND t.ref = d.id
        AND t.due_at >= to_timestamp(%s / 1000.0)
        AND t.due_at < to_timestamp(%s / 1000.0)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A database that is filled."""

    url: str
    pending: int
    due: int
    following: Millis
    """The hour in which whatever is fired is due again."""


def fill(url: str, *, pending: int, due: int) -> Filled:
    """Write so many jobs, all but ``due`` of them with a timer far ahead."""
    with psycopg.connect(url, autocommit=True) as conn:
        make_room(url, conn)
        [(horizon,)] = conn.execute(HORIZON).fetchall()
        now = now_ms(conn)
        following = bucket_start(now) + 12 * HOUR
        first = now + FIRST_AFTER
        facts = {
            "pending": pending,
            "due": due,
            "every": pending // due,
            "first": first,
            "spread": SPREAD,
            "step": STEP,
            "hour": format_instant(following - DAY).partition(":")[0],
        }
        near = {"table": "chrono_timer", "start": 0}
        near["stop"] = (horizon - first) * pending // SPREAD
        far = {"table": "chrono_timer_far", "start": near["stop"], "stop": pending}
        conn.execute(FUNCTIONS.format(**facts).encode())
        texts = [JOBS.format(**facts), REVISIONS.format(**facts)]
        texts += [TIMERS.format(**facts, **table) for table in (near, far)]
        with ThreadPoolExecutor(max_workers=SESSIONS) as pool:
            list(pool.map(lambda text: _write(url, text), texts))
            list(pool.map(lambda name: _write(url, f"VACUUM (ANALYZE) {name}"), TABLES))
        return Filled(url=url, pending=pending, due=due, following=following)


def fill_history(url: str, filled: Filled, *, runs: int, jobs: int) -> None:
    """Write so many runs of the last day, with the ledger, of some of the jobs."""
    with psycopg.connect(url, autocommit=True) as conn:
        facts = {
            "runs": runs,
            "jobs": min(jobs, filled.pending),
            "pending": filled.pending,
            "now": now_ms(conn),
        }
        conn.execute(HISTORIAN.format(day=DAY).encode())
    with ThreadPoolExecutor(max_workers=SESSIONS) as pool:
        list(pool.map(lambda text: _write(url, text.format(**facts)), HISTORY))
        tables = ("chrono_run", "chrono_occurrence")
        list(pool.map(lambda name: _write(url, f"VACUUM (ANALYZE) {name}"), tables))


def plan_due(
    conn: psycopg.Connection[Any],
    filled: Filled,
    *,
    at: Millis,
    together: int,
    gap: Millis,
) -> None:
    """Plan the jobs without a timer from ``at`` on: so many together, then a gap.

    What became of them the last time is forgotten, but for the ledger.
    """
    with conn.transaction():
        conn.execute("TRUNCATE chrono_ready")
        conn.execute(FORGET, [filled.following, filled.following + HOUR])
        conn.execute(PLAN, {"at": at, "together": together, "gap": gap})


def _write(url: str, text: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        # The keys to other tables are right; looking at each takes longer than writing.
        conn.execute("SET session_replication_role = replica")
        conn.execute(text.encode())
