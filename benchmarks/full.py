"""Measure whether a full database is as fast as an empty one; the last line is JSON.

    make bench-full
    make bench-full ARGS="--pending 50000000"
    make bench-full ARGS="--small"

Full: ten million timers pending, each of a job of its own, and ten million runs of the
last day with their ledger, of a hundred thousand of those jobs. Throughput and start
lag are measured on both in turns, so that what disturbs the machine disturbs both.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django

django.setup()

import psycopg  # noqa: E402  (needs the settings above)

from benchmarks import measures, shown  # noqa: E402
from benchmarks.fill import fill, fill_history  # noqa: E402
from benchmarks.rig import Rig, machine, make_room, rig  # noqa: E402

BAR = 1.1
RATE = 1_000
HISTORY_JOBS = 100_000
DUE = 1_000
"""How many of the jobs have no timer yet; they stay without."""
COLUMNS = {
    "database": "database",
    "jobs": "jobs",
    "runs_per_s": "runs/s",
    "fired_per_s": "fired/s",
    "server_us_per_run": "server us/run",
    "client_us_per_run": "client us/run",
    "wal_bytes_per_run": "WAL/run",
    "start_lag_p50_ms": "lag p50 ms",
    "start_lag_p99_ms": "p99 ms",
}
CLEAR = (
    "DELETE FROM chrono_timer WHERE due_at < now() + interval '30 minutes'",
    "TRUNCATE chrono_ready, chrono_lease, chrono_slot",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    pending: int
    history: int
    rounds: int
    seconds: float


def measure(bench: Rig, size: Size) -> list[dict[str, Any]]:
    """Return the medians of an empty and of a full database, a row for each load."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with bench.database() as empty, bench.database() as full:
        with psycopg.connect(empty, autocommit=True) as conn:
            make_room(empty, conn)
        begin = time.monotonic()
        filled = fill(full, pending=size.pending, due=DUE)
        fill_history(full, filled, runs=size.history, jobs=HISTORY_JOBS)
        print(f"filled in {time.monotonic() - begin:.0f} s", flush=True)
        for _ in range(size.rounds):
            for jobs, overlap in measures.OVERLAPS.items():
                for database, url in (("empty", empty), ("full", full)):
                    figures = once(bench, url, overlap=overlap, seconds=size.seconds)
                    print(f"{database} {jobs}: {json.dumps(figures)}", flush=True)
                    found.setdefault((jobs, database), []).append(figures)
    return [
        {"database": database, "jobs": jobs, **medians(rounds)}
        for (jobs, database), rounds in found.items()
    ]


def once(bench: Rig, url: str, *, overlap: str, seconds: float) -> dict[str, Any]:
    """Measure on a database, then clear away what is under way there."""
    with measures.measured(bench, url=url) as stage:
        lag = measures.start_lag(stage, rate=RATE, seconds=seconds)
        figures = measures.throughput(
            stage, jobs=measures.OFFERED, overlap=overlap, seconds=seconds
        )
    with psycopg.connect(url, autocommit=True) as conn:
        for statement in CLEAR:
            conn.execute(statement.encode())
    return figures | {name: lag[name] for name in COLUMNS if name in lag}


def medians(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the median of each figure that the table shows."""
    return {
        name: round(statistics.median(one[name] for one in rounds), 1)
        for name in COLUMNS
        if name in rounds[0]
    }


def verdict(rows: Sequence[Mapping[str, Any]]) -> list[shown.Gate]:
    """Return by how much a full database may be slower than an empty one."""
    by_load = {(row["jobs"], row["database"]): row for row in rows}
    gates = []
    for jobs in measures.OVERLAPS:
        empty, full = by_load[jobs, "empty"], by_load[jobs, "full"]
        speed = round(empty["runs_per_s"] / full["runs_per_s"], 2)
        cpu = round(_cpu(full) / _cpu(empty), 2)
        words = f"{jobs} jobs on a full database: {{}} x, at most {BAR} x"
        gates += [
            (words.format(f"time a run {speed}"), speed <= BAR),
            (words.format(f"CPU a run {cpu}"), cpu <= BAR),
        ]
    return gates


def _cpu(row: Mapping[str, Any]) -> float:
    return float(row["server_us_per_run"] + row["client_us_per_run"])


def main() -> int:
    """Measure, print the figures and the gates; exit 1 where a gate is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pending", type=int, default=10_000_000)
    parser.add_argument("--history", type=int, default=10_000_000)
    parser.add_argument("--small", action="store_true", help="a quick try")
    options = parser.parse_args()
    size = Size(
        pending=100_000 if options.small else options.pending,
        history=100_000 if options.small else options.history,
        rounds=2 if options.small else 3,
        seconds=3.0 if options.small else 15.0,
    )
    begin = time.monotonic()
    where = machine()
    with rig() as bench:
        rows = measure(bench, size)
    print(shown.table(COLUMNS, rows))
    return shown.conclude(
        verdict(rows),
        {
            "machine": where,
            "took_s": round(time.monotonic() - begin, 1),
            "pending": size.pending,
            "history": size.history,
            "rows": rows,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
