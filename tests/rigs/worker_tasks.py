"""Tasks for the faults of workers: they take their time, or do harm."""

import asyncio
import ctypes
import os
import signal
import sys
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


@chrono.task(name="rig.raise")
async def fail(payload: Any) -> None:
    """Fail with what neither JSON nor a terminal takes."""
    raise ValueError("no\x00such \ud800 thing")


@chrono.task(name="rig.leave")
async def leave(payload: Any) -> None:
    """Ask the whole process to end, from its loop."""
    sys.exit(3)


@chrono.task(name="rig.object")
def give_object(payload: Any) -> object:
    """Return what JSON cannot hold."""
    return {"an object": object()}


@chrono.task(name="rig.babble")
def babble(payload: Any, context: Context) -> None:
    """Log so many megabytes, a line each."""
    for _ in range(payload["megabytes"]):
        context.log("x" * 1_048_576)


@chrono.task(name="rig.hold_gil")
def hold_gil(payload: Any) -> None:
    """Let no other thread of the process run for so many seconds."""
    ctypes.PyDLL(None).sleep(payload["seconds"])
