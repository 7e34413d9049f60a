"""Http targets that wish nobody well, beside one that does."""

import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from dataclasses import field as of
from itertools import pairwise
from typing import Any

import psutil

from chrono.rules.breaker import BreakerPolicy
from chrono.rules.states import RunState
from tests.rigs import tables
from tests.rigs.faults import beside
from tests.rigs.faults.fault import Fault
from tests.rigs.faults.field import Field
from tests.rigs.faults.workers import MODULES, WorkerField
from tests.rigs.oracle import iso
from tests.rigs.stack import wait_for
from tests.worker.hostile import EXPIRED, deaf, hostile

POLICY = BreakerPolicy()
EACH, WELL = 2, 10
"""Runs of each target a second, and of the one that is well."""
TIMEOUT_S, LATER_S = 3.0, 1.0
"""The deadline of a call, and by how much later it may be over."""
UNDER_WAY = 14
"""So many calls may have begun before the opening of a circuit was known: all those of
a deadline, twice over."""
KNOWN_S, OPEN_S = 5.0, POLICY.open_duration_s - 1.0
"""Its failure opens a circuit shortly before a run is settled."""
STRUCK_S, LOOK_S = 54.0, 0.25
MEMORY = 50 << 20
RETRY_AFTER_S = 2
GONE_S = 20.0
LATE = f"no complete answer within {TIMEOUT_S * 1000:.0f} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a target does to its callers, and what is to become of that."""

    name: str
    path: str = ""
    error: str = ""
    """What the error of a call says; empty where it is to succeed."""
    sick: bool = False
    """Whether its circuit is to open."""


