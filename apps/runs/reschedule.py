"""Have a waiting run come due at another instant."""

import uuid

from apps.runs import store
from apps.runs.errors import RunNotWaiting
from apps.runs.selectors import get_run, state_of
from apps.runtime.sessions import Connection
from apps.runtime.store import read_clock
from apps.tenants import audit
from apps.tenants.actor import Actor, Scope
from apps.tenants.event import Event
from apps.timers.store import TIMERS, read_dispatch_state
from chrono.rules.instants import Millis, checked, format_instant
from chrono.rules.keys import partition_of_run


def reschedule(
    conn: Connection,
    run: uuid.UUID,
    *,
    due_at: Millis,
    tenant: int,
    actor: Actor,
    reason: str = "",
    now: Millis | None = None,
) -> Millis:
    """Move a run that waits for its time, a retry or a gate; return when it is due.

    That is now at the earliest. Its nominal instant, and so its key, stays. Written
    down in the same transaction. Raises Forbidden, RunNotFound, BadInstant, and
    RunNotWaiting for a run that waits for nothing but a worker, runs, or is over.
    """
    actor.require(Scope.OPERATE)
    checked(due_at, field="due_at")
    row, _ = get_run(conn, run, tenant=tenant)
    part = partition_of_run(run)
    with conn.transaction():
        state = read_dispatch_state(conn)
        due = max(due_at, int(read_clock(conn)) if now is None else now)
        moved = any(
            store.reschedule_if_timed(
                conn, run=run, part=part, due=due, horizon=state.horizon, timers=timers
            )
            for timers in TIMERS
        ) or store.reschedule_if_blocked(conn, run=run, part=part, due=due)
        if not moved:
            raise RunNotWaiting(
                f"The run is {state_of(row).label}: only one that waits for its time "
                "can be moved."
            )
        event = Event(
            tenant=tenant,
            action="run.reschedule",
            object_kind="run",
            object_id=str(run),
            before={"due_at": row.due_at and format_instant(row.due_at)},
            after={"due_at": format_instant(due)},
            reason=reason,
        )
        audit.record(conn, actor=actor, events=[event])
    return due
