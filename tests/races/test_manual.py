"""Manual runs and skips beside fires and deletes, in every order of statements."""

import uuid
from functools import partial
from typing import Any

from apps.jobs.commands import delete_job, skip_next
from apps.jobs.errors import JobDeleted
from apps.jobs.manual import run_now
from chrono.rules.states import Reason, TimerKind
from tests.races.harness import orders, paced, play
from tests.races.test_edits import (
    EDIT_STOPS,
    EVERY,
    LEADER_STOPS,
    Play,
    connect_django,
    open_play,
)
from tests.races.world import World

RUN_STOPS = ("insert_timers",)


def leader_steps(act: Play) -> Any:
    return (
        act.leader,
        paced("step", act.dispatcher.step, act.leader, steps=4, stops=LEADER_STOPS),
    )


def ledger(world: World, job: uuid.UUID) -> list[tuple[Any, ...]]:
    """Return (scheduled_for, group, kind, outcome, reason) of a job, oldest first."""
    return world.rows(
        """
        SELECT (extract(epoch FROM scheduled_for) * 1000)::bigint, attempt_group, kind,
            outcome, reason
        FROM chrono_occurrence WHERE job_id = %s ORDER BY 1, 2
        """,
        [job],
    )


def test_a_manual_run_between_all_statements_of_a_fire(edit_world: World) -> None:
    act = open_play(edit_world)
    for number, order in enumerate(orders(4, 3)):
        job = act.create(overlap_policy="skip")
        act.settle()
        act.clock.moment += EVERY + 5
        if number % 2:
            act.take_over()
        call = partial(run_now, job, now=act.clock.moment)
        steps = paced("run", call, act.editor, steps=3, stops=RUN_STOPS)
        trace = play(edit_world.stage, order, leader_steps(act), (act.editor, steps))
        assert not trace.errors, trace
        act.settle()
        rows = ledger(edit_world, job)
        assert [row[1:4] for row in rows if row[2] == TimerKind.MANUAL] == [
            (1, TimerKind.MANUAL, 1)
        ], trace
        # The schedule's occurrence fires before the run is there, or not at all.
        [of_schedule] = [row for row in rows if row[1] == 0]
        assert of_schedule[3:] in [(1, None), (2, Reason.OVERLAP)], trace
        if trace.before("run", "step.1"):
            assert of_schedule[4] == Reason.OVERLAP, trace
        if trace.before("step", "run.1"):
            assert of_schedule[3] == 1, trace
        edit_world.check(trace)
        act.editor.do(delete_job, job, now=act.clock.moment)


def test_a_manual_run_and_a_delete_in_every_order(edit_world: World) -> None:
    act = open_play(edit_world)
    other = edit_world.stage.enter("other", connect_django)
    for order in orders(3, 3):
        job = act.create()
        run_steps = paced(
            "run",
            partial(refused_or_made, job, act.clock.moment),
            act.editor,
            steps=3,
            stops=RUN_STOPS,
        )
        delete_steps = paced(
            "delete",
            partial(delete_job, job, now=act.clock.moment),
            other,
            steps=3,
            stops=EDIT_STOPS,
        )
        trace = play(
            edit_world.stage, order, (act.editor, run_steps), (other, delete_steps)
        )
        assert not trace.errors, trace
        run = trace.values["run"]
        assert trace.values["delete"].actions == ("deleted",), trace
        # Made before the delete and cancelled by it, or refused.
        waiting = edit_world.value(
            "SELECT count(*) FROM chrono_timer WHERE job_id = %s AND kind = 3", [job]
        )
        assert waiting == 0, trace
        if run is not None:
            assert edit_world.value(
                "SELECT reason FROM chrono_run WHERE id = %s", [run]
            ) == (Reason.DELETED), trace
        edit_world.check(trace)


def refused_or_made(job: uuid.UUID, now: int) -> uuid.UUID | None:
    try:
        return run_now(job, now=now).run_id
    except JobDeleted:
        return None


def test_a_skip_between_all_statements_of_a_fire(edit_world: World) -> None:
    act = open_play(edit_world)
    for number, order in enumerate(orders(4, 3)):
        job = act.create()
        act.settle()
        act.clock.moment += EVERY + 5
        if number % 2:
            act.take_over()
        call = partial(skip_next, job, count=2, now=act.clock.moment)
        steps = paced("skip", call, act.editor, steps=3, stops=EDIT_STOPS)
        trace = play(edit_world.stage, order, leader_steps(act), (act.editor, steps))
        assert not trace.errors, trace
        act.settle()
        act.run_to(act.clock.moment + 4 * EVERY, every=EVERY)
        rows = ledger(edit_world, job)
        moments = [row[0] for row in rows]
        assert moments == list(range(moments[0], moments[0] + 5 * EVERY, EVERY)), trace
        fired, skipped = (1, None), (2, Reason.OPERATOR)
        assert [row[3:] for row in rows] == [
            fired,
            skipped,
            skipped,
            fired,
            fired,
        ], trace
        assert trace.values["skip"].skipped == tuple(moments[1:3]), trace
        edit_world.check(trace)
        act.editor.do(delete_job, job, now=act.clock.moment)
