"""Letting in against takeover, edits, cancels and settles: once, in order, or not.

Each test takes the two sides step by step through every order that there is.
"""

import uuid
from collections.abc import Callable
from functools import partial

import pytest

from apps.runs import store as runs
from apps.scheduler import store as scheduler
from apps.scheduler.places import Places
from chrono.rules.states import Reason
from tests.races.harness import held, orders, play
from tests.races.test_fire import EDITS, edit, without_deadlock
from tests.races.world import Job, Leader, World
from tests.support.pg import Connection


def waiting(world: World, part: int, count: int = 1) -> tuple[Job, list[uuid.UUID]]:
    """Lay a job with runs behind the gate of overlap."""
    job = world.job(part=part)
    return job, world.blocked(job, *world.moments(count))


def test_letting_in_and_takeover_in_every_order(world: World) -> None:
    first, second = world.leader("first"), world.leader("second")
    for order in orders(3, 3):
        job, [run] = waiting(world, 7)
        first.take_over(7)
        trace = play(
            world.stage,
            order,
            (first.actor, held("admit", partial(first.admit, job), first.actor)),
            (
                second.actor,
                held("takeover", partial(second.take_over, 7), second.actor),
            ),
        )
        assert not trace.errors, trace
        _, queues = trace.values["admit"]
        assert bool(queues) == trace.before("admit.commit", "takeover.commit"), trace
        assert world.places(run, 7) == ["ready" if queues else "blocked"], trace
        second.admit(job)
        assert world.places(run, 7) == ["ready"], trace
        world.check(trace)


@pytest.mark.parametrize("change", EDITS)
def test_letting_in_and_edit_in_every_order(world: World, change: str) -> None:
    letting_in_against_edit(world, change)


def letting_in_against_edit(world: World, change: str = "pause") -> None:
    leader, editor = world.leader("leader", 9), world.session("editor")
    for order in orders(3, 3):
        job, [run] = waiting(world, 9)
        leader.take_over(9)
        trace = play(
            world.stage,
            order,
            (leader.actor, held("admit", partial(leader.admit, job), leader.actor)),
            (editor, held("edit", partial(edit, editor.conn, change, job), editor)),
        )
        assert not trace.errors, trace
        _, queues = trace.values["admit"]
        assert bool(queues) == trace.before("admit.commit", "edit.commit"), trace
        assert world.places(run, 9) == ["ready" if queues else "blocked"], trace
        world.check(trace)


@pytest.mark.parametrize("column", ["fence", "epoch"])
def test_letting_in_and_a_row_changed_by_hand_in_every_order(
    world: World, column: str
) -> None:
    letting_in_against_a_plain_update(world, column)


def letting_in_against_a_plain_update(world: World, column: str = "fence") -> None:
    leader, person = world.leader("leader"), world.session("person")
    for order in orders(3, 3):
        job, [run] = waiting(world, 9)
        leader.take_over(9)
        update = partial(
            person.conn.execute,
            f"UPDATE chrono_partition SET {column} = {column} + 1 WHERE id = 9",
        )
        trace = play(
            world.stage,
            order,
            (leader.actor, held("admit", partial(leader.admit, job), leader.actor)),
            (person, held("update", update, person)),
        )
        assert not trace.errors, trace
        _, queues = trace.values["admit"]
        assert bool(queues) == trace.before("admit.commit", "update.commit"), trace
        assert world.places(run, 9) == ["ready" if queues else "blocked"], trace


def test_two_leaders_never_both_let_in(world: World) -> None:
    first, second = world.leader("first"), world.leader("second")
    for order in orders(3, 3):
        job, made = waiting(world, 5, count=2)
        first.take_over(5)
        second.take_over(5)
        trace = play(
            world.stage,
            order,
            (first.actor, held("old", partial(first.admit, job), first.actor)),
            (second.actor, held("new", partial(second.admit, job), second.actor)),
        )
        assert not trace.errors, trace
        assert trace.values["old"] == (frozenset(), []), trace
        assert trace.values["new"] == (frozenset({5}), [job.queue]), trace
        assert [world.places(run, 5) for run in made] == [["ready"], ["blocked"]]
        world.check(trace)


@pytest.mark.parametrize("column", ["fence", "term"])
def test_a_term_that_is_over_lets_nobody_in(world: World, column: str) -> None:
    over(world, column)


def over(world: World, column: str) -> None:
    leader = world.leader("leader", 4)
    job, [run] = waiting(world, 4)
    new = "fence + 1" if column == "fence" else "gen_random_uuid()"
    world.observer.execute(f"UPDATE chrono_partition SET {column} = {new} WHERE id = 4")
    assert leader.admit(job) == (frozenset(), [])
    assert world.places(run, 4) == ["blocked"]


def test_one_stale_partition_does_not_stop_the_others(world: World) -> None:
    leader, other = world.leader("leader", 1, 2, 3), world.leader("other")
    found = [waiting(world, part) for part in (1, 2, 3)]
    other.take_over(2)
    held_parts, queues = leader.admit(*(job for job, _ in found))
    assert held_parts == {1, 3}
    assert sorted(queues) == sorted([found[0][0].queue, found[2][0].queue])
    assert [world.places(run, job.part) for job, [run] in found] == [
        ["ready"],
        ["blocked"],
        ["ready"],
    ]


