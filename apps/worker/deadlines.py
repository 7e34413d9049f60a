"""How long an execution may take, and how long it may tell nothing."""

import asyncio
from collections.abc import Callable

from apps.worker.execution import Execution
from chrono.rules.durations import format_duration
from chrono.rules.instants import Millis
from chrono.rules.retry import Failure


class Watch:
    """Calls ``end`` once an execution is over one of its deadlines; made on the loop.

    Deadlines are of this attempt and by the loop's monotonic clock: a machine that
    sleeps or a process that is stopped has lost its leases by then.
    """

    def __init__(self, execution: Execution, *, end: Callable[[Failure], None]) -> None:
        self._execution = execution
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._began = self._now()
        self._timers: list[asyncio.TimerHandle] = []
        prepared = execution.prepared
        if prepared.timeout is not None:
            self._at(prepared.timeout, self._too_long, prepared.timeout)
        if prepared.progress_deadline is not None:
            self._at(prepared.progress_deadline, self._look, prepared.progress_deadline)

    def stop(self) -> None:
        """Watch no more."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _at(
        self, wait: Millis, call: Callable[[Millis], None], deadline: Millis
    ) -> None:
        self._timers.append(self._loop.call_later(wait / 1000, call, deadline))

    def _too_long(self, timeout: Millis) -> None:
        self._over(f"It ran for longer than {format_duration(timeout)}.")

    def _look(self, deadline: Millis) -> None:
        book = self._execution.notebook
        told_at = self._began
        if book is not None and book.told_at is not None:
            told_at = book.told_at
        left = told_at + deadline - self._now()
        if left > 0:
            self._at(left, self._look, deadline)
        else:
            self._over(f"It told nothing for {format_duration(deadline)}.")

    def _over(self, message: str) -> None:
        self.stop()
        self._end(Failure("timeout", message))

    def _now(self) -> Millis:
        return int(self._loop.time() * 1000)
