"""awa: a core in Rust, handlers in Python. Default: 4 workers, as its quick start has.

Best: 200 workers, 20 connections.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from awa import AsyncClient

from benchmarks.peers.peer import BEST, CRON, CRON_BASE, DSN, Peer, ahandle, when

QUEUE = "default"


@dataclass
class Noop:
    n: int


class PEER(Peer):
    async def setup(self) -> None:
        client = AsyncClient(DSN)
        await client.migrate()
        # The first worker moves a new database to the newer of its storage engines.
        client.task(Noop, queue=QUEUE)(_noop)
        await client.start([(QUEUE, 1)])
        for _ in range(100):
            status = await client.storage_status()
            status = json.loads(status) if isinstance(status, str) else status
            if status["state"] == "active":
                break
            await asyncio.sleep(0.1)
        await client.shutdown()
        await client.close()

    async def open(self) -> None:
        self.client = AsyncClient(DSN)

    async def close(self) -> None:
        await self.client.close()

    async def one(self, n: int, at: float | None = None) -> None:
        await self.client.insert(Noop(n), queue=QUEUE, run_at=when(at))

    async def many(self, ns: Sequence[int], at: float | None = None) -> None:
        await self.client.enqueue_many_copy(
            [Noop(n) for n in ns], queue=QUEUE, run_at=when(at)
        )

    def work(self) -> None:
        asyncio.run(_work())


async def _noop(job: Any) -> None:
    await ahandle(job.args.n)


async def _work() -> None:
    client = AsyncClient(DSN, max_connections=20 if BEST else 10)
    client.task(Noop, queue=QUEUE)(_noop)
    for number in range(CRON):
        entry = Noop(CRON_BASE + number)
        client.periodic(f"cron{number}", "* * * * *", Noop, entry, queue=QUEUE)
    await client.start([(QUEUE, 200 if BEST else 4)])
    await asyncio.Event().wait()
