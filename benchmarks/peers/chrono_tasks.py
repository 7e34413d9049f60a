"""The handler of Chrono's runs beside its peers."""

from typing import Any
from uuid import UUID

import chrono
from benchmarks.peers.peer import CRON_BASE, ahandle
from chrono.tasks import Context

HASH = (1 << 60) - 1


@chrono.task(name="peers.noop")
async def noop(payload: Any, context: Context) -> None:
    """Write the number that the payload has, or one made of the run's id."""
    if payload is None:
        await ahandle(CRON_BASE + (UUID(context.run_id).int & HASH))
    else:
        await ahandle(payload["n"])
