"""Fire against takeover and edits: what is drawn from a dead term or plan never lands.

Each test takes the two sides step by step through every order that there is.
"""

import uuid
from collections.abc import Callable
from functools import partial

import pytest

from apps.scheduler import store as scheduler
from chrono.rules.instants import HOUR
from chrono.rules.states import Reason, TimerKind
from tests.races.harness import held, orders, play
from tests.races.world import Job, World
from tests.support.pg import Connection

BUMP = """
    WITH locked AS MATERIALIZED (
        SELECT id FROM chrono_partition WHERE id = ANY(%s) ORDER BY id FOR UPDATE
    )
    UPDATE chrono_partition p SET epoch = epoch + 1 FROM locked l WHERE p.id = l.id
    RETURNING p.id, p.epoch
"""
HOURS = 2 * HOUR
EDITS = {
    "pause": "paused = true, version = version + 1, activated_at = clock_timestamp()",
    "schedule": "version = version + 1, revision = 2, activated_at = clock_timestamp()",
    "payload": "revision = 2",
}


@pytest.fixture(params=["at once", "row by row"])
def world(world: World, request: pytest.FixtureRequest) -> World:
    """A world in which leaders fire by each of the two statements."""
    world.row_by_row = request.param == "row by row"
    return world


def edit(conn: Connection, change: str, *jobs: Job) -> None:
    """Change jobs in the order that every edit keeps: jobs, partitions, jobs again."""
    conn.execute(
        "SELECT id FROM chrono_job WHERE id = ANY(%s) ORDER BY id FOR UPDATE",
        [[job.id for job in jobs]],
    )
    parts = sorted({job.part for job in jobs})
    epochs = dict(conn.execute(BUMP, [parts]).fetchall())
    for job in jobs:
        conn.execute(
            f"UPDATE chrono_job SET epoch = %s, {EDITS[change]} WHERE id = %s",
            [epochs[job.part], job.id],
        )


def test_fire_and_takeover_in_every_order(world: World) -> None:
    first, second = world.leader("first"), world.leader("second")
    for order in orders(3, 3):
        job = world.job(part=7)
        run = world.timer(job, world.now() - 100)
        first.take_over(7)
        rows = first.load(7)
        trace = play(
            world.stage,
            order,
            (first.actor, held("fire", partial(first.fire, rows), first.actor)),
            (
                second.actor,
                held("takeover", partial(second.take_over, 7), second.actor),
            ),
        )
        assert not trace.errors, trace
        fired = trace.values["fire"].verdicts
        # Nothing of the old leader lands once the takeover is there, and nothing of it
        # is refused before.
        assert bool(fired) == trace.before("fire.commit", "takeover.commit"), trace
        left = second.load(7)
        assert bool(left) != bool(fired), trace
        if left:
            assert second.fire(left).verdicts == {0: 0}, trace
        assert world.places(run, 7) == ["ready"], trace
        world.check(trace)


@pytest.mark.parametrize("change", EDITS)
def test_fire_and_edit_in_every_order(world: World, change: str) -> None:
    fire_against_edit(world, change)


def fire_against_edit(world: World, change: str = "pause") -> None:
    leader, editor = world.leader("leader", 9), world.session("editor")
    for order in orders(3, 3):
        job = world.job(part=9)
        run = world.timer(job, world.now() - 100)
        leader.take_over(9)
        rows = leader.load(9)
        trace = play(
            world.stage,
            order,
            (leader.actor, held("fire", partial(leader.fire, rows), leader.actor)),
            (editor, held("edit", partial(edit, editor.conn, change, job), editor)),
        )
        assert not trace.errors, trace
        fired = trace.values["fire"].verdicts
        assert bool(fired) == trace.before("fire.commit", "edit.commit"), trace
        assert world.places(run, 9) == (["ready"] if fired else []), trace
        world.check(trace)
        world.observer.execute("DELETE FROM chrono_timer WHERE job_id = %s", [job.id])


@pytest.mark.parametrize("column", ["fence", "epoch"])
def test_fire_and_a_row_changed_by_hand_in_every_order(
    world: World, column: str
) -> None:
    fire_against_a_plain_update(world, column)


