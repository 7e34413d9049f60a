"""Waiting on the loop: between tries at a database, and for an event."""

import asyncio
import contextlib
import logging

FIRST_S = 0.5
LONGEST_S = 4.0


async def wait_within(event: asyncio.Event, seconds: float) -> None:
    """Return once the event is set, after so many seconds at the latest."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class Pauses:
    """Pauses of 0.5, 1, 2 and 4 s, one line of log each."""

    def __init__(self) -> None:
        self._next = FIRST_S

    async def wait(self, why: str, log: logging.Logger) -> None:
        """Log why, and return after the next pause."""
        log.warning("%s; again in %g s", why.strip(), self._next)
        pause, self._next = self._next, min(LONGEST_S, self._next * 2)
        await asyncio.sleep(pause)

    def reset(self) -> None:
        """Start over from the shortest pause."""
        self._next = FIRST_S
