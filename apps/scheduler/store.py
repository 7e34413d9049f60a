"""The statements of this room, one function a file; rows in, frozen values out."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from apps.runtime import sql
from apps.runtime.locks import GATE_LOCKS, MEMBER_LOCKS, PARTITION_LOCKS, UPKEEP_LOCKS
from apps.runtime.sessions import Connection
from chrono.rules.breaker import BreakerState
from chrono.rules.gates import Gate, Limit
from chrono.rules.instants import Millis, to_millis
from chrono.rules.keys import scheduled_for_of

_SQL = {
    name: sql.load("scheduler", name)
    for name in (
        "list_members",
        "look_around",
        "try_partitions",
        "release_partitions",
        "join_members",
        "list_unlocked",
        "take_over",
        "list_holders",
        "end_deposed",
        "list_blockers",
        "look_for_work",
        "list_waits",
        "load_timers",
        "load_revisions",
        "look_again",
        "list_heads",
        "read_epochs",
        "list_changed_jobs",
        "delete_stale_timers",
        "list_unsettled",
        "list_tables",
        "lock_upkeep",
        "unlock_upkeep",
        "fire_undecided",
        "fire_if_held",
        "miss_if_held",
        "admit_if_held",
        "list_waiting",
        "list_live",
        "list_ends",
        "list_manual",
        "load_target_names",
        "list_ripe_circuits",
        "list_gates",
        "admit_probes",
        "admit_ramp",
        "admit_freed",
        "admit_resumed",
        "admit_concurrency",
        "admit_rate",
        "try_gates",
        "close_circuit",
    )
}

type Cursor = tuple[Millis, uuid.UUID, int, int]
"""Behind which timer of a partition a walk stands: its due, ref, kind and version."""

FIRING = "chrono fire"
"""The name of the sessions that fire, as the server shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Leadership of one partition, begun by a takeover that is committed."""

    part: int
    fence: int
    term: uuid.UUID
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Who takes part: how many schedulers, and the partitions that have a holder."""

    count: int
    taken: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What a leader sees around it, in one look."""

    members: Members
    firing_waits: bool
    """Whether its firing session waits for a lock."""
    any_held: bool
    """Whether somebody holds the row of one of its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What there is to do for upkeep, and where ready rows go."""

    slice: int
    blockers: bool
    """Whether sessions of Chrono's wait for a lock."""
    pauses: bool
    """Whether pauses of jobs are over."""
    given_back: bool
    """Whether jobs were given runs back."""
    deaths: bool
    """Whether runs died since an instant."""
    ready: bool
    """Whether slices of ready hold rows, or what is left of them."""
    to_clear: bool
    """Whether there are withdrawn runs or slots, which may be over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A session that has what others wait for."""

    pid: int
    application: str
    """Its own name for itself; empty where this role may not see it."""
    age: Millis | None
    """Of its transaction; None where this role may not see it."""

    def __str__(self) -> str:
        age = "" if self.age is None else f", its transaction is {self.age} ms old"
        return f"pid {self.pid} ({self.application or 'unnamed'}){age}"


class TimerRow(NamedTuple):
    """A timer as read, with what its partition and job were in the same snapshot."""

    part: int
    epoch: int
    bucket: int
    due_at: Millis
    ref: uuid.UUID
    kind: int
    version: int
    job_id: uuid.UUID
    revision: int
    scheduled_for: Millis
    attempt_group: int
    attempt: int
    prev: uuid.UUID | None
    remaining: int | None
    job_version: int
    job_revision: int
    tenant: int
    job_paused: bool
    job_deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One partition as the second look saw it."""

    part: int
    fence: int
    term: uuid.UUID
    epoch: int
    full_epoch: int
    due: int
    slice: int
    horizon: Millis
    gates: int
    """The number of the gates, which every opening and shutting raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """Under what a partition is led now."""

    part: int
    fence: int
    term: uuid.UUID
    epoch: int
    full_epoch: int


