"""Settle, sweep, hand-back, cancel: a run is in one place, whatever meets whatever."""

import uuid
from collections.abc import Callable
from functools import partial

import pytest

from apps.queue import store as queue
from apps.queue import withdrawals
from apps.runs import store as runs
from apps.runs import worker_store
from apps.runs.cancel import RunNotFound, cancel
from apps.runs.store import Lease
from apps.runs.sweep import rescue
from apps.timers import buckets
from chrono.rules.states import Reason, RunState, TimerKind
from tests.races.harness import Actor, Step, held, orders, paced, play
from tests.races.world import Job, Leader, Worker, World
from tests.support.pg import Connection

LOOKS = ("cancel_if_timed", "cancel_if_ready", "cancel_if_leased", "locate_run")
"""Before which statements of a cancel something may move: the first is made twice."""
LOOKS_AT_GATES = ("cancel_if_blocked", *LOOKS[1:])


def leased(world: World, worker: Worker, part: int = 7) -> tuple[Job, Lease]:
    job = world.job(part=part)
    world.ready(job, world.now())
    [lease] = worker.claim(job)
    return job, lease


# Settle, sweep and hand-back: the token decides.


def sweep(world: World, actor: Actor) -> int:
    """Rescue what dead workers hold, as the sweep does."""
    return rescue(
        actor.conn,
        worker_store.list_orphans(actor.conn, limit=500),
        now=world.now(),
        horizon=world.horizon,
    )


@pytest.mark.parametrize("outcome", [1, 0], ids=["success", "retry"])
def test_settle_and_sweep_in_every_order(world: World, outcome: int) -> None:
    worker, sweeper = world.worker("worker"), world.session("sweeper")
    for order in orders(3, 3):
        job, lease = leased(world, worker)
        worker_store.stop_worker(world.observer, worker=worker.id)
        settle = (
            partial(worker.settle, lease) if outcome else partial(worker.retry, lease)
        )
        trace = play(
            world.stage,
            order,
            (worker.actor, held("settle", settle, worker.actor)),
            (sweeper, held("sweep", partial(sweep, world, sweeper), sweeper)),
        )
        assert not trace.errors, trace
        assert len(trace.values["settle"]) + trace.values["sweep"] == 1, trace
        assert len(world.places(lease.run_id, job.part)) == 1, trace
        world.check(trace)
        world.observer.execute("UPDATE chrono_worker SET dead = false")


def test_hand_back_and_sweep_in_every_order(world: World) -> None:
    worker, sweeper = world.worker("worker"), world.session("sweeper")
    for order in orders(3, 3):
        job, lease = leased(world, worker)
        worker_store.stop_worker(world.observer, worker=worker.id)
        hand_back = partial(worker.settle, lease, state=0, spent=0)
        trace = play(
            world.stage,
            order,
            (worker.actor, held("back", hand_back, worker.actor)),
            (sweeper, held("sweep", partial(sweep, world, sweeper), sweeper)),
        )
        assert not trace.errors, trace
        assert len(trace.values["back"]) + trace.values["sweep"] == 1, trace
        # A hand-back spends no attempt, the loss of a worker does.
        assert world.value(
            "SELECT attempt FROM chrono_timer WHERE ref = %s", [lease.run_id]
        ) == (1 if trace.values["back"] else 2), trace
        assert world.places(lease.run_id, job.part) == ["timer"], trace
        world.check(trace)
        world.observer.execute("UPDATE chrono_worker SET dead = false")


def test_settles_of_the_same_leases_in_opposite_orders_never_deadlock(
    world: World,
) -> None:
    one, two = world.worker("one"), world.worker("two")
    for order in orders(3, 3):
        job = world.job()
        world.ready(job, *world.moments(4))
        leases = one.claim(job)
        trace = play(
            world.stage,
            order,
            (one.actor, held("one", partial(one.settle, *leases), one.actor)),
            (two.actor, held("two", partial(two.settle, *leases[::-1]), two.actor)),
        )
        assert not trace.errors, trace
        assert len(trace.values["one"]) + len(trace.values["two"]) == 4, trace
        world.check(trace)


