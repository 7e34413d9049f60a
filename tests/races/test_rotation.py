"""Rotation and buckets: what is emptied under writers loses nothing."""

from functools import partial
from unittest import mock

import psycopg
import pytest

from apps.queue import rotation, withdrawals
from apps.queue import store as queue
from apps.queue.rotation import Rotation, truncate_if_empty
from apps.runs import store as runs
from apps.timers import buckets
from chrono.rules.buckets import bucket_name, bucket_start
from chrono.rules.instants import HOUR
from chrono.rules.states import TimerKind
from tests.races.harness import Step, held, orders, play
from tests.races.world import World

PATIENT = mock.patch.object(rotation, "LOCK_TIMEOUT", "10s")


def test_truncate_and_a_slow_writer_in_every_order(world: World) -> None:
    truncate_against_writer(world)


def truncate_against_writer(world: World) -> None:
    # The writer is a leader that still goes by an old slice number.
    leader, upkeep = world.leader("leader"), world.keeper()
    for order in orders(3, 1):
        job = world.job(part=7)
        run = world.timer(job, world.now() - 100)
        leader.take_over(7)
        fire = held("fire", partial(leader.fire, leader.load(7)), leader.actor)
        truncate = partial(truncate_if_empty, upkeep.conn, number=0)
        with PATIENT:
            trace = play(
                world.stage,
                order,
                (leader.actor, fire),
                (upkeep, [Step("truncate", truncate)]),
            )
        assert not trace.errors, trace
        assert world.places(run, 7) == ["ready"], trace
        written_before = trace.before("fire.commit", "truncate")
        assert trace.values["truncate"] == (not written_before), trace
        world.check(trace)
        world.observer.execute("DELETE FROM chrono_ready")
        world.observer.execute("DELETE FROM chrono_occurrence")


def test_a_session_that_defaults_to_one_snapshot_sees_the_late_row_too(
    world: World,
) -> None:
    leader, upkeep = world.leader("leader", 7), world.keeper()
    upkeep.do(
        upkeep.conn.execute, "SET default_transaction_isolation = 'repeatable read'"
    )
    job = world.job(part=7)
    run = world.timer(job, world.now() - 100)
    leader.actor.begin()
    leader.actor.do(leader.fire, leader.load(7))
    with PATIENT:
        assert not upkeep.start(truncate_if_empty, upkeep.conn, number=0)
        leader.actor.commit()
        assert upkeep.value() is False
    assert world.places(run, 7) == ["ready"]


def test_a_lock_that_is_not_to_be_had_makes_rotation_rest(world: World) -> None:
    reader, upkeep = world.session("reader"), world.keeper()
    job = world.job()
    worker = world.worker("worker")
    world.ready(job, world.now(), number=0)
    worker.claim(job)
    reader.begin()
    reader.do(reader.conn.execute, "SELECT FROM chrono_ready_0")
    ring = Rotation(published_at=0)
    upkeep.start(ring.step, upkeep.conn, current=1, now=1_000_000)
    assert upkeep.value() == 1
    assert ring.rest_until == {0: 1_000_000 + rotation.BACK_OFF}
    # While it rests it does not come near the lock.
    upkeep.do(ring.step, upkeep.conn, current=1, now=1_000_000 + rotation.BACK_OFF - 1)
    reader.commit()
    upkeep.do(ring.step, upkeep.conn, current=1, now=1_000_000 + rotation.BACK_OFF)
    assert queue.measure_slices(upkeep.conn)[0] == 0


def test_a_claim_waits_no_longer_than_the_lock_timeout(world: World) -> None:
    # The lock queues in front of claims; it must be given up soon.
    reader, upkeep, worker = (
        world.session("reader"),
        world.keeper(),
        world.worker("worker"),
    )
    job = world.job()
    [run] = world.ready(job, world.now(), number=3)
    reader.begin()
    reader.do(reader.conn.execute, "SELECT FROM chrono_ready_0")
    with PATIENT:
        assert not upkeep.start(truncate_if_empty, upkeep.conn, number=0)
        assert not worker.actor.start(worker.claim, job)
        upkeep.conn.cancel_safe()
    assert [lease.run_id for lease in worker.actor.value()] == [run]
    with pytest.raises(psycopg.errors.QueryCanceled):
        upkeep.value()
    with pytest.raises(psycopg.errors.LockNotAvailable):
        truncate_if_empty(upkeep.conn, number=0)


def test_leftovers_of_low_priority_move_on_and_the_ring_turns(world: World) -> None:
    upkeep, worker = world.keeper(), world.worker("worker")
    job, moments = world.job(), iter(world.moments(100))
    ring, current, now, kept = Rotation(), 0, 1_000_000, []
    for _ in range(20):
        kept += world.ready(job, next(moments), number=current, priority=4)
        world.ready(job, next(moments), next(moments), number=current, priority=1)
        assert len(worker.claim(job, 2)) == 2
        now += rotation.OLD
        current = upkeep.do(ring.step, upkeep.conn, current=current, now=now)
        world.check()
    assert current == 20 % queue.SLICES
    assert world.value("SELECT slice FROM chrono_dispatch_state") == current
    upkeep.do(ring.step, upkeep.conn, current=current, now=now)
    sizes = queue.measure_slices(upkeep.conn)
    assert {number for number, size in sizes.items() if size} == {current}
    assert {lease.run_id for lease in worker.claim(job, 100)} == set(kept)


