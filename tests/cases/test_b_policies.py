"""What was missed and what would overlap: exactly what the job's policy says."""

import uuid
from typing import Any

import pytest

from apps.jobs.commands import delete_job, pause_job, resume_job
from apps.jobs.manual import run_now
from apps.runs.sweep import Sweep
from apps.timers.store import read_dispatch_state
from chrono.rules import oracle
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND, format_instant
from chrono.rules.lease import CROWD_LOOK_AFTER, LEASE_TTL
from chrono.rules.states import Outcome, Reason, RunState
from tests.cases.fires import at
from tests.scheduler.conftest import NOON, Leader

THREE = at("2055-03-01 15:00")


@pytest.mark.parametrize("policy", [None, "run_once", "run_all", "skip"])
def test_b10_a_time_that_falls_into_a_deploy_is_caught_up_unless_it_shall_not(
    leader: Leader, policy: str | None
) -> None:
    fields = {} if policy is None else {"catchup_policy": policy}
    job = leader.create("report", cron="0 15 * * *", **fields)
    leader.jump_to(at("2055-03-01 14:59") + 30 * SECOND)
    leader.clock.moment = at("2055-03-01 15:03")
    leader.begin_anew()
    leader.run_to(at("2055-03-01 15:03") + 10 * SECOND)
    three = "2055-03-01T15:00:00Z"
    if policy == "skip":
        assert leader.ledger(job) == [
            (three, Outcome.SKIPPED, Reason.MISSED_SKIP, None)
        ]
        assert leader.ready(job) == []
    else:
        assert leader.ledger(job) == [(three, Outcome.FIRED, None, None)]
        assert leader.ready(job) == [at("2055-03-01 15:00")]


def test_b13_over_a_week_with_outages_every_occurrence_runs_or_has_one_reason(
    leader: Leader,
) -> None:
    policies: list[dict[str, Any]] = [
        {"catchup_policy": "skip", "overlap_policy": "allow_all"},
        {"catchup_policy": "run_once", "overlap_policy": "skip"},
        {"catchup_policy": "run_all", "overlap_policy": "buffer_one"},
        {"catchup_policy": "run_all", "overlap_policy": "allow_all", "max_delay": "2h"},
        {"overlap_policy": "buffer_all"},
        {"overlap_policy": "cancel_other"},
    ]
    fields = {"cron": "*/30 * * * *", "timezone": "Asia/Kolkata"}
    jobs = [
        leader.create(f"job {n}", **fields, **policy)
        for n, policy in enumerate(policies)
    ]
    for day in range(7):
        morning = NOON + day * DAY
        leader.jump_to(morning + 5 * HOUR)
        if day % 2:
            leader.clock.moment += 7 * HOUR
            leader.begin_anew()
        if day == 3:
            for job in jobs:
                pause_job(job, now=leader.clock.moment)
            leader.clock.moment += 4 * HOUR
            for job in jobs:
                resume_job(job, now=leader.clock.moment)
        leader.step()
        leader.succeed()
    leader.jump_to(NOON + 7 * DAY)
    leader.clock.moment += 90 * MINUTE
    for job in jobs:
        delete_job(job, now=leader.clock.moment)
    expected = list(oracle.fires(fields, NOON, leader.clock.moment))
    seen: set[int | None] = set()
    for job, policy in zip(jobs, policies, strict=True):
        rows = leader.ledger(job)
        assert sum(row[3] or 1 for row in rows) == len(expected) == 339, policy
        assert {row[0] for row in rows} <= set(map(format_instant, expected))
        assert all((row[1] == Outcome.FIRED) == (row[2] is None) for row in rows)
        seen |= {row[2] for row in rows}
    assert seen == {
        None,
        Reason.PAUSED,
        Reason.OVERLAP,
        Reason.BUFFER_FULL,
        Reason.MISSED_SKIP,
        Reason.COLLAPSED,
        Reason.PAST_DEADLINE,
        Reason.ENDED,
    }


