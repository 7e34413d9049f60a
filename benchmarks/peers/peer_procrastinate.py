"""procrastinate. Best: 20 jobs at once, a look each 0.1 s, 24 connections."""

import asyncio
from collections.abc import Sequence
from typing import Any

import procrastinate

from benchmarks.peers.peer import BEST, CRON, CRON_BASE, DSN, Peer, ahandle, when

connector = procrastinate.PsycopgConnector(conninfo=DSN, max_size=24 if BEST else 4)
app = procrastinate.App(connector=connector)


async def _noop(n: int) -> None:
    await ahandle(n)


def _tick(number: int) -> Any:
    async def tick(timestamp: int) -> None:
        await ahandle(CRON_BASE + number)

    return tick


noop = app.task(name="noop")(_noop)
for number in range(CRON):
    task = app.task(name=f"cron{number}")(_tick(number))
    app.periodic(cron="* * * * *", periodic_id=f"p{number}")(task)


class PEER(Peer):
    async def setup(self) -> None:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await app.open_async()

    async def close(self) -> None:
        await app.close_async()

    async def one(self, n: int, at: float | None = None) -> None:
        await noop.configure(schedule_at=when(at)).defer_async(n=n)

    async def many(self, ns: Sequence[int], at: float | None = None) -> None:
        await noop.configure(schedule_at=when(at)).batch_defer_async(
            *[{"n": n} for n in ns]
        )

    def work(self) -> None:
        asyncio.run(_work())


async def _work() -> None:
    async with app.open_async():
        if BEST:
            await app.run_worker_async(concurrency=20, fetch_job_polling_interval=0.1)
        else:
            await app.run_worker_async()
