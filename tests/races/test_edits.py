"""Edits against a leader, in time or late: nothing lost, nothing of a stale plan.

The old definition decides up to the edit's instant, the new one after it. Leaders and
edits here are the product's, stopped between their statements; time stands still until
a test moves it.
"""

import random
import uuid
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

import django.db
import pytest

from apps.jobs import commands
from apps.jobs.definition import Definition
from apps.runtime.clock import ManualClock
from apps.runtime.django_session import raw_connection
from apps.scheduler import store as scheduler
from apps.scheduler.dispatcher import Dispatcher
from chrono.rules.buckets import bucket_start
from chrono.rules.instants import HOUR, Millis, format_instant
from chrono.rules.partitions import PARTITIONS, partition_of
from chrono.rules.states import Reason
from tests.races import invariants, oracle
from tests.races.harness import Actor, orders, paced, play
from tests.races.oracle import Era, History
from tests.races.world import World
from tests.support.definitions import definition

EVERY: Millis = 10_000
AFTER: Millis = 7_000
"""The interval before an edit and the one after it."""
LEADER_STOPS = (
    "load_timers",
    "fire_undecided",
    "list_changed_jobs",
)
EDIT_STOPS = ("bump_epochs",)


@dataclass(slots=True)
class Play:
    """A leader and an editor in a time of their own, and the history they make."""

    world: World
    leader: Actor
    editor: Actor
    clock: ManualClock
    dispatcher: Dispatcher
    histories: dict[uuid.UUID, History] = field(default_factory=dict)

    def create(self, every: Millis = EVERY, **fields: Any) -> uuid.UUID:
        """Create a job that fires at every multiple of so many milliseconds."""
        now = self.clock.moment
        made = self.editor.do(commands.create_job, defined(every, **fields), now=now)
        era = Era(begin=now, every=every, anchor=0, version=1, active=True)
        self.histories[made.job_id] = History(made.job_id, [era])
        return made.job_id

    def edit(self, job: uuid.UUID, change: str, every: Millis = AFTER) -> Any:
        """Return the call of one edit, at the present instant."""
        now = self.clock.moment
        [(key, overlap, policy)] = self.world.rows(
            """
            SELECT key, overlap_policy, policy
            FROM chrono_job j JOIN chrono_job_revision r
                ON r.job_id = j.id AND r.revision = j.revision
            WHERE j.id = %s
            """,
            [job],
        )
        kept = {"key": key, "overlap_policy": overlap, **policy}
        last = self.histories[job].eras[-1]
        return {
            "pause": partial(commands.pause_job, job, now=now),
            "resume": partial(commands.resume_job, job, now=now),
            "delete": partial(commands.delete_job, job, now=now),
            "schedule": partial(
                commands.change_job, job, defined(every, **kept), now=now
            ),
            "payload": partial(
                commands.change_job,
                job,
                defined(last.every, **kept, payload={"at": now}),
                now=now,
            ),
        }[change]

    def note(self, job: uuid.UUID, change: str, every: Millis = AFTER) -> None:
        """Write an edit that was made at the present instant into the history."""
        eras = self.histories[job].eras
        last = eras[-1]
        if change == "payload" or (change == "pause" and not last.active):
            return
        if (change == "resume" and last.active) or (
            change == "schedule" and every == last.every
        ):
            return
        eras.append(
            Era(
                begin=self.clock.moment,
                every=every if change == "schedule" else last.every,
                anchor=0,
                version=last.version + 1,
                active={"pause": False, "delete": False, "resume": True}.get(
                    change, last.active
                ),
            )
        )

    def settle(self) -> None:
        """Let the leader do all that is to be done at the present instant."""
        self.dispatcher.notice()
        for _ in range(1_000):
            if self.dispatcher.step().wait > 0:
                return
        raise AssertionError("the leader never comes to rest")

    def run_to(self, moment: Millis, *, every: Millis = 1_000) -> None:
        """Let time pass with the leader at work."""
        while self.clock.moment < moment:
            self.clock.moment = min(moment, self.clock.moment + every)
            self.settle()

    def take_over(self) -> None:
        """Have the leader lead all partitions."""
        self.dispatcher.adopt(
            scheduler.take_over(
                self.leader.conn, parts=range(PARTITIONS), owner="leader"
            )
        )

    def check(self, context: object = "") -> None:
        """Compare the ledger with the oracle, and audit the tables."""
        for job, history in self.histories.items():
            rows = oracle.read(self.world.observer, job)
            wrong = oracle.differences(history, rows, self.clock.moment)
            assert not wrong, f"{context}: {wrong} {history}"
        self.world.check(context)
        found = invariants.unplanned(self.world.observer)
        assert not found, f"{context}: {found}"


def defined(every: Millis, **fields: Any) -> Definition:
    """Return the definition of a job that fires at every multiple of ``every``."""
    return definition(
        **{
            "key": uuid.uuid4().hex,
            "interval": f"{every // 1000}s",
            "starts_at": format_instant(0),
            "overlap_policy": "allow_all",
            **fields,
        }
    )


