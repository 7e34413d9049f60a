"""What a worker process that died leaves to the one that is started for it.

Its parent knows of its death at once, and no beat or session has to be missed first.
"""

import logging
import os
import uuid

import psycopg

from apps.runs import worker_store
from apps.runs.sweep import rescue_all
from apps.runtime.process import Waiter, rest_after
from apps.runtime.sessions import Connection, connect_hot
from apps.runtime.store import read_clock
from apps.timers.store import read_dispatch_state
from chrono.rules.errors import ChronoError

log = logging.getLogger("chrono.worker")

ID_BYTES = 16
TRIES = 5
"""After so many the sweep is to do it."""


def bequeath(will: int, worker: uuid.UUID) -> None:
    """Have what this worker holds handed back should this process die."""
    os.write(will, worker.bytes)


def inherit(url: str, will: bytes) -> None:
    """Hand back what the workers of a will hold; try for some seconds."""
    workers = [
        uuid.UUID(bytes=will[at : at + ID_BYTES])
        for at in range(0, len(will) - ID_BYTES + 1, ID_BYTES)
    ]
    waiter = Waiter()
    for failures in range(1, TRIES + 1):
        try:
            with connect_hot(url, name="chrono worker heir") as conn:
                rescued = hand_back(conn, workers)
        except (psycopg.Error, ChronoError) as error:
            log.warning("nothing is handed back of a dead process: %s", error)
            waiter.wait(rest_after(failures))
        else:
            log.warning("%d runs of a dead process are offered again", rescued)
            return
    log.error("the runs of a dead process are left to the leader's sweep")


def hand_back(conn: Connection, workers: list[uuid.UUID]) -> int:
    """Mark these workers dead and offer again what they held; return how many runs."""
    worker_store.mark_dead(conn, workers=workers)
    return rescue_all(
        conn,
        now=int(read_clock(conn)),
        horizon=lambda: read_dispatch_state(conn).horizon,
    )
