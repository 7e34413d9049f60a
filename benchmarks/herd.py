"""Measure herds, and live runs beside a catch-up; the last line is one JSON object.

    make bench-herd
    make bench-herd ARGS="--small"

A herd is many timers of one instant, on two schedulers that share the partitions and
two workers. Each comes twice: calm, and with the leader of partition 0 killed 200 ms
after the instant. Its effects are counted in a ledger outside the database. With
jitter, half of a herd are plain jobs and half default ones, spread over 30 s: the
default window of a job of every minute.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django

django.setup()

from benchmarks import bare, catchup, shown  # noqa: E402  (needs the settings above)
from benchmarks.measures import (  # noqa: E402
    Stage,
    end_jobs,
    in_ms,
    measured,
    next_second,
    sleep_until,
)
from benchmarks.rig import Rig, machine, now_ms, rig, seed  # noqa: E402
from benchmarks.tasks import FOLDER, read_ledgers  # noqa: E402
from chrono.rules.instants import MINUTE, SECOND, Millis, from_millis  # noqa: E402
from chrono.rules.jitter import default_window  # noqa: E402
from chrono.rules.keys import run_id  # noqa: E402
from chrono.rules.partitions import partition_of  # noqa: E402
from chrono.rules.schedule import schedule_from_json  # noqa: E402

KILL_AFTER: Millis = 200
LEAD_PER_JOB = 0.1
"""Milliseconds before the instant that a job's seeding is given."""
LIMIT_S = 40.0
OVERLAPS = {"plain": "allow_all", "default": "skip"}
FIGURES = """
    SELECT count(*), count(DISTINCT job_id),
        1000 * percentile_cont(0.5) WITHIN GROUP (
            ORDER BY extract(epoch FROM started_at - r.due_at)),
        1000 * percentile_cont(0.99) WITHIN GROUP (
            ORDER BY extract(epoch FROM started_at - r.due_at)),
        extract(epoch FROM max(dispatched_at) - max(r.due_at))::float8,
        extract(epoch FROM max(finished_at) - max(r.due_at))::float8
    FROM chrono_run r JOIN chrono_job j ON j.id = r.job_id
    WHERE r.id >= %s AND r.id < %s AND j.name = %s
"""
COLUMNS = {
    "timers": "timers",
    "jitter": "jitter",
    "jobs": "jobs",
    "leader": "leader",
    "ready_s": "all ready s",
    "executed_s": "all executed s",
    "start_lag_p50_ms": "lag p50 ms",
    "start_lag_p99_ms": "p99 ms",
    "runs_per_s": "runs/s",
    "of_bare": "of bare",
    "lost": "lost",
    "doubled": "doubled",
}
CATCHUP_COLUMNS = {
    "backlog": "backlog",
    "rate": "rate/s",
    "decided_s": "decided s",
    "let_in_per_s": "let in/s",
    "leader": "leader",
    "live_runs": "live runs",
    "start_lag_p50_ms": "live lag p50 ms",
    "start_lag_p99_ms": "p99 ms",
    "of_calm": "of calm",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Herd:
    """Timers of one instant, in equal groups of jobs that are named in OVERLAPS."""

    count: int
    groups: tuple[str, ...]
    widest: Millis = 0
    """The widest window that jitter may spread them over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    herds: tuple[Herd, ...]
    missed: int
    rates: tuple[float, ...]
    """How many missed runs a second are let in."""
    seconds: int
    """How long live runs are watched beside a catch-up."""


BOTH = tuple(OVERLAPS)
FULL = Size(
    herds=(
        *(Herd(count=n, groups=(g,)) for n in (10_000, 50_000) for g in BOTH),
        *(Herd(count=n, groups=BOTH, widest=MINUTE) for n in (10_000, 50_000)),
    ),
    missed=100_000,
    rates=(50.0, 1_000.0),
    seconds=15,
)
SMALL = Size(
    herds=(
        *(Herd(count=1_000, groups=(g,)) for g in BOTH),
        Herd(count=1_000, groups=BOTH, widest=4 * SECOND),
    ),
    missed=5_000,
    rates=(1_000.0,),
    seconds=4,
)


def measure(bench: Rig, herd: Herd, limit: int) -> list[dict[str, Any]]:
    """Return a herd's figures, calm and with its leader killed, a row a group.

    ``limit`` is what the bare statements settle in a second.
    """
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        options = {"schedulers": 2, "settings": {FOLDER: folder}}
        with measured(bench, **options) as stage:
            _wait_until_shared(stage)
            for killed in (False, True):
                rows += _play(stage, herd, Path(folder), limit, killed=killed)
    return rows


def _play(
    stage: Stage, herd: Herd, folder: Path, limit: int, *, killed: bool
) -> list[dict[str, Any]]:
    at, window, jobs = _seed(stage, herd)
    if killed:
        leader = _leader(stage)
        sleep_until(stage.conn, at + KILL_AFTER)
        leader.send_signal(signal.SIGKILL)
    sleep_until(stage.conn, at + window)
    ids = _lowest_id(at), _lowest_id(at + 1)
    _wait_until_executed(stage, ids, sum(map(len, jobs.values())))
    end_jobs(stage.conn)
    executed = read_ledgers(folder)
    rows = []
    for group, members in jobs.items():
        [(runs, distinct, p50, p99, ready, done)] = stage.conn.execute(
            FIGURES, [*ids, group]
        ).fetchall()
        times = [
            executed[run_id(job, at, 0, partition_of(job)).bytes] for job in members
        ]
        row = {
            "timers": len(members),
            "jitter": f"{window // 1000} s" if window else "off",
            "jobs": group,
            "leader": "killed" if killed else "calm",
            "ready_s": ready,
            "executed_s": done,
            **in_ms(p50, p99),
            "lost": max(times.count(0), len(members) - distinct),
            "doubled": max(sum(n - 1 for n in times if n > 1), runs - distinct),
        }
        if runs and not window:
            row["runs_per_s"] = round(runs / done)
            row["of_bare"] = round(row["runs_per_s"] / limit, 2)
        rows.append(row)
    return rows


def _seed(
    stage: Stage, herd: Herd
) -> tuple[Millis, Millis, dict[str, list[uuid.UUID]]]:
    """Write the herd; return its instant, its window and its jobs by group.

    Again with more time ahead where the instant came before all was written.
    """
    lead = LEAD_PER_JOB * herd.count
    while True:
        at = next_second(now_ms(stage.conn)) + round(lead)
        second = from_millis(at).second
        schedule = {"cron": f"{second} * * * * *", "seconds": True}
        window = min(default_window(schedule_from_json(schedule)), herd.widest)
        count = herd.count // len(herd.groups)
        jobs = {
            group: seed(
                stage.conn,
                [at] * count,
                [schedule] * count,
                overlap=OVERLAPS[group],
                label=group,
                jitter_window=window,
                task="benchmarks.noted",
            )
            for group in herd.groups
        }
        if now_ms(stage.conn) < at - 500:
            return at, window, jobs
        end_jobs(stage.conn)
        lead = 2 * lead + 1_000


def _wait_until_shared(stage: Stage) -> None:
    """Return once both schedulers hold half of the partitions."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        shares = stage.conn.execute(
            "SELECT count(*) FROM chrono_partition GROUP BY owner"
        ).fetchall()
        if shares == [(32,), (32,)]:
            return
        time.sleep(0.1)
    raise SystemExit("the schedulers do not share the partitions")


