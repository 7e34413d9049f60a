"""Who sits in this worker: every lease from its claim until its settle is answered."""

import asyncio
import logging
import uuid
from collections.abc import Iterator, Sequence

from apps.runs.store import Settlement
from apps.worker.execution import Execution
from chrono.rules.states import Reason, RunState

log = logging.getLogger("chrono.worker")

ENDED_BADLY = frozenset({RunState.DEAD, RunState.UNKNOWN})


class Seats:
    """As many seats as the worker runs at once; they bound the leases it holds."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._taken: dict[uuid.UUID, Execution] = {}
        self._freed = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def free(self) -> int:
        """How many more leases may be claimed."""
        return self.capacity - len(self._taken)

    def __contains__(self, token: uuid.UUID) -> bool:
        return token in self._taken

    def __iter__(self) -> Iterator[Execution]:
        return iter(list(self._taken.values()))

    def take(self, execution: Execution) -> None:
        """Seat an execution by its token."""
        self._taken[execution.lease.token] = execution
        self._empty.clear()

    def leave(self, token: uuid.UUID) -> Execution | None:
        """Free the seat of a token; return who sat there, or None."""
        execution = self._taken.pop(token, None)
        self._freed.set()
        if not self._taken:
            self._empty.set()
        return execution

    def answered(self, batch: Sequence[Settlement], held: set[uuid.UUID]) -> None:
        """Free the seats of a batch that was settled; say which runs died."""
        void = 0
        for settlement in batch:
            execution = self.leave(settlement.token)
            if settlement.run_id not in held:
                void += 1
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

    async def wait_free(self) -> None:
        """Return once a seat is free."""
        while self.free <= 0:
            self._freed.clear()
            await self._freed.wait()

    async def wait_empty(self) -> None:
        """Return once nobody is seated."""
        await self._empty.wait()
