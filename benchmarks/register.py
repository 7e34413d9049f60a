"""Measure how fast jobs are registered through a live web; the last line is JSON.

    make bench-register
    make bench-register ARGS="--jobs 1000000"

Two clients send `POST /jobs/batch`, a thousand jobs a request: one-shots and crons by
turns, every one new. Then the last of them are sent again, which changes nothing. The
limit of the same run are the same rows, copied into the same tables of an empty
database by two bare sessions.
"""

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import batched
from multiprocessing.synchronize import Barrier
from typing import Any

import psycopg

from benchmarks.api import Client, Web, web
from benchmarks.rig import Rig, machine, make_room, now_ms, rig, tree_cpu
from benchmarks.shown import Gate, conclude, spread, table
from chrono.rules.instants import DAY, Millis, format_instant

JOBS = 200_000
CLIENTS = 2
BATCH = 1_000
BUSY = 503
PATH = "/api/v1/jobs/batch"
TIMES = 3
AGAIN = 20_000
"""How many jobs are sent a second time."""
COPIED = 200_000
"""How many jobs' rows the limit copies at most: they lie in memory."""
FLAT = 0.8
"""What the last tenth keeps, at least, of the speed of the whole."""
TABLES = (
    "chrono_job",
    "chrono_job_revision",
    "chrono_timer",
    "chrono_timer_far",
    "chrono_audit_event",
)
COLUMNS = {
    "jobs_per_s": "jobs/s",
    "last_tenth_per_s": "last tenth",
    "again_per_s": "sent again/s",
    "bare_per_s": "bare/s",
    "of_bare": "of bare",
    "web_us": "web us/job",
    "server_us": "server us/job",
    "bare_us": "bare us/job",
}

type Sent = tuple[float, float]
"""When a request began and when its answer was there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a stretch took: CPU seconds, and how many jobs it was for."""

    jobs: int
    web: float
    server: float

    def fields(self, name: str = "") -> dict[str, float]:
        """Return the microseconds of each job."""
        return {
            f"{name}web_us": round(self.web * 1e6 / self.jobs, 1),
            f"{name}server_us": round(self.server * 1e6 / self.jobs, 1),
        }


def job(number: int, *, now: Millis) -> dict[str, Any]:
    """Return a definition: of two numbers in a row one runs once, the other by cron."""
    if number % 2:
        return {
            "key": f"order-{number}",
            "run_at": format_instant(now + DAY + number % 1_000_000 * 60),
            "target": {"kind": "http", "url": "https://shop.example/orders/remind"},
            "payload": {"order": number, "customer": f"customer-{number % 9973}"},
        }
    return {
        "key": f"report-{number}",
        "name": f"Report {number}",
        "cron": f"{number // 2 % 60} {number // 120 % 24} * * *",
        "timezone": "Europe/Berlin",
        "tags": ["nightly", f"shop-{number % 100}"],
        "target": {"kind": "task", "name": "benchmarks.nothing"},
        "payload": {"shop": number},
    }


def bodies(numbers: Sequence[int], *, now: Millis) -> list[bytes]:
    """Return the bodies of the requests that register these jobs."""
    return [
        json.dumps(
            {"items": [job(n, now=now) for n in numbers[at : at + BATCH]]}
        ).encode()
        for at in range(0, len(numbers), BATCH)
    ]