def test_a_stale_worker_cannot_settle_the_next_attempt(world: World) -> None:
    leader, first, second = (
        world.leader("leader", 7),
        world.worker("first"),
        world.worker("second"),
    )
    job, lease = leased(world, first)
    worker_store.stop_worker(world.observer, worker=first.id)
    assert sweep(world, leader.actor) == 1
    assert leader.fire(leader.load(7)).verdicts == {0: 0}
    [again] = second.claim(job)
    assert again.attempt == 2
    assert first.settle(lease) == set()
    assert world.places(lease.run_id, 7) == ["lease"]
    assert second.settle(again) == {again.run_id}
    assert world.places(lease.run_id, 7) == ["run:success"]
    world.check()


def test_a_settle_that_is_repeated_after_the_run_was_claimed_again(
    world: World,
) -> None:
    # The answer of the first settle was lost; the same worker has the next attempt, in
    # a claim of several runs.
    leader, worker = world.leader("leader", 7), world.worker("worker")
    job, lease = leased(world, worker)
    assert worker.settle(lease, state=0, spent=0) == {lease.run_id}
    assert leader.fire(leader.load(7)).verdicts == {0: 0}
    [again] = worker.claim(job)
    assert (again.attempt, again.token != lease.token) == (1, True)
    assert worker.settle(lease) == set()
    assert worker.retry(lease) == set()
    assert world.places(lease.run_id, 7) == ["lease"]
    world.check()


def test_a_repeated_settle_changes_nothing(world: World) -> None:
    worker = world.worker("worker")
    for settle in (worker.settle, worker.retry):
        job, lease = leased(world, worker)
        assert settle(lease) == {lease.run_id}
        before = world.places(lease.run_id, job.part)
        assert settle(lease) == set()
        assert world.places(lease.run_id, job.part) == before
    assert world.value("SELECT count(*) FROM chrono_attempt") == 1
    world.check()


def test_a_pair_of_one_runs_id_and_another_s_token_settles_nothing_of_a_third(
    world: World,
) -> None:
    worker = world.worker("worker")
    job = world.job()
    world.ready(job, *world.moments(2))
    one, two = worker.claim(job)
    lost = uuid.uuid4()
    assert runs.settle_if_leased(
        worker.conn,
        [
            runs.Settlement(run_id=one.run_id, token=lost),
            runs.Settlement(run_id=two.run_id, token=two.token),
        ],
        horizon=world.horizon,
    ) == {two.run_id}
    assert world.places(one.run_id, job.part) == ["lease"]
    world.check()


def test_a_batch_ends_each_run_in_its_own_way(world: World) -> None:
    worker = world.worker("worker")
    job = world.job(part=7)
    world.ready(job, *world.moments(5))
    good, again, far, dead, off = worker.claim(job)
    assert runs.cancel_if_leased(
        world.observer, run=off.run_id, part=7, reason=Reason.OPERATOR
    )
    later = world.horizon + 1_000
    settled = runs.settle_if_leased(
        worker.conn,
        [
            runs.Settlement(run_id=good.run_id, token=good.token),
            runs.Settlement(
                run_id=again.run_id, token=again.token, state=0, error="a", reason=17
            ),
            runs.Settlement(run_id=far.run_id, token=far.token, state=0, due=later),
            runs.Settlement(
                run_id=dead.run_id, token=dead.token, state=3, reason=16, error="d"
            ),
            runs.Settlement(
                run_id=off.run_id, token=off.token, state=0, error="o", reason=17
            ),
        ],
        horizon=world.horizon,
    )
    assert len(settled) == 5
    places = [world.places(lease.run_id, 7) for lease in (good, again, far, dead, off)]
    assert places == [
        ["run:success"],
        ["timer"],
        ["timer"],
        ["run:dead"],
        ["run:cancelled"],
    ]
    assert world.rows("SELECT ref FROM chrono_timer_far") == [(far.run_id,)]
    world.check()


def test_beat_and_burial_in_every_order(world: World) -> None:
    worker, sweeper = world.worker("worker"), world.session("sweeper")
    for order in orders(3, 3):
        world.observer.execute(
            "UPDATE chrono_worker SET dead = false, beat_at = now() - interval '1 min'"
        )
        bury = partial(
            worker_store.mark_dead_if_stale,
            sweeper.conn,
            workers=[worker.id],
            ttl=30_000,
        )
        beat = partial(worker_store.beat_if_alive, worker.conn, worker=worker.id)
        trace = play(
            world.stage,
            order,
            (worker.actor, held("beat", beat, worker.actor)),
            (sweeper, held("bury", bury, sweeper)),
        )
        assert not trace.errors, trace
        buried = trace.values["bury"] == [worker.id]
        # Whoever comes first decides: never both, never neither.
        assert (trace.values["beat"] is None) == buried, trace
        assert buried == trace.before("bury.commit", "beat.commit"), trace


