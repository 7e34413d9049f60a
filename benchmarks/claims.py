"""A queue that one tenant has filled: what a claim costs, and how long others wait."""

import statistics
import time
import uuid
from collections.abc import Sequence
from typing import Any

import psycopg

from apps.runs import store, worker_store
from apps.runtime.sessions import connect_hot
from benchmarks.measures import sleep_until
from benchmarks.ready import fill_ready
from benchmarks.rig import Rig, make_room, now_ms, seed, stack
from chrono.rules.instants import SECOND, Millis, format_instant

BATCH = 50
FEW = 20_000
CLAIMS = 300
OTHER = 2
GAP: Millis = SECOND
LEAD: Millis = 3 * SECOND
"""How long the workers are at the queue before the other tenant comes."""
LATEST_S = 30.0
WAITS = """
    SELECT (1000 * extract(epoch FROM started_at - due_at))::float8,
        (1000 * extract(epoch FROM dispatched_at - due_at))::float8
    FROM chrono_run WHERE tenant = %s
"""


def measure(bench: Rig, *, ready: int, others: int) -> dict[str, Any]:
    """Return the times of claims from a full queue, and of another tenant's runs."""
    with bench.database() as url:
        few = _claim(url, ready=FEW)
    with bench.database() as url:
        many = _claim(url, ready=ready)
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("DELETE FROM chrono_lease")
            conn.execute("DELETE FROM chrono_worker")
            found, left = _other_waits(conn, url, others=others)
    waits = [round(begun, 1) for begun, _ in found]
    fired = [round(ready, 1) for _, ready in found]
    return {
        "n": CLAIMS,
        "ready": ready,
        **many,
        **{f"few_{name}": value for name, value in few.items()},
        "p50_of_few": round(many["claim_p50_ms"] / few["claim_p50_ms"], 2),
        "p99_of_few": round(many["claim_p99_ms"] / few["claim_p99_ms"], 2),
        "others": others,
        "others_begun": len(waits),
        "ready_left": left,
        "other_wait_p50_ms": statistics.median(waits) if waits else None,
        "other_wait_max_ms": max(waits) if len(waits) == others else None,
        "other_fired_max_ms": max(fired, default=None),
    }


def _claim(url: str, *, ready: int) -> dict[str, float]:
    """Return the times of claims, one after the other, nobody beside them."""
    with psycopg.connect(url, autocommit=True) as conn:
        make_room(url, conn)
        fill_ready(conn, ready)
        conn.execute("VACUUM (ANALYZE) chrono_ready")
        conn.execute("CHECKPOINT")
    worker = uuid.uuid4()
    times = []
    with connect_hot(url, name="bench claim") as hot:
        worker_store.register_worker(
            hot, worker=worker, host="b", pid=1, concurrency=BATCH, queues=["default"]
        )
        for _ in range(CLAIMS):
            begin = time.perf_counter()
            leases = store.claim_ready(hot, queue="default", limit=BATCH, worker=worker)
            times.append(time.perf_counter() - begin)
            if len(leases) != BATCH:
                raise SystemExit(f"a claim brought {len(leases)} of {BATCH} runs")
    return {
        "claim_p50_ms": _percentile(times, 0.5),
        "claim_p99_ms": _percentile(times, 0.99),
    }


def _other_waits(
    conn: psycopg.Connection[Any], url: str, *, others: int
) -> tuple[list[tuple[float, float]], int]:
    """Return after how many ms runs of another tenant were begun, and were ready.

    And how many of the first tenant's were left then.
    """
    conn.execute(
        "INSERT INTO chrono_tenant (id, name, created_at) VALUES (%s, 'other', now())",
        [OTHER],
    )
    with stack(url):
        first = now_ms(conn) + LEAD
        dues = [first + number * GAP for number in range(others)]
        seed(
            conn,
            dues,
            [{"run_at": format_instant(due)} for due in dues],
            overlap="skip",
            tenant=OTHER,
        )
        sleep_until(conn, dues[-1] + GAP)
        [(left,)] = conn.execute("SELECT count(*) FROM chrono_ready").fetchall()
        deadline = time.monotonic() + LATEST_S
        while True:
            found = conn.execute(WAITS, [OTHER]).fetchall()
            if len(found) == others or time.monotonic() > deadline:
                return found, left
            time.sleep(0.2)


def _percentile(times: Sequence[float], share: float) -> float:
    return round(sorted(times)[int(len(times) * share)] * 1000, 2)
