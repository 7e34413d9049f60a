"""Tasks for workers in processes of their own."""

import asyncio
import os
import signal
import threading

import chrono


@chrono.task(name="probe")
async def probe(payload: object) -> None:
    pass


@chrono.task(name="hang")
def hang(payload: object) -> None:
    print("hanging", flush=True)
    threading.Event().wait()


@chrono.task(name="hang_async")
async def hang_async(payload: object) -> None:
    await asyncio.to_thread(hang, payload)


@chrono.task(name="nap")
async def nap(payload: object) -> None:
    await asyncio.sleep(0.2)


@chrono.task(name="die")
async def die(payload: object) -> None:
    await asyncio.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
