"""Claims: exactly the lowest over all slices, shared by nobody, none withdrawn."""

from functools import partial

from apps.queue import store as queue
from apps.runs import store as runs
from tests.races.harness import held, orders, play
from tests.races.world import World


def test_a_claim_takes_the_lowest_of_all_slices_in_order(world: World) -> None:
    job, worker = world.job(), world.worker("worker")
    moments = world.moments(48)
    expected = []
    for n, moment in enumerate(moments):
        priority, tag = (n * 5) % 3, (n * 7) % 11
        [run] = world.ready(job, moment, number=n % 8, priority=priority, tag=tag)
        expected.append((priority, tag, run))
    expected.sort(key=lambda row: row[:2])
    for taken in range(0, 48, 12):
        claimed = {lease.run_id for lease in worker.claim(job, 12)}
        ranks = [row[:2] for row in expected if row[2] in claimed]
        assert len(claimed) == 12
        assert ranks == [row[:2] for row in expected[taken : taken + 12]]
    assert worker.claim(job, 12) == []
    world.check()


def test_another_queue_is_left_alone(world: World) -> None:
    job, other, worker = world.job(), world.job(), world.worker("worker")
    [mine] = world.ready(job, world.now())
    [theirs] = world.ready(other, world.now())
    assert [lease.run_id for lease in worker.claim(job)] == [mine]
    assert world.places(theirs, other.part) == ["ready"]


def test_two_claimers_never_share_and_never_wait(world: World) -> None:
    one, two = world.worker("one"), world.worker("two")
    for order in orders(3, 3):
        job = world.job()
        made = [
            world.ready(job, moment, number=n % 8)[0]
            for n, moment in enumerate(world.moments(6))
        ]
        trace = play(
            world.stage,
            order,
            (one.actor, held("one", partial(one.claim, job, 3), one.actor)),
            (two.actor, held("two", partial(two.claim, job, 3), two.actor)),
        )
        assert not trace.errors, trace
        assert not trace.waited, trace
        first, second = (
            [lease.run_id for lease in trace.values[name]] for name in ("one", "two")
        )
        if trace.before("two", "one"):
            first, second = second, first
        # Only what is taken is locked: the second gets the best of what is left.
        assert set(first) == set(made[:3]), trace
        assert set(second) == set(made[3:]), trace
        world.check(trace)


def test_a_claim_that_was_rolled_back_left_everything(world: World) -> None:
    job, worker = world.job(), world.worker("worker")
    made = world.ready(job, *world.moments(3))
    worker.actor.begin()
    assert len(worker.actor.do(worker.claim, job)) == 3
    worker.actor.do(worker.conn.execute, "ROLLBACK")
    assert {lease.run_id for lease in worker.claim(job)} == set(made)


def test_withdrawn_runs_are_left_out(world: World) -> None:
    job, worker = world.job(), world.worker("worker")
    first, second, third = world.ready(job, *world.moments(3))
    assert runs.cancel_if_ready(world.observer, run=first, reason=18)
    assert [lease.run_id for lease in worker.claim(job, 1)] == [second]
    assert [lease.run_id for lease in worker.claim(job, 5)] == [third]
    assert worker.claim(job) == []
    assert world.places(first, job.part) == ["ready", "run:cancelled"]
    world.check()


def test_each_run_gets_a_token_of_its_own(world: World) -> None:
    job, worker = world.job(), world.worker("worker")
    world.ready(job, *world.moments(5))
    assert len({lease.token for lease in worker.claim(job)}) == 5


def test_a_worker_finds_what_a_lost_answer_claimed(world: World) -> None:
    job, worker = world.job(), world.worker("worker")
    world.ready(job, *world.moments(3))
    claimed = worker.claim(job)
    found = runs.list_leases(worker.conn, worker=worker.id)
    assert {(x.run_id, x.token) for x in found} == {
        (x.run_id, x.token) for x in claimed
    }


def test_claims_and_the_move_of_leftovers_in_every_order(world: World) -> None:
    worker, upkeep = world.worker("worker"), world.keeper()
    for order in orders(3, 3):
        job = world.job()
        made = world.ready(job, *world.moments(5), number=0)
        trace = play(
            world.stage,
            order,
            (worker.actor, held("claim", partial(worker.claim, job, 2), worker.actor)),
            (
                upkeep,
                held(
                    "move",
                    partial(
                        queue.move_leftovers,
                        upkeep.conn,
                        number=0,
                        current=1,
                        limit=100,
                    ),
                    upkeep,
                ),
            ),
        )
        assert not trace.errors, trace
        assert not trace.waited, trace
        claimed = {lease.run_id for lease in trace.values["claim"]}
        # Nobody waits for the other: what one holds the other passes over.
        assert claimed <= set(made), trace
        assert len(claimed) + trace.values["move"] >= 5, trace
        left = {lease.run_id for lease in worker.claim(job)}
        assert claimed | left == set(made), trace
        assert not claimed & left, trace
        world.check(trace)
