"""A dead target for which thousands of runs wait, and which comes back."""

import socket
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import batched
from typing import Any

from chrono.rules.states import RunState
from tests.rigs import tables
from tests.rigs.faults.fault import Fault
from tests.rigs.faults.field import Field, Load, every_second
from tests.rigs.oracle import iso
from tests.rigs.stack import RigError, sleep_until, wait_for
from tests.worker.hostile import Received, hostile

FEW, RUNS, SPREAD = 20, 5_000, 400
"""Jobs of every second, runs that wait for the target, and others whose retries are to
be spread."""
AT_ONCE, APPLIED_S = 500, 60.0
SPREAD_AFTER_S, REVIVED_AFTER_S = 10.0, 20.0
BACKOFF_S = 20
PARKED_S, OVER_S = 25.0, 150.0
START, STEP_S = 5, 5
"""The ramp: so many runs a second, twice as many after so many seconds."""
BUDGET = 0.1
CRITICAL = 1.95
"""Divided by the root of their number: how far the distribution of evenly spread
instants is from even, once in a thousand times."""


def storm(field: Field) -> str:
    """F29: a target is dead for 5,000 runs that are due at once; then it is back."""
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        port = dead.getsockname()[1]
        due = make(field, f"http://127.0.0.1:{port}/status/200")
        sleep_until(due)
        wait_for(
            lambda: tables.count_gated(field.conn) >= RUNS / 2,
            seconds=PARKED_S,
            what="the runs to wait behind the circuit",
            every=0.2,
        )
        sleep_until(due + REVIVED_AFTER_S)
        called = count_calls(field)
    with hostile(port=port) as target:
        revived = time.time()
        wait_for(
            lambda: count_over(field) == RUNS,
            seconds=OVER_S,
            what="the runs that waited to be over",
            every=0.5,
        )
        took = time.time() - revived
        received = list(target.received)
    return (
        f"{called} of {RUNS} calls before the circuit was open to all, "
        f"{judge(field, received)}, all over {took:.0f} s after the revival; "
        f"{judge_spread(field)}"
    )


def few(prefix: str) -> Load:
    """Return some jobs of every second: edits wait for their fires."""
    return every_second(prefix, FEW)


def make(field: Field, url: str) -> float:
    """Make the jobs; return when the runs that wait are due, in seconds."""
    # A circuit and a budget that hold up nothing, at an address where nobody is.
    policy = {
        "max_attempts": 2,
        "backoff": {"base_ms": BACKOFF_S * 1000, "cap_ms": BACKOFF_S * 1000},
        "budget": {"ratio": 1.0, "min_concurrent": 1_000},
        "circuit_breaker": {"failure_threshold": 10_000},
    }
    begun = time.time()
    soon = begun + SPREAD_AFTER_S
    apply(
        field,
        [
            job(f"{spread_of(field)}{n:03}", soon, "http://127.0.0.1:1", policy)
            for n in range(SPREAD)
        ],
    )
    # As long as the others will take, and half as long again.
    due = time.time() + 1.5 * (time.time() - begun) * RUNS / AT_ONCE
    jobs = [job(f"storm-{field.prefix}{n:04}", due, url, {}) for n in range(RUNS)]
    for some in batched(jobs, AT_ONCE, strict=False):
        apply(field, some)
    return due


def apply(field: Field, jobs: Sequence[dict[str, Any]]) -> None:
    """Make some of the jobs; again where leaders kept their partitions for too long."""

    def is_made() -> bool:
        try:
            field.stack.apply(jobs)
        except RigError as error:
            if "nothing was changed" in str(error):
                return False
            raise
        return True

    wait_for(is_made, seconds=APPLIED_S, what="jobs to be made")


def spread_of(field: Field) -> str:
    """Return how the keys of the jobs begin whose retries are to be spread."""
    return f"spread-{field.prefix}"


