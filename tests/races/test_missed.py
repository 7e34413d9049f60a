"""What was missed, decided against takeover and edits: all of it once, or nothing.

Each test takes the two sides step by step through every order that there is. Of every
schedule three occurrences are given up and two run.
"""

import uuid
from functools import partial
from typing import Any

import pytest

from apps.scheduler import store as scheduler
from apps.timers.buckets import HOUR
from chrono.rules.states import Outcome, Reason, TimerKind
from tests.races.harness import held, orders, play
from tests.races.test_fire import EDITS, edit, without_deadlock
from tests.races.world import Job, World

EVERY = 1_000
AGO = 100 * EVERY
GIVEN_UP = (Outcome.SKIPPED, Reason.MISSED_SKIP)
FIRED = (Outcome.FIRED, None)


def missed(world: World, part: int, **options: Any) -> tuple[Job, list[uuid.UUID]]:
    """Lay a schedule whose timer is long due; return it and the runs to be made."""
    job = world.job(part=part)
    due = world.now() - AGO
    world.timer(job, due, **options)
    return job, [job.run(due + n * EVERY) for n in (3, 4)]


def decided(world: World, job: Job) -> bool:
    """Return whether all was decided, exactly, or nothing; anything else is wrong."""
    ledger = [row[:2] for row in world.ledger(job)]
    timers = world.value(
        "SELECT count(*) FROM chrono_timer WHERE job_id = %s", [job.id]
    ) + world.value("SELECT count(*) FROM chrono_timer_far WHERE job_id = %s", [job.id])
    waiting = world.value(
        "SELECT count(*) FROM chrono_blocked WHERE job_id = %s", [job.id]
    )
    assert (ledger, timers, waiting) in (
        ([], 1, 0),
        ([GIVEN_UP, FIRED, FIRED], 1, 2),
    )
    return bool(ledger)


def test_missed_and_takeover_in_every_order(world: World) -> None:
    first, second = world.leader("first"), world.leader("second")
    for order in orders(3, 3):
        job, _ = missed(world, 7)
        first.take_over(7)
        rows = first.load(7)
        miss = partial(first.miss, rows, every=EVERY)
        trace = play(
            world.stage,
            order,
            (first.actor, held("miss", miss, first.actor)),
            (
                second.actor,
                held("takeover", partial(second.take_over, 7), second.actor),
            ),
        )
        assert not trace.errors, trace
        landed = bool(trace.values["miss"].done)
        assert landed == trace.before("miss.commit", "takeover.commit"), trace
        assert decided(world, job) == landed, trace
        if not landed:
            assert second.miss(second.load(7), every=EVERY).done == {0}, trace
        assert decided(world, job), trace
        world.check(trace)
        forget(world, job)


def forget(world: World, job: Job) -> None:
    """Take a schedule's timer away, so that the next round has its own alone."""
    world.observer.execute("DELETE FROM chrono_timer WHERE job_id = %s", [job.id])
    world.observer.execute("DELETE FROM chrono_timer_far WHERE job_id = %s", [job.id])


@pytest.mark.parametrize("change", EDITS)
def test_missed_and_edit_in_every_order(world: World, change: str) -> None:
    missed_against_edit(world, change)


def missed_against_edit(world: World, change: str = "pause") -> None:
    leader, editor = world.leader("leader", 9), world.session("editor")
    for order in orders(3, 3):
        job, _ = missed(world, 9)
        leader.take_over(9)
        miss = partial(leader.miss, leader.load(9), every=EVERY)
        trace = play(
            world.stage,
            order,
            (leader.actor, held("miss", miss, leader.actor)),
            (editor, held("edit", partial(edit, editor.conn, change, job), editor)),
        )
        assert not trace.errors, trace
        landed = bool(trace.values["miss"].done)
        assert landed == trace.before("miss.commit", "edit.commit"), trace
        assert decided(world, job) == landed, trace
        world.check(trace)
        forget(world, job)


@pytest.mark.parametrize("column", ["fence", "epoch"])
def test_missed_and_a_row_changed_by_hand_in_every_order(
    world: World, column: str
) -> None:
    missed_against_a_plain_update(world, column)


def missed_against_a_plain_update(world: World, column: str = "fence") -> None:
    leader, person = world.leader("leader"), world.session("person")
    for order in orders(3, 3):
        job, _ = missed(world, 9)
        leader.take_over(9)
        update = partial(
            person.conn.execute,
            f"UPDATE chrono_partition SET {column} = {column} + 1 WHERE id = 9",
        )
        miss = partial(leader.miss, leader.load(9), every=EVERY)
        trace = play(
            world.stage,
            order,
            (leader.actor, held("miss", miss, leader.actor)),
            (person, held("update", update, person)),
        )
        assert not trace.errors, trace
        landed = bool(trace.values["miss"].done)
        assert landed == trace.before("miss.commit", "update.commit"), trace
        assert decided(world, job) == landed, trace
        forget(world, job)


def test_two_leaders_never_both_decide(world: World) -> None:
    first, second = world.leader("first"), world.leader("second")
    for order in orders(3, 3):
        job, _ = missed(world, 5)
        first.take_over(5)
        rows = first.load(5)
        second.take_over(5)
        trace = play(
            world.stage,
            order,
            (
                first.actor,
                held("old", partial(first.miss, rows, every=EVERY), first.actor),
            ),
            (
                second.actor,
                held("new", partial(second.miss, rows, every=EVERY), second.actor),
            ),
        )
        assert not trace.errors, trace
        assert trace.values["old"].held == frozenset(), trace
        assert trace.values["new"].done == {0}, trace
        assert decided(world, job), trace
        world.check(trace)
        forget(world, job)


