"""oban for Python. Default: a limit of 10, as its quick start has it.

Best: a limit of 100, 20 connections, a look for due jobs each 0.1 s.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from oban import Oban, worker
from oban.schema import install

from benchmarks.peers.peer import BEST, CRON, CRON_BASE, DSN, Peer, ahandle, when


class _Noop:
    async def process(self, job: Any) -> None:
        await ahandle(job.args["n"])


class _Tick:
    number = 0

    async def process(self, job: Any) -> None:
        await ahandle(CRON_BASE + self.number)


def _tick(number: int) -> Any:
    # oban finds a worker again by the name that it has in its module.
    name = f"Tick{number}"
    entry = type(name, (_Tick,), {"number": number, "__module__": __name__})
    globals()[name] = worker(queue="default", cron="* * * * *")(entry)


Noop: Any = worker(queue="default")(_Noop)
for number in range(CRON):
    _tick(number)


class PEER(Peer):
    async def setup(self) -> None:
        pool = await Oban.create_pool(dsn=DSN)
        await install(pool)
        await pool.close()

    async def open(self) -> None:
        self.pool = await Oban.create_pool(dsn=DSN)
        self.oban = Oban(pool=self.pool)
        await self.oban.start()

    async def close(self) -> None:
        await self.oban.stop()
        await self.pool.close()

    async def one(self, n: int, at: float | None = None) -> None:
        await self.oban.enqueue(_job(n, at))

    async def many(self, ns: Sequence[int], at: float | None = None) -> None:
        await self.oban.enqueue_many([_job(n, at) for n in ns])

    def work(self) -> None:
        asyncio.run(_work())


def _job(n: int, at: float | None) -> Any:
    return Noop.new({"n": n}, **({} if at is None else {"scheduled_at": when(at)}))


async def _work() -> None:
    pool = await Oban.create_pool(dsn=DSN, **({"max_size": 20} if BEST else {}))
    options = {"stager": {"interval": 0.1}} if BEST else {}
    async with Oban(pool=pool, queues={"default": 100 if BEST else 10}, **options):
        await asyncio.Event().wait()
