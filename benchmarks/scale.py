"""Measure whether what is due pays for what is not; the last line is JSON.

    make bench-scale
    make bench-scale ARGS="--small"

The same number of timers is due within the next minute while 10 thousand, 1 million
and 10 million are pending, each of a job of its own. A scheduler process starts, loads
its window and fires; several times for each size, in turns, so that what disturbs the
machine disturbs all sizes. A row's cost is the time of the load and of the fire on the
server; the CPU is that of all the sessions of the scheduler from its start on.

The first time, the server has none of the jobs' pages in its buffers. That cost depends
on how much memory it has and stands apart, as cold; all else are medians of the others.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django

django.setup()

import psycopg  # noqa: E402  (needs the settings above)

from benchmarks import bare, shown  # noqa: E402
from benchmarks.fill import Filled, fill, plan_due  # noqa: E402
from benchmarks.measures import sleep_until  # noqa: E402
from benchmarks.rig import Rig, crowd, machine, now_ms, rig, stack, statement_us  # noqa: E402
from chrono.rules.instants import Millis  # noqa: E402

BAR = 1.3
TOGETHER = 500
"""How many timers are due at one instant."""
GAP: Millis = 500
LEAD: Millis = 6_000
"""What a scheduler has for its start before the first timer is due."""
LATEST_S = 15.0
LOAD = ("t.bucket, t.due_at, t.ref", "r.jitter_window, r.overlap_policy")
RATIOS = {
    "cost_ratio": "cost_us",
    "cpu_ratio": "server_cpu_us",
    "cold_ratio": "cold_us",
}
COLUMNS = {
    "pending": "pending",
    "due": "due",
    "load_us": "load us/row",
    "fire_us": "fire us/row",
    "cost_us": "both",
    "cost_ratio": "x first",
    "server_cpu_us": "server CPU us/row",
    "cpu_ratio": "x first",
    "client_cpu_us": "scheduler CPU us/row",
    "memory_mb": "scheduler MB",
    "cold_us": "cold us/row",
    "cold_ratio": "x first",
    "fire_of_bare": "fire of bare",
    "fill_s": "filled in s",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    pending: tuple[int, ...]
    due: int
    rounds: int


FULL = Size(pending=(10_000, 1_000_000, 10_000_000), due=4_000, rounds=4)
SMALL = Size(pending=(10_000, 100_000), due=4_000, rounds=2)


def measure(bench: Rig, size: Size) -> list[dict[str, Any]]:
    """Return the figures of each number of pending timers, a row each."""
    rounds: dict[int, list[dict[str, float]]] = {n: [] for n in size.pending}
    took: dict[int, float] = {}
    with ExitStack() as databases:
        filled = []
        for pending in size.pending:
            begin = time.monotonic()
            url = databases.enter_context(bench.database())
            filled.append(fill(url, pending=pending, due=size.due))
            took[pending] = round(time.monotonic() - begin, 1)
            print(f"{pending} pending: filled in {took[pending]} s", flush=True)
        for _ in range(size.rounds):
            for one in filled:
                figures = fire_once(one)
                print(f"{one.pending} pending: {json.dumps(figures)}", flush=True)
                rounds[one.pending].append(figures)
    return [
        {
            "pending": pending,
            "due": size.due,
            **{
                name: round(statistics.median(one[name] for one in figures[1:]), 1)
                for name in figures[0]
            },
            "cold_us": figures[0]["cost_us"],
            "fill_s": took[pending],
            "rounds": figures,
        }
        for pending, figures in rounds.items()
    ]


def fire_once(filled: Filled) -> dict[str, float]:
    """Start a scheduler, let it fire what is due, and return what each row cost."""
    with psycopg.connect(filled.url, autocommit=True) as conn:
        conn.execute("CHECKPOINT")
        lead = LEAD * crowd()
        while True:
            at = now_ms(conn) + round(lead)
            plan_due(conn, filled, at=at, together=TOGETHER, gap=GAP)
            conn.execute("SELECT pg_stat_statements_reset()")
            with stack(filled.url, workers=0) as running:
                if now_ms(conn) < at:
                    _wait_until_fired(conn, filled, at)
                    load, fire = (
                        statement_us(conn, *LOAD),
                        statement_us(conn, bare.FIRE),
                    )
                    return {
                        "load_us": round(load / filled.due, 1),
                        "fire_us": round(fire / filled.due, 1),
                        "cost_us": round((load + fire) / filled.due, 1),
                        "server_cpu_us": round(
                            running.backend_cpu(conn) * 1e6 / filled.due, 1
                        ),
                        "client_cpu_us": round(
                            running.client_cpu() * 1e6 / filled.due, 1
                        ),
                        "memory_mb": running.memory_mb()["scheduler"][0],
                    }
            lead *= 2


def _wait_until_fired(
    conn: psycopg.Connection[Any], filled: Filled, at: Millis
) -> None:
    sleep_until(conn, at + filled.due // TOGETHER * GAP)
    deadline = time.monotonic() + LATEST_S
    while True:
        [(ready,)] = conn.execute("SELECT count(*) FROM chrono_ready").fetchall()
        if ready == filled.due:
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"{ready} of {filled.due} due timers were fired")
        time.sleep(0.1)


def verdict(rows: Sequence[Mapping[str, Any]]) -> list[shown.Gate]:
    """Return what the most pending timers may cost, compared with the fewest."""
    fewest, most = rows[0]["pending"], rows[-1]["pending"]
    words = (
        f"{{what}} of a due row: {{times}} x with {most:,} pending what it is with "
        f"{fewest:,}; at most {BAR} x"
    )
    return [
        (words.format(what=what, times=rows[-1][key]), rows[-1][key] <= BAR)
        for what, key in (("load and fire", "cost_ratio"), ("server CPU", "cpu_ratio"))
    ]


def main() -> int:
    """Measure, print the figures and the gates; exit 1 where a gate is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a quick try")
    size = SMALL if parser.parse_args().small else FULL
    begin = time.monotonic()
    where = machine()
    with rig() as bench:
        limit = bare.fire_alone(bench)
        print(f"bare fire: {limit['us_per_row']} us a row", flush=True)
        rows = measure(bench, size)
    for row in rows:
        for ratio, figure in RATIOS.items():
            row[ratio] = round(row[figure] / rows[0][figure], 2)
        row["fire_of_bare"] = round(row["fire_us"] / limit["us_per_row"], 2)
    print(shown.table(COLUMNS, rows))
    return shown.conclude(
        verdict(rows),
        {
            "machine": where,
            "took_s": round(time.monotonic() - begin, 1),
            "bare_fire": limit,
            "sizes": rows,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