class RevisionRow(NamedTuple):
    """What a leader must know of one revision of a job; it never changes."""

    job_id: uuid.UUID
    revision: int
    schedule: str
    """JSON, as is the policy."""
    jitter_window: Millis
    overlap_policy: str
    queue: str
    priority: int
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What the database made of missed schedules: partitions that hold, positions."""

    held: frozenset[int]
    done: frozenset[int]
    """The positions whose timer was there."""
    runs: int
    """How many runs wait in the catch-up lane for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A job with runs behind a gate."""

    part: int
    job_id: uuid.UUID
    revision: int
    paused: bool
    deleted: bool
    tenant: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """The runs of a job that are live, and those that wait, the oldest first."""

    runs: tuple[uuid.UUID, ...]
    buffered: tuple[uuid.UUID, ...]
    slots: frozenset[uuid.UUID]
    """Those that have a slot, and some that are settled by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ripe:
    """A circuit by which somebody may be let in now."""

    tenant: int
    name: str
    state: BreakerState
    changed_at: Millis
    let_in: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """What the database made of a batch: partitions that hold, verdicts by position.

    A position without a verdict was not there to be fired any more. Verdict 0 is fired,
    a positive one the reason of a skip, -1 an occurrence that existed already, -2 a
    retry of a run that was cancelled, -3 a timer that was only moved.
    """

    held: frozenset[int]
    verdicts: dict[int, int]


def join_members(conn: Connection, *, member: int) -> None:
    """Count this session as a scheduler until it ends."""
    _SQL["join_members"].run(conn, {"class": MEMBER_LOCKS, "member": member})


def list_members(conn: Connection) -> Members:
    """Return how many schedulers there are and which partitions are held by any."""
    [(count, taken)] = _SQL["list_members"].run(
        conn, {"members": MEMBER_LOCKS, "partitions": PARTITION_LOCKS}
    )
    return Members(count=count, taken=frozenset(taken or ()))


def look_around(conn: Connection, *, firing: int, parts: Sequence[int]) -> Around:
    """Return who takes part and whether somebody is in the way, in one statement.

    ``firing`` is the backend pid of this process's firing session, ``parts`` what it
    leads. Raises ``LockNotAvailable`` or ``QueryCanceled`` where the table of
    partitions itself is locked.
    """
    [(count, taken, waits, held)] = _SQL["look_around"].run(
        conn,
        {
            "members": MEMBER_LOCKS,
            "partitions": PARTITION_LOCKS,
            "firing": firing,
            "parts": sorted(parts),
        },
    )
    return Around(
        members=Members(count=count, taken=frozenset(taken or ())),
        firing_waits=waits,
        any_held=held,
    )


def try_partitions(conn: Connection, *, parts: Sequence[int]) -> list[int]:
    """Take the advisory locks of those of ``parts`` that are free; return them."""
    rows = _SQL["try_partitions"].run(
        conn, {"class": PARTITION_LOCKS, "parts": list(parts)}
    )
    return [part for part, locked in rows if locked]


def release_partitions(conn: Connection, *, parts: Sequence[int]) -> None:
    """Give the advisory locks of ``parts`` back."""
    _SQL["release_partitions"].run(
        conn, {"class": PARTITION_LOCKS, "parts": list(parts)}
    )


def list_unlocked(conn: Connection, *, parts: Sequence[int]) -> list[int]:
    """Return those of these partitions whose rows nobody held a moment ago."""
    rows = _SQL["list_unlocked"].run(conn, {"parts": sorted(parts)})
    return [part for (part,) in rows]


def take_over(conn: Connection, *, parts: Sequence[int], owner: str) -> list[Term]:
    """Begin a term in each partition; returns after the commit.

    Run it on the autocommit session that holds the advisory locks: if that session is
    dead, so is the takeover. Load in a later statement.
    """
    return [
        Term(part=part, fence=fence, term=term, epoch=epoch)
        for part, fence, term, epoch in _SQL["take_over"].run(
            conn, {"parts": sorted(parts), "owner": owner}
        )
    ]


