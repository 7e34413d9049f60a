"""A year through the engine, compared with a scan of every minute of its nights.

2011 has it all: ordinary changes in both hemispheres, one of half an hour, some at
midnight, and a day that Samoa left out. Time jumps from one due time to the next.
Around each change there are buckets, made and dropped as upkeep does; between changes
timers wait in the far table.
"""

import itertools
import random
import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from apps.runtime.sessions import Connection, connect_upkeep
from apps.timers import buckets
from chrono.rules.buckets import bucket_start
from chrono.rules.instants import HOUR, Millis, to_millis
from chrono.rules.states import Outcome
from tests.scheduler.conftest import Leader, lead
from tests.support import cron_oracle

YEAR = 2011
START = datetime(YEAR, 1, 1, tzinfo=UTC)
END = datetime(YEAR + 1, 1, 1, tzinfo=UTC)
NIGHTLY = {
    "America/New_York": "30 2",
    "Europe/Berlin": "30 2",
    "Australia/Lord_Howe": "15 2",
    "Pacific/Apia": "30 3",
    "Africa/Casablanca": "30 0",
}
"""In each zone a time that a change leaves out."""
POLICIES = [
    (gap, fold) for gap in ("shift", "skip") for fold in ("first", "second", "both")
]
DAYS = ("* * 5-7", "* 1-12 0,5,6")
"""Friday to Sunday, when clocks change, written in two ways."""
NIGHT = {23, 0, 1, 2, 3, 4, 5}
"""The local hours that any of the expressions names, and one on either side."""
# fmt: off
MINUTES = ["0", "30", "0,30", "15,45", "*/30", "*/15", "10"]
HOURS = ["0", "1", "2", "3", "0-4", "1-3", "0,2,4", "1,2", "3,4"]
# fmt: on


@dataclass(frozen=True, slots=True)
class Schedule:
    """What one job of the year is."""

    expression: str
    zone: str
    gap: str
    fold: str
    near: datetime | None = None
    """The change that all its fires lie around."""

    def fires(self, nights: list[cron_oracle.Minute]) -> list[Millis]:
        """Return what the oracle says, looking at these minutes."""
        if self.near is not None:
            middle, reach = to_millis(self.near.astimezone(UTC)), 96 * HOUR
            nights = [row for row in nights if abs(row.at - middle) < reach]
        return cron_oracle.fires(
            self.expression, nights, dst_gap=self.gap, dst_fold=self.fold
        )


def schedules() -> Iterator[Schedule]:
    """Iterate over what fires each night, and what fires around each change alone."""
    lot = random.Random(YEAR)
    for zone, nightly in NIGHTLY.items():
        for (gap, fold), days in itertools.product(POLICIES, DAYS):
            yield Schedule(f"{nightly} {days}", zone, gap, fold)
        for change in changes(zone):
            near = {change + timedelta(days=n) for n in (-1, 0, 1)}
            dates = sorted({day.day for day in near if day.month == change.month})
            for _ in range(12):
                yield Schedule(
                    f"{lot.choice(MINUTES)} {lot.choice(HOURS)} "
                    f"{','.join(map(str, dates))} {change.month} *",
                    zone,
                    *lot.choice(POLICIES),
                    near=change,
                )


def changes(zone: str) -> Iterator[datetime]:
    """Iterate over the local times at which a zone's clocks change in the year."""
    for late in cron_oracle.changes(zone, YEAR):
        yield (late - timedelta(hours=3)).astimezone(ZoneInfo(zone))


def nights(zone: str) -> list[cron_oracle.Minute]:
    """Return the year's minutes of a zone's nights, where alone something may fire."""
    rows: list[cron_oracle.Minute] = []
    hour, begin = START, None
    while hour <= END:
        night = hour < END and hour.astimezone(ZoneInfo(zone)).hour in NIGHT
        if night and begin is None:
            begin = hour
        if not night and begin is not None:
            rows += cron_oracle.minutes(zone, begin, hour)
            begin = None
        hour += timedelta(hours=1)
    return rows


def run_the_year(leader: Leader, keeper: Connection) -> None:
    """Jump from due time to due time, with upkeep around each change."""
    kept = [to_millis(at.astimezone(UTC)) for zone in NIGHTLY for at in changes(zone)]
    hour = 0
    while (due := leader.next_due()) is not None and due < to_millis(END):
        now = leader.clock.moment = max(due, leader.clock.moment)
        near = any(abs(now - at) < 12 * HOUR for at in kept)
        if near and hour != bucket_start(now):
            hour = bucket_start(now)
            horizon = buckets.ensure_buckets(keeper, now=now)
            buckets.move_far(keeper, now=now, horizon=horizon)
            buckets.drop_old_buckets(keeper, now=now)
        leader.step()


def fired(leader: Leader) -> dict[uuid.UUID, list[Millis]]:
    """Return the instants of each job that fired; nothing may have been skipped."""
    found = defaultdict(list)
    for job, moment, outcome in leader.conn.execute(
        "SELECT job_id, scheduled_for, outcome FROM chrono_occurrence ORDER BY 2"
    ):
        assert outcome == Outcome.FIRED
        found[job].append(to_millis(moment))
    return found


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_year_through_the_engine_differs_nowhere_from_the_minute_scan(
    dsn: str,
) -> None:
    wanted = list(schedules())
    with (
        lead(dsn, to_millis(START) - HOUR) as leader,
        connect_upkeep(dsn, name="keeper") as keeper,
    ):
        jobs = [
            leader.create(
                f"{n}",
                cron=s.expression,
                timezone=s.zone,
                dst_gap=s.gap,
                dst_fold=s.fold,
                overlap_policy="allow_all",
            )
            for n, s in enumerate(wanted)
        ]
        run_the_year(leader, keeper)
        found = fired(leader)
    rows = {zone: nights(zone) for zone in NIGHTLY}
    compared = 0
    for schedule, job in zip(wanted, jobs, strict=True):
        fires = schedule.fires(rows[schedule.zone])
        assert found[job] == fires, schedule
        compared += len(fires)
    print(f"\n{compared} fires of {len(jobs)} jobs compared, 0 differ")
    assert compared > 10_000
