"""Targets: what workers tell of them, and what people do with their circuits."""

import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from apps.runs import target_store as store
from apps.runs.target_store import Key, TargetRow
from apps.runtime.notify import JOBS
from apps.runtime.sessions import Connection
from apps.runtime.store import notify
from apps.tenants import audit
from apps.tenants.actor import Actor, Scope
from apps.tenants.event import Event
from apps.timers.store import raise_gates
from chrono.rules import breaker, budget
from chrono.rules.breaker import Breaker, BreakerState
from chrono.rules.instants import DAY, Millis, format_instant
from chrono.rules.retry import RetryPolicy

log = logging.getLogger("chrono.runs")

FORGOTTEN_AFTER: Millis = DAY
PURGED_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a worker tells of a call that came to its end."""

    key: Key
    run: uuid.UUID
    token: uuid.UUID
    good: bool | None
    """Whether its target is well; None where the call says nothing of that."""
    retry: bool = False
    """Whether the run is to be tried again, and so asks for a token."""
    policy: RetryPolicy


def report(
    conn: Connection,
    told: Sequence[Told],
    *,
    firsts: Mapping[Key, int],
    now: Millis | None = None,
) -> tuple[set[uuid.UUID], dict[Key, Breaker]]:
    """Write what became of calls, given in their order; ask for their retries.

    ``firsts`` is how many first attempts there were since the last report. Returns the
    tokens of the leases whose retry the budget refuses, and the circuits as they are
    now. In a transaction of its own, which locks the targets' rows. ``now`` stands for
    the database's clock in tests.
    """
    by_target: defaultdict[Key, list[Told]] = defaultdict(list)
    for one in told:
        by_target[one.key].append(one)
    refused: set[uuid.UUID] = set()
    circuits: dict[Key, Breaker] = {}
    with conn.transaction():
        rows, clock = _locked(conn, list(by_target))
        now = clock if now is None else now
        moved = False
        for row in rows:
            after, without = _after(row, by_target[row.key], firsts, now)
            store.save_target(conn, row=after, now=now)
            refused |= without
            circuits[row.key] = after.breaker
            moved |= _is_shut(row.breaker) != _is_shut(after.breaker)
            _tell(row, after)
        if moved:
            raise_gates(conn)
    return refused, circuits


def open_circuit(
    conn: Connection, name: str, *, tenant: int, actor: Actor, reason: str
) -> TargetRow:
    """Shut a target of a tenant to all calls until somebody closes its circuit.

    Raises Forbidden. Returns the target as it is then.
    """
    return _by_hand(conn, (tenant, name), breaker.open_by_hand, actor, reason)


def close_circuit(
    conn: Connection, name: str, *, tenant: int, actor: Actor, reason: str
) -> TargetRow:
    """Let calls to a target of a tenant begin again, at a rate that rises.

    Raises Forbidden. Returns the target as it is then.
    """
    return _by_hand(conn, (tenant, name), breaker.close_by_hand, actor, reason)


def purge(conn: Connection, *, now: Millis) -> bool:
    """Forget targets that have been well for a day; return whether there may be more.

    Where one is forgotten its budget is full again, and nobody has called it for long.
    """
    before = now - FORGOTTEN_AFTER
    gone = store.purge_targets(conn, before=before, limit=PURGED_AT_ONCE)
    return gone == PURGED_AT_ONCE


def public_form(row: TargetRow, *, waiting: int, now: Millis) -> dict[str, Any]:
    """Return a target as the API shows it."""
    circuit, left = row.breaker, row.budget
    probe_at = circuit.probe_at if circuit.state is BreakerState.OPEN else None
    return {
        "target": row.name,
        "state": circuit.state.label,
        "since": format_instant(circuit.changed_at),
        "failures": circuit.failures,
        "next_probe_at": None if probe_at is None else format_instant(probe_at),
        "probes": [str(run) for run in circuit.probes],
        "manual": circuit.manual,
        "changed_by": row.changed_by,
        "note": row.note,
        "waiting": waiting,
        "budget": {
            "left": round(budget.share(left, row.budget_policy, now), 3),
            "granted": left.granted,
            "refused": left.refused,
        },
    }


def _by_hand(
    conn: Connection,
    key: Key,
    move: Callable[[Breaker, Millis], Breaker],
    actor: Actor,
    reason: str,
) -> TargetRow:
    actor.require(Scope.OPERATE)
    with conn.transaction():
        [row], now = _locked(conn, [key])
        after = replace(
            row,
            breaker=move(row.breaker, now),
            changed_by=actor.name,
            note=reason,
        )
        store.save_target(conn, row=after, now=now)
        raise_gates(conn)
        notify(conn, channel=JOBS, payload="")
        audit.record(
            conn,
            actor=actor,
            events=[
                Event(
                    tenant=row.tenant,
                    action="target.open"
                    if after.breaker.state is BreakerState.OPEN
                    else "target.close",
                    object_kind="target",
                    object_id=row.name,
                    before={"state": row.breaker.state.label},
                    after={"state": after.breaker.state.label},
                    reason=reason,
                )
            ],
        )
    return after


def _locked(conn: Connection, keys: Sequence[Key]) -> tuple[list[TargetRow], Millis]:
    """Return the targets' rows, locked; those that were not there are made."""
    rows, now = store.lock_targets(conn, keys=keys)
    if len(rows) < len(keys):
        there = {row.key for row in rows}
        store.insert_targets(conn, keys=[key for key in keys if key not in there])
        rows, now = store.lock_targets(conn, keys=keys)
    return rows, now


def _after(
    row: TargetRow, told: Sequence[Told], firsts: Mapping[Key, int], now: Millis
) -> tuple[TargetRow, set[uuid.UUID]]:
    """Return how a target stands after these calls, and whose retry is refused."""
    policy = told[-1].policy
    asking = [one.token for one in told if one.retry]
    left, granted = budget.spend(
        row.budget,
        policy=policy.budget,
        firsts=firsts.get(row.key, 0),
        wanted=len(asking),
        now=now,
    )
    calls = [(one.run, one.good) for one in told if one.good is not None]
    circuit = breaker.report(row.breaker, calls, policy=policy.circuit_breaker, now=now)
    unmoved = row.breaker.state is circuit.state
    after = replace(
        row,
        breaker=circuit,
        budget=left,
        budget_policy=policy.budget,
        changed_by=row.changed_by if unmoved else "",
        note=row.note if unmoved else "",
    )
    return after, set(asking[granted:])


def _is_shut(circuit: Breaker) -> bool:
    return circuit.state is not BreakerState.CLOSED


def _tell(before: TargetRow, after: TargetRow) -> None:
    if before.breaker.state is not after.breaker.state:
        facts = {
            "tenant": after.tenant,
            "target": after.name,
            "failures": after.breaker.failures,
        }
        log.warning("circuit is %s", after.breaker.state.label, extra={"facts": facts})
