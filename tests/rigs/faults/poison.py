"""Runs that do to their process what they can, beside runs that do nothing wrong."""

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chrono.rules.states import Reason, RunState
from tests.rigs import tables
from tests.rigs.faults import beside
from tests.rigs.faults.fault import Fault
from tests.rigs.faults.field import SECOND, Field
from tests.rigs.faults.workers import EXPIRED_S, MODULES, WorkerField
from tests.rigs.oracle import iso
from tests.rigs.stack import wait_for

POISONED = {
    "CHRONO_TASK_MODULES": f"{MODULES['CHRONO_TASK_MODULES']},tests.worker.isolated"
}
EACH, ATTEMPTS = 4, 2
LEAD_S = 2.0
OVER_S = 120.0
LIMIT_S = 2
MEGABYTES = 1_024
HELD_S = 45


@dataclass(frozen=True, slots=True, kw_only=True)
class Poison:
    """What a task does, and what is to become of its runs."""

    task: str
    reason: Reason | None = None
    """Why the first attempt failed; None where it is to succeed."""
    count: int = EACH
    payload: Mapping[str, Any] | None = None
    timeout: str = ""


POISONS = [
    Poison(task="rig.raise", reason=Reason.ATTEMPT_FAILED),
    Poison(task="rig.leave", reason=Reason.ATTEMPT_FAILED),
    Poison(task="rig.object"),
    Poison(task="rig.babble", count=1, payload={"megabytes": MEGABYTES}),
    Poison(task="raise", reason=Reason.ATTEMPT_FAILED),
    Poison(task="exit", reason=Reason.PROCESS_CRASH),
    Poison(task="os_exit", reason=Reason.PROCESS_CRASH),
    Poison(task="segfault", reason=Reason.PROCESS_CRASH),
    Poison(task="hold_gil", reason=Reason.TIMED_OUT, timeout=f"{LIMIT_S}s"),
    Poison(task="object"),
    Poison(task="gigabyte", count=1),
]
"""Those of `rig` are executed on the worker's loop and in its threads, the others in
processes of their own."""


def poison(field: Field) -> str:
    """F10: runs raise, exit, crash, hang, print a gigabyte, return what is no JSON."""
    assert isinstance(field, WorkerField)
    field.equip(POISONED)
    alive = {process.pid for process in field.workers}
    begun = time.time()
    time.sleep(beside.QUIET_S)
    struck = time.time()
    keys = apply(field)
    time.sleep(LEAD_S)
    since = time.time()
    wait_for(
        lambda: count_settled(field, keys) == len(keys),
        seconds=OVER_S,
        what="the poisoned runs to be over",
        every=0.2,
    )
    over = time.time()
    for one in POISONS:
        judge(field, one)
    field.findings.require(
        {process.pid for process in field.workers if process.alive} == alive,
        "a worker has ended",
    )
    time.sleep(beside.QUIET_S)
    others = beside.compare(
        field,
        field.prefix + SECOND,
        before=(begun, struck),
        beside=(since, over),
        after=(over, over + beside.QUIET_S - 1),
    )
    return f"{len(keys)} runs over within {over - since:.0f} s, {others}; {hold(field)}"


def key_of(field: Field, one: Poison) -> str:
    """Return how the keys of its jobs begin: none of the load's do."""
    return f"poison-{field.prefix}{one.task}-"


def apply(field: Field) -> list[str]:
    """Make the poisoned jobs, all due at one time; return their keys."""
    at = iso(time.time() + LEAD_S)
    jobs = [
        {
            "key": f"{key_of(field, one)}{number}",
            "run_at": at,
            "target": {
                "kind": "task",
                "name": one.task,
                **({"timeout": one.timeout} if one.timeout else {}),
            },
            "payload": one.payload,
            "retry_policy": {
                "max_attempts": ATTEMPTS,
                "backoff": {"base_ms": 500, "cap_ms": 500},
            },
        }
        for one in POISONS
        for number in range(one.count)
    ]
    field.stack.apply(jobs)
    return [job["key"] for job in jobs]


def count_settled(field: Field, keys: list[str]) -> int:
    """Return how many of these jobs' runs are over."""
    [(number,)] = field.conn.execute(
        "SELECT count(*) FROM chrono_run r JOIN chrono_job j ON j.id = r.job_id"
        " WHERE j.key = ANY(%s)",
        [keys],
    ).fetchall()
    return int(number)


def judge(field: Field, one: Poison) -> None:
    """Note where runs ended otherwise than they were to."""
    runs = tables.read_runs(field.conn, key_of(field, one))
    wanted = RunState.SUCCESS if one.reason is None else RunState.DEAD
    tries = 1 if one.reason is None else ATTEMPTS
    reasons = field.conn.execute(
        "SELECT reason FROM chrono_attempt WHERE run_id = ANY(%s) AND attempt = 1",
        [[run.id for run in runs]],
    ).fetchall()
    field.findings.require(
        [(run.state, run.attempt) for run in runs] == [(wanted, tries)] * one.count
        and {reason for (reason,) in reasons} == {one.reason} - {None},
        f"{one.task} ended as {[(run.state, run.attempt) for run in runs]} for "
        f"{reasons}",
    )


def hold(field: WorkerField) -> str:
    """Hold the GIL of a worker for longer than its lease: it cannot beat."""
    key = f"poison-{field.prefix}held"
    field.stack.apply(
        [
            {
                "key": key,
                "run_at": iso(time.time() + LEAD_S),
                "target": {"kind": "task", "name": "rig.hold_gil"},
                "payload": {"seconds": HELD_S},
                "retry_policy": {"max_attempts": 1},
            }
        ]
    )

    def look() -> list[tuple[uuid.UUID, float]]:
        return field.conn.execute(
            "SELECT l.worker, extract(epoch FROM l.started_at)::float8"
            " FROM chrono_lease l JOIN chrono_job j ON j.id = l.job_id"
            " WHERE j.key = %s",
            [key],
        ).fetchall()

    [(worker, at)] = wait_for(look, seconds=20, what="the GIL to be held")
    wait_for(
        lambda: field.is_marked_dead(worker),
        seconds=EXPIRED_S + 5,
        what="the worker to be taken for dead",
    )
    took = time.time() - at
    field.findings.require(took <= EXPIRED_S, f"taken for dead after {took:.1f} s")
    # It begins a new life, in the same process, once it can look at a clock again.
    field.wait_workers_alive()
    runs = tables.read_runs(field.conn, key)
    field.findings.require(
        [run.state for run in runs] == [RunState.DEAD],
        f"the run that held the GIL ended as {runs}",
    )
    return f"a worker without its GIL taken for dead after {took:.1f} s"


FAULTS = [
    Fault(
        name="F10",
        title="runs that raise, exit, crash, hang and print without end",
        bar=f"{beside.BAR}, {EXPIRED_S:g} s",
        strike=poison,
    ),
]