def fire_against_a_plain_update(world: World, column: str = "fence") -> None:
    # Whoever deposes a leader by SQL does not lock the row first: a plain update of
    # what is no key passes a mere key lock.
    leader, person = world.leader("leader"), world.session("person")
    for order in orders(3, 3):
        job = world.job(part=9)
        run = world.timer(job, world.now() - 100)
        leader.take_over(9)
        update = partial(
            person.conn.execute,
            f"UPDATE chrono_partition SET {column} = {column} + 1 WHERE id = 9",
        )
        fire = partial(leader.fire, leader.load(9))
        trace = play(
            world.stage,
            order,
            (leader.actor, held("fire", fire, leader.actor)),
            (person, held("update", update, person)),
        )
        assert not trace.errors, trace
        fired = trace.values["fire"].verdicts
        assert bool(fired) == trace.before("fire.commit", "update.commit"), trace
        assert world.places(run, 9) == (["ready"] if fired else []), trace
        world.check(trace)
        world.observer.execute("DELETE FROM chrono_timer WHERE job_id = %s", [job.id])


def test_one_stale_partition_does_not_stop_the_others(world: World) -> None:
    leader, other = world.leader("leader", 1, 2, 3), world.leader("other")
    editor = world.session("editor")
    for upset in ("takeover", "edit"):
        jobs = [world.job(part=part) for part in (1, 2, 3)]
        runs = [
            world.timer(job, due)
            for job, due in zip(jobs, world.moments(3), strict=True)
        ]
        leader.take_over(1, 2, 3)
        rows = leader.load(1, 2, 3)
        if upset == "takeover":
            other.take_over(2)
        else:
            editor.begin()
            editor.do(edit, editor.conn, "pause", jobs[1])
            editor.commit()
        firing = leader.fire(rows)
        assert firing.held == {1, 3}
        assert firing.verdicts == {0: 0, 2: 0}
        assert [world.places(r, j.part) for r, j in zip(runs, jobs, strict=True)] == [
            ["ready"],
            [],
            ["ready"],
        ]
        world.check(upset)
        world.observer.execute("DELETE FROM chrono_timer")


def test_a_fire_that_waited_for_an_edit_fires_only_what_was_not_edited(
    world: World,
) -> None:
    leader, editor = world.leader("leader", 1, 2), world.session("editor")
    paused, other = world.job(part=1), world.job(part=2)
    runs = [world.timer(job, world.now() - 100) for job in (paused, other)]
    rows = leader.load(1, 2)
    editor.begin()
    editor.do(edit, editor.conn, "pause", paused)
    assert not leader.actor.start(leader.fire, rows)
    editor.commit()
    firing = leader.actor.value()
    assert firing.held == {2}
    assert [
        world.places(run, part) for run, part in zip(runs, (1, 2), strict=True)
    ] == [
        [],
        ["ready"],
    ]
    world.check()


def test_an_edit_of_another_partition_is_not_waited_for(world: World) -> None:
    leader, editor = world.leader("leader", 1), world.session("editor")
    fired, edited = world.job(part=1), world.job(part=2)
    world.timer(fired, world.now() - 100)
    editor.begin()
    editor.do(edit, editor.conn, "pause", edited)
    assert leader.actor.do(leader.fire, leader.load(1)).verdicts == {0: 0}
    editor.commit()


def test_two_leaders_never_both_fire(world: World) -> None:
    # The second took over; both have the same timers in their wheels and fire at once.
    first, second = world.leader("first"), world.leader("second")
    for order in orders(3, 3):
        job = world.job(part=5)
        run = world.timer(job, world.now() - 100)
        first.take_over(5)
        rows = first.load(5)
        second.take_over(5)
        trace = play(
            world.stage,
            order,
            (first.actor, held("old", partial(first.fire, rows), first.actor)),
            (second.actor, held("new", partial(second.fire, rows), second.actor)),
        )
        assert not trace.errors, trace
        assert trace.values["old"].held == frozenset(), trace
        assert trace.values["new"].verdicts == {0: 0}, trace
        assert world.places(run, 5) == ["ready"]
        world.check(trace)


