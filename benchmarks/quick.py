"""Measure the speed once, in under a minute; the last line is one JSON object.

    make bench-quick

One run's figures on a shared machine are noisy: `make bench` repeats for medians.
"""

import argparse
import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django

django.setup()

from benchmarks import bare, measures  # noqa: E402  (needs the settings above)
from benchmarks.rig import Rig, machine, rig  # noqa: E402

GATE_RUNS_PER_S = 15_000
GATE_LAG_P99_MS = 50


def measure(bench: Rig, *, seconds: float, lag_seconds: float) -> dict[str, Any]:
    """Return every figure, each with its n; say on the way what is being measured."""
    figures: dict[str, Any] = {}

    def take(name: str, figure: dict[str, Any]) -> None:
        figures[name] = figure
        print(f"{name}: {json.dumps(figure)}", flush=True)

    take("bare", bare.bare(bench, seconds=1.0, ledger=True))
    take("bare_without_ledger", bare.bare(bench, seconds=1.0, ledger=False))
    for name, overlap in measures.OVERLAPS.items():
        with measures.measured(bench) as stage:
            figure = measures.throughput(
                stage, jobs=measures.OFFERED, overlap=overlap, seconds=seconds
            )
        figure["ratio_to_bare"] = round(
            figure["runs_per_s"] / figures["bare"]["runs_per_s"], 2
        )
        take(name, figure)
    with measures.measured(bench) as stage:
        take("idle", measures.idle(stage, seconds=3.0))
        for rate in (200, 1_000):
            take(
                f"start_lag_{rate}",
                measures.start_lag(stage, rate=rate, seconds=lag_seconds),
            )
        for count in (1_000, 50_000):
            take(f"burst_{count}", measures.burst(stage, count=count))
    return figures


def verdict(figures: dict[str, Any]) -> list[str]:
    """Return the gates that were missed, in words."""
    bar = min(GATE_RUNS_PER_S, figures["bare"]["runs_per_s"] / 3)
    missed = []
    if figures["plain"]["runs_per_s"] < bar:
        missed.append(f"plain {figures['plain']['runs_per_s']} runs/s under {bar:.0f}")
    lag = figures["start_lag_200"]["start_lag_p99_ms"]
    if lag is None or lag >= GATE_LAG_P99_MS:
        missed.append(f"start lag p99 at 200/s {lag} ms, not under {GATE_LAG_P99_MS}")
    return missed


def main() -> int:
    """Measure, print the figures and the gates; exit 1 where a gate is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of throughput")
    parser.add_argument("--lag-seconds", type=float, default=2.0, help="of each rate")
    options = parser.parse_args()
    begin = time.monotonic()
    where = machine()
    with rig() as bench:
        figures = measure(
            bench, seconds=options.seconds, lag_seconds=options.lag_seconds
        )
    missed = verdict(figures)
    for gate in missed:
        print(f"gate missed: {gate}")
    print(
        json.dumps(
            {
                "machine": where,
                "took_s": round(time.monotonic() - begin, 1),
                "gates_missed": missed,
                **figures,
            }
        )
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
