"""Settling: one batch in flight, the next one filling meanwhile."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

import psycopg

from apps.runs import store
from apps.runs.store import Settlement
from apps.worker.lines import Line
from apps.worker.pauses import Pauses
from chrono.rules.instants import Millis

log = logging.getLogger("chrono.worker")

BATCH = 500
NOTE = "not storable"

Answered = Callable[[Sequence[Settlement], set[uuid.UUID]], None]
"""Told of each batch that was answered, and of the runs whose lease held."""


class Settler:
    """Writes what became of executions, in batches, until it is stored or void."""

    def __init__(
        self, *, line: Line, horizon: Callable[[], Millis], answered: Answered
    ) -> None:
        self._line = line
        self._horizon = horizon
        self._answered = answered
        self._waiting: list[Settlement] = []
        self._some = asyncio.Event()
        self._done = asyncio.Event()
        self._done.set()

    def put(self, settlement: Settlement) -> None:
        """Have a settlement written soon."""
        self._waiting.append(settlement)
        self._some.set()
        self._done.clear()

    async def wait_done(self) -> None:
        """Return once everything put so far is answered."""
        await self._done.wait()

    async def run(self) -> None:
        """Write for ever. Raises ChronoError where a pooler answers."""
        while True:
            await self._some.wait()
            await self.step()

    async def step(self) -> None:
        """Write one batch of what waits and tell of the answer."""
        batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
        self._answered(batch, await self._write(batch))
        if not self._waiting:
            self._some.clear()
            self._done.set()

    async def _write(self, batch: Sequence[Settlement]) -> set[uuid.UUID]:
        pauses = Pauses()
        while True:
            try:
                return await self._send(batch)
            except (psycopg.DataError, psycopg.IntegrityError):
                return await self._write_singly(batch)
            except psycopg.Error as error:
                # Whether it was stored or not, the same batch again is right: a lease
                # that was settled is not there to be settled twice.
                await pauses.wait(f"settle failed: {error}", log)

    async def _send(self, batch: Sequence[Settlement]) -> set[uuid.UUID]:
        return await self._line.call(
            lambda conn: store.settle_if_leased(conn, batch, horizon=self._horizon())
        )

    async def _write_singly(self, batch: Sequence[Settlement]) -> set[uuid.UUID]:
        """Write one by one: what the database refuses must not hold up the others."""
        held: set[uuid.UUID] = set()
        for settlement in batch:
            for form in (settlement, _plain(settlement)):
                try:
                    held |= await self._write_one(form)
                    break
                except (psycopg.DataError, psycopg.IntegrityError) as error:
                    log.error(
                        "settle refused",
                        extra={"facts": {"run": settlement.run_id, "error": error}},
                    )
        return held

    async def _write_one(self, settlement: Settlement) -> set[uuid.UUID]:
        pauses = Pauses()
        while True:
            try:
                return await self._send([settlement])
            except (psycopg.DataError, psycopg.IntegrityError):
                raise
            except psycopg.Error as error:
                await pauses.wait(f"settle failed: {error}", log)


def _plain(settlement: Settlement) -> Settlement:
    """Return the settlement with notes in place of what came from outside."""
    result = None if settlement.result is None else {"note": f"result {NOTE}"}
    error = None if settlement.error is None else f"error {NOTE}"
    return replace(settlement, result=result, error=error, log=None)