def test_a_fence_handed_out_again_is_told_apart_by_its_term(world: World) -> None:
    # A failover to a replica that had not yet the last takeover hands the same fence
    # out again.
    leader = world.leader("leader", 4)
    job = world.job(part=4)
    run = world.timer(job, world.now() - 100)
    rows = leader.load(4)
    world.observer.execute(
        "UPDATE chrono_partition SET term = gen_random_uuid() WHERE id = 4"
    )
    assert leader.fire(rows).held == frozenset()
    assert world.places(run, 4) == []


def test_a_fence_raised_under_a_healthy_leader_stops_it(world: World) -> None:
    leader = world.leader("leader", 4)
    job = world.job(part=4)
    run = world.timer(job, world.now() - 100)
    rows = leader.load(4)
    world.observer.execute("UPDATE chrono_partition SET fence = fence + 1 WHERE id = 4")
    assert leader.fire(rows).held == frozenset()
    assert world.places(run, 4) == []


def test_a_fence_only_rises_whatever_is_rolled_back(world: World) -> None:
    leader = world.leader("leader", 3)
    seen = [leader.terms[3].fence]
    for end in ("ROLLBACK", "COMMIT", "ROLLBACK", "COMMIT"):
        leader.actor.begin()
        leader.actor.do(leader.take_over, 3)
        leader.actor.do(leader.conn.execute, end)
        seen.append(leader.terms[3].fence)
    assert seen == sorted(set(seen))
    assert seen[-1] == world.value("SELECT fence FROM chrono_partition WHERE id = 3")


def test_takeovers_of_several_partitions_in_opposite_orders_never_deadlock(
    world: World,
) -> None:
    without_deadlock(
        world,
        lambda conn: scheduler.take_over(conn, parts=[1, 2, 3], owner="a"),
        lambda conn: scheduler.take_over(conn, parts=[3, 2, 1], owner="b"),
    )


def test_bulk_edits_in_opposite_orders_never_deadlock(world: World) -> None:
    jobs = [world.job(part=part) for part in (1, 2, 3)]
    without_deadlock(
        world,
        lambda conn: edit(conn, "payload", *jobs),
        lambda conn: edit(conn, "payload", *reversed(jobs)),
    )


def test_fires_and_bulk_edits_in_opposite_orders_never_deadlock(world: World) -> None:
    leader = world.leader("leader", 1, 2, 3)
    jobs = [world.job(part=part) for part in (1, 2, 3)]
    for job, due in zip(jobs, world.moments(3), strict=True):
        world.timer(job, due)
    rows = leader.load(1, 2, 3)[::-1]
    batch = leader.aim(rows)
    for name in ("parts", "fences", "terms", "epochs"):
        batch[name].reverse()
    bucket = world.table(rows[0].bucket)
    fire = scheduler.fire_if_held if world.row_by_row else scheduler.fire_undecided
    without_deadlock(
        world,
        lambda conn: fire(conn, bucket=bucket, batch=batch),
        lambda conn: edit(conn, "payload", *jobs),
    )


def without_deadlock(
    world: World,
    a: Callable[[Connection], object],
    b: Callable[[Connection], object],
) -> None:
    # Rows that were updated lie in another order than their keys say.
    for part in (3, 1, 2):
        world.observer.execute(
            "UPDATE chrono_partition SET owner = 'x' WHERE id = %s", [part]
        )
    one, two = (world.session(name) for name in ("one", "two"))
    for order in orders(3, 3):
        trace = play(
            world.stage,
            order,
            (one, held("a", lambda: a(one.conn), one)),
            (two, held("b", lambda: b(two.conn), two)),
        )
        assert not trace.errors, trace


def test_a_timer_fires_once_whatever_the_wheel_believes(world: World) -> None:
    leader = world.leader("leader", 6)
    job = world.job(part=6)
    run = world.timer(job, world.now() - 100)
    rows = leader.load(6)
    assert leader.fire(rows).verdicts == {0: 0}
    again = leader.fire(rows)
    assert again.held == {6}
    assert again.verdicts == {}
    assert world.places(run, 6) == ["ready"]


