"""Executing: leases in, settlements out."""

import asyncio
import logging
import uuid
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from apps.runs.store import Lease, Missed
from apps.runtime.clock import Clock
from apps.worker import tails
from apps.worker.deadlines import Watch
from apps.worker.execution import (
    AGAIN,
    INTERRUPTION,
    PLAIN,
    Cancelled,
    Execution,
    HandBack,
    Outcome,
    Prepared,
    Settled,
    Success,
    hand_back,
    settlement_of,
)
from apps.worker.gates import Gates
from apps.worker.notes import Noter
from apps.worker.onces import Once, Sessions
from apps.worker.seats import Seats
from apps.worker.settles import Settler, draw
from apps.worker.targets import Targets
from chrono.rules.instants import SECOND, Millis
from chrono.rules.retry import Failure
from chrono.rules.states import Reason

log = logging.getLogger("chrono.worker")

HELD_FOR: Millis = SECOND
"""Until then the leader has heard which gates are shut."""
GRACE_S = 5.0
"""How long a handler that was called off gets to end, before its run is settled."""
ANSWERS_S = 30.0
"""How long what a killed process asked for may take. Whoever keeps what was done tries
for about as long while the database is away."""
NOTHING: Mapping[uuid.UUID, Any] = MappingProxyType({})


