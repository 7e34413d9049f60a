"""Settling: one batch in flight, the next one filling meanwhile."""

import asyncio
import logging
import secrets
import uuid
from collections.abc import Callable, Sequence

import psycopg

from apps.runs.settle import settle
from apps.runs.store import Settlement
from apps.runs.targets import Told
from apps.runtime.clock import Clock
from apps.runtime.sessions import Connection
from apps.worker.lines import Line
from apps.worker.pauses import Pauses
from chrono.rules.instants import Millis
from chrono.rules.retry import RetryAt, RetryPolicy, unaffordable
from chrono.rules.states import Reason

log = logging.getLogger("chrono.worker")

BATCH = 500
NOTE = "not storable"

Tell = Callable[[Connection, Sequence[Told]], set[uuid.UUID]]
"""Reports calls; returns the tokens of the leases whose retry is refused."""
Answered = Callable[[Sequence[Settlement], set[uuid.UUID]], None]
"""Told of each batch that was answered, and of the runs whose lease held."""


class Settler:
    """Writes what became of executions, in batches, until it is stored or void."""

    def __init__(
        self,
        *,
        line: Line,
        clock: Clock,
        horizon: Callable[[], Millis],
        tell: Tell,
        answered: Answered,
    ) -> None:
        self._line = line
        self._clock = clock
        self._tell = tell
        self._told: dict[uuid.UUID, Told] = {}
        self._horizon = horizon
        self._answered = answered
        self._waiting: list[Settlement] = []
        self._some = asyncio.Event()
        self._done = asyncio.Event()
        self._done.set()

    def tell_before(self, told: Told) -> None:
        """Have it told what a target did, before its run is settled."""
        self._told[told.token] = told

    def put(self, settlement: Settlement) -> None:
        """Have a settlement written soon."""
        self._waiting.append(settlement)
        if len(self._waiting) == 1:
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
        if self._told:
            batch = await self._report(batch)
        self._answered(batch, await self._write(batch))
        if not self._waiting:
            self._some.clear()
            self._done.set()

    async def _report(self, batch: list[Settlement]) -> list[Settlement]:
        """Tell of the batch's targets; return it with the retries they can afford."""
        told = {s.token: t for s in batch if (t := self._told.pop(s.token, None))}
        if not told:
            return batch
        try:
            refused = await self._line.call(
                lambda conn: self._tell(conn, list(told.values()))
            )
        except psycopg.Error as error:
            # The settle itself goes on trying.
            log.warning("targets are not reported: %s", str(error).partition("\n")[0])
            return batch
        return [
            put_off(s, told[s.token].policy, now=self._clock.now(), draw=draw())
            if s.token in refused
            else s
            for s in batch
        ]

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
            lambda conn: settle(conn, batch, horizon=self._horizon())
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


def put_off(
    settlement: Settlement, policy: RetryPolicy, *, now: Millis, draw: float
) -> Settlement:
    """Return the settlement of a failure whose retry its target can't afford."""
    later = unaffordable(RetryAt(settlement.due), policy=policy, now=now, draw=draw)
    return settlement._replace(due=later.at, reason=Reason.BUDGET_SPENT)


def draw() -> float:
    """Return a number in [0, 1) by chance, for what spreads a retry."""
    return secrets.randbits(53) / (1 << 53)


def _plain(settlement: Settlement) -> Settlement:
    """Return the settlement with notes in place of what came from outside."""
    result = None if settlement.result is None else {"note": f"result {NOTE}"}
    error = None if settlement.error is None else f"error {NOTE}"
    return settlement._replace(result=result, error=error, log=None)
