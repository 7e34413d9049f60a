"""The limit: the hot statements alone, their parameters made beforehand.

One process fires prepared batches, two claim and settle what they get. No wheel, no
asyncio, no handlers: what is left is the work of the server and of the driver.
"""

import multiprocessing
import time
import uuid
from collections.abc import Sequence
from multiprocessing.context import ForkProcess
from multiprocessing.synchronize import Barrier, Event
from typing import Any

import psycopg

from apps.runs import worker_store
from apps.runs.store import FRONT
from apps.runtime import sql
from apps.runtime.arrays import bools, int8s, random_uuids, texts, uuids
from apps.runtime.sessions import connect_hot, connect_leader
from apps.scheduler import store
from benchmarks.ready import fill_ready
from benchmarks.rig import (
    Rig,
    cpu_of,
    make_room,
    now_ms,
    seed_intervals,
    statement_us,
    tree_cpu,
)
from chrono.rules.buckets import bucket_name
from chrono.rules.keys import run_id

BATCH = 500
CLAIM = 200
JOBS = 10_000
ROUNDS = 6
FASTEST = 60_000
"""More runs than two processes can claim and settle a second."""
HOUR = 3_600_000
WARM = 20
"""How many batches pass before the fire alone is measured."""
FIRE = "claimed_slots AS MATERIALIZED"
"""What no statement but the fire has in it."""


def bare(bench: Rig, *, seconds: float, ledger: bool) -> dict[str, Any]:
    """Runs settled a second by the bare statements, with or without the ledger."""
    with bench.database() as url, psycopg.connect(url, autocommit=True) as conn:
        _seed(conn, url)
        context = multiprocessing.get_context("fork")
        go, end = context.Barrier(4), context.Event()
        counted = context.Array("q", 3)
        processes = [
            context.Process(target=_fire, args=(url, go, end, ledger, counted)),
            *(
                context.Process(target=_work, args=(url, go, end, counted, n))
                for n in (1, 2)
            ),
        ]
        for process in processes:
            process.start()
        go.wait()  # The firing process has made its batches.
        begin = time.monotonic()
        time.sleep(seconds)
        settled = counted[1] + counted[2]
        took = time.monotonic() - begin
        end.set()
        _join(processes)
    return {"n": settled, "runs_per_s": round(settled / took), "fired": counted[0]}


def work_alone(bench: Rig, *, processes: int, seconds: float) -> dict[str, Any]:
    """Runs that so many processes claim and settle a second; all of them were ready."""
    with bench.database() as url, psycopg.connect(url, autocommit=True) as conn:
        make_room(url, conn)
        fill_ready(conn, round(FASTEST * seconds))
        context = multiprocessing.get_context("fork")
        go, end = context.Barrier(processes + 1), context.Event()
        counted = context.Array("q", processes + 1)
        workers = [
            context.Process(target=_work, args=(url, go, end, counted, n + 1))
            for n in range(processes)
        ]
        for worker in workers:
            worker.start()
        go.wait()
        begin, before = time.monotonic(), _cpu(bench, workers)
        time.sleep(seconds)
        settled, cpu = sum(counted[:]), _cpu(bench, workers) - before
        took = time.monotonic() - begin
        end.set()
        _join(workers)
    return {
        "n": settled,
        "runs_per_s": round(settled / took),
        "cpu_us_per_run": round(cpu / settled * 1e6, 1),
    }


def _join(processes: Sequence[ForkProcess]) -> None:
    """Wait for the ends of processes; raise RuntimeError where one failed."""
    for process in processes:
        process.join(timeout=10)
    if any(process.exitcode for process in processes):
        raise RuntimeError("a process of the bare statements failed")


def _cpu(bench: Rig, workers: Sequence[ForkProcess]) -> float:
    """Return the CPU seconds that the server and these processes used so far."""
    server = bench.server.pid
    own = sum(cpu_of(worker.pid) for worker in workers if worker.pid)
    return own + (tree_cpu(server) if server else 0.0)


def fire_alone(bench: Rig) -> dict[str, Any]:
    """Microseconds a row that the bare fire takes on the server, nobody beside it."""
    text = sql.load("scheduler", "fire_undecided")
    with bench.database() as url, psycopg.connect(url, autocommit=True) as conn:
        _seed(conn, url)
        with connect_hot(url, name="bench fire") as hot:
            bucket, batches = _batches(url, hot)
            for number, batch in enumerate(batches):
                if number == WARM:
                    conn.execute("SELECT pg_stat_statements_reset()")
                hot.execute(text.named(bucket=bucket), batch, binary=True).fetchall()
        rows = BATCH * (len(batches) - WARM)
        return {"n": rows, "us_per_row": round(statement_us(conn, FIRE) / rows, 1)}