KINDS = [
    Kind(name="refuse", sick=True, error="Connection refused"),
    Kind(name="deaf", sick=True, error=LATE),
    Kind(name="hang", path="hang", sick=True, error=LATE),
    Kind(name="halt", path="halt", sick=True, error=LATE),
    Kind(name="drip", path="drip", sick=True, error=LATE),
    Kind(name="half", path="half", sick=True, error="the answer broke off"),
    Kind(name="silence", path="silence", sick=True, error="without an answer"),
    Kind(name="expired", path="status/200", sick=True, error="is not trusted"),
    Kind(name="error", path="status/500", sick=True, error="HTTP 500"),
    Kind(name="busy", path=f"busy/{RETRY_AFTER_S}", error="HTTP 429"),
    Kind(name="metadata", path="metadata", error="redirects are not followed"),
    Kind(name="flood", path="flood"),
    Kind(name="gzip", path="gzip"),
    Kind(name="nul", path="status/200"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that failed; its instants in seconds."""

    run: uuid.UUID
    attempt: int
    started_at: float
    finished_at: float
    error: str


@dataclass(slots=True, kw_only=True)
class Seen:
    """What was seen of the targets' effects."""

    seats: int = 0
    """The most that their calls held at one time."""
    memory: int = 0
    """By how many bytes a worker grew at most."""
    firsts: list[int] = of(default_factory=list)
    """How many calls each sick target got before its circuit was open to all."""
    probes: int = 0
    longest: float = 0.0
    """How long a call took at most, in seconds."""


def strike(field: Field) -> str:
    """F28: targets refuse, hang, drip, flood, redirect, and break off."""
    assert isinstance(field, WorkerField)
    # Trusted: what is wrong with that certificate is its date alone.
    field.equip({**MODULES, "SSL_CERT_FILE": str(EXPIRED)})
    seen = Seen()
    with ExitStack() as closing:
        # In a process of its own: hostile ones would hold up its answers in this one.
        receiver = field.stack.receiver()
        url = f"{field.stack.receiver_url}/well"
        well = [
            job(f"well-{field.prefix}{number}", url, number / WELL)
            for number in range(WELL)
        ]
        bad = [
            job(f"{key_of(field, kind)}{number}", address, number / EACH)
            for kind in KINDS
            for address in [closing.enter_context(target(kind))]
            for number in range(EACH)
        ]
        field.stack.apply(well)
        begun = time.time()
        time.sleep(beside.QUIET_S)
        struck = time.time()
        before = memory_of(field)
        field.stack.apply(bad)
        since = time.time()
        while time.time() < since + STRUCK_S:
            time.sleep(LOOK_S)
            look(field, seen, before)
        over = time.time()
        # What waits behind a circuit waits for ever.
        field.stack.apply({"key": one["key"], "deleted": True} for one in bad)
        wait_for(
            lambda: not tables.count_gated(field.conn),
            seconds=GONE_S,
            what="what waits behind circuits to be cancelled",
            every=0.2,
        )
        back = time.time()
        time.sleep(beside.QUIET_S)
        field.stack.apply({"key": one["key"], "deleted": True} for one in well)
        field.stack.stop(receiver)
    for kind in KINDS:
        judge(field, kind, seen)
    field.findings.require(
        not read_calls(field, f"well-{field.prefix}"), "calls of the well one failed"
    )
    others = beside.compare(
        field,
        f"well-{field.prefix}",
        before=(begun, struck),
        beside=(since, over),
        after=(back, back + beside.QUIET_S - 1),
    )
    for what, figure, bar in (
        ("seconds took a call", seen.longest, TIMEOUT_S + LATER_S),
        ("bytes more had a worker", seen.memory, MEMORY),
    ):
        field.findings.require(figure <= bar, f"{figure:.1f} {what}")
    return (
        f"{len(seen.firsts)} circuits opened after {min(seen.firsts)} to "
        f"{max(seen.firsts)} calls, {seen.probes} probes, a call over within "
        f"{seen.longest:.2f} s, {seen.seats} seats held at most, memory "
        f"+{seen.memory >> 20} MiB, {others}"
    )


@contextmanager
def target(kind: Kind) -> Iterator[str]:
    """Lend the address of a target of this kind."""
    match kind.name:
        case "refuse":
            with socket.socket() as bound:
                bound.bind(("127.0.0.1", 0))
                yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        case "deaf":
            with deaf() as url:
                yield url
        case "expired":
            with hostile(expired=True) as server:
                yield f"https://127.0.0.1:{server.server_port}/{kind.path}"
        case _:
            with hostile() as server:
                yield f"{server.url}/{kind.path}"


def job(key: str, url: str, offset: float) -> dict[str, Any]:
    """Return a job that calls an address each second, so far into it."""
    return {
        "key": key,
        "interval": "1s",
        "starts_at": iso(int(time.time()) + offset),
        "overlap_policy": "allow_all",
        "payload": {"job": key},
        "target": {"kind": "http", "url": url, "timeout": f"{TIMEOUT_S:g}s"},
        "retry_policy": {
            "max_attempts": 2 if "-busy-" in key else 1,
            "backoff": {"base_ms": 0, "cap_ms": 2 * RETRY_AFTER_S * 1000},
        },
    }


def key_of(field: Field, kind: Kind) -> str:
    """Return how the keys of its jobs begin: none of the load's do."""
    return f"bad-{field.prefix}-{kind.name}-"


def memory_of(field: Field) -> dict[int, int]:
    """Return how many bytes each worker has in memory."""
    return {
        process.pid: psutil.Process(process.pid).memory_info().rss
        for process in field.workers
    }


def look(field: Field, seen: Seen, before: dict[int, int]) -> None:
    """Note how many seats hostile calls hold, and how much the workers have grown."""
    [(seats,)] = field.conn.execute(
        "SELECT count(*) FROM chrono_lease l JOIN chrono_job j ON j.id = l.job_id"
        " WHERE starts_with(j.key, %s)",
        [f"bad-{field.prefix}"],
    ).fetchall()
    seen.seats = max(seen.seats, seats)
    for pid, size in memory_of(field).items():
        seen.memory = max(seen.memory, size - before[pid])


def judge(field: Field, kind: Kind, seen: Seen) -> None:
    """Note what its calls came to, and what of it was not to be."""
    calls = read_calls(field, key_of(field, kind))
    require = field.findings.require
    states = {run.state for run in tables.read_runs(field.conn, key_of(field, kind))}
    wanted = RunState.DEAD if kind.error else RunState.SUCCESS
    require(
        wanted in states and states <= {wanted, RunState.CANCELLED},
        f"runs of {kind.name} ended in states {states}",
    )
    errors = {call.error for call in calls if kind.error not in call.error}
    require(
        bool(calls) == bool(kind.error), f"{len(calls)} calls of {kind.name} failed"
    )
    require(not errors, f"calls of {kind.name} said {errors}")
    if kind.name == "busy":
        first = {call.run: call.started_at for call in calls if call.attempt == 1}
        waits = [c.started_at - first[c.run] for c in calls if c.attempt == 2]
        require(
            min(waits, default=0) >= RETRY_AFTER_S,
            f"a busy target was called again after {sorted(waits)[:1]} s",
        )
    took = [call.finished_at - call.started_at for call in calls]
    seen.longest = max(seen.longest, *took, 0.0)
    if kind.sick and len(calls) >= POLICY.failure_threshold:
        opened = sorted(call.finished_at for call in calls)[
            POLICY.failure_threshold - 1
        ]
        probes = [c.started_at for c in calls if c.started_at > opened + KNOWN_S]
        seen.firsts.append(len(calls) - len(probes))
        seen.probes += len(probes)
        require(
            len(calls) - len(probes) <= POLICY.failure_threshold + UNDER_WAY
            and bool(probes),
            f"{kind.name} got {len(calls) - len(probes)} calls, and {len(probes)} more",
        )
        require(
            all(b - a >= OPEN_S for a, b in pairwise([opened, *probes])),
            f"probes of {kind.name} came at {probes}, the circuit opened at {opened}",
        )
    else:
        require(not kind.sick, f"{kind.name} got {len(calls)} calls")


def read_calls(field: Field, prefix: str) -> list[Call]:
    """Return the calls that failed, of the jobs whose key begins so, by their start."""
    rows = field.conn.execute(
        """
        SELECT a.run_id, a.attempt, extract(epoch FROM a.started_at)::float8,
            extract(epoch FROM a.finished_at)::float8, a.error
        FROM chrono_attempt a JOIN chrono_occurrence o ON o.run_id = a.run_id
        JOIN chrono_job j ON j.id = o.job_id
        WHERE starts_with(j.key, %s) ORDER BY a.started_at
        """,
        [prefix],
    ).fetchall()
    return [
        Call(
            run=run,
            attempt=attempt,
            started_at=started,
            finished_at=finished,
            error=error,
        )
        for run, attempt, started, finished, error in rows
    ]


FAULTS = [
    Fault(
        name="F28",
        title=f"{len(KINDS)} targets refuse, hang, drip, flood and break off",
        bar=f"circuits open after {POLICY.failure_threshold} and those under way, a "
        f"probe each {POLICY.open_duration_s} s, calls over within "
        f"{TIMEOUT_S + LATER_S:g} s, +{MEMORY >> 20} MiB, {beside.BAR}",
        strike=strike,
    ),
]
