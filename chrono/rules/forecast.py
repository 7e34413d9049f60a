"""How many runs a stretch of time will bring, bin by bin.

Each is counted twice: where its nominal instant lies, and where it is due once its
job's jitter has moved it. Jobs that share schedule and jitter window are enumerated
once. Intervals, which have an anchor each and so share nothing, are counted by where in
their period they fire: all those of one length together.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from chrono.rules.errors import BadValue
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND, Millis
from chrono.rules.schedule import (
    CronSchedule,
    FixedDelay,
    Interval,
    Schedule,
    latest_until,
    next_after,
    occurrences,
)

_NEW = 20
"""What a schedule costs that is new to a tally, in steps."""
_NEW_CRON, _DAY_OF_CRON = 100, 3
"""What a cron does: it has to be read, and each day to be looked for."""

WIDTHS: dict[str, Millis] = {"second": SECOND, "minute": MINUTE, "hour": HOUR}
"""What a bin may be, by its public word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Bins of one width, side by side."""

    start: Millis
    """A whole second."""
    width: Millis
    """Whole seconds."""
    bins: int

    @property
    def end(self) -> Millis:
        """Return where the last bin ends; it is not in it."""
        return self.start + self.width * self.bins


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many runs lie in each bin."""

    nominal: list[int]
    due: list[int]


def stretch_of(*, start: Millis, end: Millis, width: Millis, most: int) -> Stretch:
    """Return the whole bins of UTC time that cover [start, end).

    Raises BadValue where that is none, or more than ``most``.
    """
    first = start // width * width
    bins = -(-(end - first) // width)
    if end <= start:
        raise BadValue("The stretch ends where it begins, or before.", field="to")
    if bins > most:
        raise BadValue(
            f"The stretch has {bins} bins; the most is {most}. Take a shorter "
            "stretch or wider bins.",
            field="per",
        )
    return Stretch(start=first, width=width, bins=bins)


@dataclass(slots=True)
class Crowd:
    """Jobs with the same schedule and jitter window."""

    offsets: list[Millis] = field(default_factory=list)
    """One for each job: how much later it is due, within the window."""


@dataclass(slots=True)
class _Fires(Crowd):
    """Instants, from the stretch's start; also those that jitter moves into it."""

    moments: Sequence[Millis] = ()
    grain: Millis = 1
    """What all of the instants are multiples of."""


@dataclass(slots=True)
class _Wave(Crowd):
    """An interval that goes on through the whole stretch."""

    phase: Millis = 0
    """How long after the stretch's start, or that plus whole intervals, it fires."""


class Tally:
    """Counts the runs of a stretch, job by job.

    ``steps`` is the work so far, in instants looked at: half a microsecond each.
    """

    def __init__(self, stretch: Stretch) -> None:
        self.stretch = stretch
        self.steps = 0
        self._fires: dict[tuple[Schedule, Millis], _Fires] = {}
        self._waves: dict[Millis, list[_Wave]] = {}

    def crowd(self, schedule: Schedule, window: Millis) -> Crowd | None:
        """Return what takes the offsets of jobs; None where a schedule cannot be told.

        That is a fixed delay: when it fires next is not known before a run has ended.
        Raises BadSchedule or a subclass for a schedule that cannot be read.
        """
        if isinstance(schedule, FixedDelay):
            return None
        if isinstance(schedule, Interval):
            phase = _phase(schedule, window, self.stretch)
            if phase is not None:
                return self._wave(schedule.every, phase)
        found = self._fires.get((schedule, window))
        if found is None:
            found = self._fires[schedule, window] = self._enumerate(schedule, window)
        return found

    def counts(self) -> Counts:
        """Return the counts of all jobs so far."""
        size = self.stretch.bins
        counts = Counts(nominal=[0] * size, due=[0] * size)
        for fires in self._fires.values():
            _add_fires(counts, fires, self.stretch)
        for every, waves in self._waves.items():
            phases = [wave.phase for wave in waves for _ in wave.offsets]
            moved = [
                (wave.phase + offset) % every
                for wave in waves
                for offset in wave.offsets
            ]
            _add_waves(counts.nominal, every, phases, self.stretch)
            _add_waves(counts.due, every, moved, self.stretch)
        return counts

    def _wave(self, every: Millis, phase: Millis) -> _Wave:
        waves = self._waves.get(every)
        if waves is None:
            waves = self._waves[every] = []
            self.steps += self.stretch.bins
        waves.append(wave := _Wave(phase=phase))
        self.steps += _NEW
        return wave

    def _enumerate(self, schedule: Schedule, window: Millis) -> _Fires:
        start, end = self.stretch.start, self.stretch.end
        found = occurrences(schedule, start - window - 1, end - 1)
        # A schedule may have millions: as objects of their own they would fill memory.
        moments = array("q", (moment - start for moment in found))
        self.steps += _NEW + len(moments)
        if not isinstance(schedule, CronSchedule):
            return _Fires(moments=moments, grain=1)
        self.steps += _NEW_CRON + (end - start) // DAY * _DAY_OF_CRON
        return _Fires(moments=moments, grain=SECOND)


def _phase(schedule: Interval, window: Millis, stretch: Stretch) -> Millis | None:
    """Return the phase of an interval; None where it begins or ends on the way."""
    after = stretch.start - window - 1
    first = next_after(schedule, after)
    last, _ = latest_until(schedule, after, stretch.end - 1, 1)
    if first is None or last is None:
        return None
    if first > after + schedule.every or last + schedule.every < stretch.end:
        return None
    return (first - stretch.start) % schedule.every


def _add_fires(counts: Counts, fires: _Fires, stretch: Stretch) -> None:
    jobs, width = len(fires.offsets), stretch.width
    # What an offset has beyond the grain of the instants moves none over a border.
    offsets = Counter(offset - offset % fires.grain for offset in fires.offsets)
    moves_at: dict[Millis, Counter[int]] = {}
    for moment in fires.moments:
        place, rest = divmod(moment, width)
        if place >= 0:
            counts.nominal[place] += jobs
        moves = moves_at.get(rest)
        if moves is None:
            moves = moves_at[rest] = Counter()
            for offset, count in offsets.items():
                moves[(rest + offset) // width] += count
        for move, count in moves.items():
            if 0 <= place + move < stretch.bins:
                counts.due[place + move] += count


def _add_waves(
    bins: list[int], every: Millis, phases: list[Millis], stretch: Stretch
) -> None:
    phases.sort()
    # How many fire before a border: all of them once a period, some once more.
    before = [
        border // every * len(phases) + bisect_left(phases, border % every)
        for border in range(0, stretch.end - stretch.start + 1, stretch.width)
    ]
    for number, (low, high) in enumerate(pairwise(before)):
        bins[number] += high - low
