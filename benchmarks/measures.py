"""One function a figure; each returns plain numbers with their n."""

import contextlib
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg

from benchmarks.rig import (
    Meter,
    Rig,
    Stack,
    now_ms,
    seed_intervals,
    seed_one_shots,
    stack,
)
from chrono.rules.instants import Millis, from_millis

OFFERED = 35_000
"""Jobs of every second: more than can be served."""
OVERLAPS = {"plain": "allow_all", "default": "skip"}
LEAD_MS = 1_500
SETTLED_S = 10.0
"""After this what was just started has made its room."""
LAGS = """
    SELECT count(*),
        1000 * percentile_cont(0.5) WITHIN GROUP (
            ORDER BY extract(epoch FROM started_at - due_at)),
        1000 * percentile_cont(0.99) WITHIN GROUP (
            ORDER BY extract(epoch FROM started_at - due_at))
    FROM chrono_run WHERE due_at >= %s AND due_at < %s
"""


@dataclass(slots=True, kw_only=True)
class Stage:
    """Running processes on a database of their own, a session to look, a meter."""

    conn: psycopg.Connection[Any]
    running: Stack
    meter: Meter


@contextlib.contextmanager
def measured(
    bench: Rig,
    *,
    url: str | None = None,
    workers: int = 2,
    concurrency: int = 800,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Stage]:
    """Yield a stage; its processes end in the end, and its database goes.

    The database of ``url``, where there is one, stays. The other options are those of
    :func:`benchmarks.rig.stack`.
    """
    with (
        contextlib.nullcontext(url) if url else bench.database() as where,
        psycopg.connect(where, autocommit=True) as conn,
        stack(
            where, workers=workers, concurrency=concurrency, settings=settings
        ) as running,
    ):
        meter = Meter(conn, bench.server, running)
        yield Stage(conn=conn, running=running, meter=meter)


def throughput(
    stage: Stage, *, jobs: int, overlap: str, seconds: float
) -> dict[str, Any]:
    """Runs settled a second with more jobs of one second than can be served.

    More may be fired than are settled, or the other way round; what a run costs is
    divided by the mean of both.
    """
    start = next_second(now_ms(stage.conn))
    seed_intervals(stage.conn, jobs, overlap=overlap, start=start)
    wait_for_runs(stage.conn, 1_000, since=start)
    before = count_runs(stage.conn, since=start)
    live = _count_live(stage.conn)
    stage.meter.start()
    time.sleep(seconds)
    cost = stage.meter.stop()
    settled = count_runs(stage.conn, since=start) - before
    fired = settled + _count_live(stage.conn) - live
    [(skipped,)] = stage.conn.execute(
        "SELECT count(*) FROM chrono_occurrence "
        "WHERE outcome = 2 AND scheduled_for >= %s",
        [from_millis(start)],
    ).fetchall()
    runs = (settled + fired) / 2
    memory = stage.running.memory_mb()
    return {
        "n": settled,
        "runs_per_s": round(settled / cost["seconds"]),
        "fired_per_s": round(fired / cost["seconds"]),
        "offered_per_s": jobs,
        "skipped": skipped,
        "server_us_per_run": round(cost["server_cpu"] / runs * 1e6, 1),
        "client_us_per_run": round(cost["client_cpu"] / runs * 1e6, 1),
        "wal_bytes_per_run": round(cost["wal"] / runs),
        "memory_mb": memory,
    }


def start_lag(stage: Stage, *, rate: int, seconds: float) -> dict[str, Any]:
    """Start lag of a steady rate, started_at - due_at of every run; then all is over.

    The first second is left out: it warms plans and caches.
    """
    start = next_second(now_ms(stage.conn))
    jobs = seed_intervals(stage.conn, rate, overlap="allow_all", start=start)
    begin, end = start + 1_000, start + 1_000 + int(seconds * 1_000)
    sleep_until(stage.conn, end + 300)
    [(n, p50, p99)] = _lags(stage.conn, begin, end)
    end_jobs(stage.conn, jobs)
    return {"n": n, "expected": int(rate * seconds), **in_ms(p50, p99)}