def test_letting_in_and_bulk_edits_in_opposite_orders_never_deadlock(
    world: World,
) -> None:
    leader = world.leader("leader", 1, 2, 3)
    jobs = [waiting(world, part)[0] for part in (1, 2, 3)]
    guards = leader.guards([1, 2, 3])
    for name in guards:
        guards[name].reverse()
    batch = {
        **guards,
        "gate": "overlap",
        "part": [job.part for job in jobs],
        "job": [job.id for job in jobs],
        "count": [1, 1, 1],
        "slot": [True, True, True],
        "max_delay": [0, 0, 0],
        "gates": ["", "", ""],
        "key": ["", "", ""],
        "filled": [False, False, False],
        "slice": 0,
        "now": None,
    }
    without_deadlock(
        world,
        lambda conn: scheduler.admit_if_held(conn, batch=batch),
        lambda conn: edit(conn, "payload", *jobs),
    )


def test_the_oldest_go_first_and_no_more_than_were_asked_for(world: World) -> None:
    leader = world.leader("leader", 6)
    job, made = waiting(world, 6, count=5)
    _, kept = waiting(world, 6, count=2)
    elsewhere = world.blocked(job, world.now() - 5_000, gate=Reason.CATCH_UP)
    assert leader.admit(job, count=2) == (frozenset({6}), [job.queue] * 2)
    assert [world.places(run, 6) for run in made] == [["ready"]] * 2 + [["blocked"]] * 3
    assert all(world.places(run, 6) == ["blocked"] for run in kept + elsewhere)
    slots = world.rows("SELECT job_id, run_id FROM chrono_slot ORDER BY run_id")
    assert slots == [(job.id, run) for run in made[:2]]
    world.check()


def test_nobody_is_let_in_before_it_is_due(world: World) -> None:
    leader = world.leader("leader", 6)
    job = world.job(part=6)
    [run] = world.blocked(job, world.now() + 60_000)
    assert leader.admit(job) == (frozenset({6}), [])
    assert world.places(run, 6) == ["blocked"]


def test_a_cancel_that_takes_long_holds_nobody_up(world: World) -> None:
    leader, canceller = world.leader("leader", 6), world.session("canceller")
    job, [first, second] = waiting(world, 6, count=2)
    cancel = partial(
        runs.cancel_if_blocked,
        canceller.conn,
        run=first,
        part=6,
        reason=Reason.OPERATOR,
    )
    canceller.begin()
    assert canceller.do(cancel)
    assert leader.actor.do(leader.admit, job) == (frozenset({6}), [job.queue])
    canceller.commit()
    assert world.places(first, 6) == ["run:cancelled"]
    assert world.places(second, 6) == ["ready"]
    world.check()


def test_letting_in_and_cancel_in_every_order(world: World) -> None:
    against(
        world,
        lambda conn, job, run: runs.cancel_if_blocked(
            conn, run=run, part=job.part, reason=Reason.OPERATOR
        ),
    )


def test_letting_in_and_the_cancel_of_a_deleted_job_in_every_order(
    world: World,
) -> None:
    cancel_of_jobs(world)


def cancel_of_jobs(world: World) -> None:
    against(
        world,
        lambda conn, job, run: runs.cancel_blocked_of_jobs(
            conn, jobs=[job.id], parts=[job.part], reason=Reason.DELETED
        ),
    )


def against(
    world: World, cancel: Callable[[Connection, Job, uuid.UUID], object]
) -> None:
    """A run that waits is let in or cancelled, whoever comes first: never both."""
    leader, canceller = world.leader("leader", 6), world.session("canceller")
    for order in orders(3, 3):
        job, [run] = waiting(world, 6)
        trace = play(
            world.stage,
            order,
            (leader.actor, held("admit", partial(leader.admit, job), leader.actor)),
            (
                canceller,
                held("cancel", partial(cancel, canceller.conn, job, run), canceller),
            ),
        )
        assert not trace.errors, trace
        _, queues = trace.values["admit"]
        cancelled = bool(trace.values["cancel"])
        assert bool(queues) != cancelled, trace
        assert world.places(run, 6) == ["run:cancelled" if cancelled else "ready"]
        world.check(trace)


def test_a_place_that_a_settle_frees_is_taken_once(world: World) -> None:
    settle_frees_a_place(world)


def settle_frees_a_place(world: World) -> None:
    """A look, and letting in where it found a place, between all steps of a settle."""
    leader, worker = world.leader("leader", 6), world.worker("worker")
    for order in orders(3, 3):
        job = world.job(part=6)
        first, second, third = world.blocked(job, *world.moments(3))
        leader.admit(job)
        [lease] = worker.claim(job)
        assert lease.run_id == first
        steps = held("admit", partial(look_and_admit, leader, job), leader.actor)
        trace = play(
            world.stage,
            order,
            (leader.actor, steps),
            (worker.actor, held("settle", partial(worker.settle, lease), worker.actor)),
        )
        assert not trace.errors, trace
        free = trace.before("settle.commit", "admit")
        assert world.places(second, 6) == ["ready" if free else "blocked"], trace
        assert world.places(third, 6) == ["blocked"], trace
        look_and_admit(leader, job)
        look_and_admit(leader, job)
        assert world.places(second, 6) == ["ready"], trace
        assert world.places(third, 6) == ["blocked"], trace
        world.check(trace)


def look_and_admit(leader: Leader, job: Job) -> None:
    """Let one in if no run of the job is live, as a job of one place has it."""
    now = leader.world.now()
    live = Places(leader.conn).live([(job.part, job.id)], now)[job.id]
    if not live.runs:
        leader.admit(job)
