"""A fixed delay: counted from the end of the run before, to the millisecond."""

import uuid
from typing import Any

from apps.jobs.commands import pause_job, resume_job
from apps.jobs.manual import run_now
from chrono.rules.instants import HOUR, MINUTE, SECOND, format_instant
from chrono.rules.states import Reason, RunState
from tests.scheduler.conftest import NOON, Leader

DELAY = 10 * SECOND
START = NOON + 5 * SECOND


def delayed(leader: Leader, **fields: Any) -> uuid.UUID:
    """Create a job that runs ten seconds after its run before, first at :05."""
    fields = {"fixed_delay": "10s", "starts_at": format_instant(START), **fields}
    return leader.create("delayed", **fields)


def end_at(leader: Leader, moment: int, **outcome: Any) -> None:
    """Claim what is ready, and settle it at an instant."""
    leases = leader.claim()
    assert leases
    leader.run_to(moment)
    leader.settle(*leases, **outcome)


def test_the_first_run_is_at_the_start(leader: Leader) -> None:
    job = delayed(leader)
    leader.run_to(START - 1)
    assert leader.fired(job) == []
    leader.run_to(START)
    assert leader.ready(job) == [START]


def test_each_further_one_is_counted_from_an_end(leader: Leader) -> None:
    job = delayed(leader)
    leader.run_to(START)
    end_at(leader, START + 3_210)
    leader.run_to(START + 13_209, every=1_000)
    assert leader.fired(job) == [START]
    leader.run_to(START + 13_210)
    assert leader.fired(job) == [START, START + 13_210]
    end_at(leader, START + 13_210 + 1)
    leader.run_to(START + HOUR // 60)
    assert leader.fired(job)[2:] == [START + 23_211]


def test_while_a_run_is_live_nothing_is_decided(leader: Leader) -> None:
    job = delayed(leader)
    leader.run_to(START)
    end_at(leader, START + 5 * MINUTE + 77)
    # Its timer came thirty times, and left no row.
    assert [row[1:] for row in leader.ledger(job)] == [(1, None, None)]
    assert len(leader.planned(job)) == 1
    leader.run_to(START + 5 * MINUTE + 77 + DELAY - 1)
    assert leader.fired(job) == [START]
    leader.run_to(START + 5 * MINUTE + 77 + DELAY)
    assert leader.fired(job) == [START, START + 5 * MINUTE + 77 + DELAY]


def test_a_run_that_is_tried_again_has_not_ended(leader: Leader) -> None:
    job = delayed(leader)
    leader.run_to(START)
    retry = START + 40 * SECOND
    end_at(
        leader, START + 1, state=0, due=retry, error="no", reason=Reason.ATTEMPT_FAILED
    )
    leader.run_to(retry)
    assert leader.fired(job) == [START]
    end_at(leader, retry + 500)
    leader.run_to(retry + 500 + DELAY)
    assert leader.fired(job) == [START, retry + 500 + DELAY]


def test_a_dead_run_has_ended_as_well_as_any(leader: Leader) -> None:
    job = delayed(leader)
    leader.run_to(START)
    end_at(
        leader, START + 500, state=RunState.DEAD, error="no", reason=Reason.TIMED_OUT
    )
    leader.run_to(START + 500 + DELAY)
    assert leader.fired(job) == [START, START + 500 + DELAY]


def test_after_an_outage_one_run_is_late_and_none_was_missed(leader: Leader) -> None:
    job = delayed(leader)
    leader.run_to(START)
    end_at(leader, START + 500)
    leader.clock.moment = START + HOUR
    leader.step()
    assert leader.fired(job) == [START, START + 500 + DELAY]
    assert leader.ready(job) == [START + 500 + DELAY]
    end_at(leader, START + HOUR + SECOND)
    leader.run_to(START + HOUR + SECOND + DELAY)
    assert leader.fired(job)[2:] == [START + HOUR + SECOND + DELAY]
    assert len(leader.ledger(job)) == 3


def test_another_leader_goes_on_counting(leader: Leader) -> None:
    job = delayed(leader)
    leader.run_to(START)
    leader.begin_anew()
    leader.run_to(START + 25 * SECOND)
    leader.begin_anew()
    end_at(leader, START + 26 * SECOND)
    leader.begin_anew()
    leader.run_to(START + 36 * SECOND)
    assert leader.fired(job) == [START, START + 36 * SECOND]


def test_no_run_begins_after_the_end(leader: Leader) -> None:
    end = START + 30 * SECOND
    job = delayed(leader, ends_at=format_instant(end))
    leader.run_to(START)
    end_at(leader, START + 20 * SECOND)
    leader.run_to(end)
    assert leader.fired(job) == [START, end]
    end_at(leader, end + 1)
    leader.run_to(end + MINUTE)
    assert leader.fired(job) == [START, end]
    assert leader.planned(job) == []


def test_a_run_that_lasts_beyond_the_end_is_the_last(leader: Leader) -> None:
    end = START + 30 * SECOND
    job = delayed(leader, ends_at=format_instant(end))
    leader.run_to(START)
    end_at(leader, START + 25 * SECOND)
    leader.run_to(end + MINUTE)
    assert leader.fired(job) == [START]
    assert leader.planned(job) == []


def test_a_resumed_job_goes_on_from_its_resume(leader: Leader) -> None:
    job = delayed(leader)
    leader.run_to(START)
    end_at(leader, START + 500)
    pause_job(job, now=leader.clock.moment)
    leader.run_to(START + MINUTE)
    assert leader.fired(job) == [START]
    resume_job(job, now=leader.clock.moment)
    leader.run_to(START + 2 * MINUTE)
    assert leader.fired(job) == [START, START + MINUTE + DELAY]


def test_a_manual_run_takes_its_turn_and_counts_for_no_delay(leader: Leader) -> None:
    job = delayed(leader)
    leader.run_to(START)
    end_at(leader, START + 500)
    run_now(job, now=leader.clock.moment)
    leader.run_to(START + 500 + DELAY)
    # It is still live: the schedule's own is skipped, and comes again a delay later.
    assert leader.ledger(job)[-1][2] == Reason.OVERLAP
    leader.succeed()
    leader.run_to(START + 500 + 2 * DELAY)
    assert leader.fired(job)[-1] == START + 500 + 2 * DELAY
