"""Live runs beside a catch-up: a leader comes back to very many missed runs."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from benchmarks.measures import in_ms, next_second, sleep_until
from benchmarks.rig import Rig, make_room, now_ms, seed, seed_intervals, stack
from chrono.rules.instants import DAY, MINUTE, SECOND, Millis, format_instant

BAR_MS = 1_000
LIVE = 200
"""Live runs a second."""
LIVE_PERIOD: Millis = 30 * SECOND
"""Of each live job: longer than the leader is away, so that none is late twice."""
PER_JOB = 900
"""Runs that one job of `run_all` has missed; it may run 1,000 of them."""
CALM_SECONDS = 5
LATEST_S = 5.0
"""How long after its stretch the last live run may be executed."""
LED = """
    SELECT (1000 * extract(epoch FROM greatest(
        (SELECT max(taken_at) FROM chrono_partition),
        (SELECT max(started_at) FROM chrono_worker)
    )))::bigint
"""
LIVE_LAGS = """
    SELECT (1000 * extract(epoch FROM r.due_at))::bigint,
        (1000 * extract(epoch FROM r.started_at - r.due_at))::float8
    FROM chrono_run r JOIN chrono_job j ON j.id = r.job_id
    WHERE j.name = 'live' AND r.due_at >= to_timestamp(%s / 1000.0)
        AND r.due_at < to_timestamp(%s / 1000.0)
"""
CAUGHT_UP = """
    SELECT count(*), (1000 * extract(epoch FROM max(o.decided_at)))::bigint,
        (SELECT count(*) FROM chrono_blocked),
        (SELECT count(*) FROM chrono_ready WHERE priority = 4)
        + (SELECT count(*) FROM chrono_lease WHERE priority = 4)
        + (SELECT count(*) FROM chrono_run WHERE priority = 4)
    FROM chrono_occurrence o JOIN chrono_job j ON j.id = o.job_id
    WHERE j.name = 'missed' AND o.outcome = 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What was missed."""

    name: str
    missed: int
    seed: Callable[[psycopg.Connection[Any], int, Millis], object]
    """Writes it, given how many runs and the present instant."""


def measure(
    bench: Rig, *, missed: int, rates: Sequence[float], seconds: int
) -> list[dict[str, Any]]:
    """Return the figures beside each kind of backlog at each rate, a row each."""
    jobs = missed // PER_JOB
    backlogs = [
        Backlog(
            name=f"{jobs:,} jobs x {PER_JOB}", missed=jobs * PER_JOB, seed=_seed_run_all
        ),
        Backlog(name=f"{missed:,} jobs x 1", missed=missed, seed=_seed_run_once),
    ]
    calm = _watch(bench, NOTHING, rate=rates[0], seconds=CALM_SECONDS)
    rows = [calm]
    for backlog in backlogs:
        for rate in rates:
            row = _watch(bench, backlog, rate=rate, seconds=seconds)
            lags = row["start_lag_p99_ms"], calm["start_lag_p99_ms"]
            if all(lags):
                row["of_calm"] = round(lags[0] / lags[1], 2)
            rows.append(row)
    return rows


def _watch(
    bench: Rig, backlog: Backlog, *, rate: float, seconds: int
) -> dict[str, Any]:
    """Return what a leader that comes back makes of live and of missed runs.

    Live runs count from the instant that it leads and the workers are there.
    """
    with bench.database() as url, psycopg.connect(url, autocommit=True) as conn:
        make_room(url, conn)
        backlog.seed(conn, backlog.missed, now_ms(conn))
        start = next_second(now_ms(conn))
        seed_intervals(
            conn,
            LIVE * LIVE_PERIOD // SECOND,
            overlap="allow_all",
            start=start,
            period=LIVE_PERIOD,
            label="live",
        )
        conn.execute("ANALYZE chrono_timer")
        with stack(url, settings={"CHRONO_CATCHUP_RATE": str(rate)}) as running:
            [(led,)] = conn.execute(LED).fetchall()
            begin = max(led, start)
            sleep_until(conn, begin + seconds * SECOND)
            lags = _live_lags(conn, begin, seconds)
            row = {
                "backlog": backlog.name,
                "rate": rate,
                "leader": "died" if running.schedulers[0].poll() else "lives",
                "live_runs": len(lags),
                **_percentiles([lag for _, lag in lags], LIVE * seconds),
                **_caught_up(conn, backlog, begin),
                "p99_by_second": _by_second(lags, begin),
            }
    print(row, flush=True)
    return row


def _live_lags(
    conn: psycopg.Connection[Any], begin: Millis, seconds: int
) -> list[tuple[Millis, float]]:
    """Return due instant and start lag in ms of the live runs of a stretch."""
    deadline = time.monotonic() + LATEST_S
    while True:
        lags = conn.execute(LIVE_LAGS, [begin, begin + seconds * SECOND]).fetchall()
        if len(lags) >= LIVE * seconds or time.monotonic() > deadline:
            return lags
        time.sleep(0.2)


def _caught_up(
    conn: psycopg.Connection[Any], backlog: Backlog, begin: Millis
) -> dict[str, Any]:
    """Return how far the catch-up has come, and what is wrong with it."""
    now = now_ms(conn)
    [(decided, last, blocked, let_in)] = conn.execute(CAUGHT_UP).fetchall()
    complete = last and decided == backlog.missed
    return {
        "missed": backlog.missed,
        "decided": decided,
        "decided_s": round((last - begin) / 1000, 3) if complete else None,
        "let_in_per_s": round(let_in / (now - begin) * 1000, 1),
        "unaccounted": abs(decided - blocked - let_in),
    }


def _percentiles(lags: Sequence[float], expected: int) -> dict[str, float | None]:
    """Return the percentiles; a run that is not there is later than all others."""
    ordered: list[float | None] = [*sorted(lags), *[None] * (expected - len(lags))]
    return in_ms(*(ordered[int(len(ordered) * share)] for share in (0.5, 0.99)))


def _by_second(
    lags: Sequence[tuple[Millis, float]], begin: Millis
) -> Mapping[int, Any]:
    """Return the 99th percentile of each second of the stretch."""
    seconds: defaultdict[int, list[float]] = defaultdict(list)
    for due, lag in lags:
        seconds[(due - begin) // SECOND].append(lag)
    return {
        second: _percentiles(those, len(those))["start_lag_p99_ms"]
        for second, those in sorted(seconds.items())
    }


def _seed_run_all(conn: psycopg.Connection[Any], missed: int, now: Millis) -> None:
    """Few jobs of every second that missed very many and have ended since."""
    first = now - (PER_JOB + 100) * SECOND
    schedule = {
        "interval": "1s",
        "starts_at": format_instant(first),
        "ends_at": format_instant(first + (PER_JOB - 1) * SECOND),
    }
    jobs = missed // PER_JOB
    seed(
        conn,
        [first] * jobs,
        [schedule] * jobs,
        overlap="allow_all",
        label="missed",
        policy={"catchup_policy": "run_all"},
    )


def _seed_run_once(conn: psycopg.Connection[Any], missed: int, now: Millis) -> None:
    """Very many default jobs of every day that missed one each."""
    firsts = [now - 11 * MINUTE + number * MINUTE // missed for number in range(missed)]
    schedules = [
        {"interval": f"{DAY}ms", "starts_at": format_instant(first)} for first in firsts
    ]
    seed(conn, firsts, schedules, overlap="skip", label="missed")


NOTHING = Backlog(name="nothing", missed=0, seed=lambda *_: None)
