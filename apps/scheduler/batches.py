"""What the fenced statements have in common: guards, tags, next due instants."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from apps.runtime.arrays import int8s, uuids
from apps.scheduler.cache import Entry
from apps.scheduler.store import Term
from chrono.rules import fairness
from chrono.rules.buckets import bucket_start
from chrono.rules.instants import Millis

FAR = "chrono_timer_far"
BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled)
"""What a leader's statement raises where somebody has a lock that it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What a round of firing goes by."""

    now: Millis
    override: Millis | None
    """The instant that stands for the database's clock in tests, else None."""
    slice: int
    horizon: Millis


@dataclass(slots=True, kw_only=True)
class Fired:
    """What a round of firing came to."""

    readied: int = 0
    queues: set[str] = field(default_factory=set)
    """In which runs became ready that nobody was told of yet."""
    waiting: bool = False
    """Whether runs were put behind a gate."""
    stale: set[int] = field(default_factory=set)
    """Partitions that refused: their epoch or term has moved."""

    def count(self, queues: Iterable[str | None]) -> None:
        """Count runs let in by their queues; None went on to another gate."""
        for queue in queues:
            if queue is None:
                self.waiting = True
            else:
                self.readied += 1
                self.queues.add(queue)


class Tags:
    """Each tenant's last fair tag in each queue, and what new ones go by."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, str, int], int] = {}
        self._weights: Mapping[int, float] = {}
        self._heads: Mapping[tuple[str, int], int] = {}

    def follow(self, heads: Mapping[tuple[str, int], int]) -> None:
        """Go by these tags of the runs that are next, by queue and priority.

        They may be old: a head only moves on.
        """
        self._heads = heads

    @property
    def any_waits(self) -> bool:
        """Whether anything waited in a queue at the last look."""
        return bool(self._heads)

    def weigh(self, weights: Mapping[int, float]) -> None:
        """Go by these weights from now on."""
        self._weights = weights

    def draw(self, tenant: int, now: Millis, queue: str, priority: int) -> int:
        """Return a tenant's next tag in a queue."""
        [tag] = self.draw_all([(tenant, queue, priority)], now)
        return tag

    def draw_all(self, asked: Sequence[tuple[int, str, int]], now: Millis) -> list[int]:
        """Return the next tag of each tenant in a queue, with a priority, in turn."""
        tags = {}
        for key, count in Counter(asked).items():
            tenant, queue, priority = key
            found = fairness.tags(
                now,
                self._last.get(key, 0),
                self._weights.get(tenant, 1.0),
                count,
                head=self._heads.get((queue, priority)),
            )
            self._last[key] = found[-1]
            tags[key] = iter(found)
        return [next(tags[key]) for key in asked]


def guards(terms: Iterable[Term]) -> dict[str, Any]:
    """Return the parameters by which a statement asks whether partitions are held."""
    ordered = sorted(terms, key=lambda term: term.part)
    return {
        "parts": int8s([term.part for term in ordered]),
        "fences": int8s([term.fence for term in ordered]),
        "terms": uuids([term.term for term in ordered]),
        "epochs": int8s([term.epoch for term in ordered]),
    }


def by_bucket(entries: Iterable[Entry]) -> Mapping[str, list[Entry]]:
    """Return the entries by the table that holds their timer."""
    buckets: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        buckets[entry.bucket].append(entry)
    return buckets


def growing[T](entries: list[T], *, first: int, most: int) -> Iterator[list[T]]:
    """Yield the entries in pieces, each twice the one before up to the most."""
    start, size = 0, min(first, most)
    while start < len(entries):
        yield entries[start : start + size]
        start, size = start + size, min(2 * size, most)


def next_due(entry: Entry, following: Millis | None, now: Millis) -> Millis:
    """Return when the next timer is due, 0 where there is none.

    Never in an hour whose bucket may be gone, and never by a key used before.
    """
    if following is None:
        return 0
    return max(following + entry.definition.offset, bucket_start(now), entry.due + 1)