@pytest.mark.parametrize(
    ("policy", "mails"), [("run_once", 1), ("skip", 0), ("run_all", 4)]
)
def test_b14_four_days_off_are_as_many_mails_as_the_job_says(
    leader: Leader, policy: str, mails: int
) -> None:
    job = leader.create(
        "mail", cron="0 7 * * *", catchup_policy=policy, overlap_policy="allow_all"
    )
    leader.clock.moment = NOON + 4 * DAY
    leader.begin_anew()
    leader.run_to(leader.clock.moment + 5 * SECOND)
    assert len(leader.fired(job)) == len(leader.ready(job)) == mails


def minutely(leader: Leader, policy: str) -> tuple[uuid.UUID, Any]:
    """Return a job of every minute whose run of 15:00 a worker has begun."""
    leader.clock.moment = THREE - SECOND
    job = leader.create("minutely", cron="* * * * *", overlap_policy=policy)
    leader.run_to(THREE)
    [lease] = leader.claim()
    leader.run_to(THREE + MINUTE)
    return job, lease


def end_after_65_s(leader: Leader, lease: Any) -> None:
    """Have the first run succeed at 15:01:05, and time go on for a second."""
    leader.run_to(THREE + 65 * SECOND)
    assert leader.settle(lease) == 1
    leader.run_to(THREE + 66 * SECOND, every=250)


def test_b18_skip_leaves_out_a_minute_and_the_next_one_starts_on_time(
    leader: Leader,
) -> None:
    job, lease = minutely(leader, "skip")
    end_after_65_s(leader, lease)
    leader.run_to(THREE + 2 * MINUTE)
    assert [row[2] for row in leader.ledger(job)] == [None, Reason.OVERLAP, None]
    assert leader.ready(job) == [THREE + 2 * MINUTE]


def test_b18_a_queue_of_one_starts_within_a_second_of_the_end(leader: Leader) -> None:
    job, lease = minutely(leader, "buffer_one")
    assert leader.ready(job) == []
    end_after_65_s(leader, lease)
    assert leader.ready(job) == [THREE + MINUTE]


def test_b18_allow_starts_beside_the_other(leader: Leader) -> None:
    job, _ = minutely(leader, "allow_all")
    assert leader.ready(job) == [THREE + MINUTE]


def test_b18_replace_calls_the_first_off_and_what_it_says_then_counts_no_more(
    leader: Leader,
) -> None:
    job, lease = minutely(leader, "terminate_other")
    leader.run_to(THREE + MINUTE + SECOND, every=250)
    assert leader.ready(job) == [THREE + MINUTE]
    assert leader.settle(lease) == 0
    assert leader.ended(job) == [(THREE, RunState.CANCELLED, Reason.REPLACED)]


def test_b20_behind_a_slow_run_one_waits_and_the_others_are_counted(
    leader: Leader,
) -> None:
    job, _ = minutely(leader, "buffer_one")
    leader.jump_to(THREE + 10 * MINUTE)
    assert leader.blocked(job) == [(THREE + MINUTE, "overlap")]
    reasons = [row[2] for row in leader.ledger(job)]
    assert reasons == [None, None] + [Reason.BUFFER_FULL] * 9


def test_b28_a_manual_run_whose_worker_died_is_offered_again(leader: Leader) -> None:
    job = leader.create("by hand", cron="0 0 1 1 *")
    run = run_now(job, now=leader.clock.moment).run_id
    leader.step()
    [lease] = leader.claim()
    assert lease.run_id == run
    leader.conn.execute(
        "UPDATE chrono_worker SET beat_at = clock_timestamp() - %s * interval '1 ms'",
        [LEASE_TTL + 1],
    )
    sweep = Sweep(horizon=lambda: read_dispatch_state(leader.conn).horizon)
    for _ in range(2):
        sweep.step(leader.conn, clock=leader.clock)
        leader.clock.moment += CROWD_LOOK_AFTER
    leader.run_to(leader.clock.moment + MINUTE)
    [again] = leader.claim()
    assert (again.run_id, again.attempt) == (run, 2)