def list_holders(conn: Connection, *, parts: Sequence[int]) -> dict[int, Holder]:
    """Return who holds the rows of these partitions, as far as that can be told."""
    rows = _SQL["list_holders"].run(conn, {"parts": sorted(parts)})
    return {
        part: Holder(pid=pid, application=application, age=age)
        for part, pid, application, age in rows
    }


def end_deposed(conn: Connection, *, parts: Sequence[int], own: int) -> int:
    """End others' firing sessions that hold these partitions; return how many.

    Only on the session that has the partitions' advisory locks. ``own`` is the backend
    pid of this process's firing session, which is spared.
    """
    rows = _SQL["end_deposed"].run(
        conn, {"parts": sorted(parts), "name": FIRING, "own": own}
    )
    return sum(ended for (ended,) in rows)


def list_waits(conn: Connection, *, pid: int) -> list[Holder]:
    """Return whose locks a session, by its backend pid, waits for right now."""
    return [
        Holder(pid=blocker, application=application, age=age)
        for blocker, application, age in _SQL["list_waits"].run(conn, {"pid": pid})
    ]


def look_for_work(conn: Connection, *, after: Millis, since: Millis) -> Work:
    """Return what there is for upkeep: who waits so long for a lock, who died since."""
    [(current, blockers, pauses, given_back, deaths, ready, to_clear)] = _SQL[
        "look_for_work"
    ].run(conn, {"after": after, "since": since})
    return Work(
        slice=current,
        blockers=blockers,
        pauses=pauses,
        given_back=given_back,
        deaths=deaths,
        ready=ready,
        to_clear=to_clear,
    )


def list_blockers(conn: Connection, *, after: Millis) -> list[tuple[str, Holder]]:
    """Return which of Chrono's sessions wait that long for a lock, and for whom."""
    return [
        (waiting, Holder(pid=pid, application=application, age=age))
        for waiting, pid, application, age in _SQL["list_blockers"].run(
            conn, {"after": after}
        )
    ]


def cursor_at(due: Millis) -> Cursor:
    """Return where a walk begins that is to meet all due from an instant on."""
    return due, uuid.UUID(int=0), 0, 0


def load_timers(
    conn: Connection,
    *,
    after: Mapping[int, Cursor],
    before: Millis,
    each: int,
) -> list[TimerRow]:
    """Return partitions' timers behind a cursor and due before an instant.

    At most so many of each partition, the first of them in their order.
    """
    rows = _SQL["load_timers"].run(
        conn,
        {
            "parts": list(after),
            "due": [due for due, _, _, _ in after.values()],
            "ref": [ref for _, ref, _, _ in after.values()],
            "kind": [kind for _, _, kind, _ in after.values()],
            "version": [version for _, _, _, version in after.values()],
            "before": before,
            "each": each,
        },
    )
    return [TimerRow._make(row) for row in rows]


def load_revisions(
    conn: Connection, *, revisions: Sequence[tuple[uuid.UUID, int]]
) -> list[RevisionRow]:
    """Return these (job, revision) pairs, as far as they exist."""
    rows = _SQL["load_revisions"].run(
        conn,
        {"jobs": [job for job, _ in revisions], "revisions": [r for _, r in revisions]},
    )
    return [RevisionRow._make(row) for row in rows]


def look_again(
    conn: Connection, *, parts: Sequence[int], after: Millis, before: Millis
) -> list[Look]:
    """Return how much is due from an instant on and before another, by partition."""
    return [
        Look(
            part=part,
            fence=fence,
            term=term,
            epoch=epoch,
            full_epoch=full_epoch,
            due=due,
            slice=current,
            horizon=to_millis(horizon),
            gates=gates,
        )
        for (
            part,
            fence,
            term,
            epoch,
            full_epoch,
            due,
            current,
            horizon,
            gates,
        ) in _SQL["look_again"].run(
            conn, {"parts": list(parts), "after": after, "before": before}
        )
    ]


