"""A hierarchical timing wheel: 3 levels of 512 slots, 10 ms a slot at the bottom.

After Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (1987), with each
level aligned to the digits of the tick number in base 512: an entry lies in the level
of the highest digit in which its tick differs from the current one. So a slot never
holds entries of two turns, a border belongs to exactly one slot, and adding costs the
same however far away the entry is. Entries beyond the top level (15 days) wait in a
list that is looked through once a turn of it.

Entries of the current tick lie apart, sorted by millisecond, in the front: an entry
added for the current or a past tick goes there and not into a slot just drained,
where it would be found a turn late, and nothing comes out before its millisecond.
Which slots are taken is one integer per level, so empty stretches cost nothing.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from operator import attrgetter

from chrono.rules.instants import Millis

TICK: Millis = 10
SLOTS = 512
LEVELS = 3

_BITS = 9
_MASK = SLOTS - 1
_SHIFTS = tuple(_BITS * level for level in range(LEVELS))
_SPAN_SHIFT = _BITS * LEVELS
_DEAD_KEPT = 1024

_due = attrgetter("due")


class Ticket[T]:
    """An entry of a wheel: what is due, when, and the way to take it back."""

    __slots__ = ("_wheel", "due", "item", "live")

    def __init__(self, wheel: Wheel[T], due: Millis, item: T) -> None:
        self._wheel = wheel
        self.due = due
        self.item = item
        self.live = True
        """Whether it is still to come: not cancelled, not handed out."""

    def cancel(self) -> bool:
        """Take the entry back; return whether it was still to come."""
        return self._wheel.discard(self)


class Wheel[T]:
    """What is due when, handed out once each, in due order and never early."""

    __slots__ = (
        "_beyond",
        "_dead",
        "_front",
        "_live",
        "_slots",
        "_taken",
        "_tick",
        "_wake",
    )

    def __init__(self, now: Millis) -> None:
        self._tick = now // TICK
        # The first tick that has an entry or begins a turn; until then only the tick
        # moves, which is what most calls do.
        self._wake = (self._tick | _MASK) + 1
        self._live = 0
        self._dead = 0
        self._front: list[Ticket[T]] = []
        self._beyond: list[Ticket[T]] = []
        self._taken = [0] * LEVELS
        self._slots: list[list[list[Ticket[T]]]] = [
            [[] for _ in range(SLOTS)] for _ in range(LEVELS)
        ]

    def __len__(self) -> int:
        """Return how many entries are still to come."""
        return self._live

    def add(self, due: Millis, item: T) -> Ticket[T]:
        """Add an item and return its ticket; past due, it comes at the next advance."""
        ticket = Ticket(self, due, item)
        self._live += 1
        self._place(ticket)
        return ticket

    def discard(self, ticket: Ticket[T]) -> bool:
        """Take a ticket of this wheel back; return whether it was still to come.

        Its slot keeps it until it passes, or until such tickets outnumber the live.
        """
        if not ticket.live:
            return False
        ticket.live = False
        self._live -= 1
        self._dead += 1
        if self._dead > _DEAD_KEPT and self._dead > self._live:
            self._sweep()
        return True

    def advance(self, now: Millis) -> list[T]:
        """Return every live item with due <= now, earliest first, each exactly once.

        A clock that stands still or goes back brings out only what was added late.
        """
        target = now // TICK
        if target >= self._wake:
            self._turn(target)
        elif target > self._tick:
            self._tick = target
        front = self._front
        if not front or front[0].due > now:
            return []
        if front[-1].due <= now:
            out = front
            self._front = []
        else:
            cut = bisect_right(front, now, key=_due)
            out = front[:cut]
            del front[:cut]
        items = []
        for ticket in out:
            if ticket.live:
                ticket.live = False
                items.append(ticket.item)
        self._live -= len(items)
        self._dead -= len(out) - len(items)
        return items

    def before(self, moment: Millis) -> Iterator[T]:
        """Iterate over the live items due before a moment, slot by slot.

        Looks only at the slots that begin before it. The wheel may not be changed
        while the iterator is in use.
        """
        for ticket in self._tickets_before(moment):
            if ticket.live and ticket.due < moment:
                yield ticket.item

    def next_due(self) -> Millis | None:
        """Return an instant at or before the next due one; None if there is none.

        Exact once the current tick is the item's own; before that the start of its
        slot, so a sleeper that wakes then and advances learns the rest.
        """
        if not self._live:
            return None
        if self._front:
            return self._front[0].due
        for level, taken in enumerate(self._taken):
            if taken:
                return self._tick_of(level, taken) * TICK
        return min(self._beyond, key=_due).due

    def _place(self, ticket: Ticket[T]) -> None:
        tick = ticket.due // TICK
        if tick <= self._tick:
            insort(self._front, ticket, key=_due)
            return
        level = ((tick ^ self._tick).bit_length() - 1) // _BITS
        if level >= LEVELS:
            self._beyond.append(ticket)
            return
        if tick < self._wake:
            self._wake = tick
        slot = tick >> _SHIFTS[level] & _MASK
        self._taken[level] |= 1 << slot
        self._slots[level][slot].append(ticket)

    def _turn(self, target: int) -> None:
        """Move to a later tick, draining upper levels before taking their slots."""
        now = self._tick
        moved: list[Ticket[T]] = []
        for level, shift in enumerate(_SHIFTS):
            if now >> shift == target >> shift:
                break
            same_turn = now >> shift >> _BITS == target >> shift >> _BITS
            last = target >> shift & _MASK if same_turn else _MASK
            moved += self._drain(level, last)
        if now >> _SPAN_SHIFT != target >> _SPAN_SHIFT:
            moved += self._beyond
            self._beyond = []
        self._tick = target
        first = self._taken[0]
        self._wake = (target | _MASK) + 1 if not first else self._tick_of(0, first)
        if moved:
            self._put_back(moved)

    def _tick_of(self, level: int, taken: int) -> int:
        """Return the tick at which the first of a level's slots begins."""
        shift = _SHIFTS[level]
        return (self._tick >> shift >> _BITS << _BITS | _lowest(taken)) << shift

    def _drain(self, level: int, last: int) -> list[Ticket[T]]:
        """Empty a level's slots up to and including one, in order."""
        out: list[Ticket[T]] = []
        slots = self._slots[level]
        passing = self._taken[level] & ((2 << last) - 1)
        self._taken[level] ^= passing
        while passing:
            slot = _lowest(passing)
            passing &= passing - 1
            out += slots[slot]
            slots[slot] = []
        return out

    def _put_back(self, moved: list[Ticket[T]]) -> None:
        border = (self._tick + 1) * TICK
        arrived = []
        for ticket in moved:
            if not ticket.live:
                self._dead -= 1
            elif ticket.due < border:
                arrived.append(ticket)
            else:
                self._place(ticket)
        if arrived:
            self._front += arrived
            self._front.sort(key=_due)

    def _tickets_before(self, moment: Millis) -> Iterator[Ticket[T]]:
        for ticket in self._front:
            if ticket.due >= moment:
                return
            yield ticket
        for level, taken in enumerate(self._taken):
            while taken:
                if self._tick_of(level, taken) * TICK >= moment:
                    return
                yield from self._slots[level][_lowest(taken)]
                taken &= taken - 1
        yield from self._beyond

    def _sweep(self) -> None:
        """Drop what was cancelled."""
        kept = [*self._front, *self._beyond]
        self._front, self._beyond = [], []
        for level in range(LEVELS):
            kept += self._drain(level, _MASK)
        for ticket in kept:
            if ticket.live:
                self._place(ticket)
        self._dead = 0


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
