"""Measure herds, and live runs beside a catch-up; the last line is one JSON object.

    make bench-herd
    make bench-herd ARGS="--small"

A herd is many timers of one instant, on two schedulers that share the partitions and
two workers. Each comes twice: calm, and with the leader of partition 0 killed 200 ms
after the instant. Some come to other numbers of processes, calm only. Effects are
counted in a ledger outside the database. With jitter, half of a herd are plain jobs and
half default ones, spread over 30 s: the default window of a job of every minute.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django

django.setup()

import psycopg  # noqa: E402  (needs the settings above)

from benchmarks import bare, catchup, shown  # noqa: E402
from benchmarks.measures import OVERLAPS, in_ms, next_second, sleep_until  # noqa: E402
from benchmarks.rig import (  # noqa: E402
    Rig,
    Stack,
    crowd,
    machine,
    make_room,
    now_ms,
    rig,
    seed,
    stack,
)
from benchmarks.tasks import FOLDER, read_ledgers  # noqa: E402
from chrono.rules.instants import MINUTE, SECOND, Millis, from_millis  # noqa: E402
from chrono.rules.jitter import default_window  # noqa: E402
from chrono.rules.keys import run_id  # noqa: E402
from chrono.rules.partitions import PARTITIONS, partition_of  # noqa: E402
from chrono.rules.schedule import schedule_from_json  # noqa: E402

USUAL = (2, 2)
"""Two schedulers and two workers."""
KILL_AFTER: Millis = 200
START_MS = 4_000
START_MS_PER_JOB = 0.15
"""How long writing a herd, and two schedulers' start and first load, may take."""
READY_MS = 500
LOOKING = "p.full_epoch, ("
"""What the look has in it: the last statement of a leader that has loaded all."""
LIMIT_S = 40.0
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
    "processes": "schedulers + workers",
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
    processes: tuple[int, int] = USUAL
    """How many schedulers and workers it comes to."""


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
        *(
            Herd(count=50_000, groups=("plain",), processes=processes)
            for processes in ((1, 2), (2, 1), (2, 4))
        ),
    ),
    missed=100_000,
    rates=(50.0, 1_000.0),
    seconds=10,
)
SMALL = Size(
    herds=(
        *(Herd(count=1_000, groups=(g,)) for g in BOTH),
        Herd(count=1_000, groups=BOTH, widest=4 * SECOND),
        Herd(count=1_000, groups=("plain",), processes=(1, 4)),
    ),
    missed=5_000,
    rates=(1_000.0,),
    seconds=4,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A herd that is written: when it is due, and the jobs of each group."""

    at: Millis
    window: Millis
    jobs: Mapping[str, Sequence[uuid.UUID]]


def measure(bench: Rig, herd: Herd) -> list[dict[str, Any]]:
    """Return a herd's figures, calm and with its leader killed, a row a group."""
    rows = []
    for kills in _turns(herd):
        lead = crowd() * (START_MS + START_MS_PER_JOB * herd.count * len(kills))
        while (found := _play_all(bench, herd, kills, lead)) is None:
            lead *= 2
        rows += found
    return rows


def _turns(herd: Herd) -> tuple[tuple[bool, ...], ...]:
    """Return for each database which of its herds has its leader killed."""
    if herd.widest:
        # What is spread leaves the machine to itself: both can follow each other there.
        return ((False, True),)
    return ((False,), (True,)) if herd.processes == USUAL else ((False,),)


def _play_all(
    bench: Rig, herd: Herd, kills: Sequence[bool], lead: float
) -> list[dict[str, Any]] | None:
    """Return the figures of herds that follow each other in one database.

    The first one is due ``lead`` ms from now: the leaders read it into their wheels as
    they start. None where they were not ready by then.
    """
    with (
        bench.database() as url,
        psycopg.connect(url, autocommit=True) as conn,
        tempfile.TemporaryDirectory() as folder,
    ):
        make_room(url, conn)
        first = next_second(now_ms(conn) + round(lead))
        plans = [_plan(conn, herd, first)]
        while len(plans) < len(kills):
            plans.append(_plan(conn, herd, plans[-1].at + plans[-1].window))
        conn.execute("ANALYZE chrono_timer")
        schedulers, workers = herd.processes
        with stack(
            url, schedulers=schedulers, workers=workers, settings={FOLDER: folder}
        ) as running:
            _wait_until_ready(conn, schedulers)
            if now_ms(conn) > first - READY_MS:
                return None
            rows = []
            for plan, kill in zip(plans, kills, strict=True):
                if kill:
                    leader = _leader(conn, running)
                    sleep_until(conn, plan.at + KILL_AFTER)
                    leader.send_signal(signal.SIGKILL)
                _wait_until_executed(conn, plan)
                ledger = read_ledgers(Path(folder))
                for group in plan.jobs:
                    row = {
                        "processes": f"{schedulers} + {workers}",
                        "leader": "killed" if kill else "calm",
                    }
                    rows.append(row | _figures(conn, plan, group, ledger))
            return rows


def _plan(conn: psycopg.Connection[Any], herd: Herd, at: Millis) -> Planned:
    """Write the herd of an instant: jobs of every minute that differ in overlap."""
    schedule = {"cron": f"{from_millis(at).second} * * * * *", "seconds": True}
    window = min(default_window(schedule_from_json(schedule)), herd.widest)
    count = herd.count // len(herd.groups)
    jobs = {
        group: seed(
            conn,
            [at] * count,
            [schedule] * count,
            overlap=OVERLAPS[group],
            label=group,
            jitter_window=window,
            target={"kind": "task", "name": "benchmarks.noted"},
        )
        for group in herd.groups
    }
    return Planned(at=at, window=window, jobs=jobs)


def _figures(
    conn: psycopg.Connection[Any],
    plan: Planned,
    group: str,
    ledger: Counter[bytes],
) -> dict[str, Any]:
    """Return what became of a group, by the database and by the ledger outside."""
    jobs = plan.jobs[group]
    [(runs, distinct, p50, p99, ready, done)] = conn.execute(
        FIGURES, [*_ids(plan.at), group]
    ).fetchall()
    executed = [
        ledger[run_id(job, plan.at, 0, partition_of(job)).bytes] for job in jobs
    ]
    row = {
        "timers": len(jobs),
        "jitter": f"{plan.window // 1000} s" if plan.window else "off",
        "jobs": group,
        "ready_s": ready,
        "executed_s": done,
        **in_ms(p50, p99),
        **faults(executed, runs=runs, distinct=distinct),
    }
    if runs and not plan.window:
        row["runs_per_s"] = round(runs / done)
    return row


def faults(executed: Sequence[int], *, runs: int, distinct: int) -> dict[str, int]:
    """Return how many runs are lost and doubled, by whichever witness knows of more.

    ``executed`` is how often the ledger has each run that had to be; the database has
    so many ``runs``, of so many ``distinct`` jobs.
    """
    return {
        "lost": max(executed.count(0), len(executed) - distinct),
        "doubled": max(sum(n - 1 for n in executed if n > 1), runs - distinct),
    }


def _wait_until_ready(conn: psycopg.Connection[Any], schedulers: int) -> None:
    """Return once each scheduler holds its share and has loaded it."""
    deadline = time.monotonic() + 60
    ready = 0
    while time.monotonic() < deadline:
        shares = conn.execute(
            "SELECT count(*) FROM chrono_partition GROUP BY owner"
        ).fetchall()
        [(looking,)] = conn.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = "
            "'chrono fire' AND state = 'idle' AND strpos(query, %s) > 0",
            [LOOKING],
        ).fetchall()
        even = shares == [(PARTITIONS // schedulers,)] * schedulers
        ready = ready + 1 if even and looking == schedulers else 0
        if ready == 3:
            return
        time.sleep(0.1)
    raise SystemExit("the schedulers do not share the partitions")


def _leader(conn: psycopg.Connection[Any], running: Stack) -> subprocess.Popen[bytes]:
    """Return the process that leads partition 0."""
    [(owner,)] = conn.execute(
        "SELECT owner FROM chrono_partition WHERE id = 0"
    ).fetchall()
    pid = int(owner.split(":")[-2])
    return next(p for p in running.schedulers if p.pid == pid)


def _wait_until_executed(conn: psycopg.Connection[Any], plan: Planned) -> None:
    """Return once all runs of a herd are settled, or long after they should be."""
    sleep_until(conn, plan.at + plan.window)
    expected = sum(map(len, plan.jobs.values()))
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        [(settled,)] = conn.execute(
            "SELECT count(*) FROM chrono_run WHERE id >= %s AND id < %s", _ids(plan.at)
        ).fetchall()
        if settled >= expected:
            return
        time.sleep(0.2)


def _ids(moment: Millis) -> tuple[uuid.UUID, uuid.UUID]:
    """Return the lowest run id of an instant and that of the next."""
    return uuid.UUID(int=moment << 80), uuid.UUID(int=(moment + 1) << 80)


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
        limits = [bare.bare(bench, seconds=1.0, ledger=True)]
        for herd in size.herds:
            found = measure(bench, herd)
            print(shown.table(COLUMNS, found), flush=True)
            rows += found
        catchups = catchup.measure(
            bench, missed=size.missed, rates=size.rates, seconds=size.seconds
        )
        limits.append(bare.bare(bench, seconds=1.0, ledger=True))
    limit = max(one["runs_per_s"] for one in limits)
    for row in rows:
        if "runs_per_s" in row:
            row["of_bare"] = round(row["runs_per_s"] / limit, 2)
    print(f"bare limit: {limit} runs/s, the higher of before and after")
    print(shown.table(COLUMNS, rows))
    print(shown.table(CATCHUP_COLUMNS, catchups))
    return shown.conclude(
        verdict(rows, catchups),
        {
            "machine": where,
            "took_s": round(time.monotonic() - begin, 1),
            "bare": limits,
            "herds": rows,
            "catchups": catchups,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
