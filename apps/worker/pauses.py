"""Waiting on the loop: between tries at a database, and for an event."""

import asyncio
import contextlib
import logging

from apps.runtime.process import rest_after


async def wait_within(event: asyncio.Event, seconds: float) -> None:
    """Return once the event is set, after so many seconds at the latest."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class Pauses:
    """Pauses that double up to four seconds, one line of log each."""

    def __init__(self) -> None:
        self._losses = 0

    async def wait(self, why: str, log: logging.Logger) -> None:
        """Log why, and return after the next pause."""
        self._losses += 1
        pause = rest_after(self._losses)
        log.warning("%s; again in %.2g s", why.strip(), pause)
        await asyncio.sleep(pause)

    def reset(self) -> None:
        """Start over from the shortest pause."""
        self._losses = 0
