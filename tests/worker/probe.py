"""Tasks for workers in processes of their own."""

import threading

import chrono


@chrono.task(name="probe")
async def probe(payload: object) -> None:
    pass


@chrono.task(name="hang")
def hang(payload: object) -> None:
    threading.Event().wait()
