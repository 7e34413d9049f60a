"""Measure Chrono and its peers in one run; the last line is JSON.

    make bench-peers
    make bench-peers ARGS="longtx --only chrono,pgqueuer --times 3"

A plan is one of plans/: quick, longtx, crash, or smoke, which measures nothing.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django

django.setup()

from benchmarks.peers.contenders import CONTENDERS  # noqa: E402  (needs the settings)
from benchmarks.peers.install import install  # noqa: E402
from benchmarks.peers.measures import MEASURES  # noqa: E402
from benchmarks.peers.plan import BadPlan, Line, read_plan  # noqa: E402
from benchmarks.peers.report import Taken, medians, show  # noqa: E402
from benchmarks.peers.stage import SETTINGS, Stage, database  # noqa: E402
from benchmarks.rig import machine  # noqa: E402
from dev.postgres import Server  # noqa: E402


def main() -> int:
    """Measure; exit 1 where a run failed, 2 where there is nothing to run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", nargs="?", default="quick")
    parser.add_argument("--only", help="names of peers, separated by commas")
    parser.add_argument("--times", type=int, default=1, help="of the whole plan")
    options = parser.parse_args()
    only = options.only.split(",") if options.only else list(CONTENDERS)
    if unknown := set(only) - set(CONTENDERS):
        parser.error(f"unknown: {unknown.pop()}; there are {', '.join(CONTENDERS)}")
    try:
        plan = read_plan(options.plan, measures=MEASURES)
    except BadPlan as error:
        parser.error(str(error))
    lines = [line for line in plan if line.peer in only] * options.times
    if not lines:
        parser.error(f"nothing of {options.only} is in the plan {options.plan}")
    install({CONTENDERS[line.peer].program for line in lines})
    where, begin = machine(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chrono-peers-") as folder:
        server = Server(Path(folder) / "postgres", settings=dict(SETTINGS))
        try:
            server.start()
            taken = take_all(server, Path(folder), lines)
        finally:
            server.destroy()
    rows = medians(taken)
    failed = sum("error" in figures for _, figures in taken)
    print(show(rows))
    print(
        json.dumps(
            {
                "machine": where,
                "plan": options.plan,
                "took_s": round(time.monotonic() - begin),
                "failed": failed,
                "figures": rows,
            }
        )
    )
    return 1 if failed else 0


def take_all(server: Server, folder: Path, lines: Sequence[Line]) -> list[Taken]:
    """Take one run after the other; those of crash wait, so beside each other."""

    def one(number: int, line: Line) -> Taken:
        return line, take(server, folder / f"run_{number}", line)

    taken = [one(n, line) for n, line in enumerate(lines) if line.measure != "crash"]
    with ThreadPoolExecutor(max_workers=len(lines)) as pool:
        waiting = [
            pool.submit(one, n, line)
            for n, line in enumerate(lines)
            if line.measure == "crash"
        ]
    return taken + [each.result() for each in waiting]


def take(server: Server, folder: Path, line: Line) -> dict[str, object]:
    """Take one run and print its figures; one that fails has `error`."""
    try:
        with database(server, folder.name) as url:
            stage = Stage(peer=line.peer, mode=line.mode, url=url, folder=folder)
            with stage.running():
                figures = MEASURES[line.measure](stage, line.options)
    except Exception as error:  # noqa: BLE001  (the others are still to be measured)
        figures = {"error": f"{type(error).__name__}: {error}"[:300]}
    figures = {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in figures.items()
    }
    print(time.strftime("%H:%M:%S"), line.text, json.dumps(figures), flush=True)
    return figures


if __name__ == "__main__":
    sys.exit(main())
