"""A year through the engine, compared with the oracle.

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
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from apps.runtime.sessions import Connection, connect_upkeep
from apps.timers import buckets
from chrono.rules import oracle
from chrono.rules.buckets import bucket_start
from chrono.rules.instants import HOUR, Millis, to_millis
from chrono.rules.states import Outcome
from tests.scheduler.conftest import Leader, lead
from tests.support import clock_changes

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
    {"dst_gap": gap, "dst_fold": fold}
    for gap in ("shift", "skip")
    for fold in ("first", "second", "both")
]
DAYS = ("* * 6-7", "* 1-12 0,6", "*/1 * sat,sun")
"""Saturday and Sunday, when clocks change, written in three ways."""
# fmt: off
MINUTES = ["0", "30", "0,30", "15,45", "*/30", "*/15", "10"]
HOURS = ["0", "1", "2", "3", "0-4", "1-3", "0,2,4", "1,2", "3,4"]
# fmt: on


def schedules() -> Iterator[dict[str, str]]:
    """Iterate over what fires each week-end, and what around a change alone."""
    lot = random.Random(YEAR)
    for zone, nightly in NIGHTLY.items():
        for policy, days in itertools.product(POLICIES, DAYS):
            yield {"cron": f"{nightly} {days}", "timezone": zone, **policy}
        for change in changes(zone):
            near = {change + timedelta(days=n) for n in (-1, 0, 1)}
            dates = sorted({day.day for day in near if day.month == change.month})
            for _ in range(12):
                columns = [
                    lot.choice(MINUTES),
                    lot.choice(HOURS),
                    ",".join(map(str, dates)),
                    str(change.month),
                    "*",
                ]
                policy = lot.choice(POLICIES)
                yield {"cron": " ".join(columns), "timezone": zone, **policy}


def changes(zone: str) -> Iterator[datetime]:
    """Iterate over the local times at which a zone's clocks change in the year."""
    for late in clock_changes.changes(zone, YEAR):
        yield (late - timedelta(hours=3)).astimezone(ZoneInfo(zone))


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
def test_a_year_through_the_engine_differs_nowhere_from_the_oracle(dsn: str) -> None:
    wanted = list(schedules())
    with (
        lead(dsn, to_millis(START) - HOUR) as leader,
        connect_upkeep(dsn, name="keeper") as keeper,
    ):
        jobs = [
            leader.create(f"{n}", overlap_policy="allow_all", **schedule)
            for n, schedule in enumerate(wanted)
        ]
        run_the_year(leader, keeper)
        found = fired(leader)
    compared = 0
    for schedule, job in zip(wanted, jobs, strict=True):
        fires = list(oracle.fires(schedule, to_millis(START) - 1, to_millis(END) - 1))
        assert found[job] == fires, schedule
        compared += len(fires)
    print(f"\n{compared} fires of {len(jobs)} jobs compared, 0 differ")
    assert compared > 10_000