def test_a_timer_that_somebody_takes_while_a_fire_waits_is_not_fired(
    world: World,
) -> None:
    leader, other = world.leader("leader", 6), world.session("other")
    jobs = [world.job(part=6), world.job(part=6)]
    taken, left = (
        world.timer(job, due) for job, due in zip(jobs, world.moments(2), strict=True)
    )
    rows = leader.load(6)
    other.begin()
    other.do(
        other.conn.execute, "DELETE FROM chrono_timer WHERE job_id = %s", [jobs[0].id]
    )
    assert not leader.actor.start(leader.fire, rows)
    other.commit()
    assert leader.actor.value().verdicts == {1: 0}
    assert world.places(taken, 6) == []
    assert world.places(left, 6) == ["ready"]
    world.check()


def test_a_next_timer_that_is_there_already_stops_nothing(world: World) -> None:
    leader = world.leader("leader", 6)
    jobs = [world.job(part=6), world.job(part=6)]
    due = world.now() - 500
    runs = [world.timer(job, due) for job in jobs]
    rows = leader.load(6)
    world.timer(jobs[0], due + HOURS)
    assert leader.fire(rows, every=HOURS).verdicts == {0: 0, 1: 0}
    assert [world.places(run, 6) for run in runs] == [["ready"], ["ready"]]
    assert world.value("SELECT count(*) FROM chrono_timer") == 2


def test_a_second_timer_of_an_instant_meets_the_ledger(world: World) -> None:
    # An edit, a backfill or a bug of ours lays a second timer for the same instant.
    leader = world.leader("leader", 6)
    job = world.job(part=6)
    due = world.now() - 500
    run = world.timer(job, due)
    assert leader.fire(leader.load(6)).verdicts == {0: 0}
    world.timer(job, due + 1, scheduled_for=due, version=2)
    world.timer(job, due + 2, scheduled_for=due, kind=TimerKind.LATE)
    assert leader.fire(leader.load(6)).verdicts == {0: -1, 1: -1}
    assert world.places(run, 6) == ["ready"]
    world.check()


def test_two_timers_of_an_instant_in_one_batch_make_one_run(world: World) -> None:
    leader = world.leader("leader", 6)
    job = world.job(part=6)
    due = world.now() - 500
    run = world.timer(job, due)
    world.timer(job, due, kind=TimerKind.LATE)
    world.timer(job, due, version=2)
    firing = leader.fire(leader.load(6))
    assert sorted(firing.verdicts.values()) == [-1, -1, 0]
    assert world.places(run, 6) == ["ready"]
    world.check()


def test_a_next_timer_never_takes_the_key_of_the_row_it_replaces(
    world: World,
) -> None:
    # Two instants of a job that are both late are both due at the start of the hour.
    # The old row is still there when the new one looks for its key.
    leader = world.leader("leader", 6)
    job = world.job(part=6)
    due = world.now() - 500
    world.timer(job, due, scheduled_for=due - 9_000)
    rows = leader.load(6)
    assert leader.fire(rows, every=5_000, next_due=due).verdicts == {0: 0}
    following = leader.load(6)
    assert [(row.due_at, row.scheduled_for) for row in following] == [
        (due + 1, due - 4_000)
    ]
    assert leader.fire(rows).verdicts == {}


def test_an_entry_of_another_instant_is_not_fired_by_its_key(world: World) -> None:
    # Somebody holds the first instant's timer in a wheel; a row with the same key is
    # there, for another instant, and would be fired with the first one's run.
    leader = world.leader("leader", 6)
    job = world.job(part=6)
    due = world.now() - 500
    world.timer(job, due, scheduled_for=due - 9_000)
    rows = leader.load(6)
    # Deleted, not fired: the ledger knows nothing of it and would keep nobody.
    world.observer.execute("DELETE FROM chrono_timer")
    second = world.timer(job, due, scheduled_for=due - 4_000)
    assert leader.fire(rows).verdicts == {}
    assert leader.fire(leader.load(6)).verdicts == {0: 0}
    assert world.places(second, 6) == ["ready"]
    world.check()


