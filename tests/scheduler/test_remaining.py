"""A number of runs: so many of the schedule, and then no timer any more."""

import uuid
from typing import Any

import pytest

from apps.jobs.commands import delete_job, patch_job, pause_job, resume_job, take_back
from apps.jobs.manual import run_now
from apps.jobs.selectors import get_job, list_jobs
from apps.jobs.store import Chosen
from apps.runs.cancel import cancel
from apps.tenants.actor import Actor
from chrono.rules.instants import HOUR, MINUTE, SECOND, Millis, format_instant
from chrono.rules.keys import run_id
from chrono.rules.partitions import partition_of
from chrono.rules.states import Outcome, Reason, RunState
from tests.scheduler.conftest import NOON, Leader


def few(leader: Leader, runs: int, **fields: Any) -> uuid.UUID:
    """Create a job of every ten seconds that runs so often."""
    fields = {"interval": "10s", "overlap_policy": "allow_all", **fields}
    return leader.create("few", remaining_runs=runs, **fields)


def test_each_run_takes_one_off_and_the_last_leaves_no_timer(leader: Leader) -> None:
    job = few(leader, 3)
    for left in (3, 2, 1):
        n = 4 - left
        assert leader.planned(job) == [(NOON + n * 10 * SECOND, left)]
        leader.run_to(NOON + n * 10 * SECOND)
    assert leader.planned(job) == []
    leader.run_to(NOON + 2 * MINUTE)
    assert leader.fired(job) == [NOON + n * 10 * SECOND for n in (1, 2, 3)]
    assert len(leader.ledger(job)) == 3


def test_a_single_run_is_the_last(leader: Leader) -> None:
    job = few(leader, 1)
    leader.run_to(NOON + MINUTE)
    assert leader.fired(job) == [NOON + 10 * SECOND]


def test_what_is_skipped_takes_nothing_off(leader: Leader) -> None:
    job = few(leader, 2, overlap_policy="skip")
    leader.run_to(NOON + 30 * SECOND)
    assert leader.planned(job) == [(NOON + 40 * SECOND, 1)]
    leader.succeed()
    leader.run_to(NOON + MINUTE)
    assert leader.fired(job) == [NOON + 10 * SECOND, NOON + 40 * SECOND]
    assert leader.planned(job) == []


def test_a_run_that_waits_for_a_place_has_taken_one_off(leader: Leader) -> None:
    job = few(leader, 3, overlap_policy="buffer_all")
    leader.run_to(NOON + MINUTE)
    assert len(leader.blocked(job)) == 2
    assert leader.planned(job) == []


def test_a_manual_run_takes_nothing_off(leader: Leader) -> None:
    job = few(leader, 2)
    run_now(job, now=leader.clock.moment)
    leader.run_to(NOON + SECOND)
    assert leader.planned(job) == [(NOON + 10 * SECOND, 2)]


def test_of_a_fixed_delay_a_timer_that_only_moves_takes_nothing_off(
    leader: Leader,
) -> None:
    start = NOON + SECOND
    job = few(
        leader,
        2,
        interval=None,
        fixed_delay="10s",
        starts_at=format_instant(start),
        overlap_policy="skip",
    )
    leader.run_to(NOON + MINUTE)
    assert [left for _, left in leader.planned(job)] == [1]
    leader.succeed()
    leader.run_to(NOON + 2 * MINUTE)
    assert leader.fired(job) == [start, NOON + MINUTE + 10 * SECOND]
    assert leader.planned(job) == []


def test_another_leader_knows_how_many_are_left(leader: Leader) -> None:
    job = few(leader, 3)
    for n in range(1, 7):
        leader.begin_anew()
        leader.run_to(NOON + n * 10 * SECOND)
    assert len(leader.fired(job)) == 3