def list_heads(conn: Connection) -> dict[tuple[str, int], int]:
    """Return the fair tag of the run that is next in each queue and priority.

    Raises LockNotAvailable or QueryCanceled where a slice is being emptied.
    """
    return {
        (queue, priority): tag
        for queue, priority, tag in _SQL["list_heads"].run(conn, {})
    }


def read_epochs(conn: Connection, *, parts: Sequence[int]) -> list[Epochs]:
    """Return under what these partitions are led now."""
    return [
        Epochs(part=part, fence=fence, term=term, epoch=epoch, full_epoch=full_epoch)
        for part, fence, term, epoch, full_epoch in _SQL["read_epochs"].run(
            conn, {"parts": list(parts)}
        )
    ]


def list_changed_jobs(conn: Connection, *, part: int, epoch: int) -> set[uuid.UUID]:
    """Return the jobs of a partition that changed after an epoch."""
    rows = _SQL["list_changed_jobs"].run(conn, {"part": part, "epoch": epoch})
    return {job for (job,) in rows}


def delete_stale_timers(
    conn: Connection, *, term: Term, bucket: str, rows: Sequence[TimerRow]
) -> int:
    """Delete schedule timers older than their job's version; return how many."""
    return _SQL["delete_stale_timers"].change(
        conn,
        {
            "part": term.part,
            "fence": term.fence,
            "term": term.term,
            "due": [row.due_at for row in rows],
            "ref": [row.ref for row in rows],
            "version": [row.version for row in rows],
        },
        bucket=bucket,
    )


def list_unsettled(
    conn: Connection, *, runs: Sequence[tuple[int, uuid.UUID, uuid.UUID | None]]
) -> set[uuid.UUID]:
    """Return those runs, given as (partition, run, job), that are still live.

    So is one whose job is named and has another live run that counts against its bound.
    """
    rows = _SQL["list_unsettled"].run(
        conn,
        {
            "parts": [part for part, _, _ in runs],
            "runs": [run for _, run, _ in runs],
            "jobs": [job for _, _, job in runs],
        },
    )
    return {run for (run,) in rows}


def list_tables(conn: Connection, *, oids: Sequence[int]) -> dict[int, str]:
    """Return the names of those of these tables that still exist."""
    rows = _SQL["list_tables"].run(conn, {"oids": list(oids)})
    return {int(oid): str(name) for oid, name in rows}


def lock_upkeep(conn: Connection) -> None:
    """Take the lock of table upkeep; waits as long as the session's lock timeout."""
    _SQL["lock_upkeep"].run(conn, {"class": UPKEEP_LOCKS})


def unlock_upkeep(conn: Connection) -> None:
    """Give the lock of table upkeep back."""
    _SQL["unlock_upkeep"].run(conn, {"class": UPKEEP_LOCKS})


def fire_undecided(conn: Connection, *, bucket: str, batch: dict[str, Any]) -> Firing:
    """Fire as :func:`fire_if_held` does, all of a batch or, by an error, nothing.

    Raises ``UniqueViolation`` where something of it was decided before; no verdict is
    -1 here.
    """
    return _fire("fire_undecided", conn, bucket, batch)


def fire_if_held(conn: Connection, *, bucket: str, batch: dict[str, Any]) -> Firing:
    """Fire a batch of one bucket's timers; run it on a hot session only.

    ``batch`` carries the guards and the parallel arrays that
    :class:`apps.scheduler.fire.Gun` makes. Raises ``UndefinedTable`` where the bucket
    was dropped.
    """
    return _fire("fire_if_held", conn, bucket, batch)


def _fire(name: str, conn: Connection, bucket: str, batch: dict[str, Any]) -> Firing:
    [(held, positions, verdicts)] = _SQL[name].run(conn, batch, bucket=bucket)
    return Firing(
        held=frozenset(held or ()),
        verdicts=dict(zip(positions or (), verdicts or (), strict=True)),
    )


def miss_if_held(conn: Connection, *, bucket: str, batch: dict[str, Any]) -> Missing:
    """Decide what schedules of one bucket missed; run it on a hot session only.

    Raises ``UndefinedTable`` where the bucket was dropped.
    """
    [(held, done, runs)] = _SQL["miss_if_held"].run(conn, batch, bucket=bucket)
    return Missing(held=frozenset(held or ()), done=frozenset(done or ()), runs=runs)


