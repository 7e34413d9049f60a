"""Pauses that end by themselves, as of the instant at which they were to end."""

import pytest

from apps.jobs.commands import (
    create_job,
    create_jobs,
    delete_job,
    pause_job,
    pause_jobs,
    resume_due,
    resume_job,
)
from apps.jobs.errors import JobsBusy
from apps.runtime.clock import DatabaseClock
from apps.runtime.sessions import connect_upkeep
from apps.scheduler.upkeep import Upkeep
from apps.tenants.actor import Actor
from chrono.rules.errors import BadValue
from chrono.rules.instants import DAY, HOUR, LATEST, MINUTE, SECOND, parse_instant
from chrono.rules.states import Reason
from tests.jobs.sessions import in_thread
from tests.support.definitions import definition
from tests.support.pg import wait_until_blocked

NOON = parse_instant("2054-11-30T12:00:00Z")
SYSTEM = Actor.system("scheduler")


@pytest.fixture
def upkeep(dsn):
    """The session that the scheduler resumes jobs on."""
    with connect_upkeep(dsn, name="test upkeep") as conn:
        yield conn


def pause(ledger, job):
    [row] = ledger.rows(
        """
        SELECT paused, pause_note, paused_by,
            floor(extract(epoch FROM paused_until) * 1000)::bigint
        FROM chrono_job WHERE id = %s
        """,
        job,
    )
    return row


