"""What a leader collapsed is what the run after it is told."""

import pytest

from apps.runs import store
from apps.runs.store import Missed
from chrono.rules.durations import parse_duration
from chrono.rules.instants import HOUR, MINUTE
from tests.scheduler.conftest import NOON, Leader


@pytest.mark.parametrize(
    ("interval", "away"), [("1m", 2 * HOUR), ("1s", HOUR), ("1h", 125 * MINUTE)]
)
def test_the_run_after_an_outage_stands_for_all_that_was_missed(
    leader: Leader, interval: str, away: int
) -> None:
    job = leader.create("job", interval=interval)
    leader.clock.moment = NOON + away
    leader.run_to(NOON + away + 5_000)
    step, last = parse_duration(interval), leader.fired(job)[0]
    count = (last - NOON) // step
    assert count > 1
    assert told(leader) == [Missed(first=NOON + step, last=last, count=count)]


def test_one_that_was_missed_alone_stands_for_itself(leader: Leader) -> None:
    leader.create("job", interval="1h")
    leader.clock.moment = NOON + 65 * MINUTE
    leader.run_to(NOON + 66 * MINUTE)
    assert leader.count("chrono_occurrence") == 1
    assert told(leader) == []


def told(leader: Leader) -> list[Missed]:
    """Return what the first run that was fired is told."""
    runs = leader.conn.execute(
        "SELECT run_id, job_id FROM chrono_occurrence WHERE outcome = 1 "
        "ORDER BY scheduled_for LIMIT 1"
    ).fetchall()
    return list(store.load_missed(leader.conn, runs=runs).values())
