"""Very many runs that are ready, written in bulk by SQL as if they had been fired."""

from collections.abc import Mapping
from typing import Any

import psycopg

from benchmarks.rig import NOTHING, now_ms, seed
from chrono.rules.instants import HOUR, format_instant

JOBS = 1_000
# The tenant's tags follow each other as they do in a backlog, from now on.
RUNS = """
    INSERT INTO chrono_ready (
        due_at, dispatched_at, run_id, job_id, tag, fence, revision, tenant, part,
        priority, attempt, slice, queue
    ) SELECT now(), now(), (
            -- As chrono.rules.keys has them: milliseconds, version, partition, a hash.
            lpad(to_hex((%(now)s::bigint)), 12, '0') || '8'
            || lpad(to_hex(j.part::integer << 6), 3, '0') || '8'
            || lpad(to_hex((hashint8extended(n, 0) & ((1::bigint << 59) - 1)) << 1),
                15, '0')
        )::uuid, j.id, %(now)s::bigint * 1000 + n * 1000, 1, 1, j.tenant, j.part, 2, 1,
        s.slice, 'default'
    FROM generate_series(1, %(count)s) AS n
    JOIN (
        SELECT id, tenant, part, ord FROM unnest(%(jobs)s::uuid[])
            WITH ORDINALITY AS x (id, ord) JOIN chrono_job USING (id)
    ) j ON j.ord = 1 + n %% %(of)s
    CROSS JOIN chrono_dispatch_state s
"""


def fill_ready(
    conn: psycopg.Connection[Any],
    count: int,
    *,
    target: Mapping[str, Any] = NOTHING,
    payload: object = None,
) -> None:
    """Write so many ready runs, of a thousand jobs of one tenant; all at once."""
    now = now_ms(conn)
    at = now + HOUR
    with conn.transaction():
        jobs = seed(
            conn,
            [at] * JOBS,
            [{"run_at": format_instant(at)}] * JOBS,
            overlap="allow_all",
            target=target,
            payload=payload,
        )
        conn.execute("DELETE FROM chrono_timer")
        conn.execute(RUNS, {"now": now, "count": count, "jobs": jobs, "of": JOBS})