@pytest.mark.parametrize("column", ["fence", "term"])
def test_a_term_that_is_over_decides_nothing(world: World, column: str) -> None:
    over(world, column)


def over(world: World, column: str) -> None:
    leader = world.leader("leader", 4)
    job, _ = missed(world, 4)
    rows = leader.load(4)
    new = "fence + 1" if column == "fence" else "gen_random_uuid()"
    world.observer.execute(f"UPDATE chrono_partition SET {column} = {new} WHERE id = 4")
    assert leader.miss(rows, every=EVERY).held == frozenset()
    assert not decided(world, job)


def test_one_stale_partition_does_not_stop_the_others(world: World) -> None:
    leader, other = world.leader("leader", 1, 2, 3), world.leader("other")
    jobs = [missed(world, part)[0] for part in (1, 2, 3)]
    rows = leader.load(1, 2, 3)
    other.take_over(2)
    missing = leader.miss(rows, every=EVERY)
    assert (missing.held, missing.done, missing.runs) == ({1, 3}, {0, 2}, 4)
    assert [decided(world, job) for job in jobs] == [True, False, True]
    world.check()


def test_missed_and_bulk_edits_in_opposite_orders_never_deadlock(world: World) -> None:
    leader = world.leader("leader", 1, 2, 3)
    jobs = [missed(world, part)[0] for part in (1, 2, 3)]
    rows = leader.load(1, 2, 3)[::-1]
    batch = leader.aim_missed(rows, every=EVERY)
    for name in ("parts", "fences", "terms", "epochs"):
        batch[name].reverse()
    bucket = world.table(rows[0].bucket)
    without_deadlock(
        world,
        lambda conn: scheduler.miss_if_held(conn, bucket=bucket, batch=batch),
        lambda conn: edit(conn, "payload", *jobs),
    )


def test_what_is_decided_is_not_decided_again_by_a_wheel(world: World) -> None:
    leader = world.leader("leader", 6)
    job, runs = missed(world, 6)
    rows = leader.load(6)
    assert leader.miss(rows, every=EVERY).runs == 2
    again = leader.miss(rows, every=EVERY)
    assert (again.held, again.done, again.runs) == ({6}, set(), 0)
    assert decided(world, job)
    assert [world.places(run, 6) for run in runs] == [["blocked"], ["blocked"]]


def test_an_occurrence_that_ran_already_meets_the_ledger(world: World) -> None:
    # An edit, a backfill or a bug of ours made a run of it meanwhile.
    leader = world.leader("leader", 6)
    job, [ran, other] = missed(world, 6, remaining=5)
    [row] = leader.load(6)
    world.timer(job, row.due_at, kind=TimerKind.LATE, scheduled_for=row.due_at + 3_000)
    [late] = [r for r in leader.load(6) if r.kind == TimerKind.LATE]
    assert leader.fire([late]).verdicts == {0: 0}
    assert leader.miss([row], every=EVERY).runs == 1
    assert world.places(ran, 6) == ["ready"]
    assert world.places(other, 6) == ["blocked"]
    left = "SELECT remaining FROM chrono_timer WHERE job_id = %s"
    assert world.value(left, [job.id]) == 4
    world.check()


def test_a_next_timer_never_takes_the_key_of_the_row_it_replaces(
    world: World,
) -> None:
    leader = world.leader("leader", 6)
    job, _ = missed(world, 6)
    [row] = rows = leader.load(6)
    leader.miss(rows, every=EVERY, next_due=row.due_at)
    assert decided(world, job)
    assert [r.due_at for r in leader.load(6)] == [row.due_at + 1]


def test_an_entry_of_another_instant_is_not_decided_by_its_key(world: World) -> None:
    leader = world.leader("leader", 6)
    job = world.job(part=6)
    due = world.now() - 500
    world.timer(job, due, scheduled_for=due - AGO)
    rows = leader.load(6)
    forget(world, job)
    world.timer(job, due, scheduled_for=due - AGO + 1)
    assert leader.miss(rows, every=EVERY).done == frozenset()
    assert not decided(world, job)


def test_nothing_is_decided_before_its_time(world: World) -> None:
    leader = world.leader("leader", 6)
    job = world.job(part=6)
    world.timer(job, world.now() + HOUR // 60)
    rows = leader.load(6, before=world.now() + HOUR)
    missing = leader.miss(rows, every=EVERY)
    assert (missing.held, missing.done) == ({6}, set())
    assert not decided(world, job)


def test_the_next_timer_is_near_or_far_and_none_after_the_last_run(
    world: World,
) -> None:
    leader = world.leader("leader", 6)
    far, _ = missed(world, 6, remaining=9)
    leader.miss(leader.load(6), every=EVERY, next_due=world.now() + 30 * HOUR)
    assert world.rows("SELECT job_id, remaining FROM chrono_timer_far") == [(far.id, 7)]
    last, runs = missed(world, 6, remaining=2)
    leader.miss(leader.load(6), every=EVERY)
    assert world.value("SELECT count(*) FROM chrono_timer") == 0
    assert [world.places(run, 6) for run in runs] == [["blocked"], ["blocked"]]
    assert len(world.ledger(last)) == 3
    world.check()