@pytest.mark.parametrize(
    ("policy", "runs", "fired", "left"),
    [
        ("run_all", 2, (10, 20), None),
        ("run_all", 6, (10, 20, 30, 40, 50, 60), None),
        ("run_all", 7, (10, 20, 30, 40, 50, 60), 1),
        ("run_once", 1, (60,), None),
        ("run_once", 3, (60,), 2),
        ("skip", 3, (), 3),
    ],
)
def test_missed_ones_use_up_what_is_left_oldest_first(
    leader: Leader, policy: str, runs: int, fired: tuple[int, ...], left: int | None
) -> None:
    job = few(leader, runs, interval="10m", catchup_policy=policy)
    leader.clock.moment = NOON + HOUR + 5 * MINUTE
    leader.step()
    assert leader.fired(job) == [NOON + n * MINUTE for n in fired]
    planned = [] if left is None else [(NOON + HOUR + 10 * MINUTE, left)]
    assert leader.planned(job) == planned
    leader.run_to(NOON + 2 * HOUR, every=5 * MINUTE)
    rest = (left or 0) if left is None or left < 5 else 5
    assert len(leader.fired(job)) == len(fired) + rest


def test_what_ran_already_takes_nothing_off_again(leader: Leader) -> None:
    job = few(leader, 3, interval="10m", catchup_policy="run_all")
    leader.conn.execute(
        "INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence, version, "
        "revision, part, outcome, kind, reason) VALUES (to_timestamp(%s / 1000.0), %s, "
        "gen_random_uuid(), 0, 1, 1, %s, 2, 1, %s)",
        [NOON + 10 * MINUTE, job, partition_of(job), Reason.OPERATOR],
    )
    leader.clock.moment = NOON + 22 * MINUTE
    leader.step()
    assert [row[1] for row in leader.ledger(job)] == [Outcome.SKIPPED, Outcome.FIRED]
    assert leader.planned(job) == [(NOON + 30 * MINUTE, 2)]
    leader.run_to(NOON + HOUR, every=MINUTE)
    assert len(leader.fired(job)) == 3


ACTOR = Actor.command("tests")


def until(moment: Millis) -> dict[str, str]:
    """Return an end at an instant."""
    return {"ends_at": format_instant(moment)}


def shown(leader: Leader, job: uuid.UUID) -> tuple[str, int | None]:
    """Return a job's state and how many runs are left to it."""
    fields = get_job(leader.conn, job, actor=ACTOR, now=leader.clock.moment)
    return fields["state"], fields["runs_left"]


def listed(leader: Leader, state: str) -> list[str]:
    """Return the keys of the jobs that a list of a state has."""
    page = list_jobs(
        leader.conn,
        tenant=1,
        actor=ACTOR,
        chosen=Chosen(states=frozenset({state})),
        limit=10,
        now=leader.clock.moment,
    )
    return sorted(item["key"] for item in page.items)


def test_a_later_end_goes_on_with_the_runs_that_are_left(leader: Leader) -> None:
    job = few(leader, 5, **until(NOON + 25 * SECOND))
    leader.run_to(NOON + MINUTE)
    assert shown(leader, job) == ("ended", 3)
    patch_job(job, until(NOON + HOUR), now=leader.clock.moment)
    assert shown(leader, job) == ("active", 3)
    leader.run_to(NOON + 3 * MINUTE)
    tens = [NOON + n * 10 * SECOND for n in (1, 2, 7, 8, 9)]
    assert leader.fired(job) == tens
    assert shown(leader, job) == ("ended", 0)


def test_a_later_end_goes_on_after_an_end_by_an_edit(leader: Leader) -> None:
    job = few(leader, 5, **until(NOON + HOUR))
    leader.run_to(NOON + 20 * SECOND)
    patch_job(job, until(NOON + 21 * SECOND), now=leader.clock.moment)
    leader.run_to(NOON + 30 * SECOND)
    patch_job(job, {"name": "Only a name"}, now=leader.clock.moment)
    assert shown(leader, job) == ("ended", 3)
    patch_job(job, until(NOON + HOUR), now=leader.clock.moment)
    leader.run_to(NOON + 2 * MINUTE)
    assert leader.fired(job) == [NOON + n * 10 * SECOND for n in (1, 2, 4, 5, 6)]


