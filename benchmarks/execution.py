"""Measure how runs are executed; the last line is JSON.

    make bench-execution
    make bench-execution ARGS="--small"
    make bench-execution ARGS="--only idle,claim"

Each figure has a database and processes of its own, and its limit measured beside it:

    noop      runs that do nothing, of many ready; the limit: the bare claim and settle
    webhook   runs for a CPU second of the worker; the limit: bare aiohttp that posts
    sleepers  runs asleep at once; the limits: bare asyncio, and workers with nothing
    claim     one tenant's full queue; the limit: the same claims of a short one
    snapshot  an old snapshot is held; the limit: the speed before and after it
    idle      one scheduler and two workers, nothing due
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django

django.setup()

# They need the settings above.
from benchmarks import claims, measures, shown, sleepers, snapshot, workers  # noqa: E402
from benchmarks.rig import Rig, machine, rig  # noqa: E402

WAIT_MS = 1_000
"""Within which another tenant's single run begins beside a full queue."""
KEPT = 0.8
"""The share of the speed that is left while an old snapshot is held."""
IDLE_PER_S = 8
NOOP_COLUMNS = {
    "processes": "workers",
    "runs_per_s": "runs/s",
    "bare_runs_per_s": "bare",
    "of_bare": "of bare",
    "cpu_us_per_run": "CPU us/run",
    "bare_cpu_us_per_run": "bare",
    "cpu_of_bare": "x bare",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    seconds: float
    sleepers: int
    asleep_s: float
    ready: int
    others: int
    around_s: float
    held_s: float
    idle_s: float


FULL = Size(
    seconds=5.0,
    sleepers=50_000,
    asleep_s=30.0,
    ready=1_000_000,
    others=10,
    around_s=20.0,
    held_s=180.0,
    idle_s=60.0,
)
SMALL = Size(
    seconds=2.0,
    sleepers=5_000,
    asleep_s=12.0,
    ready=200_000,
    others=3,
    around_s=5.0,
    held_s=15.0,
    idle_s=10.0,
)


def noop(bench: Rig, size: Size) -> dict[str, Any]:
    """Return the figures of 1, 2 and 4 worker processes."""
    rows = [
        workers.no_op(bench, processes=count, seconds=size.seconds)
        for count in (1, 2, 4)
    ]
    print(shown.table(NOOP_COLUMNS, rows))
    return {"rows": rows}


def idle(bench: Rig, size: Size) -> dict[str, Any]:
    """Return what an idle system does."""
    with measures.measured(bench) as stage:
        return measures.idle(stage, seconds=size.idle_s)


FIGURES: Mapping[str, Callable[[Rig, Size], dict[str, Any]]] = {
    "noop": noop,
    "webhook": lambda bench, size: workers.webhooks(bench, seconds=size.seconds),
    "sleepers": lambda bench, size: sleepers.measure(
        bench, count=size.sleepers, seconds=size.asleep_s
    ),
    "claim": lambda bench, size: claims.measure(
        bench, ready=size.ready, others=size.others
    ),
    "snapshot": lambda bench, size: snapshot.measure(
        bench, around=size.around_s, held=size.held_s
    ),
    "idle": idle,
}


def verdict(figures: Mapping[str, Mapping[str, Any]]) -> list[shown.Gate]:
    """Return the bars of those figures that were measured."""
    gates: list[shown.Gate] = []
    if found := figures.get("sleepers"):
        count = found["n"]
        gates += [
            (f"{found['asleep']} of {count} sleep at once", found["asleep"] == count),
            (f"{found['renewed']} leases renewed", found["renewed"] == count),
            (
                f"{found['succeeded_once']} succeeded at their first attempt",
                found["succeeded_once"] == found["over"] == count,
            ),
        ]
    if found := figures.get("claim"):
        wait = found["other_wait_max_ms"]
        left = found["ready_left"]
        words = f"another tenant waits {wait} ms beside {left} runs, under {WAIT_MS} ms"
        gates.append((words, left > 0 and wait is not None and wait < WAIT_MS))
    if found := figures.get("snapshot"):
        kept, died = found["kept"], found["died"]
        words = f"{kept} of the speed kept, at least {KEPT}; {died} processes died"
        gates.append((words, kept is not None and kept >= KEPT))
    if found := figures.get("idle"):
        rate = found["statements_per_s"]
        words = f"{rate} statements/s while idle, under {IDLE_PER_S}"
        gates.append((words, rate < IDLE_PER_S))
    return gates


def main() -> int:
    """Measure, print the figures and the gates; exit 1 where a gate is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a quick try")
    parser.add_argument(
        "--only", default=",".join(FIGURES), help="some figures, by commas"
    )
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := set(names) - FIGURES.keys():
        parser.error(f"there is no figure {', '.join(sorted(unknown))}")
    size = SMALL if options.small else FULL
    begin = time.monotonic()
    where = machine()
    figures: dict[str, dict[str, Any]] = {}
    with rig() as bench:
        for name in names:
            figures[name] = FIGURES[name](bench, size)
            print(f"{name}: {json.dumps(figures[name])}", flush=True)
    took = round(time.monotonic() - begin, 1)
    return shown.conclude(
        verdict(figures), {"machine": where, "took_s": took, **figures}
    )


if __name__ == "__main__":
    sys.exit(main())
