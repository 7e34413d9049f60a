"""Ranges of the past that somebody has run again: each occurrence once."""

import uuid

import pytest

from apps.jobs.backfill import Range, backfill_job, cancel_backfill, list_backfills
from apps.jobs.commands import COMMAND, delete_job, patch_job, pause_job, resume_job
from apps.jobs.errors import BackfillTooLarge, JobDeleted, JobNotFound
from apps.jobs.manual import run_now
from apps.runs import days
from apps.runs.cancel import cancel
from apps.runtime.partitions import list_leaves
from apps.runtime.sessions import connect_upkeep
from chrono.rules.buckets import day_name
from chrono.rules.errors import BadValue
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND
from chrono.rules.keys import is_extra
from chrono.rules.partitions import partition_of
from chrono.rules.states import RunState
from tests.scheduler.conftest import NOON

LATER = NOON + 3 * HOUR


def blocked(leader, job):
    """Return (scheduled_for, attempt_group, due_at) of what waits, in order of due."""
    return leader.conn.execute(
        """
        SELECT floor(extract(epoch FROM o.scheduled_for) * 1000)::bigint,
            o.attempt_group, floor(extract(epoch FROM b.due_at) * 1000)::bigint
        FROM chrono_blocked b JOIN chrono_occurrence o ON o.run_id = b.run_id
            AND o.part = b.part AND o.job_id = b.job_id
        WHERE b.job_id = %s ORDER BY b.due_at
        """,
        [job],
    ).fetchall()


def ready(leader, job):
    return leader.conn.execute(
        "SELECT run_id, priority FROM chrono_ready WHERE job_id = %s", [job]
    ).fetchall()


def settle(leader, run, state):
    """Take a run from ready into the history, as its worker would have left it."""
    leader.conn.execute(
        """
        WITH moved AS (DELETE FROM chrono_ready WHERE run_id = %s RETURNING *)
        INSERT INTO chrono_run (due_at, finished_at, id, job_id, fence, revision,
            tenant, part, state, attempt)
        SELECT due_at, clock_timestamp(), run_id, job_id, fence, revision, tenant,
            part, %s, attempt FROM moved
        """,
        [run, state],
    )


@pytest.fixture
def paused_hours(leader):
    """A job that was paused for three hours, so that nothing of them ran."""
    job = leader.create("hourly", cron="0 * * * *", overlap_policy="allow_all")
    pause_job(job, now=NOON + MINUTE)
    leader.clock.moment = LATER + MINUTE
    resume_job(job, now=LATER + MINUTE)
    leader.step()
    return job


def test_b21_what_was_skipped_runs_once_in_groups_of_its_own(leader, paused_hours):
    found = backfill_job(
        paused_hours, Range(start=NOON + MINUTE, end=LATER + 1), now=leader.clock.moment
    )
    hours = (NOON + HOUR, NOON + 2 * HOUR, LATER)
    assert found.occurrences == hours
    assert found.passed_over == 0
    now = leader.clock.moment
    assert blocked(leader, paused_hours) == [
        (hour, 1, now + n) for n, hour in enumerate(hours)
    ]
    [row] = list_backfills(paused_hours, actor=COMMAND, limit=10)
    assert (row.id, row.runs, row.waiting) == (found.id, 3, 3)
    leader.run_to(now + 5 * SECOND)
    runs = ready(leader, paused_hours)
    assert len(runs) == 3
    assert all(is_extra(run) and priority == 4 for run, priority in runs)


def test_b21_a_second_time_there_is_nothing_left_to_run(leader, paused_hours):
    wanted = Range(start=NOON + MINUTE, end=LATER)
    first = backfill_job(paused_hours, wanted, now=leader.clock.moment)
    again = backfill_job(paused_hours, wanted, now=leader.clock.moment)
    assert len(first.occurrences) == 2
    assert (again.id, again.occurrences, again.passed_over) == (None, (), 2)