@pytest.mark.parametrize(("policy", "left"), [("run_all", 3), ("skip", 5)])
def test_a_later_end_goes_on_after_missed_ones(
    leader: Leader, policy: str, left: int
) -> None:
    end = until(NOON + 25 * MINUTE)
    job = few(leader, 5, interval="10m", catchup_policy=policy, **end)
    leader.clock.moment = NOON + HOUR
    leader.step()
    assert shown(leader, job) == ("ended", left)
    patch_job(job, until(NOON + 2 * HOUR), now=leader.clock.moment)
    assert leader.planned(job) == [(NOON + HOUR + 10 * MINUTE, left)]


def test_a_later_end_goes_on_after_a_delay_that_came_too_late(leader: Leader) -> None:
    start = NOON + SECOND
    job = few(
        leader,
        4,
        interval=None,
        fixed_delay="10s",
        starts_at=format_instant(start),
        overlap_policy="skip",
        **until(NOON + MINUTE),
    )
    leader.run_to(NOON + 58 * SECOND)
    leader.succeed()
    leader.run_to(NOON + 2 * MINUTE)
    assert leader.planned(job) == []
    patch_job(job, until(NOON + HOUR), now=leader.clock.moment)
    assert [left for _, left in leader.planned(job)] == [3]


def test_a_pause_keeps_what_was_left_at_the_end(leader: Leader) -> None:
    job = few(leader, 5, **until(NOON + 25 * SECOND))
    leader.run_to(NOON + MINUTE)
    pause_job(job, now=leader.clock.moment)
    resume_job(job, now=leader.clock.moment)
    patch_job(job, until(NOON + HOUR), now=leader.clock.moment)
    assert leader.planned(job) == [(NOON + 70 * SECOND, 3)]


def test_a_later_end_gives_no_run_to_who_has_used_up_his(leader: Leader) -> None:
    job = few(leader, 2, **until(NOON + 25 * SECOND))
    leader.run_to(NOON + MINUTE)
    patch_job(job, until(NOON + HOUR), now=leader.clock.moment)
    assert (shown(leader, job), leader.planned(job)) == (("ended", 0), [])
    patch_job(job, {"remaining_runs": 1}, now=leader.clock.moment)
    assert leader.planned(job) == [(NOON + 70 * SECOND, 1)]


def test_who_has_used_up_his_runs_is_listed_as_ended(leader: Leader) -> None:
    job = few(leader, 2)
    leader.create("many", interval="10s", remaining_runs=40)
    leader.run_to(NOON + 15 * SECOND)
    assert (listed(leader, "ended"), listed(leader, "active")) == ([], ["few", "many"])
    leader.run_to(NOON + 20 * SECOND)
    assert (listed(leader, "ended"), listed(leader, "active")) == (["few"], ["many"])
    pause_job(job, now=leader.clock.moment)
    assert (listed(leader, "ended"), listed(leader, "paused")) == ([], ["few"])
    resume_job(job, now=leader.clock.moment)
    assert (listed(leader, "ended"), listed(leader, "active")) == (["few"], ["many"])
    patch_job(job, {"remaining_runs": 1}, now=leader.clock.moment)
    assert (listed(leader, "ended"), listed(leader, "active")) == ([], ["few", "many"])


def test_who_missed_the_last_of_his_runs_is_listed_as_ended(leader: Leader) -> None:
    few(leader, 2, interval="10m", catchup_policy="run_all")
    leader.clock.moment = NOON + HOUR
    leader.step()
    assert (listed(leader, "ended"), listed(leader, "active")) == (["few"], [])


@pytest.fixture
def outage(leader: Leader) -> tuple[Leader, uuid.UUID]:
    """A job with two runs of which one is live, edited while nothing fired."""
    job = few(
        leader, 2, interval="10m", overlap_policy="skip", catchup_policy="run_all"
    )
    leader.run_to(NOON + 10 * MINUTE, every=5 * MINUTE)
    leader.clock.moment = NOON + 20 * MINUTE + 5 * SECOND
    patch_job(job, {"interval": "15m"}, now=leader.clock.moment)
    return leader, job


