"""pgqueuer on asyncpg. Best: batches of 100 instead of 10."""

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from benchmarks.peers.peer import BEST, CRON, CRON_BASE, DSN, Peer, ahandle


class PEER(Peer):
    async def setup(self) -> None:
        await self.open()
        await self.queries.install()
        await self.close()

    async def open(self) -> None:
        self.conn = await asyncpg.connect(DSN)
        self.queries = Queries(AsyncpgDriver(self.conn))

    async def close(self) -> None:
        await self.conn.close()

    async def one(self, n: int, at: float | None = None) -> None:
        await self.queries.enqueue("noop", str(n).encode(), execute_after=_after(at))

    async def many(self, ns: Sequence[int], at: float | None = None) -> None:
        count = len(ns)
        payloads = [str(n).encode() for n in ns]
        await self.queries.enqueue(
            ["noop"] * count, payloads, [0] * count, [_after(at)] * count
        )

    def work(self) -> None:
        asyncio.run(_work())


def _after(at: float | None) -> timedelta | None:
    return None if at is None else timedelta(seconds=at - time.time())


async def _work() -> None:
    worker = PgQueuer(AsyncpgDriver(await asyncpg.connect(DSN)))

    async def noop(job: Any) -> None:
        await ahandle(int(job.payload))

    worker.entrypoint("noop")(noop)
    for number in range(CRON):

        async def tick(schedule: Any, number: int = number) -> None:
            await ahandle(CRON_BASE + number)

        worker.schedule(f"cron{number}", "* * * * *")(tick)
    await worker.run(**({"batch_size": 100} if BEST else {}))
