"""What each peer in Python fills in, and the file into which its handlers write.

This is imported by the peers' own environment: it needs nothing but Python.

A record of the file is a job's number and the time at which its handler started. Jobs
numbered from SLOW on take ten seconds and write their negative number at their end.
Entries of cron are numbered from CRON_BASE on.
"""

import asyncio
import functools
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from struct import Struct
from typing import Any

RECORD = Struct("<qd")
SLOW = 10_000_000
CRON_BASE = 20_000_000
SLOW_SECONDS = 10

DSN = os.environ.get("PEERS_DSN", "")
BEST = os.environ.get("PEERS_MODE") == "best"
CRON = int(os.environ.get("PEERS_CRON", "0"))
"""How many entries of cron the worker has, each for every minute."""

BATCH = 1_000
LOAD_BATCH = 250
LOAD_MOST = 2_000
"""A load waits while more jobs than this have not started."""


def handle(n: int) -> None:
    """Do the work of a job: nothing."""
    record(n)
    if is_slow(n):
        time.sleep(SLOW_SECONDS)
        record(-n)


async def ahandle(n: int) -> None:
    """Do the work of a job, on an event loop."""
    record(n)
    if is_slow(n):
        await asyncio.sleep(SLOW_SECONDS)
        record(-n)


def is_slow(n: int) -> bool:
    """Tell whether a job takes ten seconds."""
    return SLOW <= n < CRON_BASE


def record(n: int) -> None:
    """Write that the job of this number starts now."""
    os.write(_events(), RECORD.pack(n, time.time()))


@functools.cache
def _events() -> int:
    path = os.environ["PEERS_EVENTS"]
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def when(at: float | None) -> datetime | None:
    """Return a Unix time as an instant in UTC."""
    return None if at is None else datetime.fromtimestamp(at, UTC)


class Peer:
    """A job system. ``at`` is the Unix time at which a job is due; None is at once."""

    async def setup(self) -> None:
        """Make the schema in an empty database."""

    async def open(self) -> None:
        """Connect, in order to enqueue."""

    async def close(self) -> None:
        """Disconnect."""

    async def one(self, n: int, at: float | None = None) -> None:
        """Enqueue one job."""
        raise NotImplementedError

    async def many(self, ns: Sequence[int], at: float | None = None) -> None:
        """Enqueue jobs by the call for many, where there is one."""
        for n in ns:
            await self.one(n, at)

    async def run_again(self, ns: Sequence[int]) -> None:
        """Ask for runs of jobs that exist, where that is not the same as enqueueing."""
        await self.many(ns)

    async def ready(self) -> None:
        """Return once a worker may have all that was enqueued; not measured."""

    def work(self) -> None:
        """Work until killed."""
        raise NotImplementedError


def main(peer: Peer, command: str, *words: str) -> Any:
    """Carry out a command of the command line and return what it says.

    setup | enqueue HOW COUNT START [AT] | latency COUNT GAP | load HOW SECONDS | work
    """
    match command, words:
        case "setup", ():
            return asyncio.run(peer.setup())
        case "enqueue", (how, count, start, *at):
            due = float(at[0]) if at else None
            return asyncio.run(_enqueue(peer, how, int(count), int(start), due))
        case "latency", (count, gap):
            return asyncio.run(_latency(peer, int(count), float(gap)))
        case "load", (how, seconds):
            return asyncio.run(_load(peer, how, float(seconds)))
        case "work", ():
            return peer.work()
        case _:
            raise SystemExit(f"no such command: {command} {' '.join(words)}")


async def _enqueue(
    peer: Peer, how: str, count: int, start: int, at: float | None
) -> float:
    """Return how many seconds it took."""
    numbers = range(start, start + count)
    await peer.open()
    begin = time.time()
    if how == "single":
        for n in numbers:
            await peer.one(n, at)
    else:
        for first in range(0, count, BATCH):
            batch = numbers[first : first + BATCH]
            if how == "again":
                await peer.run_again(batch)
            else:
                await peer.many(batch, at)
    took = time.time() - begin
    await peer.ready()
    await peer.close()
    return took


async def _latency(peer: Peer, count: int, gap: float) -> list[float]:
    """Enqueue jobs 0, 1, 2 … and return when the call for each returned."""
    await peer.open()
    sent = []
    following = time.time() + 0.5
    for n in range(count):
        await asyncio.sleep(max(0.0, following - time.time()))
        following += gap
        await peer.one(n)
        sent.append(time.time())
    await peer.close()
    return sent


async def _load(peer: Peer, how: str, seconds: float) -> None:
    """Keep some two thousand jobs waiting, until the time is over."""
    await peer.open()
    enqueue = peer.run_again if how == "again" else peer.many
    sent, end = 0, time.time() + seconds
    while time.time() < end:
        if sent - _started() > LOAD_MOST:
            await asyncio.sleep(0.01)
            continue
        await enqueue(range(sent, sent + LOAD_BATCH))
        sent += LOAD_BATCH
    await peer.close()


def _started() -> int:
    try:
        return os.stat(os.environ["PEERS_EVENTS"]).st_size // RECORD.size
    except FileNotFoundError:
        return 0
