"""Very many runs that sleep at once: what they cost the workers and the server."""

import subprocess
import sys
import time
from typing import Any

import psycopg

from benchmarks.measures import Stage, measured, statements, wait_for_runs
from benchmarks.ready import fill_ready
from benchmarks.rig import Rig

WORKERS = 2
SETTLED_S = 5.0
"""After so long the workers have nothing to do with their start any more."""
BEGUN_S = 60.0
LEASED = """
    SELECT count(*), count(*) FILTER (
        WHERE w.beat_at > clock_timestamp() - interval '15 s' AND NOT w.dead
    ), coalesce(sum(l.attempt) - count(*), 0)
    FROM chrono_lease l LEFT JOIN chrono_worker w ON w.id = l.worker
"""
ENDED = """
    SELECT count(*) FILTER (WHERE state = 1 AND attempt = 1), count(*) FROM chrono_run
"""
BARE = """
import asyncio, sys

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

async def main(count):
    async def asleep(payload):
        await asyncio.sleep(payload["seconds"])
    before = resident()
    tasks = [asyncio.create_task(asleep({"seconds": 60})) for _ in range(count)]
    await asyncio.sleep(1)
    print((resident() - before) / count)
    sys.stdout.flush()
    for task in tasks:
        task.cancel()

asyncio.run(main(int(sys.argv[1])))
"""


def measure(bench: Rig, *, count: int, seconds: float) -> dict[str, Any]:
    """Return what so many sleepers cost while they sleep, and how they ended."""
    sleep = BEGUN_S + seconds
    with measured(bench, workers=WORKERS, concurrency=count // WORKERS) as stage:
        time.sleep(SETTLED_S)
        idle = _statements_per_s(stage, seconds=seconds / 2)
        before = sum(stage.running.memory_mb()["worker"])
        begin = time.monotonic()
        fill_ready(
            stage.conn,
            count,
            target={"kind": "task", "name": "benchmarks.asleep"},
            payload={"seconds": sleep},
        )
        _wait_for_leases(stage.conn, count)
        begun = time.monotonic() - begin
        beats = _beats(stage.conn)
        rate = _statements_per_s(stage, seconds=seconds)
        beaten = _beats(stage.conn)
        [(leased, renewed, repeated)] = stage.conn.execute(LEASED).fetchall()
        memory = stage.running.memory_mb()["worker"]
        wait_for_runs(stage.conn, count, within=sleep + BEGUN_S)
        ended = time.monotonic() - begin
        [(once, over)] = stage.conn.execute(ENDED).fetchall()
    bare = _bare_bytes(count)
    each = (sum(memory) - before) * 1e6 / count
    return {
        "n": count,
        "begun_s": round(begun, 1),
        "asleep": leased,
        "renewed": renewed if all(beaten[w] > at for w, at in beats.items()) else 0,
        "begun_again": int(repeated),
        "succeeded_once": once,
        "over": over,
        "ended_s": round(ended, 1),
        "worker_mb": memory,
        "bytes_each": round(each),
        "bare_bytes_each": round(bare),
        "memory_of_bare": round(each / bare, 1),
        "statements_per_s": rate,
        "idle_statements_per_s": idle,
        "statements_of_idle": round(rate / idle, 2),
    }


def _statements_per_s(stage: Stage, *, seconds: float) -> float:
    before, begin = statements(stage.conn), time.monotonic()
    time.sleep(seconds)
    # The looks themselves are one each.
    done = statements(stage.conn) - before - 1
    return round(done / (time.monotonic() - begin), 2)


def _wait_for_leases(conn: psycopg.Connection[Any], count: int) -> None:
    deadline = time.monotonic() + BEGUN_S
    while True:
        [(leased,)] = conn.execute("SELECT count(*) FROM chrono_lease").fetchall()
        if leased == count:
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"{leased} of {count} sleepers are asleep")
        time.sleep(0.2)


def _beats(conn: psycopg.Connection[Any]) -> dict[Any, Any]:
    """Return when each living worker beat last."""
    return dict(
        conn.execute("SELECT id, beat_at FROM chrono_worker WHERE NOT dead").fetchall()
    )


def _bare_bytes(count: int) -> float:
    """Return the bytes of each of so many tasks of bare asyncio that sleep."""
    done = subprocess.run(
        [sys.executable, "-c", BARE, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout)