def admit_if_held(
    conn: Connection, *, batch: dict[str, Any]
) -> tuple[frozenset[int], list[str | None]]:
    """Let the first waiting runs of jobs in; run it on a hot session only.

    Returns the partitions that hold, and the queue of each run that was let in; None
    for one that went on to the gate of a limit.
    """
    [(held, queues)] = _SQL["admit_if_held"].run(conn, batch)
    return frozenset(held or ()), list(queues or ())


def list_waiting(
    conn: Connection, *, gate: str, after: tuple[int, uuid.UUID], limit: int
) -> list[Waiting]:
    """Return jobs with runs behind a gate, by (partition, job) after one."""
    part, job = after
    rows = _SQL["list_waiting"].run(
        conn,
        {"gate": gate, "after_part": part, "after_job": job, "limit": limit},
    )
    return [
        Waiting(
            part=part,
            job_id=job,
            revision=revision,
            paused=paused,
            deleted=deleted,
            tenant=tenant,
        )
        for part, job, revision, paused, deleted, tenant in rows
    ]


def list_live(
    conn: Connection, *, jobs: Sequence[tuple[int, uuid.UUID]], now: Millis
) -> dict[uuid.UUID, Live]:
    """Return the live and the buffered runs of jobs, given as (partition, job).

    One that was put off beyond ``now`` is none of the buffered. A run that has no slot
    and is so old that its history is gone is among the live ones: the caller asks.
    """
    rows = _SQL["list_live"].run(
        conn,
        {
            "parts": [part for part, _ in jobs],
            "jobs": [job for _, job in jobs],
            "now": now,
        },
    )
    return {
        job: Live(runs=tuple(runs), buffered=tuple(buffered), slots=frozenset(slots))
        for job, runs, buffered, slots in rows
    }


def list_ends(
    conn: Connection, *, runs: Sequence[uuid.UUID]
) -> dict[uuid.UUID, Millis]:
    """Return when those of these runs ended that are settled."""
    return dict(_SQL["list_ends"].run(conn, {"runs": list(runs)}))


def list_manual(
    conn: Connection, *, runs: Sequence[tuple[int, uuid.UUID, uuid.UUID]]
) -> set[uuid.UUID]:
    """Return those of these runs, as (partition, job, run), that somebody asked for."""
    rows = _SQL["list_manual"].run(
        conn,
        {
            "parts": [part for part, _, _ in runs],
            "jobs": [job for _, job, _ in runs],
            "scheduled_for": [scheduled_for_of(run) for _, _, run in runs],
            "runs": [run for _, _, run in runs],
        },
    )
    return {run for (run,) in rows}


def load_target_names(
    conn: Connection, *, revisions: Sequence[tuple[uuid.UUID, int]]
) -> dict[tuple[uuid.UUID, int], dict[str, Any]]:
    """Return kind, name and url of what these (job, revision) pairs call."""
    rows = _SQL["load_target_names"].run(
        conn,
        {"jobs": [job for job, _ in revisions], "revisions": [r for _, r in revisions]},
    )
    return {
        (job, revision): {"kind": kind, "name": name, "url": url}
        for job, revision, kind, name, url in rows
    }


def list_ripe_circuits(
    conn: Connection, *, now: Millis | None, limit: int
) -> list[Ripe]:
    """Return the circuits by which somebody may be let in."""
    rows = _SQL["list_ripe_circuits"].run(conn, {"now": now, "limit": limit})
    return [
        Ripe(
            tenant=tenant,
            name=name,
            state=BreakerState(state),
            changed_at=to_millis(changed_at),
            let_in=let_in,
        )
        for tenant, name, state, changed_at, let_in in rows
    ]


def list_gates(conn: Connection, *, after: str, limit: int) -> list[str]:
    """Return the keys of gates behind which runs of several jobs wait, after one."""
    rows = _SQL["list_gates"].run(conn, {"after": after, "limit": limit})
    return [gate for (gate,) in rows]


