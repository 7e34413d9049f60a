"""What a tenant's jobs will bring: counted from their schedules, not from timers.

A timer is a job's next fire alone; the schedule has all that follow.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from apps.jobs import store
from apps.jobs.store import Scheduled
from apps.runtime.sessions import Connection
from chrono.rules import jitter
from chrono.rules import suggest as rules
from chrono.rules.errors import ChronoError
from chrono.rules.forecast import Crowd, Stretch, Tally
from chrono.rules.instants import MINUTE, Millis
from chrono.rules.keys import PAST_ID
from chrono.rules.schedule import CronSchedule, schedule_from_json
from chrono.rules.suggest import Suggestion

BATCH = 5_000
MOST_STEPS = 3_000_000
MOST_JOBS = 200_000
MOST_LOAD = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """How many runs each bin of a stretch will have, and who was counted."""

    stretch: Stretch
    nominal: list[int]
    due: list[int]
    jobs: int
    """How many jobs were counted; paused and deleted ones are none of them."""
    unpredictable: int
    """How many jobs have a fixed delay: it counts from the end of runs to come."""
    broken: int
    """How many jobs have a schedule that cannot be read."""
    last_job: UUID | None
    """Where the work was broken off, the last job that was counted; None for never."""

    def rows(self) -> Iterator[tuple[Millis, int, int]]:
        """Iterate over the bins: the beginning of each, and its two counts."""
        stretch = self.stretch
        starts = range(stretch.start, stretch.end, stretch.width)
        return zip(starts, self.nominal, self.due, strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestions:
    """Crons beside the wanted one, and from which forecast their loads are."""

    wanted: Suggestion
    others: list[Suggestion]
    """The least loaded first."""
    forecast: Forecast


class _Reader:
    """Sorts jobs into the crowds of a tally."""

    def __init__(self, stretch: Stretch) -> None:
        self.tally = Tally(stretch)
        self.jobs = self.unpredictable = self.broken = 0
        self._crowds: dict[tuple[str, int], Crowd | None] = {}

    def add(self, job: Scheduled) -> None:
        """Count a job, unless it is paused."""
        if job.paused:
            return
        key = job.schedule, job.jitter_window
        try:
            if key not in self._crowds:
                schedule = schedule_from_json(json.loads(job.schedule))
                self._crowds[key] = self.tally.crowd(schedule, job.jitter_window)
        except ChronoError:
            # One bad row is told of; it takes nobody else's forecast with it.
            self.broken += 1
            return
        crowd = self._crowds[key]
        if crowd is None:
            self.unpredictable += 1
            return
        crowd.offsets.append(jitter.offset(job.id, job.jitter_window))
        self.jobs += 1


def foretell(
    conn: Connection, *, tenant: int, stretch: Stretch, after: UUID | None = None
) -> Forecast:
    """Return what a tenant's jobs will bring, from the newest job on or from after one.

    Broken off where it would take seconds: then ``last_job`` says how far it came. What
    is counted from after that job adds up with it.
    """
    reader = _Reader(stretch)
    last = None
    for number, job in enumerate(_jobs(conn, tenant=tenant, after=after), start=1):
        reader.add(job)
        if number >= MOST_JOBS or reader.tally.steps >= MOST_STEPS:
            last = job.id
            break
    counts = reader.tally.counts()
    return Forecast(
        stretch=stretch,
        nominal=counts.nominal,
        due=counts.due,
        jobs=reader.jobs,
        unpredictable=reader.unpredictable,
        broken=reader.broken,
        last_job=last,
    )


def suggest(
    conn: Connection,
    wanted: CronSchedule,
    *,
    tenant: int,
    now: Millis,
    between: tuple[int, int] | None = None,
    count: int,
) -> Suggestions:
    """Return the crons like the wanted one that meet the fewest of a tenant's runs.

    Raises BadSchedule where the wanted one is over, BadValue where it has an H, or is
    no daily one and yet has a part of the day.
    """
    others = list(rules.candidates(wanted, between=between))
    start = rules.start_of_look(wanted, now=now)
    minutes = Stretch(start=start, width=MINUTE, bins=rules.SPAN // MINUTE)
    forecast = foretell(conn, tenant=tenant, stretch=minutes)
    here, *rest = [
        found
        for one in (wanted, *others)
        if (found := rules.weigh(one, start=start, due=forecast.due)) is not None
    ]
    return Suggestions(
        wanted=here, others=rules.least(rest, count=count), forecast=forecast
    )


def measure_load(conn: Connection, moment: Millis, *, tenant: int) -> int:
    """Return how many of a tenant's planned fires are due in an instant's minute.

    At once, since it looks at timers: of each job its next fire alone. 10,000 stands
    for that many or more.
    """
    start = moment // MINUTE * MINUTE
    return store.measure_minute(
        conn, tenant=tenant, start=start, end=start + MINUTE, most=MOST_LOAD
    )


def _jobs(conn: Connection, *, tenant: int, after: UUID | None) -> Iterator[Scheduled]:
    before = PAST_ID if after is None else after
    while True:
        batch = store.list_schedules(conn, tenant=tenant, before=before, limit=BATCH)
        yield from batch
        if len(batch) < BATCH:
            return
        before = batch[-1].id
