"""One function a measure. Each takes a stage and a line's options, and returns figures.

`runs` of a figure are numbers of jobs, `…_ms` milliseconds, `…_per_s` jobs a second.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import psycopg

from benchmarks.peers.contenders import CONTENDERS
from benchmarks.peers.peer import SLOW
from benchmarks.peers.plan import Options
from benchmarks.peers.stage import Event, Stage

type Figures = dict[str, Any]

SINGLY = 300
"""How many jobs a run of throughput enqueues one by one."""
DRAIN_SECONDS = 20
LATENCY_JOBS, LATENCY_GAP = 100, 0.1
CRON_LEAD = 10
"""Seconds at least from the start of a worker to the minute that is looked at."""
WINDOW = 10.0
"""Seconds over which a speed is taken after a snapshot was opened, and at the end."""


def smoke(stage: Stage, options: Options) -> Figures:
    """Whether jobs of every kind that the peer knows are done; no figure."""
    kinds = (
        ["single", "many", "again"] if stage.peer == "chrono" else ["single", "many"]
    )
    for number, how in enumerate(kinds):
        stage.tell("enqueue", how, 20, 20 * number)
    stage.start_workers(options.workers)
    wanted = 20 * len(kinds)
    # With its defaults, pg-boss takes one job every two seconds.
    done = stage.wait(wanted, limit=2 * wanted + 10)
    return {
        "done": done,
        "events": stage.count(),
        "distinct": len(_first(stage.events())),
    }


def throughput(stage: Stage, options: Options) -> Figures:
    """A backlog, then the workers: jobs a second from first to last start of a handler.

    ``finished_per_s`` is over the time until the peer's own tables show all as over.
    """
    best = stage.mode == "best"
    count = options.n or CONTENDERS[stage.peer].jobs[best]
    singles = min(SINGLY, count // 4)
    how = "again" if options.again else "many"
    singly = stage.tell("enqueue", "single", singles, 0)
    in_bulk = stage.tell("enqueue", how, count - singles, singles)
    stage.start_workers(options.workers)
    done = stage.wait(count, limit=DRAIN_SECONDS)
    times = sorted(at for _, at in stage.events())
    over = stage.wait_until_finished(limit=DRAIN_SECONDS) if done else None
    return {
        "n": count,
        "done": len(times),
        "twice": len(times) - len(_first(stage.events())),
        "started_per_s": _speed(times),
        "middle_per_s": _speed(times[len(times) // 10 : len(times) * 9 // 10]),
        "finished_per_s": None if over is None else len(times) / (over - times[0]),
        "singly_per_s": singles / singly,
        "in_bulk_per_s": (count - singles) / in_bulk,
    }


def latency(stage: Stage, options: Options) -> Figures:
    """An idle system, a job every 100 ms: from the call's return to the start."""
    stage.start_workers(options.workers)
    stage.tell("enqueue", "single", 3, LATENCY_JOBS)
    stage.wait(3, limit=15)
    time.sleep(2)
    sent = stage.tell("latency", LATENCY_JOBS, LATENCY_GAP)
    stage.wait(LATENCY_JOBS + 3, limit=8)
    started = _first(stage.events())
    return _late(started[n] - at for n, at in enumerate(sent) if n in started)


def burst(stage: Stage, options: Options) -> Figures:
    """Many jobs due at one whole second, the worker waiting: how late they start."""
    count = options.n or 1_000
    stage.start_workers(options.workers)
    time.sleep(3)
    at = int(time.time()) + options.lead
    stage.tell("enqueue", "many", count, 0, at)
    if time.time() > at:
        raise RuntimeError("enqueueing lasted longer than the lead")
    stage.wait(count, limit=at - time.time() + options.after)
    times = sorted(_first(stage.events()).values())
    return {**_late(time - at for time in times), "drained_per_s": _speed(times)}


def cron(stage: Stage, options: Options) -> Figures:
    """Entries of cron for every minute: how late they start at the next one."""
    count = options.n or 100
    begin = time.time()
    # Some first catch up on the minute before: it is not looked at.
    at = (int(begin + CRON_LEAD) // 60 + 1) * 60
    stage.start_workers(cron=count)
    time.sleep(at - begin)
    while True:
        time.sleep(0.2)
        started = _first(one for one in stage.events() if one[1] > at - 3)
        if len(started) >= count or time.time() > at + options.after:
            return _late(moment - at for moment in started.values())


def longtx(stage: Stage, options: Options) -> Figures:
    """Jobs come as they are done, and a snapshot is opened on the way and held."""
    how = "again" if options.again else "many"
    stage.start_workers(options.workers)
    feeder = stage.background("load", how, options.seconds)
    while not stage.count() and feeder.poll() is None:
        time.sleep(0.05)
    begin = time.time()
    time.sleep(options.base)
    with psycopg.connect(stage.url) as conn:
        if options.hold:
            conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            conn.execute("SELECT pg_current_xact_id()")
        stage.finish(feeder, timeout=options.seconds + 30)
        end = time.time()
        conn.rollback()
    times = [at for _, at in stage.events()]
    opened = begin + options.base
    return {
        "n": len(times),
        "before_per_s": _speed_within(times, begin + 2, opened),
        "first_per_s": _speed_within(times, opened, opened + WINDOW),
        "last_per_s": _speed_within(times, end - WINDOW, end),
    }


def crash(stage: Stage, options: Options) -> Figures:
    """Twenty jobs of ten seconds, their worker killed: when those start again."""
    stage.start_workers()
    time.sleep(4)
    stage.tell("enqueue", "single", 20, SLOW)
    stage.wait(1, limit=30)
    time.sleep(5)
    killed = time.time()
    stage.kill_workers()
    before = {n for n, _ in stage.events()}
    cut = {n for n in before if n > 0 and -n not in before}
    stage.start_workers()
    while True:
        time.sleep(1)
        starts = _first((n, at) for n, at in stage.events() if n in cut and at > killed)
        again = [at - killed for at in starts.values()]
        if len(again) == len(cut) or time.time() > killed + options.limit:
            return {
                "cut": len(cut),
                "again": len(again),
                "first_s": min(again, default=None),
                "last_s": max(again, default=None),
            }


type Measure = Callable[[Stage, Options], Figures]

MEASURES: dict[str, Measure] = {
    measure.__name__: measure
    for measure in (smoke, throughput, latency, burst, cron, longtx, crash)
}


def _first(events: Iterable[Event]) -> dict[int, float]:
    """Return when each job started first."""
    first: dict[int, float] = {}
    for n, at in events:
        first.setdefault(n, at)
    return first


def _speed(times: Sequence[float]) -> float | None:
    """Return events a second, from the first to the last."""
    if len(times) < 2 or times[0] == times[-1]:
        return None
    return (len(times) - 1) / (times[-1] - times[0])


def _speed_within(times: Iterable[float], begin: float, end: float) -> float:
    return sum(begin <= at < end for at in times) / (end - begin)


def _late(seconds: Iterable[float]) -> Figures:
    """Return the percentiles of how late jobs were, in milliseconds."""
    late = sorted(1000 * each for each in seconds)
    if not late:
        return {"n": 0}
    return {
        "n": len(late),
        **{
            f"p{p}_ms": late[min(len(late) - 1, len(late) * p // 100)]
            for p in (50, 95, 99)
        },
        "most_ms": late[-1],
    }