class Executor:
    """Starts handlers, calls them off, and hands their outcomes to the settler."""

    def __init__(
        self,
        *,
        seats: Seats,
        targets: Targets,
        gates: Gates,
        settler: Settler,
        noter: Noter,
        sessions: Sessions,
        clock: Clock,
    ) -> None:
        self._seats = seats
        self._gates = gates
        self._noter = noter
        self._sessions = sessions
        self._targets = targets
        self._settler = settler
        self._clock = clock

    def start(
        self,
        leases: Iterable[Lease],
        own: Mapping[uuid.UUID, Prepared] = NOTHING,
        missed: Mapping[uuid.UUID, Missed] = NOTHING,
        checkpoints: Mapping[uuid.UUID, Any] = NOTHING,
        deaths: Mapping[uuid.UUID, int] = NOTHING,
        *,
        queue: str,
    ) -> None:
        """Seat each lease and start its handler; one that never waits is over by then.

        ``own`` has what is prepared for a run alone, ``missed`` what a run stands for,
        ``checkpoints`` where those are to go on that told something before, ``deaths``
        how many attempts were ended by the death of their process. Needs the loop's
        eager task factory: without it every handler costs a switch.
        """
        loop = asyncio.get_running_loop()
        now = self._clock.now()
        for lease in leases:
            prepared = own.get(lease.run_id) if own else None
            execution = Execution(
                lease,
                prepared or self._targets.of(lease),
                missed.get(lease.run_id) if missed else None,
            )
            if checkpoints and lease.run_id in checkpoints:
                execution.checkpoint = checkpoints[lease.run_id]
                execution.has_notes = True
            if deaths:
                execution.spared = deaths.get(lease.run_id, 0)
            self._seats.take(execution)
            if lease.job_deleted:
                self._finish(execution, Cancelled(reason=Reason.DELETED))
                continue
            held = self._gates.held_by(lease, execution.prepared, queue)
            if held is not None:
                self._finish(execution, HandBack(wait=HELD_FOR, reason=held))
                continue
            self._gates.begin(lease, execution.prepared, now)
            task = loop.create_task(self._run(execution))
            if not task.done():
                execution.task = task
        self._targets.forget()

    def return_unstarted(self, leases: Iterable[Lease]) -> None:
        """Hand back leases that nothing here runs."""
        for lease in leases:
            self._settler.put(hand_back(lease.run_id, lease.token))

    def cancel(self, runs: Iterable[uuid.UUID]) -> None:
        """Call off those of these runs that are executed here."""
        wanted = set(runs)
        for execution in self._seats:
            if execution.lease.run_id in wanted:
                self._end(execution, Cancelled())

    def lose(self, tokens: set[uuid.UUID]) -> None:
        """Stop those of these executions that run: their leases are gone."""
        for execution in self._seats:
            if execution.lease.token in tokens:
                facts = {"run": execution.lease.run_id}
                log.warning("a run lost its lease", extra={"facts": facts})
                self._end(execution, INTERRUPTION)

    def call_off(self) -> None:
        """Ask every handler to stop; its run is to be handed back."""
        for execution in self._seats:
            if not execution.settled and execution.ending is None:
                execution.end(INTERRUPTION)

    def kill(self) -> bool:
        """Kill what runs in a process; return whether anything did.

        Each run is settled as its process ends, behind all that this asked for.
        """
        found = False
        for execution in self._seats:
            if not execution.settled and execution.kill is not None:
                execution.kill()
                found = True
        return found

    def give_up(self) -> None:
        """Hand back whatever still runs, stopped or not."""
        for execution in self._seats:
            self._finish(execution, INTERRUPTION)

    def abandon(self) -> None:
        """Stop every handler; the settler writes nothing any more."""
        for execution in self._seats.all():
            execution.end(INTERRUPTION)
            if execution.kill is not None:
                execution.kill()
            if execution.task is not None:
                execution.task.cancel()

    def _end(self, execution: Execution, outcome: Outcome) -> None:
        """Call a handler off, and settle its run after a while whatever it does."""
        if execution.settled or execution.ending is not None:
            return
        execution.end(outcome)
        asyncio.get_running_loop().call_later(GRACE_S, self._insist, execution, outcome)

    def _insist(self, execution: Execution, outcome: Outcome) -> None:
        if execution.settled:
            return
        if execution.kill is not None:
            # Its call returns by that, behind all that its process asked for: else the
            # next attempt could take over what is done, and do it again.
            execution.kill()
            asyncio.get_running_loop().call_later(
                ANSWERS_S, self._finish, execution, outcome
            )
            return
        facts = {"run": execution.lease.run_id, "job": execution.lease.job_id}
        log.error(
            "a handler does not stop; its seat is lost until it does",
            extra={"facts": facts},
        )
        self._finish(execution, outcome)

    async def _run(self, execution: Execution) -> None:
        tails.current.set(execution)
        prepared = execution.prepared
        if prepared.takes_context:
            execution.notebook = self._noter.open(execution.lease)
            execution.once = Once(execution.lease, self._sessions)
        watch = None
        if prepared.timeout is not None or prepared.progress_deadline is not None:
            watch = Watch(execution, end=lambda failure: self._end(execution, failure))
        outcome: Outcome
        try:
            outcome = await prepared.call.run(execution)
        except asyncio.CancelledError:
            outcome = Failure("exception", "The task cancelled itself.")
        except Exception as error:
            # A fault of ours: it must cost this run an attempt, not the worker a seat.
            facts = {"run": execution.lease.run_id, "job": execution.lease.job_id}
            log.exception("calling a target went wrong", extra={"facts": facts})
            why = f"A fault of Chrono's own, {type(error).__name__}"
            outcome = Failure("exception", f"{why}: see the worker's log.")
        if watch is not None:
            watch.stop()
        execution.task = None
        if execution.settled:
            self._seats.recover(execution)
        else:
            self._finish(execution, execution.outcome(outcome))

    def _finish(self, execution: Execution, outcome: Outcome) -> None:
        if execution.settled:
            return
        execution.settled = True
        if isinstance(outcome, Settled):
            outcome = PLAIN
            if self._gates.told_of(execution, outcome, retry=False) is None:
                self._leave(execution)
                return
            # What follows is void, and carries what the gates are told.
        settlement = settlement_of(
            execution,
            outcome,
            # Successes, nearly all outcomes, have no use for the time and for chance.
            now=0 if isinstance(outcome, Success) else self._clock.now(),
            draw=draw() if isinstance(outcome, Failure) else 0.0,
        )
        if execution.tail is not None:
            settlement = tails.with_log(settlement, execution.tail)
        told = self._gates.told_of(execution, outcome, retry=settlement.state == AGAIN)
        if told is not None:
            self._settler.tell_before(told)
        if execution.notebook is None:
            self._settler.put(settlement)
            return
        over = isinstance(outcome, Success | Cancelled)
        self._noter.settle(settlement, execution.notebook, over=over)

    def _leave(self, execution: Execution) -> None:
        """Free the seat of an execution that is settled already."""
        self._seats.leave(execution.lease.token)
        if execution.notebook is not None:
            self._noter.close(execution.notebook)
            if execution.leaves_notes:
                self._noter.forget(execution.lease.run_id)
