"""Overlap policies: who runs, who waits, who is called off, and in which order."""

import uuid
from typing import Any

import pytest

from apps.jobs.commands import COMMAND, patch_job, pause_job, resume_job
from apps.jobs.manual import run_now
from apps.runs import store
from apps.runs.cancel import cancel
from apps.runs.reschedule import reschedule
from apps.runs.store import Lease
from apps.runtime.sessions import Connection
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND
from chrono.rules.keys import run_id, scheduled_for_of
from chrono.rules.overlap import MOST_BUFFERED
from chrono.rules.partitions import partition_of
from chrono.rules.states import Outcome, Reason, RunState
from tests.scheduler.conftest import NOON, Leader, prepare

CANCELLED, REPLACED = RunState.CANCELLED, Reason.REPLACED


def at(n: int) -> int:
    """Return the job's n-th instant."""
    return NOON + n * 10 * SECOND


def tick(leader: Leader, policy: str, **fields: Any) -> uuid.UUID:
    """Create a job of every ten seconds."""
    return leader.create("tick", interval="10s", overlap_policy=policy, **fields)


def reasons(leader: Leader, job: uuid.UUID) -> list[int | None]:
    """Return why each of its occurrences was skipped, None for those that were not."""
    return [row[2] for row in leader.ledger(job)]


def buffered(leader: Leader, job: uuid.UUID) -> list[int]:
    """Return the instants of a job's runs that wait for a place."""
    rows = leader.blocked(job)
    assert {gate for _, gate in rows} <= {"overlap"}
    return [moment for moment, _ in rows]


def claim(leader: Leader, count: int = 1) -> list[Lease]:
    leases = leader.claim()
    assert len(leases) == count
    return leases


def flags(leader: Leader, job: uuid.UUID) -> list[tuple[int, bool, int | None]]:
    """Return (instant, called off, reason) of a job's executions."""
    rows = leader.conn.execute(
        "SELECT run_id, cancel, cancel_reason FROM chrono_lease "
        "WHERE job_id = %s ORDER BY run_id",
        [job],
    ).fetchall()
    return [(scheduled_for_of(run), flag, reason) for run, flag, reason in rows]


def go_on(leader: Leader) -> None:
    """Give the gate a chance, with nothing due."""
    leader.run_to(leader.clock.moment + SECOND, every=250)


def test_buffer_one_keeps_the_first_that_comes(leader: Leader) -> None:
    job = tick(leader, "buffer_one")
    leader.run_to(at(4))
    assert leader.ready(job) == [at(1)]
    assert buffered(leader, job) == [at(2)]
    assert reasons(leader, job) == [None, None, Reason.BUFFER_FULL, Reason.BUFFER_FULL]
    leader.succeed()
    go_on(leader)
    assert leader.ready(job) == [at(2)]
    leader.run_to(at(5))
    assert buffered(leader, job) == [at(5)]


def test_buffer_all_lets_all_in_one_by_one_in_order(leader: Leader) -> None:
    job = tick(leader, "buffer_all")
    leader.run_to(at(5))
    for n in range(1, 6):
        go_on(leader)
        assert leader.ready(job) == [at(n)]
        assert buffered(leader, job) == [at(m) for m in range(n + 1, 6)]
        leader.succeed()
    assert reasons(leader, job) == [None] * 5


def test_a_buffer_has_an_end(leader: Leader) -> None:
    job = leader.create("many", interval="1s", overlap_policy="buffer_all")
    leader.run_to(NOON + (MOST_BUFFERED + 3) * SECOND, every=SECOND)
    assert len(buffered(leader, job)) == MOST_BUFFERED
    assert reasons(leader, job) == [None] * (MOST_BUFFERED + 1) + [
        Reason.BUFFER_FULL,
        Reason.BUFFER_FULL,
    ]


def test_late_ones_of_one_step_fill_the_buffer_in_order(leader: Leader) -> None:
    job = tick(leader, "buffer_all", max_concurrent_runs=2)
    leader.clock.moment = at(5)
    leader.step()
    assert leader.ready(job) == [at(1), at(2)]
    assert buffered(leader, job) == [at(3), at(4), at(5)]


def test_nobody_passes_one_that_waits(leader: Leader) -> None:
    job = tick(leader, "buffer_all")
    leader.run_to(at(2))
    leader.succeed()
    # A place is free and the gate has not looked yet when the next comes due.
    leader.clock.moment = at(3)
    leader.dispatcher._next_look = at(9)
    leader.dispatcher._lane.due = lambda: at(9)  # type: ignore[method-assign]
    leader.step()
    assert leader.ready(job) == []
    assert buffered(leader, job) == [at(2), at(3)]


