"""Executing: leases in, settlements out."""

import asyncio
import logging
import secrets
import uuid
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from apps.runs.store import Lease, Missed
from apps.runtime.clock import Clock
from apps.worker.execution import (
    AGAIN,
    Cancelled,
    Execution,
    HandBack,
    Outcome,
    Prepared,
    hand_back,
    settlement_of,
)
from apps.worker.gates import Gates
from apps.worker.seats import Seats
from apps.worker.settles import Settler
from apps.worker.targets import Targets
from chrono.rules.instants import SECOND, Millis
from chrono.rules.retry import Failure
from chrono.rules.states import Reason

log = logging.getLogger("chrono.worker")

HELD_FOR: Millis = SECOND
"""Until then the leader has heard which gates are shut."""
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
        clock: Clock,
    ) -> None:
        self._seats = seats
        self._gates = gates
        self._targets = targets
        self._settler = settler
        self._clock = clock

    def start(
        self,
        leases: Iterable[Lease],
        own: Mapping[uuid.UUID, Prepared] = NOTHING,
        missed: Mapping[uuid.UUID, Missed] = NOTHING,
        *,
        queue: str,
    ) -> None:
        """Seat each lease and start its handler; one that never waits is over by then.

        ``own`` has what is prepared for a run alone, ``missed`` what a run stands for.
        Needs the loop's eager task factory: without it every handler costs a switch.
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
            if execution.lease.run_id in wanted and execution.ending is None:
                execution.end(Cancelled())

    def call_off(self) -> None:
        """Ask every handler to stop; its run is to be handed back."""
        for execution in self._seats:
            if not execution.settled and execution.ending is None:
                execution.end(HandBack())

    def give_up(self) -> None:
        """Hand back whatever still runs, stopped or not."""
        for execution in self._seats:
            self._finish(execution, HandBack())

    def abandon(self) -> None:
        """Stop every handler; the settler writes nothing any more."""
        for execution in self._seats:
            execution.end(HandBack())

    async def _run(self, execution: Execution) -> None:
        outcome: Outcome
        try:
            outcome = await execution.prepared.call.run(execution)
        except asyncio.CancelledError:
            outcome = Failure("exception", "The task cancelled itself.")
        except Exception as error:
            # A fault of ours: it must cost this run an attempt, not the worker a seat.
            log.exception("calling a target went wrong")
            outcome = Failure("exception", f"Chrono: {type(error).__name__}")
        execution.task = None
        self._finish(execution, execution.outcome(outcome))

    def _finish(self, execution: Execution, outcome: Outcome) -> None:
        if execution.settled:
            return
        execution.settled = True
        settlement = settlement_of(
            execution,
            outcome,
            now=self._clock.now(),
            # Successes, nearly all outcomes, have no use for chance.
            draw=_draw() if isinstance(outcome, Failure) else 0.0,
        )
        told = self._gates.told_of(execution, outcome, retry=settlement.state == AGAIN)
        self._settler.put(settlement, told)


def _draw() -> float:
    return secrets.randbits(53) / (1 << 53)
