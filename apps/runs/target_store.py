"""The statements about targets, one function a file; rows in, frozen values out."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apps.runtime import sql
from apps.runtime.sessions import Connection
from chrono.rules.breaker import Breaker, BreakerPolicy, BreakerState
from chrono.rules.budget import Budget, BudgetPolicy
from chrono.rules.instants import Millis, to_millis, to_millis_if_any

_SQL = {
    name: sql.load("runs", name)
    for name in (
        "lock_targets",
        "insert_targets",
        "save_target",
        "list_targets",
        "list_shut_circuits",
        "purge_targets",
    )
}

type Key = tuple[int, str]
"""A tenant and the identity of one of its targets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRow:
    """A target as it is stored."""

    tenant: int
    name: str
    breaker: Breaker
    budget: Budget
    budget_policy: BudgetPolicy
    """That of the run that asked last."""
    changed_by: str = ""
    """Who opened or closed the circuit; empty where nobody did."""
    note: str = ""

    @property
    def key(self) -> Key:
        """Return what tells it from every other."""
        return self.tenant, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Shut:
    """A circuit that is not closed."""

    state: BreakerState
    probes: frozenset[uuid.UUID]


def lock_targets(
    conn: Connection, *, keys: Sequence[Key]
) -> tuple[list[TargetRow], Millis]:
    """Lock these targets' rows, those that there are; return them and the time.

    Needs a transaction. The time is 0 where there is none of them.
    """
    rows = _SQL["lock_targets"].run(conn, _arrays(sorted(keys)))
    return [_target(row) for row in rows], to_millis(rows[-1][-1]) if rows else 0


def insert_targets(conn: Connection, *, keys: Sequence[Key]) -> None:
    """Make rows for those of these targets that have none."""
    _SQL["insert_targets"].change(conn, _arrays(sorted(keys)))


def save_target(conn: Connection, *, row: TargetRow, now: Millis) -> None:
    """Write how a target stands; in the transaction that locked its row."""
    breaker, budget = row.breaker, row.budget
    _SQL["save_target"].change(
        conn,
        {
            "tenant": row.tenant,
            "name": row.name,
            "state": int(breaker.state),
            "failures": breaker.failures,
            "changed_at": breaker.changed_at,
            "probe_at": breaker.probe_at,
            "probes": list(breaker.probes),
            "let_in": breaker.let_in,
            "failure_threshold": breaker.policy.failure_threshold,
            "open_duration_s": breaker.policy.open_duration_s,
            "half_open_probes": breaker.policy.half_open_probes,
            "tokens": budget.tokens,
            "traffic": budget.traffic,
            "budget_at": budget.at,
            "granted": budget.granted,
            "refused": budget.refused,
            "ratio": row.budget_policy.ratio,
            "min_concurrent": row.budget_policy.min_concurrent,
            "changed_by": row.changed_by,
            "note": row.note,
            "now": now,
        },
    )


def list_targets(
    conn: Connection,
    *,
    tenant: int | None,
    after: Key,
    limit: int,
    state: BreakerState | None = None,
    name: str | None = None,
) -> list[tuple[TargetRow, int]]:
    """Return targets after a key, each with how many runs wait, up to 10,000."""
    rows = _SQL["list_targets"].run(
        conn,
        {
            "tenant": tenant,
            "after_tenant": after[0],
            "after_name": after[1],
            "limit": limit,
            "state": state,
            "name": name,
        },
    )
    return [(_target(row), int(row[-1])) for row in rows]


def list_shut_circuits(conn: Connection) -> dict[Key, Shut]:
    """Return the circuits that are not closed."""
    return {
        (tenant, name): Shut(state=BreakerState(state), probes=frozenset(probes))
        for tenant, name, state, probes in _SQL["list_shut_circuits"].run(conn)
    }


def purge_targets(conn: Connection, *, before: Millis, limit: int) -> int:
    """Delete closed targets of which nothing was told since; return how many."""
    return _SQL["purge_targets"].change(conn, {"before": before, "limit": limit})


def _arrays(keys: Sequence[Key]) -> dict[str, Any]:
    return {"tenants": [one for one, _ in keys], "names": [one for _, one in keys]}


def _target(row: tuple[Any, ...]) -> TargetRow:
    tenant, name, state, failures, changed, probe_at, probes, let_in = row[:8]
    threshold, duration, most, tokens, traffic, at, granted, refused = row[8:16]
    ratio, floor, by, note = row[16:20]
    return TargetRow(
        tenant=tenant,
        name=name,
        breaker=Breaker(
            state=BreakerState(state),
            failures=failures,
            changed_at=to_millis(changed),
            probe_at=to_millis_if_any(probe_at),
            probes=tuple(probes),
            let_in=let_in,
            policy=BreakerPolicy(
                failure_threshold=threshold,
                open_duration_s=duration,
                half_open_probes=most,
            ),
        ),
        budget=Budget(
            tokens=tokens,
            traffic=traffic,
            at=to_millis(at),
            granted=granted,
            refused=refused,
        ),
        budget_policy=BudgetPolicy(ratio=ratio, min_concurrent=floor),
        changed_by=by,
        note=note,
    )