def test_a_newer_run_takes_the_place_of_one_that_has_not_begun(leader: Leader) -> None:
    job = tick(leader, "cancel_other")
    leader.run_to(at(2))
    go_on(leader)
    assert leader.ended(job) == [(at(1), CANCELLED, REPLACED)]
    assert buffered(leader, job) == []
    [lease] = claim(leader)
    assert scheduled_for_of(lease.run_id) == at(2)


def test_a_run_in_execution_is_told_and_the_newest_waits_for_its_end(
    leader: Leader,
) -> None:
    job = tick(leader, "cancel_other")
    leader.run_to(at(1))
    [lease] = claim(leader)
    leader.run_to(at(4))
    go_on(leader)
    assert flags(leader, job) == [(at(1), True, REPLACED)]
    # Of those that wait the newest alone is left.
    assert buffered(leader, job) == [at(4)]
    assert leader.ended(job) == [
        (at(2), CANCELLED, REPLACED),
        (at(3), CANCELLED, REPLACED),
    ]
    assert leader.ready(job) == []
    leader.settle(lease, state=CANCELLED, reason=Reason.OPERATOR)
    go_on(leader)
    assert leader.ended(job)[0] == (at(1), CANCELLED, REPLACED)
    assert leader.ready(job) == [at(4)]