@pytest.mark.parametrize("reprocess", ["none", "failed", "completed"])
def test_b21_a_manual_run_cancelled_at_that_very_instant_takes_no_group(
    leader, reprocess
):
    job = leader.create("hourly", cron="0 * * * *", overlap_policy="allow_all")
    pause_job(job, now=NOON + MINUTE)
    manual = run_now(job, now=NOON + HOUR).run_id
    assert cancel(leader.conn, manual) is RunState.CANCELLED
    leader.clock.moment = LATER + MINUTE
    resume_job(job, now=LATER + MINUTE)
    leader.step()
    hour = Range(start=NOON + HOUR, end=NOON + HOUR + 1, reprocess=reprocess)
    assert backfill_job(job, hour, now=leader.clock.moment).occurrences == (
        NOON + HOUR,
    )
    assert [row[:2] for row in blocked(leader, job)] == [(NOON + HOUR, 2)]


def test_b21_the_plan_goes_on_untouched(leader, paused_hours):
    plan = "SELECT due_at, version FROM chrono_timer WHERE job_id = %s AND kind = 1"
    before = leader.conn.execute(plan, [paused_hours]).fetchall()
    backfill_job(
        paused_hours, Range(start=NOON + MINUTE, end=LATER), now=leader.clock.moment
    )
    assert leader.conn.execute(plan, [paused_hours]).fetchall() == before
    assert len(before) == 1


def test_b21_a_run_of_the_schedule_is_not_run_again_unless_it_failed(leader):
    job = leader.create("hourly", cron="0 * * * *", overlap_policy="allow_all")
    leader.run_to(NOON + 2 * HOUR + MINUTE, every=30 * SECOND)
    runs = [run for run, _ in ready(leader, job)]
    assert len(runs) == 2
    wanted = {"start": NOON + MINUTE, "end": NOON + 2 * HOUR + 1}

    def runs_of(reprocess):
        return backfill_job(
            job,
            Range(**wanted, reprocess=reprocess),
            dry_run=True,
            now=leader.clock.moment,
        ).occurrences

    assert runs_of("completed") == (), "both are live"
    settle(leader, runs[0], 3)
    settle(leader, runs[1], 1)
    assert runs_of("none") == ()
    assert len(runs_of("failed")) == 1
    assert len(runs_of("completed")) == 2
    leader.conn.execute(
        "INSERT INTO chrono_resolution (run_id, part, state, actor, note) "
        "VALUES (%s, %s, 1, 'a person', 'it was paid')",
        [runs[0], partition_of(job)],
    )
    assert runs_of("failed") == (), "a person said that it was a success"
    assert blocked(leader, job) == [], "they were dry runs"


def test_b21_what_an_edit_left_to_be_run_late_is_not_run_besides(leader):
    # Its instant is over and decided, and its run not yet due.
    job = leader.create(
        "hourly", cron="0 * * * *", overlap_policy="allow_all", jitter_window="30m"
    )
    leader.clock.moment = NOON + HOUR + SECOND
    patch_job(job, {"priority": "high", "jitter_window": "20m"}, now=NOON + HOUR + 1)
    assert leader.fired(job) == []
    found = backfill_job(
        job, Range(start=NOON + MINUTE, end=NOON + HOUR + 1), now=leader.clock.moment
    )
    assert (found.occurrences, found.passed_over) == ((), 1)
    leader.run_to(NOON + 2 * HOUR - SECOND, every=MINUTE)
    assert leader.fired(job) == [NOON + HOUR]


def test_b21_a_success_whose_history_is_gone_is_run_again_where_that_is_asked(leader):
    job = leader.create("hourly", cron="0 * * * *", overlap_policy="allow_all")
    leader.run_to(NOON + 4 * HOUR, every=MINUTE)
    leases = leader.claim()
    leader.settle(leases[0])
    leader.conn.execute("DELETE FROM chrono_run")
    # Of the others one is tried again later, one runs and one was handed back.
    leader.settle(leases[1], state=0, due=NOON + 9 * HOUR)
    leader.settle(leases[2], state=0, due=leader.clock.moment)
    leader.run_to(leader.clock.moment + SECOND)
    assert leader.count("chrono_ready") == 1

    def runs_of(reprocess):
        wanted = Range(
            start=NOON + MINUTE, end=NOON + 4 * HOUR + 1, reprocess=reprocess
        )
        return backfill_job(
            job, wanted, dry_run=True, now=leader.clock.moment
        ).occurrences

    assert runs_of("completed") == (NOON + HOUR,)
    assert runs_of("failed") == runs_of("none") == ()


