"""What a leader holds in memory: its terms and the timers that come due soon.

The wheel is a cache of the timer tables, valid for one fence, term and epoch of each
partition. Losing an entry loses nothing: the second look finds what is missing.
"""

import uuid
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from apps.scheduler.store import Cursor, Term, cursor_at
from chrono.rules.fairness import Share
from chrono.rules.instants import Millis
from chrono.rules.overlap import Check
from chrono.rules.policy import OverlapPolicy, Policy
from chrono.rules.schedule import Schedule
from chrono.rules.wheel import Ticket, Wheel

START = cursor_at(0)

type Key = tuple[Millis, int, int, int]
"""Due, ref, kind and version of a timer; the ref as a number, since hashing a UUID
is what costs most of a look-up."""


@dataclass(slots=True, kw_only=True)
class Definition:
    """One revision of a job as a leader needs it."""

    schedule: Schedule
    offset: Millis
    policy: Policy
    overlap: OverlapPolicy
    check: Check
    """How much overlap has to know before a run is made."""
    bound: int
    """How many runs may be live, where that is checked."""
    queue: str
    priority: int
    limited: bool = False
    """Whether its runs pass gates of limits."""
    filled: bool = False
    """Whether a payload fills its concurrency key; here it is that of the job's own."""


@dataclass(slots=True, kw_only=True)
class Entry:
    """One timer in the wheel. ``run_id`` is made here, while the timer waits."""

    part: int
    bucket: str
    due: Millis
    ref: uuid.UUID
    kind: int
    version: int
    job_id: uuid.UUID
    revision: int
    scheduled_for: Millis
    run_id: uuid.UUID
    prev: uuid.UUID | None
    tenant: int
    job_paused: bool
    job_deleted: bool
    definition: Definition
    put_back: int = 0
    """How often a fire did not find it although its partition held."""
    remaining: int | None = None
    """How many runs of the schedule there still are; None for any number."""
    old_prev_live: bool | None = None
    """Whether ``prev`` is live; asked only where it is older than the history kept."""
    prev_ended: Millis | None = None
    """When ``prev`` ended; asked only where a delay is counted from it."""

    @property
    def key(self) -> Key:
        """What tells it from every other timer of its partition."""
        return (self.due, self.ref.int, self.kind, self.version)


@dataclass(slots=True, kw_only=True)
class Held:
    """One partition that this process leads."""

    term: Term
    full_epoch: int
    """The epoch of the last change without job rows that this leader has followed."""
    ahead: Cursor = START
    """Up to where what is to come was read."""
    behind: Cursor | None = START
    """Up to where what is overdue was read; None where it was all of it."""
    tickets: dict[Key, Ticket[Entry]] = field(default_factory=dict)


class Cache:
    """The partitions held and their wheel."""

    def __init__(self, now: Millis) -> None:
        self.held: dict[int, Held] = {}
        self.shares: Mapping[int, Share] = {}
        """Those of the tenants whose share is not the usual one."""
        self._wheel: Wheel[Entry] = Wheel(now)
        self._set_aside: deque[Entry] = deque()

    def __len__(self) -> int:
        """Return how many timers wait in the wheel."""
        return len(self._wheel)

    def adopt(self, term: Term) -> None:
        """Hold a partition anew, with nothing of it in the wheel."""
        self.drop(term.part)
        self.held[term.part] = Held(term=term, full_epoch=term.epoch)

    def drop(self, part: int) -> None:
        """Give a partition up, with all its entries."""
        held = self.held.pop(part, None)
        if held is not None:
            for ticket in held.tickets.values():
                ticket.cancel()

    def find(self, part: int, key: Key) -> Entry | None:
        """Return the entry of a timer, if it is held."""
        held = self.held.get(part)
        ticket = held.tickets.get(key) if held else None
        return ticket.item if ticket else None

    def put(self, entry: Entry) -> None:
        """Put an entry into the wheel; a partition not held is passed over."""
        held = self.held.get(entry.part)
        if held is not None:
            held.tickets[entry.key] = self._wheel.add(entry.due, entry)

    def put_back(self, entry: Entry, *, at: Millis) -> None:
        """Have an entry that was taken come out of the wheel again at ``at``."""
        held = self.held.get(entry.part)
        if held is not None and (ticket := held.tickets.get(entry.key)) is not None:
            ticket.cancel()  # It was put back before, or it would come out twice.
            held.tickets[entry.key] = self._wheel.add(at, entry)

    def forget(self, entry: Entry) -> None:
        """Remove an entry that was decided or is gone."""
        held = self.held.get(entry.part)
        ticket = held.tickets.pop(entry.key, None) if held else None
        if ticket is not None:
            ticket.cancel()

    def move_epoch(self, part: int, *, epoch: int, jobs: Iterable[uuid.UUID]) -> None:
        """Drop the entries of these jobs and move the partition's epoch at once.

        What of them is due soon the next look finds, what is overdue a new walk.
        """
        held = self.held[part]
        changed = set(jobs)
        if changed:
            for key, ticket in list(held.tickets.items()):
                if ticket.item.job_id in changed:
                    ticket.cancel()
                    del held.tickets[key]
            held.behind = START
        held.term = replace(held.term, epoch=epoch)

    def clear(self, part: int) -> None:
        """Drop all entries of a partition; it stays held, and is to be read anew."""
        held = self.held[part]
        for ticket in held.tickets.values():
            ticket.cancel()
        held.tickets.clear()
        held.ahead = held.behind = START

    def take_due(self, now: Millis) -> list[Entry]:
        """Take what is due out of the wheel, earliest first.

        Entries stay known until :meth:`forget`: a batch that is refused goes back.
        """
        return self._wheel.advance(now)

    def set_aside(self, entry: Entry) -> None:
        """Keep an entry that was taken for later; it stays known."""
        self._set_aside.append(entry)

    def take_aside(self, most: int) -> list[Entry]:
        """Return the first entries that were set aside and are still known."""
        taken: list[Entry] = []
        while self._set_aside and len(taken) < most:
            entry = self._set_aside.popleft()
            if self.find(entry.part, entry.key) is entry:
                taken.append(entry)
        return taken

    def has_aside(self) -> bool:
        """Return whether entries are set aside."""
        return bool(self._set_aside)

    def count(self, after: Millis, before: Millis) -> Counter[int]:
        """Return how many timers due from an instant on and before another there are.

        By partition, those set aside among them.
        """
        counts = Counter(
            entry.part for entry in self._wheel.before(before) if entry.due >= after
        )
        for entry in self._set_aside:
            if entry.due >= after and self.find(entry.part, entry.key) is entry:
                counts[entry.part] += 1
        return counts

    def covers(self, part: int, due: Millis) -> bool:
        """Return whether what is due then should be here: no read is to bring it."""
        held = self.held.get(part)
        return held is not None and due < held.ahead[0]

    def has_before(self, moment: Millis) -> bool:
        """Return whether anything is due before a moment, as far as was read."""
        return next(self._wheel.before(moment), None) is not None

    def next_due(self) -> Millis | None:
        """Return an instant no later than the next due one, None if nothing waits."""
        return self._wheel.next_due()
