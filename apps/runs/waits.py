"""Why a run does not run yet, in plain words."""

from apps.runs import store
from apps.runs.selectors import state_of
from apps.runs.store import RunRow
from apps.runtime.sessions import Connection
from chrono.rules.instants import Millis, format_instant
from chrono.rules.states import Reason, RunState, is_final

_GATES = {
    Reason.OVERLAP: "It waits until an earlier run of the job has ended.",
    Reason.CATCH_UP: "It waits in the lane of missed and backfilled runs, which has a "
    "rate of its own.",
    Reason.PAUSED: "It waits until its job is resumed.",
}


def why_waiting(conn: Connection, row: RunRow, now: Millis) -> str:
    """Return what a run waits for; empty where it is over or in execution."""
    state = state_of(row)
    if is_final(state) or state is RunState.RUNNING:
        return ""
    if state is RunState.PARKED:
        unnamed = "It is set aside; the reason says by what."
        return (
            unnamed if row.reason is None else _GATES.get(Reason(row.reason), unnamed)
        )
    if row.due_at is not None and row.due_at > now:
        return f"It is due at {format_instant(row.due_at)}."
    if state is RunState.READY and row.queue is not None:
        if not store.is_queue_served(conn, queue=row.queue):
            return f"No worker asks for the queue {row.queue}."
        return "It waits for a free worker."
    return "It is due, and waits for a scheduler to dispatch it."
