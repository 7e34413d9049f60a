"""Tasks for workers in processes of their own."""

import asyncio
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