def test_an_idle_ring_stands_still(world: World) -> None:
    upkeep = world.keeper()
    ring = Rotation()
    for now in range(0, 100_000, 10_000):
        assert upkeep.do(ring.step, upkeep.conn, current=0, now=now) == 0


def test_a_row_put_into_a_truncated_slice_by_a_stale_number_is_claimed(
    world: World,
) -> None:
    leader, upkeep, worker = (
        world.leader("leader", 7),
        world.keeper(),
        world.worker("worker"),
    )
    job = world.job(part=7)
    run = world.timer(job, world.now() - 100)
    assert upkeep.do(truncate_if_empty, upkeep.conn, number=5)
    leader.fire(leader.load(7), number=5)
    assert [lease.run_id for lease in worker.claim(job)] == [run]


def test_withdrawn_runs_are_taken_out_and_forgotten(world: World) -> None:
    job = world.job()
    first, second = world.ready(job, *world.moments(2))
    assert runs.cancel_if_ready(world.observer, run=first, reason=18)
    assert withdrawals.clear(world.observer) == 1
    assert world.places(first, job.part) == ["run:cancelled"]
    assert world.places(second, job.part) == ["ready"]
    assert world.value("SELECT count(*) FROM chrono_withdrawn") == 0
    world.check()


def test_withdrawn_is_not_forgotten_under_an_open_claim(world: World) -> None:
    job, worker, upkeep = world.job(), world.worker("worker"), world.keeper()
    [run] = world.ready(job, world.now())
    worker.actor.begin()
    worker.actor.do(worker.claim, job)
    assert runs.cancel_if_ready(world.observer, run=run, reason=18)
    assert upkeep.do(withdrawals.clear, upkeep.conn) == 0
    worker.actor.commit()
    assert upkeep.do(withdrawals.clear, upkeep.conn) == 0
    assert world.places(run, job.part) == ["lease", "run:cancelled"]
    world.check()


def test_far_timers_move_in_one_statement(world: World) -> None:
    upkeep, leader = world.keeper(), world.leader("leader", 7)
    for order in orders(3, 3):
        job = world.job(part=7)
        due = world.now() - 100
        run = world.timer(job, due, table="chrono_timer_far")
        fire = partial(leader.fire, leader.load(7))
        move = partial(
            buckets.move_far, upkeep.conn, now=world.now(), horizon=world.horizon
        )
        trace = play(
            world.stage,
            order,
            (leader.actor, held("fire", fire, leader.actor)),
            (upkeep, held("move", move, upkeep)),
        )
        assert not trace.errors, trace
        # The move passes over what a fire holds; a fire that waited for the move finds
        # nothing, and the next look finds the row in its bucket.
        if not trace.values["fire"].verdicts:
            assert trace.values["move"] == 1, trace
            assert leader.fire(leader.load(7)).verdicts == {0: 0}, trace
        assert world.places(run, 7) == ["ready"], trace
        world.check(trace)


def test_a_bucket_is_dropped_once_its_hour_is_long_over(own_world: World) -> None:
    world = own_world
    upkeep = world.keeper()
    later = world.now() + 5 * HOUR
    dropped = upkeep.do(buckets.drop_old_buckets, upkeep.conn, now=later)
    assert bucket_name(world.now()) in dropped
    assert bucket_name(later - HOUR) not in dropped


def test_a_bucket_with_overdue_timers_stays(own_world: World) -> None:
    world = own_world
    upkeep, job = world.keeper(), world.job()
    due = bucket_start(world.now()) + 1
    world.timer(job, due)
    upkeep.do(buckets.drop_old_buckets, upkeep.conn, now=world.now() + 5 * HOUR)
    assert world.value("SELECT count(*) FROM chrono_timer") == 1


def test_dropping_a_bucket_and_a_late_writer_in_every_order(own_world: World) -> None:
    world = own_world
    writer, upkeep = world.session("writer"), world.keeper()
    leader = world.leader("leader", 7)
    for hours, order in enumerate(orders(3, 1), start=1):
        job = world.job(part=7)
        due = bucket_start(world.now()) + hours * HOUR
        run = job.run(due)
        insert = partial(
            writer.conn.execute,
            """
            INSERT INTO chrono_timer (due_at, scheduled_for, ref, job_id, version,
                revision, part, kind)
            SELECT at, at, %s, %s, 0, 1, 7, %s
            FROM to_timestamp(%s / 1000.0::float8) AS at
            """,
            [run, job.id, int(TimerKind.LATE), due],
        )
        drop = partial(
            buckets.drop_old_buckets, upkeep.conn, now=due + buckets.KEPT + HOUR
        )
        trace = play(
            world.stage,
            order,
            (writer, held("write", insert, writer)),
            (upkeep, [Step("drop", drop)]),
        )
        if "write" in trace.errors:
            # Its bucket was gone before it wrote: it is told so, and nothing is lost.
            assert trace.before("drop", "write"), trace
            assert trace.errors["write"].sqlstate == "23514", trace
            continue
        # A drop that could not wait is finished by the next one.
        upkeep.do(drop)
        assert world.places(run, 7) == ["timer"], trace
        found = [row for row in leader.load(7, before=due + 1) if row.ref == run]
        assert len(found) == 1, trace