def test_newest_first_and_a_rate_of_its_own(leader, paused_hours):
    backfill_job(
        paused_hours,
        Range(start=NOON + MINUTE, end=LATER + 1, order="newest", rate=2),
        now=leader.clock.moment,
    )
    now = leader.clock.moment
    assert blocked(leader, paused_hours) == [
        (LATER, 1, now),
        (NOON + 2 * HOUR, 1, now + 500),
        (NOON + HOUR, 1, now + 1000),
    ]


def test_what_waits_of_one_is_called_off(leader, paused_hours):
    found = backfill_job(
        paused_hours, Range(start=NOON + MINUTE, end=LATER + 1), now=leader.clock.moment
    )
    assert cancel_backfill(paused_hours, found.id) == 3
    assert blocked(leader, paused_hours) == []
    ended = leader.conn.execute("SELECT state, reason FROM chrono_run").fetchall()
    assert ended == [(4, 18)] * 3
    [row] = list_backfills(paused_hours, actor=COMMAND, limit=10)
    assert row.waiting == 0
    assert row.cancelled_by == COMMAND.name
    with pytest.raises(JobNotFound):
        cancel_backfill(paused_hours, uuid.uuid4())


def test_one_run_of_it_is_cancelled_by_its_id(leader, paused_hours):
    backfill_job(
        paused_hours, Range(start=NOON + MINUTE, end=LATER), now=leader.clock.moment
    )
    [(run,), *_] = leader.conn.execute("SELECT run_id FROM chrono_blocked").fetchall()
    assert cancel(leader.conn, run).label == "cancelled"
    assert len(blocked(leader, paused_hours)) == 1


def test_while_its_job_is_paused_it_waits_and_a_delete_calls_it_off(
    leader, paused_hours
):
    backfill_job(
        paused_hours, Range(start=NOON + MINUTE, end=LATER), now=leader.clock.moment
    )
    pause_job(paused_hours, now=leader.clock.moment)
    leader.run_to(leader.clock.moment + 10 * SECOND)
    assert len(blocked(leader, paused_hours)) == 2
    delete_job(paused_hours, now=leader.clock.moment)
    assert blocked(leader, paused_hours) == []
    with pytest.raises(JobDeleted):
        backfill_job(paused_hours, Range(start=NOON + MINUTE, end=LATER))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"start": LATER, "end": NOON}, "to"),
        ({"start": NOON, "end": NOON + 300 * DAY}, "to"),
        ({"start": NOON - 31 * DAY, "end": NOON}, "from"),
        ({"start": NOON, "end": LATER, "rate": 0}, "rate"),
        ({"start": NOON, "end": LATER, "order": "random"}, "order"),
        ({"start": NOON, "end": LATER, "reprocess": "all"}, "reprocess"),
    ],
)
def test_a_bad_range_is_refused_by_its_field(leader, paused_hours, fields, field):
    with pytest.raises(BadValue) as refused:
        backfill_job(paused_hours, Range(**fields), now=leader.clock.moment)
    assert refused.value.field == field


def test_too_many_occurrences_are_refused(leader):
    job = leader.create("each-second", interval="1s")
    pause_job(job, now=NOON)
    resume_job(job, now=LATER)
    with pytest.raises(BackfillTooLarge):
        backfill_job(job, Range(start=NOON + MINUTE, end=LATER), now=LATER)


def test_days_that_were_dropped_are_there_again(leader, dsn):
    job = leader.create("daily", cron="0 6 * * *", overlap_policy="allow_all")
    pause_job(job, now=NOON)
    later = NOON + 20 * DAY
    resume_job(job, now=later)
    backfill_job(job, Range(start=NOON + DAY, end=later), now=later)
    with connect_upkeep(dsn, name="test upkeep") as conn:
        days.drop_old_days(conn, now=later)
        names = {leaf.name for leaf in list_leaves(conn, parent="chrono_run")}
    assert day_name("chrono_run", NOON + 4 * DAY) in names
    assert day_name("chrono_run", NOON - DAY) not in names, "nothing reaches into it"