def job(key: str, due: float, url: str, policy: dict[str, Any]) -> dict[str, Any]:
    """Return a job that calls an address once."""
    return {
        "key": key,
        "run_at": iso(due),
        "target": {"kind": "http", "url": url},
        "retry_policy": {"backoff": {"cap_ms": 10_000}, **policy},
    }


def count_over(field: Field) -> int:
    """Return how many of the runs that waited are over."""
    [(number,)] = field.conn.execute(
        "SELECT count(*) FROM chrono_run r JOIN chrono_job j ON j.id = r.job_id"
        " WHERE starts_with(j.key, %s)",
        [f"storm-{field.prefix}"],
    ).fetchall()
    return int(number)


def count_calls(field: Field) -> int:
    """Return how many calls of the dead target have failed so far."""
    [(number,)] = field.conn.execute(
        "SELECT count(*) FROM chrono_attempt a"
        " JOIN chrono_occurrence o ON o.run_id = a.run_id"
        " JOIN chrono_job j ON j.id = o.job_id WHERE starts_with(j.key, %s)",
        [f"storm-{field.prefix}"],
    ).fetchall()
    return int(number)


def judge(field: Field, received: Sequence[Received]) -> str:
    """Return how the target was met when it was back; note what broke a bar."""
    require = field.findings.require
    runs = tables.read_runs(field.conn, f"storm-{field.prefix}")
    keys = Counter(uuid.UUID(one.headers["idempotency-key"]) for one in received)
    require(
        all(run.state == RunState.SUCCESS for run in runs)
        and keys == Counter({run.id: 1 for run in runs}),
        f"{len(received)} calls of {len(keys)} runs, {len(runs)} are over",
    )
    retries = sum(run.attempt - 1 for run in runs)
    require(retries <= BUDGET * RUNS, f"{retries} runs were tried again")
    first, *later = sorted(one.at for one in received)
    for number, at in enumerate(later, start=2):
        if number > allowed(at - first):
            require(False, f"{number} calls {at - first:.1f} s after the probe")
            break
    most = max(Counter(int(at - first) for at in later).values())
    return f"{retries} retries, then at most {most} a second, {met(first, later)}"


def met(first: float, later: Iterable[float]) -> str:
    """Return how many calls came within each step of the ramp, in words."""
    steps = Counter(int((at - first) // STEP_S) for at in later)
    return "/".join(str(steps[step]) for step in range(max(steps) + 1)) + " in 5 s each"


def allowed(seconds: float) -> int:
    """Return how many calls there may be up to so long after the probe."""
    whole = int(seconds) + 1
    return 1 + START + sum(START << second // STEP_S for second in range(whole))


def judge_spread(field: Field) -> str:
    """Return how evenly retries were spread, as Kolmogorov and Smirnov measure it.

    By when they were due: jobs that are made meanwhile keep some from starting then.
    """
    rows = field.conn.execute(
        """
        SELECT extract(epoch FROM r.due_at - a.finished_at)::float8
        FROM chrono_attempt a JOIN chrono_run r ON r.id = a.run_id
        JOIN chrono_job j ON j.id = r.job_id
        WHERE a.attempt = 1 AND r.attempt = 2 AND starts_with(j.key, %s)
        """,
        [spread_of(field)],
    ).fetchall()
    waits = sorted(wait / BACKOFF_S for (wait,) in rows)
    far = max(
        max((number + 1) / len(waits) - wait, wait - number / len(waits))
        for number, wait in enumerate(waits)
    )
    bar = CRITICAL / len(waits) ** 0.5
    field.findings.require(len(waits) == SPREAD, f"{len(waits)} were tried again")
    field.findings.require(
        far <= bar, f"retries are {far:.3f} from even, bar {bar:.3f}"
    )
    return f"{len(waits)} retries {far:.3f} from even"


FAULTS = [
    Fault(
        name="F29",
        title=f"{RUNS:,} runs wait for a dead target, which comes back",
        bar=f"no more than the probe and the ramp, retries {BUDGET:.0%}, evenly spread",
        strike=storm,
        load=few,
    ),
]