def open_play(world: World, *, offset: Millis = 0) -> Play:
    """Begin in the hour after this one, so that no clock but ours decides."""
    clock = ManualClock(bucket_start(world.now()) + HOUR + offset)
    leader = world.session("leader")
    play = Play(
        world=world,
        leader=leader,
        editor=world.stage.enter("editor", connect_django),
        clock=clock,
        dispatcher=Dispatcher(leader.conn, clock),
    )
    play.take_over()
    return play


def connect_django() -> Any:
    """Return this thread's session of Django's; closing it closes Django's side."""
    conn = raw_connection()

    def close() -> None:
        del conn.close
        django.db.connections["default"].close()

    conn.close = close  # type: ignore[method-assign]
    return conn


CHANGES = ["pause", "schedule", "payload", "delete", "resume"]


@pytest.mark.parametrize("change", CHANGES)
def test_an_edit_between_all_statements_of_a_leader(
    edit_world: World, change: str
) -> None:
    edit_between_statements(edit_world, change)


def edit_between_statements(world: World, change: str) -> None:
    """A timer is due, and read, or in the wheel, while its job is edited."""
    act = open_play(world)
    for number, order in enumerate(orders(4, 3)):
        job = act.create()
        if change == "resume":
            act.editor.do(act.edit(job, "pause"))
            act.note(job, "pause")
        act.settle()
        act.clock.moment += EVERY + 5
        if number % 2:
            # The wheel is empty: what is due has to be read first.
            act.take_over()
        trace = play(
            world.stage,
            order,
            (
                act.leader,
                paced(
                    "step", act.dispatcher.step, act.leader, steps=4, stops=LEADER_STOPS
                ),
            ),
            (
                act.editor,
                paced(
                    "edit",
                    act.edit(job, change),
                    act.editor,
                    steps=3,
                    stops=EDIT_STOPS,
                ),
            ),
        )
        assert not trace.errors, trace
        act.note(job, change)
        act.settle()
        act.run_to(act.clock.moment + 2 * EVERY, every=EVERY)
        act.check(trace)
        if change != "delete":
            act.editor.do(act.edit(job, "delete"))
        del act.histories[job]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("missed", [2, 30], ids=["late", "missed"])
def test_an_edit_while_the_leader_is_down(
    edit_world: World, change: str, missed: int
) -> None:
    edit_in_an_outage(edit_world, change, missed)


def edit_in_an_outage(world: World, change: str, missed: int = 2) -> None:
    act = open_play(world)
    job = act.create()
    if change == "resume":
        act.editor.do(act.edit(job, "pause"))
        act.note(job, "pause")
    act.run_to(act.clock.moment + 2 * EVERY + 5)
    act.clock.moment += missed * EVERY
    act.editor.do(act.edit(job, change))
    act.note(job, change)
    act.clock.moment += EVERY
    act.take_over()
    act.settle()
    act.run_to(act.clock.moment + 3 * EVERY)
    act.check(change)


def test_what_was_late_at_an_edit_fires_by_the_old_revision(edit_world: World) -> None:
    act = open_play(edit_world)
    job = act.create()
    act.clock.moment += EVERY + 5
    act.editor.do(act.edit(job, "schedule"))
    act.note(job, "schedule")
    act.take_over()
    act.settle()
    assert edit_world.rows(
        "SELECT kind, outcome, version, revision FROM chrono_occurrence"
    ) == [(2, 1, 1, 1)]
    act.check()


def test_a_late_run_whose_job_is_paused_next_is_skipped(edit_world: World) -> None:
    act = open_play(edit_world)
    job = act.create()
    act.clock.moment += EVERY + 5
    for change in ("schedule", "pause"):
        act.editor.do(act.edit(job, change))
        act.note(job, change)
    act.take_over()
    act.settle()
    assert edit_world.rows("SELECT kind, outcome, reason FROM chrono_occurrence") == [
        (2, 2, Reason.PAUSED)
    ]
    act.check()


def test_moving_a_job_to_earlier_fires_nothing_at_once(edit_world: World) -> None:
    act = open_play(edit_world, offset=1)
    job = act.create(every=3_600_000)
    act.run_to(act.clock.moment + 2_000)
    act.editor.do(act.edit(job, "schedule", every=1_000))
    act.note(job, "schedule", every=1_000)
    act.settle()
    assert oracle.read(edit_world.observer, job) == []
    act.run_to(act.clock.moment + 2_000)
    assert len(oracle.read(edit_world.observer, job)) == 2
    act.check()


def test_a_read_in_flight_over_an_edit_and_its_delta_is_thrown_away(
    edit_world: World,
) -> None:
    read_in_flight(edit_world)


