"""Measure several times and print the medians; the last line is one JSON object.

    make bench
    make bench ARGS="--times 5"

Each time is a run of `benchmarks.quick` with 30 s of throughput, a process of its own.
"""

import argparse
import json
import subprocess
import sys
from typing import Any

from benchmarks.shown import spread


def main() -> int:
    """Run, gather and print the medians with their spread."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    for number in range(options.times):
        print(f"run {number + 1} of {options.times}", flush=True)
        command = [sys.executable, "-m", "benchmarks.quick"]
        command += ["--seconds", str(options.seconds), "--lag-seconds", "10"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        lines = done.stdout.strip().splitlines()
        print("\n".join(lines[:-1]), flush=True)
        results.append(json.loads(lines[-1]))
    medians = {
        name: _medians([result[name] for result in results])
        for name, value in results[0].items()
        if isinstance(value, dict) and name != "machine"
    }
    missed = sorted({gate for result in results for gate in result["gates_missed"]})
    print(
        json.dumps(
            {
                "machine": results[0]["machine"],
                "times": options.times,
                "gates_missed": missed,
                **medians,
            }
        )
    )
    return 1 if missed else 0


def _medians(figures: list[dict[str, Any]]) -> dict[str, Any]:
    """Return for each number its median, lowest and highest."""
    out = spread(figures)
    if "memory_mb" in figures[0]:
        out["memory_mb"] = figures[-1]["memory_mb"]
    return out


if __name__ == "__main__":
    sys.exit(main())
