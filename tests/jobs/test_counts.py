"""How many occurrences of a job did not run, or not when they should."""

import pytest

from apps.jobs.commands import COMMAND, pause_job, resume_job
from apps.jobs.selectors import get_job
from chrono.rules.instants import HOUR, MINUTE, SECOND
from tests.scheduler.conftest import NOON


def counts(leader, job):
    found = get_job(leader.conn, job, actor=COMMAND, now=leader.clock.moment)
    return found["skipped_count"], found["missed_count"], found["counts_capped"]


def outage(leader, moment):
    """Let time pass while nobody fires, then have the leader look again."""
    leader.clock.moment = moment
    leader.step()


def test_a_job_that_fires_on_time_has_skipped_and_missed_nothing(leader):
    job = leader.create("each-minute", interval="1m")
    leader.run_to(NOON + 2 * MINUTE, every=30 * SECOND)
    assert leader.fired(job) == [NOON + MINUTE]
    assert counts(leader, job) == (1, 0, False), "the second overlapped"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("skip", (59, 59)), ("run_once", (58, 59)), ("run_all", (0, 59))],
)
def test_what_an_outage_missed_is_counted_whatever_became_of_it(
    leader, policy, expected
):
    job = leader.create(
        "each-minute",
        interval="1m",
        catchup_policy=policy,
        overlap_policy="allow_all",
    )
    outage(leader, NOON + HOUR + 30 * SECOND)
    skipped, missed, capped = counts(leader, job)
    assert ((skipped, missed), capped) == (expected, False)


def test_what_a_pause_left_out_is_skipped_but_not_missed(leader):
    job = leader.create("each-minute", interval="1m")
    pause_job(job, now=NOON)
    resume_job(job, now=NOON + HOUR)
    leader.clock.moment = NOON + HOUR
    assert counts(leader, job) == (60, 0, False)


def test_a_job_that_skips_very_often_is_counted_up_to_a_limit(leader, monkeypatch):
    monkeypatch.setattr("apps.jobs.selectors.MOST_COUNTED", 3)
    job = leader.create("each-second", interval="1s")
    leader.run_to(NOON + 10 * SECOND, every=1_000)
    assert counts(leader, job) == (3, 0, True)