def test_b06_nothing_fires_before_its_time(world: World) -> None:
    # The database's clock is asked in the statement, whatever the leader's clock says.
    leader = world.leader("leader", 6)
    job = world.job(part=6)
    run = world.timer(job, world.now() + 60_000)
    rows = leader.load(6, before=world.now() + 120_000)
    firing = leader.fire(rows)
    assert firing.held == {6}
    assert firing.verdicts == {}
    assert world.places(run, 6) == []
    assert leader.load(6, before=world.now() + 120_000) == rows


def test_a_bucket_that_was_dropped_fails_alone_and_the_next_look_finds_the_row(
    own_world: World,
) -> None:
    world = own_world
    leader, upkeep = world.leader("leader", 6), world.keeper()
    job = world.job(part=6)
    run = world.timer(job, world.now() - 100)
    rows = leader.load(6)
    bucket = world.table(rows[0].bucket)
    upkeep.do(
        upkeep.conn.execute, f"ALTER TABLE chrono_timer DETACH PARTITION {bucket}"
    )
    upkeep.do(
        upkeep.conn.execute, f"INSERT INTO chrono_timer_far SELECT * FROM {bucket}"
    )
    upkeep.do(upkeep.conn.execute, f"DROP TABLE {bucket}")
    with pytest.raises(Exception, match=bucket) as caught:
        scheduler.fire_if_held(leader.conn, bucket=bucket, batch=leader.aim(rows))
    assert getattr(caught.value, "sqlstate", None) == "42P01"
    again = leader.load(6)
    assert world.table(again[0].bucket) == "chrono_timer_far"
    assert leader.fire(again).verdicts == {0: 0}
    assert world.places(run, 6) == ["ready"]
    world.check()


def test_the_next_timer_is_written_in_the_same_statement_near_or_far(
    world: World,
) -> None:
    leader = world.leader("leader", 6)
    job = world.job(part=6)
    world.timer(job, world.now() - 100)
    leader.fire(leader.load(6), every=60_000)
    assert world.value("SELECT count(*) FROM chrono_timer") == 1
    other = world.job(part=8)
    world.timer(other, world.now() - 100)
    leader.take_over(8)
    leader.fire(leader.load(8), every=30 * HOUR)
    assert world.rows("SELECT job_id FROM chrono_timer_far") == [(other.id,)]
    world.check()


# The overlap look-up.


def leased_with_a_next(world: World) -> tuple[Job, uuid.UUID, uuid.UUID]:
    """A bounded job whose run is ready, and its next timer, due and pointing to it."""
    job = world.job(part=11, bounded=True)
    due = world.now() - 500
    [first] = world.ready(job, due)
    second = world.timer(job, due + 100, prev=first)
    return job, first, second


def test_overlap_look_up_and_settle_in_every_order(world: World) -> None:
    leader, worker = world.leader("leader", 11), world.worker("worker")
    for order in orders(3, 3):
        job, first, second = leased_with_a_next(world)
        [lease] = worker.claim(job)
        rows = leader.load(11)
        trace = play(
            world.stage,
            order,
            (
                leader.actor,
                held("fire", partial(leader.fire, rows, every=HOURS), leader.actor),
            ),
            (worker.actor, held("settle", partial(worker.settle, lease), worker.actor)),
        )
        assert not trace.errors, trace
        [verdict] = trace.values["fire"].verdicts.values()
        settled_first = trace.before("settle.commit", "fire")
        # Two runs of the job never live at once, and none is skipped without need.
        assert verdict == (0 if settled_first else Reason.OVERLAP), trace
        assert world.places(first, 11) == ["run:success"], trace
        assert world.places(second, 11) == (["ready"] if settled_first else []), trace
        # prev names the last run that was fired.
        prev = second if settled_first else first
        assert (
            world.value("SELECT prev FROM chrono_timer WHERE job_id = %s", [job.id])
            == prev
        ), trace
        world.check(trace)


