"""Why a run does not run yet, in plain words."""

from apps.queue.store import list_pauses
from apps.runs import store, target_store, worker_store
from apps.runs.selectors import state_of
from apps.runs.store import RunRow
from apps.runtime.sessions import Connection
from chrono.rules import words
from chrono.rules.breaker import BreakerState
from chrono.rules.gates import LIMITS, Gate, limit_of, parse_gate
from chrono.rules.instants import Millis, format_instant
from chrono.rules.states import Reason, RunState, is_final

_GATES = {
    Reason.OVERLAP: "It waits until an earlier run of the job has ended.",
    Reason.CATCH_UP: "It waits in the lane of missed and backfilled runs, which has a "
    "rate of its own.",
    Reason.PAUSED: "It waits until its job is resumed.",
    Reason.PROCESS_CRASH: "Two processes died while it ran: it waits for a worker to "
    "start one for it alone.",
}
_KEYED = {Reason.CIRCUIT_OPEN, Reason.QUEUE_PAUSED, *LIMITS}
_CIRCUIT = {
    BreakerState.CLOSED: "It is let in soon: {name} may be called again.",
    BreakerState.HALF_OPEN: "It waits for {name}, which failed too often in a row: "
    "another run probes it now.",
    BreakerState.CLOSING: "It waits for {name}, which failed too often in a row and "
    "answers again: runs are let in at a rate that rises.",
}


def why_waiting(
    conn: Connection, row: RunRow, now: Millis, *, error: int | None = None
) -> str:
    """Return what a run waits for; empty where it is over or in execution.

    ``error`` is the reason of its last failed attempt.
    """
    state = state_of(row)
    if is_final(state) or state is RunState.RUNNING:
        return ""
    if state is RunState.PARKED:
        unnamed = "It is set aside; the reason says by what."
        if row.reason in _KEYED:
            return _behind_gate(conn, row) or unnamed
        return (
            unnamed if row.reason is None else _GATES.get(Reason(row.reason), unnamed)
        )
    if row.due_at is not None and row.due_at > now:
        why = _put_off(conn, row, error) if state is RunState.RETRYING else ""
        return f"It is due at {format_instant(row.due_at)}.{why}"
    if state is RunState.READY and row.queue is not None:
        if not worker_store.is_queue_served(conn, queue=row.queue):
            return (
                f"No worker asks for the queue {row.queue}. Start one that does: "
                f"runworker --queues {row.queue}."
            )
        return f"It waits for a free worker.{_unknown_task(conn, row)}"
    return "It is due, and waits for a scheduler to dispatch it."


def _put_off(conn: Connection, row: RunRow, error: int | None) -> str:
    if error == Reason.BUDGET_SPENT:
        return (
            " The retry budget of its target was spent when it failed, so it waits "
            "for about the longest that its retries may."
        )
    return _unknown_task(conn, row)


def _unknown_task(conn: Connection, row: RunRow) -> str:
    unknown = worker_store.find_unknown_task(
        conn, job=row.job_id, revision=row.revision, queue=row.queue
    )
    if unknown is None:
        return ""
    task, queue = unknown
    return (
        f" No worker that asks for its queue knows the task {task}. Deploy the code "
        "that has it to those workers, or start one that has it for the queue "
        f"{queue}: runworker --queues {queue}."
    )


def _behind_gate(conn: Connection, row: RunRow) -> str:
    key = store.find_gate(conn, run=row.id, part=row.part)
    gate = None if key is None else parse_gate(key)
    if gate is None:
        return ""
    if gate.reason is Reason.QUEUE_PAUSED:
        return _in_queue(conn, gate)
    if gate.reason in LIMITS:
        return _above_limit(gate)
    return _behind_circuit(conn, gate)


def _above_limit(gate: Gate) -> str:
    limit = limit_of(gate)
    runs = "one run" if limit.limit == 1 else f"{limit.limit} runs"
    if not limit.period:
        return f"It waits for its turn: of the {limit.of} {runs} may be under way."
    period = words.duration(limit.period)
    return f"It waits for its turn: of the {limit.of} {runs} may begin in any {period}."


def _in_queue(conn: Connection, gate: Gate) -> str:
    found = list_pauses(conn, tenant=gate.tenant, queue=gate.name)
    if not found:
        return f"It is let in soon: the queue {gate.name} goes on."
    [pause] = found
    since = format_instant(pause.paused_at)
    by = f" by {pause.paused_by}" if pause.paused_by else ""
    return f"The queue {gate.name} is paused{by} since {since}{words.noted(pause.note)}"


def _behind_circuit(conn: Connection, gate: Gate) -> str:
    found = target_store.list_targets(
        conn, tenant=gate.tenant, after=(gate.tenant, ""), limit=1, name=gate.name
    )
    if not found:
        return _CIRCUIT[BreakerState.CLOSED].format(name=gate.name)
    [(target, _)] = found
    return _of_target(gate, target)


def _of_target(gate: Gate, target: target_store.TargetRow) -> str:
    circuit = target.breaker
    if circuit.state is not BreakerState.OPEN:
        return _CIRCUIT[circuit.state].format(name=gate.name)
    since = format_instant(circuit.changed_at)
    if circuit.probe_at is None:
        by = f" by {target.changed_by}" if target.changed_by else ""
        note = words.noted(target.note)
        return f"Calls to {gate.name} were stopped{by} at {since}{note}"
    return (
        f"It waits for {gate.name}, which failed {circuit.failures} times in a row: "
        f"nothing is called there since {since}, and the next probe goes at "
        f"{format_instant(circuit.probe_at)}."
    )
