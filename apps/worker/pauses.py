"""Waiting on the loop between tries at a database that does not answer."""

import asyncio
import logging

FIRST_S = 0.5
LONGEST_S = 4.0


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