def _leader(stage: Stage) -> Any:
    """Return the process that leads partition 0."""
    [(owner,)] = stage.conn.execute(
        "SELECT owner FROM chrono_partition WHERE id = 0"
    ).fetchall()
    pid = int(owner.split(":")[-2])
    return next(p for p in stage.running.schedulers if p.pid == pid)


def _wait_until_executed(
    stage: Stage, ids: tuple[uuid.UUID, uuid.UUID], count: int
) -> None:
    """Return once so many runs of an instant are settled, or long after."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        [(settled,)] = stage.conn.execute(
            "SELECT count(*) FROM chrono_run WHERE id >= %s AND id < %s", ids
        ).fetchall()
        if settled >= count:
            return
        time.sleep(0.2)


def _lowest_id(moment: Millis) -> uuid.UUID:
    """Return the lowest id that a run of an instant may have."""
    return uuid.UUID(int=moment << 80)


def verdict(
    herds: Sequence[Mapping[str, Any]], catchups: Sequence[Mapping[str, Any]]
) -> list[shown.Gate]:
    """Return what must hold: every run once, and live runs in time beside missed."""
    lost = sum(row["lost"] for row in herds)
    doubled = sum(row["doubled"] for row in herds)
    gates = [(f"all herds: {lost} lost, {doubled} doubled", lost + doubled == 0)]
    for row in catchups:
        where = f"beside {row['backlog']} at {row['rate']:g}/s"
        lag, wrong = row["start_lag_p99_ms"], row["unaccounted"]
        in_time = lag is not None and lag < catchup.BAR_MS
        gates += [
            (f"{where}: live p99 {lag} ms, under {catchup.BAR_MS} ms", in_time),
            (f"{where}: {wrong} missed runs lost or doubled", wrong == 0),
        ]
    return gates


def main() -> int:
    """Measure, print the figures and the gates; exit 1 where a gate is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a quick try")
    size = SMALL if parser.parse_args().small else FULL
    begin = time.monotonic()
    where = machine()
    rows: list[dict[str, Any]] = []
    with rig() as bench:
        limit = bare.bare(bench, seconds=1.0, ledger=True)
        print(f"bare limit: {limit['runs_per_s']} runs/s", flush=True)
        for herd in size.herds:
            found = measure(bench, herd, limit["runs_per_s"])
            print(shown.table(COLUMNS, found), flush=True)
            rows += found
        catchups = catchup.measure(
            bench, missed=size.missed, rates=size.rates, seconds=size.seconds
        )
    print(shown.table(COLUMNS, rows))
    print(shown.table(CATCHUP_COLUMNS, catchups))
    return shown.conclude(
        verdict(rows, catchups),
        {
            "machine": where,
            "took_s": round(time.monotonic() - begin, 1),
            "bare": limit,
            "herds": rows,
            "catchups": catchups,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
