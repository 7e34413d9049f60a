"""One function a figure; each returns plain numbers with their n."""

import time
from datetime import UTC, datetime
from typing import Any

import psycopg

from benchmarks.rig import (
    Meter,
    Rig,
    now_ms,
    seed_intervals,
    seed_one_shots,
    stack,
)

LEAD_MS = 1_500
LAGS = """
    SELECT count(*),
        1000 * percentile_cont(0.5) WITHIN GROUP (
            ORDER BY extract(epoch FROM started_at - due_at)),
        1000 * percentile_cont(0.99) WITHIN GROUP (
            ORDER BY extract(epoch FROM started_at - due_at))
    FROM chrono_run WHERE due_at >= %s AND due_at < %s
"""


def throughput(
    bench: Rig, *, jobs: int, overlap: str, seconds: float
) -> dict[str, Any]:
    """Runs settled a second with more jobs of one second than can be served."""
    with bench.database() as url, psycopg.connect(url, autocommit=True) as conn:
        with stack(url) as running:
            seed_intervals(
                conn, jobs, overlap=overlap, start=_next_second(now_ms(conn))
            )
            _wait_for_runs(conn, 1_000)
            time.sleep(1.0)
            meter = Meter(conn, bench.server, running)
            before = _count_runs(conn)
            meter.start()
            time.sleep(seconds)
            cost = meter.stop()
            runs = _count_runs(conn) - before
            [(skipped,)] = conn.execute(
                "SELECT count(*) FROM chrono_occurrence WHERE outcome = 2"
            ).fetchall()
            memory = running.memory_mb()
    return {
        "n": runs,
        "runs_per_s": round(runs / cost["seconds"]),
        "offered_per_s": jobs,
        "skipped": skipped,
        "server_us_per_run": round(cost["server_cpu"] / runs * 1e6, 1),
        "client_us_per_run": round(cost["client_cpu"] / runs * 1e6, 1),
        "wal_bytes_per_run": round(cost["wal"] / runs),
        "memory_mb": memory,
    }


def start_lag(bench: Rig, *, rate: int, seconds: float) -> dict[str, Any]:
    """Start lag of a steady rate: started_at - due_at of every run."""
    with bench.database() as url, psycopg.connect(url, autocommit=True) as conn:
        with stack(url):
            start = _next_second(now_ms(conn))
            seed_intervals(conn, rate, overlap="allow_all", start=start)
            # The first second is left out: it warms plans and caches.
            begin, end = start + 1_000, start + 1_000 + int(seconds * 1_000)
            _sleep_until(conn, end + 500)
            [(n, p50, p99)] = _lags(conn, begin, end)
    return {"n": n, "expected": int(rate * seconds), **_ms(p50, p99)}


def burst(bench: Rig, *, count: int, limit: float = 60.0) -> dict[str, Any]:
    """Everything due at one instant: seconds until all are ready, and executed."""
    with bench.database() as url, psycopg.connect(url, autocommit=True) as conn:
        with stack(url):
            at = _next_second(now_ms(conn)) + 2_000 + count // 10
            seed_one_shots(conn, count, at=at)
            deadline = time.monotonic() + limit
            while _count_runs(conn) < count and time.monotonic() < deadline:
                time.sleep(0.2)
            [(n, p50, p99)] = _lags(conn, at, at + 1)
            [(ready, done)] = conn.execute(
                "SELECT extract(epoch FROM max(dispatched_at) - min(due_at)), "
                "extract(epoch FROM max(finished_at) - min(due_at)) FROM chrono_run"
            ).fetchall()
    return {
        "n": n,
        "expected": count,
        "all_ready_s": round(float(ready), 3),
        "all_executed_s": round(float(done), 3),
        **_ms(p50, p99),
    }


def idle(bench: Rig, *, seconds: float) -> dict[str, Any]:
    """Transactions and WAL a second of one scheduler and two workers with nothing due."""
    with bench.database() as url, psycopg.connect(url, autocommit=True) as conn:
        with stack(url) as running:
            time.sleep(2.0)
            meter = Meter(conn, bench.server, running)
            meter.start()
            before = _transactions(conn)
            time.sleep(seconds)
            cost = meter.stop()
            # This session's own look is one of them.
            done = _transactions(conn) - before - 2
    return {
        "n": done,
        "transactions_per_s": round(done / cost["seconds"], 2),
        "wal_bytes_per_s": round(cost["wal"] / cost["seconds"]),
        "client_cpu_share": round(cost["client_cpu"] / cost["seconds"], 4),
    }


def _transactions(conn: psycopg.Connection[Any]) -> int:
    conn.execute("SELECT pg_stat_clear_snapshot()")
    # Backends report with a delay of up to a second: the rate evens it out.
    [(count,)] = conn.execute(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database "
        "WHERE datname = current_database()"
    ).fetchall()
    return int(count)


def _count_runs(conn: psycopg.Connection[Any]) -> int:
    [(count,)] = conn.execute("SELECT count(*) FROM chrono_run").fetchall()
    return int(count)


def _wait_for_runs(conn: psycopg.Connection[Any], count: int) -> None:
    deadline = time.monotonic() + 30
    while _count_runs(conn) < count:
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


def _ms(p50: float | None, p99: float | None) -> dict[str, float | None]:
    return {
        "start_lag_p50_ms": None if p50 is None else round(float(p50), 1),
        "start_lag_p99_ms": None if p99 is None else round(float(p99), 1),
    }


def _next_second(now: int) -> int:
    return (now + LEAD_MS) // 1_000 * 1_000 + 1_000


def _sleep_until(conn: psycopg.Connection[Any], moment: int) -> None:
    time.sleep(max(0.0, (moment - now_ms(conn)) / 1000))
