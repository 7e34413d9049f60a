"""Who sits in this worker: every lease from its claim until its settle is answered.

A handler that does not stop though its run is settled keeps its seat: else such threads
would grow in number without end.
"""

import asyncio
import logging
import uuid
from collections.abc import Iterator, Sequence

from apps.runs.store import Settlement
from apps.worker.execution import Execution
from chrono.rules.states import Reason, RunState

log = logging.getLogger("chrono.worker")

ENDED_BADLY = frozenset({RunState.DEAD, RunState.UNKNOWN})
DONE = frozenset({RunState.SUCCESS, RunState.CANCELLED})


class Seats:
    """As many seats as the worker runs at once; they bound the leases it holds."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._taken: dict[uuid.UUID, Execution] = {}
        self._stuck: dict[uuid.UUID, Execution] = {}
        self._freed = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def free(self) -> int:
        """How many more leases may be claimed."""
        return self.capacity - len(self._taken) - len(self._stuck)

    @property
    def is_stuck(self) -> bool:
        """Whether every seat is held by a handler that does not stop."""
        return len(self._stuck) >= self.capacity

    def __len__(self) -> int:
        return len(self._taken)

    def __iter__(self) -> Iterator[Execution]:
        return iter(list(self._taken.values()))

    def all(self) -> list[Execution]:
        """Return all whose handler may still run, settled or not."""
        return [*self._taken.values(), *self._stuck.values()]

    def take(self, execution: Execution) -> None:
        """Seat an execution by its token."""
        self._taken[execution.lease.token] = execution
        self._empty.clear()

    def leave(self, token: uuid.UUID) -> Execution | None:
        """Free the seat of a token; return who sat there, or None."""
        execution = self._taken.pop(token, None)
        if execution is not None and execution.is_running:
            self._stuck[token] = execution
        self._freed.set()
        if not self._taken:
            self._empty.set()
        return execution

    def recover(self, execution: Execution) -> None:
        """Free the seat of a handler that ended after its run was settled."""
        if self._stuck.pop(execution.lease.token, None) is not None:
            self._freed.set()

    def answered(
        self, batch: Sequence[Settlement], held: set[uuid.UUID]
    ) -> list[uuid.UUID]:
        """Free the seats of a batch that was settled; say which runs died.

        Returns the runs that are over and told something that nobody goes on from.
        """
        void = 0
        over: list[uuid.UUID] = []
        for settlement in batch:
            execution = self.leave(settlement.token)
            if settlement.run_id not in held:
                void += 1
            elif settlement.state in DONE:
                if execution is not None and execution.leaves_notes:
                    over.append(settlement.run_id)
            elif settlement.state in ENDED_BADLY and execution is not None:
                facts = {
                    "run": settlement.run_id,
                    "job": execution.lease.job_id,
                    "attempt": execution.lease.attempt,
                    "reason": Reason(settlement.reason).label,
                    "error": (settlement.error or "").partition("\n")[0][:200],
                }
                word = RunState(settlement.state).label
                log.warning("run is %s", word, extra={"facts": facts})
        if void:
            log.warning("dropped %d results whose lease was lost", void)
        return over

    async def wait_free(self) -> None:
        """Return once a seat is free."""
        while self.free <= 0:
            self._freed.clear()
            await self._freed.wait()

    async def wait_empty(self) -> None:
        """Return once nobody is seated."""
        await self._empty.wait()
