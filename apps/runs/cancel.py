"""Cancel one run, wherever it is."""

import uuid
from collections.abc import Callable
from functools import partial

from apps.runs import store
from apps.runs.errors import NotToTerminate, RunFinished, RunNotFound
from apps.runs.selectors import get_run, state_of
from apps.runtime.sessions import Connection
from apps.tenants import audit
from apps.tenants.actor import Actor, Scope
from apps.tenants.event import Event
from apps.timers.store import TIMERS
from chrono.rules.instants import format_instant
from chrono.rules.keys import partition_of_run
from chrono.rules.lease import TERMINATE_AFTER
from chrono.rules.states import Reason, RunState, is_final

__all__ = ["RunFinished", "RunNotFound", "cancel", "cancel_by"]

LOOKS = 20

type Note = Callable[[RunState], None]
"""Writes down what a step did, in the step's own transaction."""


def cancel(
    conn: Connection,
    run: uuid.UUID,
    *,
    reason: Reason = Reason.OPERATOR,
    note: Note | None = None,
) -> RunState:
    """Cancel a run for good; return CANCELLED, RUNNING if flagged, or its final state.

    ``conn`` is an autocommit session: each look is a statement of its own, since a run
    that moves between tables is missed by one snapshot. A waiting run is cancelled when
    this returns; a running one is flagged, and its worker told with its next beat.
    ``note`` is called once at most, in the transaction of the step that did it.
    Raises :class:`RunNotFound` after finding it nowhere in many looks.
    """
    part = partition_of_run(run)
    for _ in range(LOOKS):
        for timers in TIMERS:
            timed = partial(
                store.cancel_if_timed, run=run, part=part, reason=reason, timers=timers
            )
            if _step(conn, timed, note, RunState.CANCELLED):
                return RunState.CANCELLED
        blocked = partial(store.cancel_if_blocked, run=run, part=part, reason=reason)
        if _step(conn, blocked, note, RunState.CANCELLED):
            return RunState.CANCELLED
        ready = partial(store.cancel_if_ready, run=run, reason=reason)
        if _step(conn, ready, note, RunState.CANCELLED):
            note = None
        leased = partial(store.cancel_if_leased, run=run, part=part, reason=reason)
        flagged = _step(conn, leased, note, RunState.RUNNING)
        if flagged:
            note = None
        for place in store.locate_run(conn, run=run, part=part):
            # Withdrawn by us, or ended in another way before we came.
            if place.table == "run" and place.detail is not None:
                return RunState(place.detail)
        if flagged:
            return RunState.RUNNING
    raise RunNotFound


def cancel_by(
    conn: Connection, run: uuid.UUID, *, tenant: int, actor: Actor, reason: str = ""
) -> RunState:
    """Cancel a run of a tenant for somebody, and write down that they did.

    Returns CANCELLED, or RUNNING where its worker is told; a run that is cancelled
    already stays so. Raises Forbidden, RunNotFound, and RunFinished for a run that
    ended otherwise. ``conn`` as for :func:`cancel`.
    """
    actor.require(Scope.OPERATE)
    row, _ = get_run(conn, run, tenant=tenant)
    before = state_of(row)
    if before is RunState.CANCELLED:
        return before
    if is_final(before):
        raise RunFinished(f"The run is over: {before.label}.")

    def note(after: RunState) -> None:
        event = Event(
            tenant=tenant,
            action="run.cancel",
            object_kind="run",
            object_id=str(run),
            before={"state": before.label, "cancel_requested": row.cancel},
            after={"state": after.label, "cancel_requested": True},
            reason=reason,
        )
        audit.record(conn, actor=actor, events=[event])

    state = cancel(conn, run, note=None if row.cancel else note)
    if state not in (RunState.CANCELLED, RunState.RUNNING):
        raise RunFinished(f"The run is over: {state.label}.")
    return state


def terminate_by(
    conn: Connection, run: uuid.UUID, *, tenant: int, actor: Actor, reason: str = ""
) -> RunState:
    """End a run that was told to stop a minute ago and still runs: it is cancelled.

    Its lease goes, so what its worker writes of it counts no more, and the worker is
    told once more. A function in a thread cannot be ended from outside and may go on
    all the same; one in a process of its own is killed. Written down in the same
    transaction. Raises Forbidden, RunNotFound, RunFinished, and NotToTerminate for a
    run that was not told, or less than a minute ago.
    """
    actor.require(Scope.OPERATE)
    row, _ = get_run(conn, run, tenant=tenant)
    before = state_of(row)
    if is_final(before):
        raise RunFinished(f"The run is over: {before.label}.")
    part = partition_of_run(run)
    with conn.transaction():
        told = store.read_told(conn, run=run, part=part)
        if told is None:
            raise NotToTerminate("The run was not told to stop: cancel it first.")
        told_at, now = told
        if told_at is not None and now < told_at + TERMINATE_AFTER:
            raise NotToTerminate(
                "The run was told to stop less than a minute ago: it may be "
                f"terminated from {format_instant(told_at + TERMINATE_AFTER)}."
            )
        if not store.end_lease(conn, run=run, part=part, reason=Reason.OPERATOR):
            raise RunFinished("The run ended meanwhile.")
        event = Event(
            tenant=tenant,
            action="run.terminate",
            object_kind="run",
            object_id=str(run),
            before={"state": before.label, "cancel_requested": True},
            after={"state": RunState.CANCELLED.label, "cancel_requested": True},
            reason=reason,
        )
        audit.record(conn, actor=actor, events=[event])
    return RunState.CANCELLED


def _step(
    conn: Connection,
    act: Callable[[Connection], bool],
    note: Note | None,
    after: RunState,
) -> bool:
    if note is None:
        return act(conn)
    with conn.transaction():
        done = act(conn)
        if done:
            note(after)
    return done
