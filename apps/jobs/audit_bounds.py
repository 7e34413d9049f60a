"""How many executions were under way at one time, where their number is bounded.

Executions come in the order of their runs' ids, which is that of their instants, and
none begins before its instant. So of what was over before the instant that was read to,
nothing that follows can be beside it: it is forgotten, and little is held at a time.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from uuid import UUID

from apps.jobs.audit_checks import Told
from apps.jobs.audit_store import Execution
from chrono.rules.instants import Millis, format_instant

MOST = 100_000
"""How many executions are held at most; beyond that the first to be over go."""

type Bound = tuple[str, int]
"""With whose executions one is counted, and how many there may be with it."""
type Span = tuple[Millis, Millis, UUID, int]
"""From when to when an execution was under way, of which run, and its own limit."""


class Bounds:
    """The executions that may still be beside one that was not read yet."""

    def __init__(self) -> None:
        self.cut = False
        """Whether there were too many to hold."""
        self._spans: dict[str, list[Span]] = {}
        self._judged: Millis = 0

    def hear(self, executions: Iterable[Execution]) -> None:
        """Take note of the executions of the next runs."""
        for one in executions:
            for whose, most in _bounds_of(one):
                span = one.started_at, one.ended_at, one.run_id, most
                self._spans.setdefault(whose, []).append(span)

    def judge(self, until: Millis | None) -> Iterator[Told]:
        """Yield each execution that began before ``until`` beside too many others.

        What follows begins no earlier than that; None where nothing follows. Where the
        limits of a key differ, the highest of those under way counts: whoever of them
        was let in last found fewer than its own.
        """
        for whose, spans in self._spans.items():
            spans.sort()
            for began, run, count, most in _beside(spans):
                new = self._judged <= began and (until is None or began < until)
                if new and count > most:
                    said = f"began at {format_instant(began)} as number {count}"
                    yield "limits", f"run {run}", f"{said} of {whose}, not {most}"
        if until is not None:
            self._judged = until
            self._forget(until)

    def _forget(self, until: Millis) -> None:
        held = {
            whose: [span for span in spans if span[1] > until]
            for whose, spans in self._spans.items()
        }
        ends = [span[1] for spans in held.values() for span in spans]
        if len(ends) > MOST:
            self.cut = True
            ends.sort()
            return self._forget(ends[-MOST // 2])
        self._spans = {whose: spans for whose, spans in held.items() if spans}
        return None


def _bounds_of(one: Execution) -> Iterator[Bound]:
    if one.most is not None:
        yield f"job {one.job_id} at revision {one.revision}", one.most
    if one.key is not None:
        yield f"key {one.key} of tenant {one.tenant}", one.most_of_key
    if one.most_of_tenant is not None:
        yield f"tenant {one.tenant}", one.most_of_tenant


def _beside(spans: Iterable[Span]) -> Iterator[tuple[Millis, UUID, int, int]]:
    """Yield for each span, in the order of begins, how many were under way with it.

    And the highest of their limits.
    """
    ends: list[tuple[Millis, int]] = []
    limits: Counter[int] = Counter()
    for began, ended, run, most in spans:
        while ends and ends[0][0] <= began:
            _, gone = heapq.heappop(ends)
            limits[gone] -= 1
        heapq.heappush(ends, (ended, most))
        limits[most] += 1
        highest = max(limit for limit, count in limits.items() if count)
        yield began, run, len(ends), highest
