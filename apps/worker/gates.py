"""What this worker knows of shut gates, and what it tells of its targets.

A target that never failed costs a comparison with an empty set when its run succeeds
and a count when a first attempt begins. What is shut is read again with every claim
while anything is, so nothing that was shut before a claim began is called.
"""

import logging
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence

import psycopg

from apps.queue.store import list_pauses
from apps.runs.store import Lease
from apps.runs.target_store import Key, Shut, list_shut_circuits
from apps.runs.targets import Told, report
from apps.runtime.sessions import Connection
from apps.worker.execution import Execution, Outcome, Prepared, Success
from chrono.rules.breaker import Breaker, BreakerState
from chrono.rules.budget import WINDOW
from chrono.rules.instants import Millis
from chrono.rules.retry import Failure, says_how_it_is
from chrono.rules.states import Reason

log = logging.getLogger("chrono.worker")


class Gates:
    """Paused queues, circuits that are not closed, targets that failed here lately."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._shut: Mapping[Key, Shut] = {}
        self._paused: frozenset[Key] = frozenset()
        self._failing: set[Key] = set()
        self._firsts: defaultdict[Key, int] = defaultdict(int)
        self._older: dict[Key, int] = {}
        self._turned: Millis = 0

    def look(self, conn: Connection, leases: Sequence[Lease]) -> None:
        """Read what is shut, where that may have changed when these were claimed.

        Called on a line's thread, before any of the leases is begun.
        """
        number = leases[0].gates
        if number != self._number or self._shut or self._paused:
            self._shut = list_shut_circuits(conn)
            paused = list_pauses(conn)
            self._paused = frozenset((one.tenant, one.queue) for one in paused)
            self._number = number

    def held_by(self, lease: Lease, prepared: Prepared, queue: str) -> Reason | None:
        """Return why a lease that was claimed may not begin; None where it may."""
        if self._paused and (lease.tenant, queue) in self._paused:
            return Reason.QUEUE_PAUSED
        if self._shut and not self._may_call(lease, prepared):
            return Reason.CIRCUIT_OPEN
        return None

    def begin(self, lease: Lease, prepared: Prepared, now: Millis) -> None:
        """Count a first attempt."""
        if now - self._turned >= WINDOW:
            self._older, self._firsts = self._firsts, defaultdict(int)
            self._turned = now
        if lease.attempt == 1 and prepared.target:
            self._firsts[lease.tenant, prepared.target] += 1

    def told_of(
        self, execution: Execution, outcome: Outcome, *, retry: bool
    ) -> Told | None:
        """Return what is to be told of a call that came to its end; mostly nothing."""
        if isinstance(outcome, Success):
            if not self._failing and not self._shut:
                return None
            return self._success_of(execution)
        if not isinstance(outcome, Failure) or not execution.prepared.target:
            return None
        good = says_how_it_is(outcome.kind)
        if good is None and not retry:
            return None
        key = (execution.lease.tenant, execution.prepared.target)
        if good and not retry and not self._is_watched(key):
            return None
        if good is False:
            self._failing.add(key)
        return _told(execution, key, good=good, retry=retry)

    def tell(self, conn: Connection, told: Sequence[Told]) -> set[uuid.UUID]:
        """Report calls; return the tokens of the leases whose retry is refused.

        Where the database does not answer, nothing is told and nothing refused.
        """
        keys = {one.key for one in told}
        firsts = {
            key: self._firsts.pop(key, 0) + self._older.pop(key, 0) for key in keys
        }
        try:
            refused, circuits = report(conn, told, firsts=firsts)
        except psycopg.Error as error:
            log.warning("targets are not reported: %s", str(error).partition("\n")[0])
            return set()
        for key, circuit in circuits.items():
            self._learn(key, circuit)
        return refused

    def _may_call(self, lease: Lease, prepared: Prepared) -> bool:
        shut = self._shut.get((lease.tenant, prepared.target))
        match shut:
            case None | Shut(state=BreakerState.CLOSED | BreakerState.CLOSING):
                return True
            case Shut(state=BreakerState.OPEN):
                return False
            case Shut(probes=probes):
                return lease.run_id in probes

    def _learn(self, key: Key, circuit: Breaker) -> None:
        if not circuit.failures and circuit.state is BreakerState.CLOSED:
            self._failing.discard(key)
        if circuit.state is not BreakerState.CLOSED:
            shut = Shut(state=circuit.state, probes=frozenset(circuit.probes))
            self._shut = {**self._shut, key: shut}
        elif key in self._shut:
            self._shut = {k: shut for k, shut in self._shut.items() if k != key}

    def _success_of(self, execution: Execution) -> Told | None:
        key = (execution.lease.tenant, execution.prepared.target)
        if not self._is_watched(key):
            return None
        return _told(execution, key, good=True, retry=False)

    def _is_watched(self, key: Key) -> bool:
        return key in self._failing or key in self._shut


def _told(execution: Execution, key: Key, *, good: bool | None, retry: bool) -> Told:
    lease = execution.lease
    return Told(
        key=key,
        run=lease.run_id,
        token=lease.token,
        good=good,
        retry=retry,
        policy=execution.prepared.policy,
    )
