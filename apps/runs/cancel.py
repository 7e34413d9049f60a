"""Cancel one run, wherever it is."""

import uuid

from apps.runs import store
from apps.runtime.sessions import Connection
from chrono.rules.errors import ChronoError
from chrono.rules.keys import partition_of_run
from chrono.rules.states import Reason, RunState

LOOKS = 20


class RunNotFound(ChronoError):
    """There is no such run."""

    code = "run_not_found"


def cancel(
    conn: Connection, run: uuid.UUID, *, reason: Reason = Reason.OPERATOR
) -> RunState:
    """Cancel a run for good; return CANCELLED, RUNNING if flagged, or its final state.

    ``conn`` is an autocommit session: each look is a statement of its own, since a run
    that moves between tables is missed by one snapshot. A waiting run is cancelled when
    this returns; a running one is flagged, and its worker told with its next beat.
    Raises :class:`RunNotFound` after finding it nowhere in many looks.
    """
    part = partition_of_run(run)
    for _ in range(LOOKS):
        for timers in store.TIMERS:
            if store.cancel_if_timed(
                conn, run=run, part=part, reason=reason, timers=timers
            ):
                return RunState.CANCELLED
        store.cancel_if_ready(conn, run=run, reason=reason)
        flagged = store.cancel_if_leased(conn, run=run, part=part)
        for place in store.locate_run(conn, run=run, part=part):
            # Withdrawn by us, or ended in another way before we came.
            if place.table == "run" and place.detail is not None:
                return RunState(place.detail)
        if flagged:
            return RunState.RUNNING
    raise RunNotFound