def test_beat_and_burial_of_who_has_no_session_in_every_order(world: World) -> None:
    worker, sweeper = world.worker("worker"), world.session("sweeper")
    for order in orders(3, 3):
        world.observer.execute(
            "UPDATE chrono_worker SET dead = false, held = true,"
            " beat_at = now() - interval '1 s'"
        )
        bury = partial(
            worker_store.mark_dead_if_gone, sweeper.conn, since={worker.id: world.now()}
        )
        beat = partial(worker_store.beat_if_alive, worker.conn, worker=worker.id)
        trace = play(
            world.stage,
            order,
            (worker.actor, held("beat", beat, worker.actor)),
            (sweeper, held("bury", bury, sweeper)),
        )
        assert not trace.errors, trace
        buried = trace.values["bury"] == [worker.id]
        # Whoever comes first decides: never both, never neither.
        assert (trace.values["beat"] is None) == buried, trace
        assert buried == trace.before("bury.commit", "beat.commit"), trace


# Cancel, while the run moves from table to table.


def watch(
    world: World, leader: Leader, worker: Worker, job: Job, run: uuid.UUID
) -> None:
    """Do for a cancelled run all that is still to be done, and watch it stay so."""
    told = worker_store.beat_if_alive(worker.conn, worker=worker.id)
    assert told is not None
    for lease in runs.list_leases(worker.conn, worker=worker.id):
        assert lease.run_id in told.cancelled, "a worker runs it and is not told"
        worker.retry(lease)
    for _ in range(2):
        rows = [row for row in leader.load(job.part) if row.ref == run]
        leader.fire(rows)
        assert worker.claim(job) == [], "it was claimed after its cancel"
        withdrawals.clear(world.observer)
    assert world.places(run, job.part) == ["run:cancelled"]
    assert world.value("SELECT count(*) FROM chrono_withdrawn") == 0
    world.check()