def burst(stage: Stage, *, count: int, limit: float = 60.0) -> dict[str, Any]:
    """Everything due at one instant: seconds until all are ready, and executed."""
    before = count_runs(stage.conn)
    at = next_second(now_ms(stage.conn)) + count // 25
    seed_one_shots(stage.conn, count, at=at)
    deadline = time.monotonic() + limit
    while count_runs(stage.conn) < before + count and time.monotonic() < deadline:
        time.sleep(0.1)
    [(n, p50, p99)] = _lags(stage.conn, at, at + 1)
    due = datetime.fromtimestamp(at / 1000, UTC)
    [(ready, done)] = stage.conn.execute(
        "SELECT extract(epoch FROM max(dispatched_at) - %(due)s), "
        "extract(epoch FROM max(finished_at) - %(due)s) FROM chrono_run "
        "WHERE due_at = %(due)s",
        {"due": due},
    ).fetchall()
    return {
        "n": n,
        "expected": count,
        "all_ready_s": round(float(ready), 3),
        "all_executed_s": round(float(done), 3),
        **in_ms(p50, p99),
    }


def idle(stage: Stage, *, seconds: float) -> dict[str, Any]:
    """Statements and WAL a second of one scheduler and two workers, nothing due.

    Every statement of an idle system is a transaction of its own. What a start makes,
    hours' and days' tables above all, is not counted.
    """
    time.sleep(SETTLED_S)
    stage.meter.start()
    before = statements(stage.conn)
    time.sleep(seconds)
    cost = stage.meter.stop()
    done = statements(stage.conn) - before
    return {
        "n": done,
        "statements_per_s": round(done / cost["seconds"], 2),
        "wal_bytes_per_s": round(cost["wal"] / cost["seconds"]),
        "client_cpu_share": round(cost["client_cpu"] / cost["seconds"], 4),
    }


def end_jobs(conn: psycopg.Connection[Any], jobs: Sequence[uuid.UUID]) -> None:
    """End these jobs as an edit would: nothing of them fires after this."""
    with conn.transaction():
        conn.execute(
            "SELECT FROM chrono_job WHERE id = ANY(%s) ORDER BY id FOR UPDATE",
            [list(jobs)],
        )
        conn.execute("SELECT FROM chrono_partition ORDER BY id FOR UPDATE")
        conn.execute("UPDATE chrono_partition SET epoch = epoch + 1")
        conn.execute(
            "UPDATE chrono_job j SET paused = true, version = version + 1, "
            "epoch = p.epoch FROM chrono_partition p "
            "WHERE p.id = j.part AND j.id = ANY(%s)",
            [list(jobs)],
        )


def statements(conn: psycopg.Connection[Any]) -> int:
    """Return how many statements were called in this database so far."""
    [(count,)] = conn.execute(
        "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE dbid = "
        "(SELECT oid FROM pg_database WHERE datname = current_database())"
    ).fetchall()
    return int(count)


def count_runs(conn: psycopg.Connection[Any], *, since: Millis = 0) -> int:
    """Return how many runs of an instant since then are over."""
    [(count,)] = conn.execute(
        "SELECT count(*) FROM chrono_run WHERE id >= %s", [uuid.UUID(int=since << 80)]
    ).fetchall()
    return int(count)


def _count_live(conn: psycopg.Connection[Any]) -> int:
    """Return how many runs were fired and are not over."""
    [(count,)] = conn.execute(
        "SELECT (SELECT count(*) FROM chrono_ready) + "
        "(SELECT count(*) FROM chrono_lease)"
    ).fetchall()
    return int(count)


def wait_for_runs(
    conn: psycopg.Connection[Any],
    count: int,
    *,
    since: Millis = 0,
    within: float = 30.0,
) -> None:
    """Return once so many runs are over; SystemExit where that takes longer."""
    deadline = time.monotonic() + within
    while count_runs(conn, since=since) < count:
        if time.monotonic() > deadline:
            raise SystemExit("nothing runs: see the processes' messages above")
        time.sleep(0.1)


def _lags(conn: psycopg.Connection[Any], begin: int, end: int) -> list[tuple[Any, ...]]:
    return conn.execute(
        LAGS,
        [
            datetime.fromtimestamp(begin / 1000, UTC),
            datetime.fromtimestamp(end / 1000, UTC),
        ],
    ).fetchall()


def in_ms(p50: float | None, p99: float | None) -> dict[str, float | None]:
    return {
        "start_lag_p50_ms": None if p50 is None else round(float(p50), 1),
        "start_lag_p99_ms": None if p99 is None else round(float(p99), 1),
    }


def next_second(now: int) -> int:
    return (now + LEAD_MS) // 1_000 * 1_000 + 1_000


def sleep_until(conn: psycopg.Connection[Any], moment: int) -> None:
    time.sleep(max(0.0, (moment - now_ms(conn)) / 1000))