def test_a_pause_says_who_why_and_until_when(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    pause_job(job, note="holiday", until=NOON + DAY, actor=SYSTEM, now=NOON)
    assert pause(ledger, job) == (True, "holiday", "scheduler", NOON + DAY)
    resume_job(job, now=NOON)
    assert pause(ledger, job) == (False, "", "", None)


def test_a_paused_job_gets_another_end_or_none(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    pause_job(job, note="one", until=NOON + HOUR, now=NOON)
    version = ledger.job(job)["version"]
    assert pause_job(job, note="two", until=NOON + DAY, now=NOON).actions == ("paused",)
    assert pause(ledger, job)[1::2] == ("two", NOON + DAY)
    pause_job(job, note="for ever", now=NOON)
    assert pause(ledger, job)[1::2] == ("for ever", None)
    assert ledger.job(job)["version"] == version, "its plan is what it was: none"


@pytest.mark.parametrize("until", [NOON, NOON - 1, 0, LATEST])
def test_a_pause_ends_in_the_future(ledger, until):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    with pytest.raises(BadValue) as refused:
        pause_job(job, until=until, now=NOON)
    assert refused.value.field == "until"
    assert not ledger.job(job)["paused"]


def test_a_pause_that_is_over_ended_at_its_end(ledger, upkeep):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    pause_job(job, until=NOON + MINUTE, now=NOON + 5 * SECOND)
    assert resume_due(upkeep, actor=SYSTEM, now=NOON + MINUTE - 1) == []
    late = NOON + HOUR
    [outcome] = resume_due(upkeep, actor=SYSTEM, now=late)
    assert (outcome.job_id, outcome.actions) == (job, ("resumed",))
    row = ledger.job(job)
    assert (row["paused"], row["version"]) == (False, 3)
    assert row["activated_at"] == NOON + MINUTE
    [timer] = ledger.live(job)
    assert (timer[3], timer[4]) == (NOON + MINUTE + 10 * SECOND, late)
    assert ledger.skips(job) == [
        (NOON + 10 * SECOND, Reason.PAUSED, 6, NOON + MINUTE)
    ], "and nothing after its end"
    assert pause(ledger, job) == (False, "", "", None)
    assert ledger.rows(
        "SELECT action, actor_kind, actor FROM chrono_audit_event ORDER BY id DESC "
        "LIMIT 1"
    ) == [("job.resume", "system", "scheduler")]


def test_leaders_hear_of_the_jobs_that_go_on(ledger, upkeep, connect):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    pause_job(job, until=NOON + MINUTE, now=NOON)
    listener = connect()
    listener.execute("LISTEN chrono_jobs")
    resume_due(upkeep, actor=SYSTEM, now=NOON + MINUTE)
    [notice] = listener.notifies(timeout=5, stop_after=1)
    assert notice.payload == str(ledger.job(job)["part"])


def test_what_was_decided_after_the_end_stays_decided(ledger, upkeep):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    pause_job(job, until=NOON + MINUTE, now=NOON)
    ledger.fired(job, NOON + 80 * SECOND)
    resume_due(upkeep, actor=SYSTEM, now=NOON + HOUR)
    [timer] = ledger.live(job)
    assert timer[3] == NOON + 90 * SECOND


def test_only_pauses_with_an_end_of_jobs_that_are_there_end(ledger, upkeep):
    jobs = [
        outcome.job_id
        for outcome in create_jobs(
            [definition(key=f"k{n}", interval="10s") for n in range(5)], now=NOON
        )
    ]
    pause_jobs(jobs[:3], until=NOON + MINUTE, now=NOON)
    pause_job(jobs[3], now=NOON)
    delete_job(jobs[2], now=NOON)
    resumed = resume_due(upkeep, actor=SYSTEM, now=NOON + HOUR)
    assert {outcome.job_id for outcome in resumed} == set(jobs[:2])
    assert resume_due(upkeep, actor=SYSTEM, now=NOON + HOUR) == []


@pytest.mark.parametrize("change", ["prolonged", "resumed", "deleted"])
def test_an_edit_that_comes_first_is_seen(ledger, upkeep, connect, background, change):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    pause_job(job, until=NOON + MINUTE, now=NOON)
    first = connect(autocommit=False)
    first.execute("SELECT FROM chrono_job FOR UPDATE")
    second = background(resume_due, upkeep, actor=SYSTEM, now=NOON + HOUR)
    wait_until_blocked(ledger.conn, upkeep.info.backend_pid)
    first.execute(
        {
            "prolonged": "UPDATE chrono_job SET paused_until = now() + interval '1 y'",
            "resumed": "UPDATE chrono_job SET paused = false, paused_until = NULL",
            "deleted": "UPDATE chrono_job SET deleted_at = now()",
        }[change]
    )
    first.commit()
    assert [o.actions for o in second.result(timeout=5)] in ([], [("unchanged",)])
    assert ledger.job(job)["version"] == 2


def test_a_resume_that_cannot_be_had_is_left_for_the_next_time(ledger, upkeep, connect):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    pause_job(job, until=NOON + MINUTE, now=NOON)
    holder = connect(autocommit=False)
    holder.execute("SELECT FROM chrono_partition FOR UPDATE")
    with pytest.raises(JobsBusy):
        resume_due(upkeep, actor=SYSTEM, now=NOON + HOUR)
    holder.rollback()
    assert ledger.job(job)["paused"]
    assert len(resume_due(upkeep, actor=SYSTEM, now=NOON + HOUR)) == 1


def test_the_keeper_of_the_tables_resumes(ledger, upkeep, connect):
    job = create_job(definition(interval="10s")).job_id
    clock = DatabaseClock(connect())
    pause_job(job, until=clock.now() + HOUR)
    keeper = Upkeep(lambda: upkeep, clock, leads=lambda: True)
    keeper.step()
    assert ledger.job(job)["paused"]
    ledger.conn.execute("UPDATE chrono_job SET paused_until = now()")
    keeper.step()
    assert not ledger.job(job)["paused"]


def test_a_pause_and_its_end_at_once_meet_in_no_deadlock(ledger, upkeep, background):
    definitions = [definition(key=f"k{n}", interval="10s") for n in range(40)]
    jobs = [outcome.job_id for outcome in create_jobs(definitions, now=NOON)]

    def toggle():
        for number in range(8):
            pause_jobs(jobs[::-1], until=NOON + MINUTE + number, now=NOON)

    toggling, _ = in_thread(background, toggle)
    resumed = 0
    while not toggling.done():
        resumed += len(resume_due(upkeep, actor=SYSTEM, now=NOON + HOUR))
    toggling.result()
    resume_due(upkeep, actor=SYSTEM, now=NOON + HOUR)
    assert ledger.rows("SELECT count(*) FROM chrono_job WHERE paused") == [(0,)]
    for job in jobs:
        assert len(ledger.live(job)) == 1