def measure(bench: Rig, *, jobs: int) -> dict[str, Any]:
    """Register so many jobs, send some again, and copy their rows; return figures."""
    with web(bench) as live:
        now = now_ms(live.conn)
        sent, cost = _register(bench, live, range(jobs), now=now, action="created")
        again = range(max(0, jobs - AGAIN), jobs)
        resent, left = _register(bench, live, again, now=now, action="unchanged")
        [(made,)] = live.conn.execute(
            "SELECT count(*) FROM chrono_job j JOIN chrono_job_revision r "
            "ON r.job_id = j.id AND r.revision = j.revision"
        ).fetchall()
        planned = sum(_count(live.conn, name) for name in TABLES[2:4])
        written = _count(live.conn, "chrono_audit_event", "action = 'job.create'")
        blocks = _read(live.conn, min(jobs, COPIED))
    ends = sorted(end for _, end in sent)
    last = ends[-max(1, len(ends) // 10) - 1 :]
    bare = copy_alone(bench, blocks)
    rate = jobs / _took(sent)
    return {
        "n": jobs,
        "registered": min(made, planned, written),
        "jobs_per_s": round(rate),
        "last_tenth_per_s": round((len(last) - 1) * BATCH / (last[-1] - last[0])),
        "again_per_s": round(len(again) / _took(resent)),
        "request_p50_ms": round(statistics.median(e - b for b, e in sent) * 1e3),
        "request_max_ms": round(max(e - b for b, e in sent) * 1e3),
        **cost.fields(),
        **left.fields("again_"),
        **bare,
        "of_bare": round(rate / bare["bare_per_s"], 3),
    }


def _register(
    bench: Rig, live: Web, numbers: Sequence[int], *, now: Millis, action: str
) -> tuple[list[Sent], Cost]:
    """Send these jobs from two clients; return each request's times, and the cost."""
    context = multiprocessing.get_context("fork")
    go = context.Barrier(CLIENTS + 1)
    answers = context.Queue()
    ready = bodies(numbers, now=now)
    clients = [
        context.Process(
            target=_send,
            args=(live, ready[n::CLIENTS], action, go, answers),
        )
        for n in range(CLIENTS)
    ]
    for client in clients:
        client.start()
    go.wait()
    before = tree_cpu(live.pid), _server_cpu(bench)
    found = [answers.get() for _ in clients]
    after = tree_cpu(live.pid), _server_cpu(bench)
    for client in clients:
        client.join()
    for refused in (one for one in found if isinstance(one, str)):
        raise SystemExit(refused)
    return [sent for one in found for sent in one], Cost(
        jobs=len(numbers), web=after[0] - before[0], server=after[1] - before[1]
    )


def _send(
    live: Web, ready: Sequence[bytes], action: str, go: Barrier, answers: Any
) -> None:
    """Send bodies on one kept connection; answer with times, or what was refused."""
    client = live.client()
    go.wait()
    try:
        answers.put(_post_all(client, ready, action))
    except (SystemExit, OSError) as error:
        answers.put(str(error))


def _post_all(client: Client, ready: Sequence[bytes], action: str) -> list[Sent] | str:
    """Send bodies one after the other, again where the database was too busy for one.

    Of that it is not known whether it was done: what was is unchanged by then.
    """
    sent = []
    for body in ready:
        begin = time.monotonic()
        right = frozenset({action})
        while wrong := _wrong(client.send("POST", PATH, body)["results"], right):
            if wrong["status"] != BUSY:
                return f"not {action}: {wrong}"
            right |= {"unchanged"}
        sent.append((begin, time.monotonic()))
    return sent


def _wrong(results: Sequence[Any], right: frozenset[str]) -> Any:
    """Return an answer of other actions than these, one that says why before others."""
    wrong = [one for one in results if not right.issuperset(one["actions"] or ["none"])]
    return min(wrong, key=lambda one: one["status"] == BUSY, default=None)


def _took(sent: Sequence[Sent]) -> float:
    return max(end for _, end in sent) - min(begin for begin, _ in sent)


def _server_cpu(bench: Rig) -> float:
    return tree_cpu(bench.server.pid) if bench.server.pid else 0.0


def _count(conn: psycopg.Connection[Any], name: str, where: str = "true") -> int:
    [(count,)] = conn.execute(
        f"SELECT count(*) FROM {name} WHERE {where}".encode()
    ).fetchall()
    return int(count)


type Block = dict[str, bytes]
"""The rows of a thousand jobs, table by table, as COPY writes them."""


def _read(conn: psycopg.Connection[Any], most: int) -> list[Block]:
    """Return the rows of the first jobs, a thousand of each table a block."""
    blocks: list[Block] = [{} for _ in range(-(-most // BATCH))]
    for name in TABLES:
        order = "id" if name in ("chrono_job", "chrono_audit_event") else "job_id"
        query = f"COPY (SELECT * FROM {name} ORDER BY {order} LIMIT {most}) TO STDOUT"
        with conn.cursor().copy(query.encode()) as copy:
            rows = [bytes(row) for row in copy]
        for block, some in zip(blocks, batched(rows, BATCH), strict=False):
            block[name] = b"".join(some)
    return blocks


def copy_alone(bench: Rig, blocks: Sequence[Block]) -> dict[str, Any]:
    """Return how many jobs' rows two bare sessions copy a second, all else idle."""
    with bench.database() as url, psycopg.connect(url, autocommit=True) as conn:
        make_room(url, conn)
        context = multiprocessing.get_context("fork")
        go = context.Barrier(CLIENTS + 1)
        writers = [
            context.Process(target=_copy, args=(url, blocks[n::CLIENTS], go))
            for n in range(CLIENTS)
        ]
        for writer in writers:
            writer.start()
        go.wait()
        begin, before = time.monotonic(), _server_cpu(bench)
        go.wait()  # All is copied; the sessions, whose CPU it was, are there still.
        took, cpu = time.monotonic() - begin, _server_cpu(bench) - before
        go.wait()
        for writer in writers:
            writer.join()
        jobs = _count(conn, "chrono_job")
    return {
        "bare_n": jobs,
        "bare_per_s": round(jobs / took),
        "bare_us": round(cpu * 1e6 / jobs, 1),
    }


def _copy(url: str, blocks: Sequence[Block], go: Barrier) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        go.wait()
        for block in blocks:
            with conn.transaction():
                for name, rows in block.items():
                    query = f"COPY {name} FROM STDIN"
                    with conn.cursor().copy(query.encode()) as copy:
                        copy.write(rows)
        go.wait()
        go.wait()


def verdict(rows: Sequence[Mapping[str, Any]]) -> list[Gate]:
    """Return whether every job was registered, and as fast at the end as before."""
    gates: list[Gate] = []
    for row in rows:
        count, made = row["n"], row["registered"]
        gates.append((f"{made:,} of {count:,} registered", made == count))
    kept = statistics.median(r["last_tenth_per_s"] / r["jobs_per_s"] for r in rows)
    words = f"the last tenth at {kept:.2f} of the whole's speed, at least {FLAT}"
    gates.append((words, kept >= FLAT))
    return gates


def main() -> int:
    """Measure, print the figures and the gates; exit 1 where a gate is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--times", type=int, default=TIMES)
    options = parser.parse_args()
    where = machine()
    begin = time.monotonic()
    rows = []
    with rig() as bench:
        for _ in range(options.times):
            rows.append(measure(bench, jobs=options.jobs))
            print(json.dumps(rows[-1]), flush=True)
    print(table(COLUMNS, rows))
    took = round(time.monotonic() - begin, 1)
    return conclude(verdict(rows), {"machine": where, "took_s": took, **spread(rows)})


if __name__ == "__main__":
    sys.exit(main())
