"""Tasks for the faults of workers: they take their time, or end their process."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import chrono
from chrono.tasks import Context
from tests.rigs.tasks import note


@chrono.task(name="rig.finish")
async def finish(payload: Any, context: Context) -> None:
    """Take as many seconds as the payload says, and note the call at the end."""
    await asyncio.sleep(payload["seconds"])
    await note(payload, context)


@chrono.task(name="rig.die")
async def die(payload: Any, context: Context) -> None:
    """End the process after a moment as the kernel does where memory is used up."""
    with (Path(os.environ["CHRONO_RIG_FOLDER"]) / "deaths.txt").open("a") as file:
        file.write(f"{os.getpid()}\n")
    await asyncio.sleep(payload["seconds"])
    os.kill(os.getpid(), signal.SIGKILL)