def test_a_run_in_execution_is_told_once(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []

    def count(conn: Connection, **options: Any) -> bool:
        told.append(options["run"])
        return cancel_if_leased(conn, **options)

    cancel_if_leased = store.cancel_if_leased
    monkeypatch.setattr(store, "cancel_if_leased", count)
    tick(leader, "cancel_other")
    leader.run_to(at(1))
    [lease] = claim(leader)
    leader.run_to(at(2) + 5 * SECOND, every=250)
    assert told == [lease.run_id]


def test_a_run_that_succeeds_although_it_was_told_has_succeeded(leader: Leader) -> None:
    job = tick(leader, "cancel_other")
    leader.run_to(at(1))
    [lease] = claim(leader)
    leader.run_to(at(2))
    go_on(leader)
    leader.settle(lease)
    assert leader.ended(job) == [(at(1), RunState.SUCCESS, None)]


def test_a_person_who_cancelled_first_stays_the_reason(leader: Leader) -> None:
    job = tick(leader, "cancel_other")
    leader.run_to(at(1))
    [lease] = claim(leader)
    cancel(leader.conn, lease.run_id)
    leader.run_to(at(2))
    go_on(leader)
    assert flags(leader, job) == [(at(1), True, Reason.OPERATOR)]


def test_what_is_terminated_is_over_whatever_its_worker_says(leader: Leader) -> None:
    job = tick(leader, "terminate_other")
    leader.run_to(at(1))
    [lease] = claim(leader)
    leader.run_to(at(2))
    go_on(leader)
    assert flags(leader, job) == []
    assert leader.ended(job) == [(at(1), CANCELLED, REPLACED)]
    assert leader.ready(job) == [at(2)]
    assert leader.settle(lease) == 0
    assert leader.ended(job) == [(at(1), CANCELLED, REPLACED)]


@pytest.mark.parametrize("policy", ["cancel_other", "terminate_other"])
def test_with_more_places_the_oldest_are_replaced(leader: Leader, policy: str) -> None:
    job = tick(leader, policy, max_concurrent_runs=3)
    leader.run_to(at(3))
    claim(leader, 3)
    leader.run_to(at(5))
    go_on(leader)
    flagged = [moment for moment, flag, _ in flags(leader, job) if flag]
    gone = [moment for moment, _, _ in leader.ended(job)]
    assert sorted(flagged + gone) == [at(1), at(2)]
    kept = [moment for moment, flag, _ in flags(leader, job) if not flag]
    assert kept == [at(3)]


def test_a_retry_that_waits_is_replaced_too(leader: Leader) -> None:
    job = tick(leader, "cancel_other")
    leader.run_to(at(1))
    [lease] = claim(leader)
    leader.settle(lease, state=0, due=at(60), error="no", reason=Reason.ATTEMPT_FAILED)
    leader.run_to(at(2))
    go_on(leader)
    assert leader.ended(job) == [(at(1), CANCELLED, REPLACED)]
    assert leader.ready(job) == [at(2)]


@pytest.mark.parametrize("policy", ["skip", "allow_all"])
def test_three_may_be_live_and_a_fourth_is_skipped(leader: Leader, policy: str) -> None:
    job = tick(leader, policy, max_concurrent_runs=3)
    leader.run_to(at(4))
    assert leader.ready(job) == [at(1), at(2), at(3)]
    assert reasons(leader, job) == [None, None, None, Reason.OVERLAP]
    leases = claim(leader, 3)
    leader.settle(leases[1])
    leader.run_to(at(6))
    assert reasons(leader, job)[4:] == [None, Reason.OVERLAP]
    # One that is tried again later is live all the while.
    leader.settle(
        leases[0], state=0, due=at(60), error="no", reason=Reason.ATTEMPT_FAILED
    )
    leader.run_to(at(7))
    assert reasons(leader, job)[6:] == [Reason.OVERLAP]
    leader.settle(leases[2], state=RunState.DEAD, error="no", reason=Reason.TIMED_OUT)
    leader.run_to(at(8))
    assert reasons(leader, job)[7:] == [None]


def test_without_a_bound_nobody_counts(leader: Leader) -> None:
    job = tick(leader, "allow_all")
    leader.run_to(at(5))
    assert len(leader.ready(job)) == 5
    assert leader.count("chrono_slot") == 0


def test_every_live_run_of_a_bounded_job_has_a_slot(leader: Leader) -> None:
    job = tick(leader, "buffer_all", max_concurrent_runs=2)
    leader.run_to(at(3))
    slots = leader.conn.execute(
        "SELECT run_id FROM chrono_slot WHERE job_id = %s ORDER BY run_id", [job]
    ).fetchall()
    part = partition_of(job)
    assert slots == [(run_id(job, at(n), 0, part),) for n in (1, 2)]


def test_a_manual_run_counts_against_the_bound(leader: Leader) -> None:
    job = tick(leader, "skip", max_concurrent_runs=2)
    run_now(job, now=leader.clock.moment)
    leader.run_to(at(2))
    assert reasons(leader, job) == [None, None, Reason.OVERLAP]
    assert len(leader.ready(job)) == 2


def test_a_scheduled_run_waits_behind_a_manual_one(leader: Leader) -> None:
    job = tick(leader, "buffer_one")
    run_now(job, now=leader.clock.moment)
    leader.run_to(at(1))
    assert leader.ready(job) == [NOON]
    assert buffered(leader, job) == [at(1)]
    leader.succeed()
    go_on(leader)
    assert leader.ready(job) == [at(1)]


def test_a_policy_that_came_later_sees_the_run_before_it(leader: Leader) -> None:
    # While one run at a time was skipped, it needed no slot.
    job = tick(leader, "skip")
    leader.run_to(at(1))
    assert leader.count("chrono_slot") == 0
    patch_job(job, {"overlap_policy": "buffer_all"}, now=leader.clock.moment)
    leader.run_to(at(2))
    assert leader.ready(job) == [at(1)]
    assert buffered(leader, job) == [at(2)]
    leader.succeed()
    go_on(leader)
    assert leader.ready(job) == [at(2)]


def test_a_policy_that_skips_again_sees_the_run_that_was_let_in(leader: Leader) -> None:
    job = tick(leader, "buffer_all")
    leader.run_to(at(2))
    leader.succeed()
    go_on(leader)
    patch_job(job, {"overlap_policy": "skip"}, now=leader.clock.moment)
    leader.run_to(at(3))
    assert leader.ready(job) == [at(2)]
    assert reasons(leader, job) == [None, None, Reason.OVERLAP]


def test_a_run_that_waits_is_cancelled_and_the_next_is_let_in(leader: Leader) -> None:
    job = tick(leader, "buffer_all")
    leader.run_to(at(3))
    second = run_id(job, at(2), 0, partition_of(job))
    assert cancel(leader.conn, second) is CANCELLED
    leader.succeed()
    go_on(leader)
    assert leader.ready(job) == [at(3)]
    assert (at(2), CANCELLED, Reason.OPERATOR) in leader.ended(job)


def test_another_leader_goes_on_where_the_first_one_left(leader: Leader) -> None:
    job = tick(leader, "buffer_all")
    leader.run_to(at(3))
    leader.begin_anew()
    leader.run_to(at(4))
    assert buffered(leader, job) == [at(2), at(3), at(4)]
    leader.succeed()
    leader.begin_anew()
    go_on(leader)
    assert leader.ready(job) == [at(2)]
    leader.run_to(leader.clock.moment + MINUTE // 2)
    assert [row[1] for row in leader.ledger(job)] == [Outcome.FIRED] * 7


def test_a_late_one_does_not_pass_the_run_before_it(leader: Leader) -> None:
    job = tick(leader, "skip")
    leader.run_to(at(1))
    claim(leader)
    leader.clock.moment = at(2) + 1
    patch_job(job, {"interval": "20s"}, now=leader.clock.moment)
    leader.step()
    assert leader.ready(job) == []
    assert reasons(leader, job) == [None, Reason.OVERLAP]


def test_late_ones_of_an_edit_do_not_pass_each_other(leader: Leader) -> None:
    job = tick(leader, "skip")
    leader.clock.moment = at(3) + 1
    patch_job(job, {"interval": "31s"}, now=leader.clock.moment)
    leader.step()
    assert leader.ready(job) == [at(1)]
    # Nor does the new plan pass the one that runs.
    leader.run_to(at(4))
    assert reasons(leader, job) == [None, *[Reason.OVERLAP] * 3]


def test_a_late_one_and_the_next_of_one_step_are_told_apart(leader: Leader) -> None:
    job = tick(leader, "skip")
    leader.clock.moment = at(1) + 1
    patch_job(job, {"interval": "11s"}, now=leader.clock.moment)
    leader.clock.moment = at(2)
    leader.step()
    assert leader.ready(job) == [at(1)]
    assert reasons(leader, job) == [None, Reason.OVERLAP]


def catch_up_behind_a_live_run(leader: Leader) -> uuid.UUID:
    """Have a job miss some occurrences while its last run goes on."""
    job = tick(leader, "skip", catchup_policy="run_all")
    leader.run_to(at(1))
    claim(leader)
    leader.clock.moment = at(20)
    leader.begin_anew()
    leader.step()
    return job


def test_one_that_was_missed_and_cancelled_hides_no_live_run(leader: Leader) -> None:
    job = catch_up_behind_a_live_run(leader)
    newest, _ = leader.blocked(job)[-1]
    cancel(leader.conn, run_id(job, newest, 0, partition_of(job)))
    go_on(leader)
    assert leader.ready(job) == []
    assert len(leader.blocked(job)) > 5


def test_a_resumed_plan_knows_the_live_run_behind_cancelled_ones(
    leader: Leader,
) -> None:
    job = catch_up_behind_a_live_run(leader)
    for moment, _ in leader.blocked(job):
        cancel(leader.conn, run_id(job, moment, 0, partition_of(job)))
    pause_job(job, now=leader.clock.moment)
    resume_job(job, now=leader.clock.moment + 1)
    leader.run_to(at(23))
    assert leader.ready(job) == []
    assert reasons(leader, job)[-3:] == [Reason.OVERLAP] * 3


def put_off(leader: Leader, job: uuid.UUID, moment: int) -> None:
    """Have a run that waits come due a day later."""
    reschedule(
        leader.conn,
        run_id(job, moment, 0, partition_of(job)),
        due_at=leader.clock.moment + DAY,
        tenant=1,
        actor=COMMAND,
        now=leader.clock.moment,
    )


def test_one_that_was_put_off_leaves_the_buffer_to_others(leader: Leader) -> None:
    job = tick(leader, "buffer_one")
    leader.run_to(at(2))
    put_off(leader, job, at(2))
    leader.run_to(at(3))
    assert buffered(leader, job) == [at(3), at(2)]
    leader.succeed()
    go_on(leader)
    leader.succeed()
    leader.run_to(at(4))
    assert leader.ready(job) == [at(4)]
    assert reasons(leader, job) == [None] * 4


def test_nobody_is_called_off_for_one_that_was_put_off(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = leader.create("slow", interval="1h", overlap_policy="cancel_other")
    leader.run_to(NOON + HOUR, every=MINUTE)
    claim(leader)
    # It is put off before the gate has looked.
    with monkeypatch.context() as held:
        held.setattr(leader.dispatcher._lane, "due", lambda: NOON + DAY)
        leader.run_to(NOON + 2 * HOUR, every=MINUTE)
    put_off(leader, job, NOON + 2 * HOUR)
    go_on(leader)
    assert flags(leader, job) == [(NOON + HOUR, False, None)]


@pytest.mark.parametrize(
    ("old", "new", "more"),
    [
        ("allow_all", {"overlap_policy": "skip"}, 0),
        ("allow_all", {"overlap_policy": "buffer_one"}, 0),
        ("allow_all", {"max_concurrent_runs": 3}, 1),
        ("skip", {"max_concurrent_runs": 2}, 1),
    ],
)
def test_a_bound_that_came_later_counts_all_that_are_live(
    leader: Leader, old: str, new: dict[str, Any], more: int
) -> None:
    job = tick(leader, old)
    leader.run_to(at(3))
    leases = leader.claim()
    if len(leases) > 1:
        leader.settle(leases.pop())
    patch_job(job, new, now=leader.clock.moment)
    leader.run_to(at(6))
    assert len(leader.ready(job)) == more


def test_a_run_whose_history_is_gone_takes_no_place_beside_a_live_one(
    leader: Leader,
) -> None:
    job = leader.create("weekly", interval="7d", max_concurrent_runs=2)
    leader.jump_to(NOON + 7 * DAY)
    leader.succeed()
    leader.clock.moment = NOON + 14 * DAY - SECOND
    prepare(leader.conn, leader.clock.moment)
    leader.conn.execute("DELETE FROM chrono_run")
    leader.conn.execute("DELETE FROM chrono_slot")
    run_now(job, now=leader.clock.moment)
    leader.run_to(NOON + 14 * DAY)
    assert leader.fired(job)[-1] == NOON + 14 * DAY