class Moves:
    """What may happen to a run while somebody cancels it: its start and three steps."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.leader = world.leader("leader", 7)
        self.worker = world.worker("worker")
        self.upkeep = world.keeper()

    def claim(self) -> tuple[Job, uuid.UUID, Actor, list[Step]]:
        job = self.world.job(part=7)
        [run] = self.world.ready(job, self.world.now() - 100)
        actor = self.worker.actor
        return job, run, actor, held("claim", partial(self.worker.claim, job), actor)

    def settle(self) -> tuple[Job, uuid.UUID, Actor, list[Step]]:
        job, lease = leased(self.world, self.worker)
        actor = self.worker.actor
        steps = held("settle", partial(self.worker.settle, lease), actor)
        return job, lease.run_id, actor, steps

    def settle_as_failed(self) -> tuple[Job, uuid.UUID, Actor, list[Step]]:
        job, lease = leased(self.world, self.worker)
        actor = self.worker.actor
        steps = held("settle", partial(self.worker.retry, lease), actor)
        return job, lease.run_id, actor, steps

    def fire_of_a_retry(self) -> tuple[Job, uuid.UUID, Actor, list[Step]]:
        job, lease = leased(self.world, self.worker)
        self.worker.retry(lease)
        actor = self.leader.actor
        fire = partial(self.leader.fire, self.leader.load(7))
        return job, lease.run_id, actor, held("fire", fire, actor)

    def fire_of_a_late_one(self) -> tuple[Job, uuid.UUID, Actor, list[Step]]:
        job = self.world.job(part=7)
        run = self.world.timer(job, self.world.now() - 100, kind=TimerKind.LATE)
        actor = self.leader.actor
        fire = partial(self.leader.fire, self.leader.load(7))
        return job, run, actor, held("fire", fire, actor)

    def letting_in(self) -> tuple[Job, uuid.UUID, Actor, list[Step]]:
        job = self.world.job(part=7)
        [run] = self.world.blocked(job, self.world.now() - 100)
        actor = self.leader.actor
        return job, run, actor, held("admit", partial(self.leader.admit, job), actor)

    def far_to_near(self) -> tuple[Job, uuid.UUID, Actor, list[Step]]:
        job = self.world.job(part=7)
        now = self.world.now()
        run = self.world.timer(
            job, now - 50, kind=TimerKind.MANUAL, table="chrono_timer_far", group=1
        )
        move = partial(
            buckets.move_far, self.upkeep.conn, now=now, horizon=self.world.horizon
        )
        return job, run, self.upkeep, held("move", move, self.upkeep)

    def slice_to_slice(self) -> tuple[Job, uuid.UUID, Actor, list[Step]]:
        job = self.world.job(part=7)
        [run] = self.world.ready(job, self.world.now() - 100, number=2)
        move = partial(
            queue.move_leftovers, self.upkeep.conn, number=2, current=3, limit=9
        )
        return job, run, self.upkeep, held("move", move, self.upkeep)

    def sweep(self) -> tuple[Job, uuid.UUID, Actor, list[Step]]:
        gone = self.world.worker("gone")
        job, lease = leased(self.world, gone)
        worker_store.stop_worker(self.world.observer, worker=gone.id)
        actor = self.leader.actor
        return (
            job,
            lease.run_id,
            actor,
            held("sweep", partial(sweep, self.world, actor), actor),
        )

    def a_whole_attempt(self) -> tuple[Job, uuid.UUID, Actor, list[Step]]:
        """Ready, leased, retrying, ready, leased: each step a commit of its own."""
        job = self.world.job(part=7)
        [run] = self.world.ready(job, self.world.now() - 100)
        worker, leader = self.worker, self.leader

        def fire() -> None:
            # The leader's statement on this actor's session: one actor, many steps.
            other = Leader(
                name="same", actor=worker.actor, world=self.world, terms=leader.terms
            )
            other.fire([row for row in other.load(7) if row.ref == run])

        return (
            job,
            run,
            worker.actor,
            [
                Step("claim", lambda: worker.claim(job)),
                Step(
                    "retry",
                    lambda: worker.retry(
                        *runs.list_leases(worker.conn, worker=worker.id)
                    ),
                ),
                Step("fire", fire),
                Step("claim again", lambda: worker.claim(job)),
            ],
        )


MOVES = [name for name in vars(Moves) if not name.startswith("_")]


@pytest.mark.parametrize("move", MOVES)
def test_cancel_and_a_run_on_the_move_in_every_order(world: World, move: str) -> None:
    cancel_against(world, move)


def cancel_against(world: World, move: str) -> None:
    moves, canceller = Moves(world), world.session("canceller")
    make: Callable[[], tuple[Job, uuid.UUID, Actor, list[Step]]] = getattr(moves, move)
    count = len(make()[3])
    world.observer.execute(
        "TRUNCATE chrono_ready, chrono_lease, chrono_timer, chrono_timer_far, "
        "chrono_blocked, chrono_occurrence"
    )
    stops = LOOKS_AT_GATES if move == "letting_in" else LOOKS
    looks = len(stops) + stops.count("cancel_if_timed")
    for order in orders(looks, count):
        job, run, actor, steps = make()
        call = partial(cancel, canceller.conn, run)
        trace = play(
            world.stage,
            order,
            (canceller, paced("cancel", call, canceller, steps=looks, stops=stops)),
            (actor, steps),
        )
        assert not trace.errors, trace
        world.check(trace)
        answer = trace.values["cancel"]
        places = world.places(run, 7)
        if answer == RunState.SUCCESS:
            assert places == ["run:success"], trace
        elif answer == RunState.RUNNING:
            # Flagged: its worker is told, and settles it as it ended.
            assert "lease" in places or places[0].startswith("run:"), trace
        else:
            assert answer == RunState.CANCELLED, trace
            assert "run:cancelled" in places, trace
        if places != ["run:success"]:
            watch(world, moves.leader, moves.worker, job, run)


def terminate(conn: Connection, run: uuid.UUID, part: int) -> bool:
    return runs.end_lease(conn, run=run, part=part, reason=Reason.REPLACED)


@pytest.mark.parametrize("outcome", [1, 0], ids=["success", "retry"])
def test_what_is_terminated_while_it_settles_ends_once(
    world: World, outcome: int
) -> None:
    worker, leader = world.worker("worker"), world.leader("leader", 7)
    for order in orders(3, 3):
        job, lease = leased(world, worker)
        settle = worker.settle if outcome else worker.retry
        end = partial(terminate, leader.conn, lease.run_id, job.part)
        trace = play(
            world.stage,
            order,
            (worker.actor, held("settle", partial(settle, lease), worker.actor)),
            (leader.actor, held("end", end, leader.actor)),
        )
        assert not trace.errors, trace
        assert bool(trace.values["settle"]) != trace.values["end"], trace
        settled = "run:success" if outcome else "timer"
        assert world.places(lease.run_id, job.part) == [
            "run:cancelled" if trace.values["end"] else settled
        ], trace
        world.check(trace)


def test_a_run_that_succeeds_after_it_was_flagged_has_succeeded(world: World) -> None:
    worker = world.worker("worker")
    job, lease = leased(world, worker)
    assert cancel(world.observer, lease.run_id) == RunState.RUNNING
    assert worker_store.beat_if_alive(worker.conn, worker=worker.id).cancelled == [
        lease.run_id
    ]
    worker.settle(lease)
    assert world.places(lease.run_id, job.part) == ["run:success"]
    assert cancel(world.observer, lease.run_id) == RunState.SUCCESS


def test_a_settle_of_a_run_cancelled_over_an_open_claim_ends_its_batch(
    world: World,
) -> None:
    cancel_over_an_open_claim(world)


def cancel_over_an_open_claim(world: World) -> None:
    worker = world.worker("worker")
    job = world.job(part=7)
    first, second = world.ready(job, *world.moments(2))
    worker.actor.begin()
    leases = worker.actor.do(worker.claim, job)
    assert cancel(world.observer, first) == RunState.CANCELLED
    worker.actor.commit()
    world.check()
    # The worker could not know; it hears of it with its next beat.
    assert worker_store.beat_if_alive(worker.conn, worker=worker.id).cancelled == [
        first
    ]
    assert worker.settle(*leases) == {first, second}
    assert world.places(first, 7) == ["run:cancelled"]
    assert world.places(second, 7) == ["run:success"]
    withdrawals.clear(world.observer)
    world.check()


def test_a_retry_of_a_withdrawn_run_does_not_fire(world: World) -> None:
    retry_of_a_withdrawn_run(world)


def retry_of_a_withdrawn_run(world: World) -> None:
    worker, leader = world.worker("worker"), world.leader("leader", 7)
    job = world.job(part=7)
    [run] = world.ready(job, world.now() - 100)
    worker.actor.begin()
    [lease] = worker.actor.do(worker.claim, job)
    assert cancel(world.observer, run) == RunState.CANCELLED
    worker.actor.commit()
    assert worker.retry(lease) == {run}
    assert world.places(run, 7) == ["run:cancelled", "timer"]
    # It is remembered until no table has the run.
    withdrawals.clear(world.observer)
    world.check()
    assert leader.fire(leader.load(7)).verdicts == {0: -2}
    assert worker.claim(job) == []
    assert world.places(run, 7) == ["run:cancelled"]
    withdrawals.clear(world.observer)
    assert world.value("SELECT count(*) FROM chrono_withdrawn") == 0
    world.check()


def test_a_cancel_waits_for_a_fire_that_takes_long(world: World) -> None:
    # Not found in twenty quick looks is not the same as not there.
    leader, canceller = world.leader("leader", 7), world.session("canceller")
    job = world.job(part=7)
    run = world.timer(job, world.now() - 100, kind=TimerKind.MANUAL, group=1)
    leader.actor.begin()
    leader.actor.do(leader.fire, leader.load(7))
    assert not canceller.start(cancel, canceller.conn, run)
    leader.actor.commit()
    assert canceller.value() == RunState.CANCELLED
    world.check()


def test_a_late_or_manual_run_that_is_cancelled_is_decided_in_the_ledger(
    world: World,
) -> None:
    for kind, group in ((TimerKind.LATE, 0), (TimerKind.MANUAL, 1)):
        for table in ("chrono_timer", "chrono_timer_far"):
            job = world.job(part=7)
            run = world.timer(job, world.now(), kind=kind, group=group, table=table)
            assert cancel(world.observer, run) == RunState.CANCELLED
            assert world.places(run, 7) == ["run:cancelled"]
            assert world.ledger(job) == [(2, Reason.OPERATOR, kind, 0, 1)]
    world.check()


def test_no_such_run(world: World) -> None:
    with pytest.raises(RunNotFound):
        cancel(world.observer, world.job().run(world.now()))
