"""dbos: a workflow of one step from a queue. Best: a look each 0.1 s instead of 1 s.

A limit of 200 at once and 64 threads were slower than its defaults, so neither is set.
"""

import asyncio
import os
import threading
import time
from typing import Any

from dbos import DBOS, DBOSClient

from benchmarks.peers.peer import BEST, CRON, CRON_BASE, DSN, Peer, handle

VERSION = "1"
NAME = "peers"


def _noop(n: int) -> None:
    handle(n)


def _tick(at: Any, context: Any) -> None:
    handle(CRON_BASE + int(context))


DBOS.workflow(name="noop")(_noop)
tick = DBOS.workflow(name="tick")(_tick)


class PEER(Peer):
    async def setup(self) -> None:
        await asyncio.to_thread(_setup)

    async def open(self) -> None:
        self.client = DBOSClient(system_database_url=DSN)

    async def one(self, n: int, at: float | None = None) -> None:
        options: dict[str, Any] = {
            "queue_name": "q",
            "workflow_name": "noop",
            "app_version": VERSION,
            "application_name": NAME,
        }
        if at is not None:
            options["delay_seconds"] = at - time.time()
        self.client.enqueue(options, n)

    def work(self) -> None:
        _launch()
        for number in range(CRON):
            DBOS.create_schedule(
                schedule_name=f"cron{number}",
                workflow_fn=tick,
                schedule="* * * * *",
                context=number,
            )
        threading.Event().wait()


def _setup() -> None:
    _launch()
    DBOS.destroy()


def _launch() -> None:
    DBOS(
        config={
            "name": NAME,
            "system_database_url": DSN,
            "log_level": "ERROR",
            "application_version": VERSION,
            "executor_id": os.environ.get("PEERS_WORKER", "0"),
        }
    )
    DBOS.launch()
    DBOS.register_queue("q", **({"polling_interval_sec": 0.1} if BEST else {}))