def _seed(conn: psycopg.Connection[Any], url: str) -> None:
    make_room(url, conn)
    # Six timers a job, all due already, each its own second.
    first = (now_ms(conn) - 15_000) // HOUR * HOUR
    seed_intervals(conn, JOBS, overlap="allow_all", start=first)
    conn.execute(
        "INSERT INTO chrono_timer (due_at, scheduled_for, ref, job_id, version, "
        "revision, part, kind) SELECT due_at + k * interval '1 s', "
        "scheduled_for + k * interval '1 s', ref, job_id, version, revision, part, "
        "kind FROM chrono_timer, generate_series(1, %s) AS k",
        [ROUNDS - 1],
    )
    conn.execute("ANALYZE chrono_timer")


def _batches(
    url: str, conn: psycopg.Connection[Any]
) -> tuple[str, list[dict[str, Any]]]:
    with connect_leader(url, name="bench") as leader:
        terms = {
            term.part: term
            for term in store.take_over(leader, parts=range(64), owner="bench")
        }
    rows = store.load_timers(
        conn,
        after=dict.fromkeys(range(64), store.cursor_at(0)),
        before=now_ms(conn),
        each=JOBS * ROUNDS,
    )
    rows.sort(key=lambda row: row.due_at)
    horizon = store.look_again(conn, parts=[0], after=0, before=0)[0].horizon
    held = [terms[part] for part in sorted(terms)]
    made = []
    for start in range(0, len(rows), BATCH):
        part = rows[start : start + BATCH]
        nothing = int8s([0] * len(part))
        made.append(
            {
                "parts": [term.part for term in held],
                "fences": [term.fence for term in held],
                "terms": [term.term for term in held],
                "epochs": [term.epoch for term in held],
                "ns": int8s(range(len(part))),
                "part": int8s([row.part for row in part]),
                "due": int8s([row.due_at for row in part]),
                "ref": uuids([row.ref for row in part]),
                "kind": int8s([row.kind for row in part]),
                "version": int8s([row.version for row in part]),
                "scheduled_for": int8s([row.scheduled_for for row in part]),
                "run_id": uuids(
                    [run_id(row.job_id, row.scheduled_for, 0, row.part) for row in part]
                ),
                "revision": int8s([row.revision for row in part]),
                "tenant": int8s([row.tenant for row in part]),
                "queue": texts(["default"] * len(part)),
                "priority": int8s([2] * len(part)),
                "tag": int8s([row.due_at for row in part]),
                "fence": int8s([terms[row.part].fence for row in part]),
                "skip": nothing,
                "bounded": bools([False] * len(part)),
                "next_for": int8s([row.scheduled_for + HOUR for row in part]),
                "next_due": int8s([row.due_at + HOUR for row in part]),
                "gated_n": [],
                "gate": [],
                "gate_reason": [],
                "gates_left": [],
                "slot_n": [],
                "now": None,
                "slice": (start // BATCH // 20) % 8,
                "horizon": horizon,
            }
        )
    return bucket_name(rows[0].due_at), made


def _fire(url: str, go: Barrier, end: Event, ledger: bool, counted: Any) -> None:
    statement = sql.load("scheduler", "fire_undecided")
    with connect_hot(url, name="bench fire") as conn:
        bucket, batches = _batches(url, conn)
        text = statement.named(bucket=bucket)
        if not ledger:
            text = _without_ledger(text)
        go.wait()
        for batch in batches:
            conn.execute(text, batch, binary=True).fetchall()
            counted[0] += BATCH
            if end.is_set():
                return
        end.wait()


def _without_ledger(text: str) -> str:
    """Return the fire without its ledger."""
    begin = text.index("ledger AS (")
    return text[:begin] + text[text.index("next_near AS (", begin) :]


def _work(url: str, go: Barrier, end: Event, counted: Any, me: int) -> None:
    claim = sql.load("runs", "claim_ready").text
    settle = sql.load("runs", "settle_successes").text
    worker = uuid.uuid4()
    with connect_hot(url, name="bench work") as conn:
        worker_store.register_worker(
            conn, worker=worker, host="b", pid=me, concurrency=CLAIM, queues=["default"]
        )
        go.wait()
        while not end.is_set():
            rows = conn.execute(
                claim,
                {
                    "queue": "default",
                    "limit": CLAIM,
                    "worker": worker,
                    "least": FRONT[0],
                    "after": FRONT[1],
                    "tokens": random_uuids(CLAIM),
                },
                binary=True,
            ).fetchall()
            if not rows:
                time.sleep(0.001)
                continue
            conn.execute(
                settle,
                {
                    "runs": uuids([row[0] for row in rows]),
                    "tokens": uuids([row[7] for row in rows]),
                },
                binary=True,
            ).fetchall()
            counted[me] += len(rows)