def admit_probes(
    conn: Connection, *, gate: Gate, ttl: Millis, into: int, now: Millis | None
) -> list[str | None]:
    """Let runs in to probe a target, if its circuit is ripe; return their queues.

    None stands for one that went on to another gate. ``into`` is the current slice.
    """
    rows = _SQL["admit_probes"].run(
        conn, {**_of_gate(gate), "ttl": ttl, "slice": into, "now": now}
    )
    return [queue for (queue,) in rows]


def admit_ramp(
    conn: Connection,
    *,
    gate: Gate,
    ripe: Ripe,
    count: int,
    into: int,
    now: Millis | None,
) -> list[str | None]:
    """Let the next runs in by a closing circuit, if it is as it was; return queues."""
    rows = _SQL["admit_ramp"].run(
        conn,
        {
            **_of_gate(gate),
            "let_in": ripe.let_in,
            "changed_at": ripe.changed_at,
            "count": count,
            "slice": into,
            "now": now,
        },
    )
    return [queue for (queue,) in rows]


def admit_freed(
    conn: Connection, *, gate: Gate, limit: int, into: int, now: Millis | None
) -> list[str | None]:
    """Let runs in that wait for a target whose circuit is closed; return queues."""
    rows = _SQL["admit_freed"].run(
        conn, {**_of_gate(gate), "limit": limit, "slice": into, "now": now}
    )
    return [queue for (queue,) in rows]


def admit_resumed(
    conn: Connection, *, gate: Gate, limit: int, into: int, now: Millis | None
) -> list[str | None]:
    """Let runs in that wait for a queue which goes on; return their queues."""
    rows = _SQL["admit_resumed"].run(
        conn, {**_of_gate(gate), "limit": limit, "slice": into, "now": now}
    )
    return [queue for (queue,) in rows]


def try_gates(conn: Connection, *, gates: Iterable[Gate]) -> list[Gate]:
    """Take gates' locks until the transaction ends; return those that were free.

    Gates that count together have one. Nobody waits, so their order is all the same.
    """
    wanted = list(gates)
    shared = sorted({gate.shared for gate in wanted})
    rows = _SQL["try_gates"].run(conn, {"class": GATE_LOCKS, "shared": shared})
    free = {text for (text,) in rows}
    return [gate for gate in wanted if gate.shared in free]


def admit_concurrency(
    conn: Connection,
    *,
    gate: Gate,
    limit: int,
    rivals: Iterable[str] = (),
    into: int,
    now: Millis | None,
) -> list[str | None]:
    """Let runs in of which only so many may be at once; return as admit_probes does.

    In the transaction that has the gate's lock. What waits behind the ``rivals``, gates
    of the same key with other limits, goes first where it was due before.
    """
    rows = _SQL["admit_concurrency"].run(
        conn,
        {
            "gate": gate.key,
            "shared": gate.shared,
            "limit": limit,
            "rivals": list(rivals),
            "slice": into,
            "now": now,
        },
    )
    return [queue for (queue,) in rows]


def admit_rate(
    conn: Connection, *, gate: Gate, limit: Limit, into: int, now: Millis | None
) -> list[str | None]:
    """Let runs in as many as their rate allows; return as admit_probes does.

    In the transaction that has the gate's lock.
    """
    rows = _SQL["admit_rate"].run(
        conn,
        {
            "gate": gate.key,
            "limit": limit.limit,
            "period": limit.period,
            "drops": limit.drops,
            "slice": into,
            "now": now,
        },
    )
    return [queue for (queue,) in rows]


def close_circuit(conn: Connection, *, gate: Gate, now: Millis | None) -> bool:
    """Close a circuit that closes and for which nothing waits; return whether it is."""
    return bool(_SQL["close_circuit"].run(conn, {**_of_gate(gate), "now": now}))


def _of_gate(gate: Gate) -> dict[str, Any]:
    return {"gate": gate.key, "tenant": gate.tenant, "name": gate.name}