def taken_back(leader: Leader) -> int:
    """Have the keeper do what it does; return how many jobs it planned anew."""
    planned = take_back(leader.conn, actor=ACTOR, now=leader.clock.moment)
    leader.dispatcher.notice()
    leader.step()
    return len(planned)


def test_a_late_one_that_is_skipped_takes_nothing_off(
    outage: tuple[Leader, uuid.UUID],
) -> None:
    leader, job = outage
    assert (shown(leader, job), listed(leader, "ended")) == (("ended", 0), ["few"])
    leader.step()
    assert leader.ledger(job)[1][2] == Reason.OVERLAP
    assert shown(leader, job) == ("active", 1)
    assert (taken_back(leader), taken_back(leader)) == (1, 0)
    assert leader.planned(job) == [(NOON + 30 * MINUTE, 1)]
    assert (listed(leader, "active"), leader.count("chrono_given_back")) == (["few"], 0)
    leader.succeed()
    leader.run_to(NOON + HOUR, every=MINUTE)
    assert leader.fired(job) == [NOON + 10 * MINUTE, NOON + 30 * MINUTE]
    assert (taken_back(leader), shown(leader, job)) == (0, ("ended", 0))


def test_a_late_one_that_runs_has_taken_one_off(
    outage: tuple[Leader, uuid.UUID],
) -> None:
    leader, job = outage
    leader.succeed()
    leader.run_to(NOON + HOUR, every=MINUTE)
    assert leader.fired(job) == [NOON + 10 * MINUTE, NOON + 20 * MINUTE]
    assert (taken_back(leader), shown(leader, job)) == (0, ("ended", 0))


def test_a_late_one_that_a_pause_skips_gives_its_run_to_the_paused_job(
    outage: tuple[Leader, uuid.UUID],
) -> None:
    leader, job = outage
    pause_job(job, now=leader.clock.moment)
    leader.step()
    assert leader.ledger(job)[1][2] == Reason.PAUSED
    assert shown(leader, job) == ("paused", 1)
    patch_job(job, {"name": "Paused"}, now=leader.clock.moment)
    assert shown(leader, job) == ("paused", 1)
    assert (taken_back(leader), shown(leader, job)) == (1, ("paused", 1))
    resume_job(job, now=leader.clock.moment)
    assert leader.planned(job) == [(NOON + 30 * MINUTE, 1)]


def test_an_edit_takes_what_was_given_back(outage: tuple[Leader, uuid.UUID]) -> None:
    leader, job = outage
    leader.step()
    patch_job(job, {"interval": "20m"}, now=leader.clock.moment)
    assert leader.planned(job) == [(NOON + 40 * MINUTE, 1)]
    assert taken_back(leader) == 0


def test_a_late_one_that_is_cancelled_takes_nothing_off(
    outage: tuple[Leader, uuid.UUID],
) -> None:
    leader, job = outage
    late = run_id(job, NOON + 20 * MINUTE, 0, partition_of(job))
    assert cancel(leader.conn, late) is RunState.CANCELLED
    assert (taken_back(leader), shown(leader, job)) == (1, ("active", 1))


def test_nothing_is_given_back_to_a_deleted_job(
    outage: tuple[Leader, uuid.UUID],
) -> None:
    leader, job = outage
    leader.step()
    delete_job(job, now=leader.clock.moment)
    assert (taken_back(leader), leader.count("chrono_given_back")) == (0, 0)


def test_nothing_is_given_back_to_a_job_that_has_no_number_any_more(
    outage: tuple[Leader, uuid.UUID],
) -> None:
    leader, job = outage
    patch_job(job, {"remaining_runs": None}, now=leader.clock.moment)
    leader.step()
    assert leader.count("chrono_given_back") == 1
    assert (taken_back(leader), leader.count("chrono_given_back")) == (0, 0)