def read_in_flight(world: World) -> None:
    # What was read before the edit comes in after the leader heard of the edit: its
    # epoch, from its own snapshot, tells.
    act = open_play(world)
    job = act.create()
    act.clock.moment += EVERY + 5
    rows = scheduler.load_timers(
        act.leader.conn,
        after={partition_of(job): scheduler.cursor_at(0)},
        before=act.clock.moment,
        each=10,
    )
    assert [row.job_id for row in rows] == [job]
    act.editor.do(act.edit(job, "payload"))
    with mock.patch.object(scheduler, "load_timers", return_value=rows) as load:
        act.dispatcher.step()
        assert load.called
    act.settle()
    assert world.rows(
        "SELECT outcome, kind, version, revision FROM chrono_occurrence"
    ) == [(1, 1, 1, 2)]
    act.check()


def test_two_edits_with_nothing_decided_in_between(edit_world: World) -> None:
    two_edits_in_a_row(edit_world)


def two_edits_in_a_row(world: World) -> None:
    # The second definition began at the first edit: what it would have fired before
    # then is nobody's.
    act = open_play(world)
    job = act.create()
    act.run_to(act.clock.moment + EVERY + 8_000)
    for every in (3_000, 7_000):
        act.editor.do(act.edit(job, "schedule", every=every))
        act.note(job, "schedule", every=every)
        act.clock.moment += 500
    act.run_to(act.clock.moment + EVERY)
    act.check()


def test_a_pause_is_not_undone_by_an_edit_after_it(edit_world: World) -> None:
    pause_and_edit(edit_world)


def pause_and_edit(world: World) -> None:
    act = open_play(world)
    job = act.create()
    act.run_to(act.clock.moment + EVERY + 5)
    act.editor.do(act.edit(job, "pause"))
    act.note(job, "pause")
    act.run_to(act.clock.moment + 3 * EVERY)
    for change in ("resume", "schedule"):
        act.editor.do(act.edit(job, change))
        act.note(job, change)
    act.run_to(act.clock.moment + EVERY)
    act.check()


def test_what_a_stretch_gave_up_is_not_decided_by_an_edit_again(
    edit_world: World,
) -> None:
    edit_after_a_stretch(edit_world)


def edit_after_a_stretch(world: World) -> None:
    act = open_play(world)
    every = 120_000
    job = act.create(every, catchup_policy="skip")
    # All were missed: the newest row of the ledger stands for a stretch.
    act.clock.moment += 5 * every + 90_000
    act.settle()
    act.clock.moment += 1
    act.editor.do(act.edit(job, "schedule"))
    act.note(job, "schedule")
    act.run_to(act.clock.moment + 2 * AFTER)
    act.check()


def test_overlap_is_known_across_an_edit(edit_world: World) -> None:
    overlap_across_an_edit(edit_world)


def overlap_across_an_edit(world: World) -> None:
    act = open_play(world)
    job = act.create(overlap_policy="skip")
    act.run_to(act.clock.moment + EVERY + 5)
    act.editor.do(act.edit(job, "schedule"))
    act.note(job, "schedule")
    act.run_to(act.clock.moment + EVERY)
    [first, *others] = oracle.read(world.observer, job)
    assert first.reason is None
    assert {row.reason for row in others} == {Reason.OVERLAP}
    act.check()


@pytest.mark.parametrize("seed", range(6))
def test_histories_drawn_by_lot(edit_world: World, seed: int) -> None:
    histories_by_lot(edit_world, seed)


def histories_by_lot(world: World, seed: int = 1, turns: int = 60) -> None:
    """Edits, outages and takeovers in an order drawn by lot, against the oracle.

    A deposed leader goes on firing what it holds.
    """
    lot = random.Random(seed)
    act = open_play(world)
    other_session = world.session("other")
    others = Dispatcher(other_session.conn, act.clock)
    mine = act.dispatcher
    jobs = [
        act.create(every=lot.choice([2_000, 5_000, 13_000]), catchup_policy=policy)
        for policy in ("run_once", "skip", "run_all", "run_all", "run_once")
    ]
    for _ in range(turns):
        what = lot.choices(
            ["pass", "jump", "edit", "takeover", "stale"], [10, 2, 8, 2, 4]
        )[0]
        if what == "pass":
            act.clock.moment += lot.randint(1, 4_000)
            act.dispatcher.step()
        elif what == "jump":
            act.clock.moment += lot.choice([5_000, 30_000, 90_000])
        elif what == "edit":
            job = lot.choice(jobs)
            change = lot.choice(["pause", "resume", "resume", "schedule", "payload"])
            every = lot.choice([1_000, 3_000, 7_000, 11_000])
            act.editor.do(act.edit(job, change, every=every))
            act.note(job, change, every=every)
        elif what == "stale":
            (others if act.dispatcher is mine else mine).step()
        else:
            act.dispatcher = others if act.dispatcher is mine else mine
            act.leader = (
                other_session if act.leader is not other_session else act.leader
            )
            act.take_over()
    act.dispatcher.notice()
    act.settle()
    act.take_over()
    act.settle()
    act.check(f"seed {seed}")
