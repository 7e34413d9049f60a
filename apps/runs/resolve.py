"""A person says what became of a run that is unknown or dead."""

import uuid

from apps.runs import store
from apps.runs.errors import RunNotResolvable, RunResolved
from apps.runs.selectors import get_run, state_of
from apps.runtime.sessions import Connection
from apps.tenants import audit
from apps.tenants.actor import Actor, Scope
from apps.tenants.event import Event
from chrono.rules.errors import BadValue
from chrono.rules.keys import partition_of_run
from chrono.rules.states import Reason, RunState

RESOLVABLE = frozenset({RunState.UNKNOWN, RunState.DEAD})
OUTCOMES = {"success": RunState.SUCCESS, "failed": RunState.FAILED}


def resolve(
    conn: Connection,
    run: uuid.UUID,
    *,
    outcome: RunState,
    tenant: int,
    actor: Actor,
    reason: str,
) -> None:
    """Write down that a run succeeded or failed, by the word of ``actor``.

    The history is not touched: the verdict is a row beside it, with who, when and the
    ``reason``, which may not be empty; and an audit event in the same transaction. The
    same verdict again is none. ``conn`` is an autocommit session or within a
    transaction. Raises Forbidden, BadValue, RunNotFound, RunNotResolvable for a run
    that is neither unknown nor dead, RunResolved where the verdict was another one.
    """
    actor.require(Scope.OPERATE)
    if not reason.strip():
        raise BadValue(
            "reason is missing: how it is known what became of the run.", field="reason"
        )
    row, _ = get_run(conn, run, tenant=tenant)
    before = state_of(row)
    if row.reason == Reason.RESOLVED:
        if before is outcome:
            return
        raise RunResolved(f"The run is resolved as {before.label} already.")
    if before not in RESOLVABLE:
        raise RunNotResolvable(
            f"The run is {before.label}: only one that is unknown or dead is resolved."
        )
    event = Event(
        tenant=tenant,
        action="run.resolve",
        object_kind="run",
        object_id=str(run),
        before={"state": before.label},
        after={"state": outcome.label},
        reason=reason,
    )
    part = partition_of_run(run)
    with conn.transaction():
        if not store.resolve_if_open(
            conn, run=run, part=part, state=outcome, actor=actor.name, note=reason
        ):
            raise RunResolved
        audit.record(conn, actor=actor, events=[event])