def test_prev_stays_where_the_occurrence_was_there_already(world: World) -> None:
    leader, worker = world.leader("leader", 11), world.worker("worker")
    job, first, second = leased_with_a_next(world)
    worker.settle(*worker.claim(job))
    world.observer.execute(
        """
        INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence, version,
            revision, part, outcome, kind, reason)
        SELECT scheduled_for, job_id, %s, 0, 1, 1, part, 2, 1, 1 FROM chrono_timer
        WHERE job_id = %s
        """,
        [second, job.id],
    )
    assert leader.fire(leader.load(11), every=HOURS).verdicts == {0: -1}
    assert (
        world.value("SELECT prev FROM chrono_timer WHERE job_id = %s", [job.id])
        == first
    )
    world.check()


def test_a_slot_counts_against_the_bound(world: World) -> None:
    leader, worker = world.leader("leader", 11), world.worker("worker")
    job, _, second = leased_with_a_next(world)
    worker.settle(*worker.claim(job))
    world.observer.execute(
        "INSERT INTO chrono_slot (part, job_id, run_id) VALUES (%s, %s, %s)",
        [job.part, job.id, job.run(1, 1)],
    )
    assert leader.fire(leader.load(11)).verdicts == {0: Reason.OVERLAP}
    assert world.ledger(job)[-1] == (2, Reason.OVERLAP, 1, 1, 1)
    assert world.places(second, 11) == []


def test_an_unbounded_job_asks_nothing(world: World) -> None:
    leader = world.leader("leader", 11)
    job = world.job(part=11)
    due = world.now() - 500
    [first] = world.ready(job, due)
    world.timer(job, due + 100, prev=first)
    assert leader.fire(leader.load(11)).verdicts == {0: 0}


# What a read brings that is out of date.


def test_stale_timers_are_deleted_under_the_fence_alone(world: World) -> None:
    old, new = world.leader("old", 2), world.leader("new")
    job = world.job(part=2)
    world.timer(job, world.now() - 100)
    retry = world.timer(job, world.now() - 50, kind=TimerKind.RETRY)
    edit(world.observer, "schedule", job)
    [stale] = [row for row in old.load(2) if row.kind == TimerKind.SCHEDULE]
    assert stale.version < stale.job_version
    new.take_over(2)
    bucket = world.table(stale.bucket)

    def delete(leader_term: scheduler.Term, rows: list[scheduler.TimerRow]) -> int:
        return scheduler.delete_stale_timers(
            new.conn, term=leader_term, bucket=bucket, rows=rows
        )

    assert delete(old.terms[2], [stale]) == 0
    rows = new.load(2)
    assert delete(new.terms[2], rows) == 1
    assert [row.ref for row in new.load(2)] == [retry]
    assert delete(new.terms[2], rows) == 0


def test_two_rows_in_one_millisecond_are_refused(world: World) -> None:
    # They would have one run id, and a run that is there twice stops every claim.
    job = world.job(part=2)
    for table, column in (
        ("chrono_timer", "scheduled_for"),
        ("chrono_timer", "due_at"),
        ("chrono_timer_far", "scheduled_for"),
    ):
        values = dict.fromkeys(
            ("due_at", "scheduled_for"), "date_trunc('second', now())"
        )
        values[column] += " + interval '100 us'"
        with pytest.raises(Exception, match="violates check") as caught:
            world.observer.execute(
                f"""
                INSERT INTO {table} (due_at, scheduled_for, ref, job_id, version,
                    revision, part, kind)
                VALUES ({values["due_at"]}, {values["scheduled_for"]}, %s, %s, 1, 1, 2,
                    1)
                """,
                [job.id, job.id],
            )
        assert getattr(caught.value, "sqlstate", None) == "23514"
    with pytest.raises(Exception, match="violates check"):
        world.observer.execute(
            """
            INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence,
                version, revision, part, outcome, kind)
            VALUES (date_trunc('second', now()) + interval '1 us', %s, %s, 0, 1, 1, 2,
                1, 1)
            """,
            [job.id, job.id],
        )
