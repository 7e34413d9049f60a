"""Where in its queue a claim begins to look: at the front, unless that takes long.

While somebody holds an old snapshot, rows that were claimed stay in the way until their
slice is emptied, and each look from the front passes over all of them. So a claim that
took long is followed by claims that begin where it ended, for ten times as long as it
took, but for no more than a quarter of a second, whatever made it slow. What came to
lie before meanwhile, a more urgent run or one that was given back, waits until the next
look from the front.
"""

from collections.abc import Callable, Sequence

from apps.runs.store import FRONT, Lease, Rank
from chrono.rules.instants import Millis

LONG: Millis = 5
"""A claim usually takes one or two."""
REST = 10
LONGEST_REST: Millis = 250


class Starts:
    """The ranks at which the claims of a worker's queues begin."""

    def __init__(self, monotonic: Callable[[], Millis]) -> None:
        self._monotonic = monotonic
        self._kept: dict[str, tuple[Rank, Millis]] = {}

    def of(self, queue: str) -> Rank:
        """Return where the next claim of a queue is to begin."""
        rank, until = self._kept.get(queue, (FRONT, 0))
        return rank if self._monotonic() < until else FRONT

    def note(
        self, queue: str, leases: Sequence[Lease], *, start: Rank, begun: Millis
    ) -> None:
        """Go on behind a claim that brought all that was asked for, where it is time.

        ``begun`` is when the claim began, ``start`` where.
        """
        now = self._monotonic()
        if start == FRONT:
            took = now - begun
            until = now + (min(took * REST, LONGEST_REST) if took >= LONG else 0)
        else:
            _, until = self._kept[queue]
        if now < until:
            end = max((lease.priority, lease.tag) for lease in leases)
            self._kept[queue] = (end, until)

    def forget(self, queue: str) -> None:
        """Begin at the front: a claim brought less than was asked for."""
        self._kept.pop(queue, None)
