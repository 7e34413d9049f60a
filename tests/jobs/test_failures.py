"""Jobs that are paused by the keeper because their runs keep dying."""

import logging

import pytest

from apps.jobs import failures
from apps.jobs.commands import create_job, delete_job, patch_job, pause_job, resume_job
from apps.jobs.errors import JobsBusy
from apps.jobs.failures import Failures
from apps.runtime.clock import ManualClock
from apps.runtime.sessions import connect_upkeep
from apps.scheduler.upkeep import Upkeep
from apps.tenants.actor import Actor
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND, parse_instant
from chrono.rules.partitions import partition_of
from chrono.rules.states import RunState
from tests.support.definitions import definition
from tests.support.seed import SeededJob, make_ended

NOON = parse_instant("2055-03-01T12:00:00Z")
SYSTEM = Actor.system("scheduler")
DEAD, SUCCESS, CANCELLED = RunState.DEAD, RunState.SUCCESS, RunState.CANCELLED


@pytest.fixture
def keeper(dsn):
    """The keeper's session."""
    with connect_upkeep(dsn, name="test upkeep") as conn:
        yield conn


def make(key="job", **fields):
    fields = {"interval": "1m", "pause_on_failure": 3, **fields}
    job = create_job(definition(key=key, **fields), now=NOON - DAY).job_id
    return SeededJob(id=job, part=partition_of(job), queue="default")


def end(conn, job, *states, until=NOON, **options):
    """Write runs that ended one after the other, the last a second before noon."""
    for n, state in enumerate(reversed(states)):
        make_ended(conn, job, until - n * MINUTE - 2 * SECOND, state=state, **options)


def step(keeper, *, now=NOON, watcher=None):
    """Step a new keeper; return the keys of the jobs it paused."""
    found = (watcher or Failures()).step(keeper, actor=SYSTEM, now=now)
    return sorted(outcome.key for outcome in found)


def stands(conn, job):
    [row] = conn.execute(
        "SELECT paused, paused_by, pause_note FROM chrono_job WHERE id = %s", [job.id]
    ).fetchall()
    return row


def test_after_so_many_deaths_in_a_row_the_job_is_paused_once(keeper):
    job, other = make(), make("other", pause_on_failure=4)
    never = make("never", pause_on_failure=None)
    for one in (job, other, never):
        end(keeper, one, DEAD, DEAD, DEAD, error="no route\n  to host")
    watcher = Failures()
    assert step(keeper, watcher=watcher) == ["job"]
    assert stands(keeper, job) == (True, "scheduler", "no route")
    assert stands(keeper, other) == stands(keeper, never) == (False, "", "")
    assert step(keeper, watcher=watcher) == []
    assert step(keeper) == []
    events = keeper.execute(
        "SELECT actor_kind, actor, reason FROM chrono_audit_event "
        "WHERE action = 'job.pause'"
    ).fetchall()
    assert events == [("system", "scheduler", failures.REASON)]


def test_manual_runs_count_alike_and_what_counts_is_when_they_ended(keeper):
    job, spared = make(), make("spared")
    for one in (job, spared):
        make_ended(keeper, one, NOON - HOUR, state=DEAD, ended=NOON - 3 * SECOND)
        make_ended(keeper, one, NOON - 5 * MINUTE, state=DEAD, group=1)
        make_ended(keeper, one, NOON - 2 * MINUTE, state=DEAD)
    # A success by its instant before all of them, by its end after two.
    late = NOON - 4 * MINUTE
    make_ended(keeper, spared, NOON - 2 * HOUR, state=SUCCESS, ended=late)
    assert step(keeper) == ["job"]


@pytest.mark.parametrize(
    ("states", "paused"),
    [
        ((DEAD, DEAD), False),
        ((DEAD, SUCCESS, DEAD, DEAD), False),
        ((SUCCESS, DEAD, DEAD, DEAD), True),
        ((DEAD, CANCELLED, DEAD, DEAD), True),
        ((DEAD, DEAD, DEAD, SUCCESS), False),
    ],
)
def test_a_success_in_between_begins_a_new_count(keeper, states, paused):
    job = make()
    end(keeper, job, *states)
    assert step(keeper) == (["job"] if paused else [])


def test_a_resumed_job_is_given_a_new_count(keeper):
    job = make()
    end(keeper, job, DEAD, DEAD, DEAD)
    watcher = Failures()
    assert step(keeper, watcher=watcher) == ["job"]
    resume_job(job.id, now=NOON)
    assert step(keeper, watcher=watcher) == step(keeper) == []
    later = NOON + 5 * MINUTE
    end(keeper, job, DEAD, DEAD, until=later)
    assert step(keeper, now=later, watcher=watcher) == []
    later += MINUTE
    end(keeper, job, DEAD, until=later)
    assert step(keeper, now=later, watcher=watcher) == ["job"]


def test_paused_and_deleted_jobs_stay_as_they_are(keeper):
    paused, deleted = make("paused"), make("deleted")
    for job in (paused, deleted):
        end(keeper, job, DEAD, DEAD, DEAD)
    pause_job(paused.id, note="by hand", now=NOON)
    delete_job(deleted.id, now=NOON)
    assert step(keeper) == []
    assert stands(keeper, paused) == (True, "chrono", "by hand")


def test_a_change_between_judging_and_pausing_wins(keeper, monkeypatch):
    job = make()
    end(keeper, job, DEAD, DEAD, DEAD)
    judge = failures.judge

    def change_meanwhile(conn, jobs, *, now):
        found = judge(conn, jobs, now=now)
        patch_job(job.id, {"name": "repaired"}, now=NOON)
        return found

    monkeypatch.setattr(failures, "judge", change_meanwhile)
    watcher = Failures()
    assert step(keeper, watcher=watcher) == []
    assert stands(keeper, job) == (False, "", "")
    # A name mends no run: it is judged again as it is now, without another death.
    monkeypatch.setattr(failures, "judge", judge)
    assert step(keeper, now=NOON + 2 * SECOND, watcher=watcher) == ["job"]


def test_a_death_that_was_committed_late_is_seen(keeper):
    job = make()
    end(keeper, job, DEAD, DEAD)
    watcher = Failures()
    assert step(keeper, watcher=watcher) == []
    make_ended(keeper, job, NOON - 30 * MINUTE, state=DEAD, ended=NOON - 20 * SECOND)
    assert step(keeper, now=NOON + 2 * SECOND, watcher=watcher) == ["job"]


def test_a_new_keeper_looks_ten_minutes_back_and_no_further(keeper):
    near, far = make("near"), make("far")
    end(keeper, near, DEAD, DEAD, DEAD, until=NOON - 9 * MINUTE)
    end(keeper, far, DEAD, DEAD, DEAD, until=NOON - 11 * MINUTE)
    assert step(keeper) == ["near"]


def test_more_deaths_than_a_look_takes_are_looked_at_one_after_the_other(
    keeper, monkeypatch
):
    monkeypatch.setattr(failures, "DEATHS", 2)
    monkeypatch.setattr(failures, "LOOKS", 2)
    for key in ("a", "b", "c"):
        end(keeper, make(key), DEAD, DEAD, DEAD, until=NOON - ord(key))
    watcher = Failures()
    found = []
    for _ in range(8):
        found += step(keeper, watcher=watcher)
    assert sorted(found) == ["a", "b", "c"]


def test_runs_that_wait_behind_hide_no_death(keeper, monkeypatch):
    monkeypatch.setattr(failures, "SPARE", 1)
    job = make()
    end(keeper, job, DEAD, DEAD, DEAD, until=NOON - HOUR)
    keeper.execute(
        "UPDATE chrono_dead_letter SET died_at = to_timestamp(%s)", [NOON / 1000 - 1]
    )
    keeper.execute(
        """
        INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence, version,
            revision, part, outcome, kind)
        SELECT to_timestamp(%s) - n * interval '1 minute', %s, gen_random_uuid(), 1, 1,
            1, %s, 1, 1 FROM generate_series(1, 50) AS n
        """,
        [NOON / 1000, job.id, job.part],
    )
    assert step(keeper) == ["job"]


def test_a_kept_death_counts_and_a_success_that_is_gone_ends_the_row(keeper):
    kept, gone = make("kept"), make("gone")
    for job in (kept, gone):
        keeper.execute(
            "UPDATE chrono_job SET activated_at = to_timestamp(%s), "
            "updated_at = to_timestamp(%s) WHERE id = %s",
            [NOON / 1000 - 40 * 86_400] * 2 + [job.id],
        )
        make_ended(keeper, job, NOON - 21 * DAY, state=DEAD, table="chrono_run_kept")
        end(keeper, job, DEAD, DEAD)
    make_ended(keeper, gone, NOON - 14 * DAY, state=SUCCESS)
    keeper.execute("DELETE FROM chrono_run WHERE state = 1")
    assert step(keeper) == ["kept"]


def test_a_death_without_an_error_leaves_its_reason_as_the_note(keeper):
    job = make(pause_on_failure=1)
    end(keeper, job, DEAD)
    keeper.execute("UPDATE chrono_dead_letter SET errors = '[{\"error\": null}]'")
    assert step(keeper) == ["job"]
    assert stands(keeper, job)[2] == "attempts exhausted"


def test_a_policy_that_cannot_be_read_pauses_nobody(keeper):
    bad, good = make("bad"), make("good")
    keeper.execute(
        'UPDATE chrono_job_revision SET policy = \'{"pause_on_failure": "x"}\' '
        "WHERE job_id = %s",
        [bad.id],
    )
    for job in (bad, good):
        end(keeper, job, DEAD, DEAD, DEAD)
    assert step(keeper) == ["good"]


def test_the_keeper_does_it_and_a_busy_job_waits(dsn, keeper, caplog, monkeypatch):
    job = make(pause_on_failure=2)
    end(keeper, job, DEAD, DEAD)
    upkeep = Upkeep(
        lambda: connect_upkeep(dsn, name="test keeper"),
        ManualClock(NOON),
        leads=lambda: True,
    )
    pause = failures.pause_if_unchanged

    def busy(*args, **options):
        raise JobsBusy

    upkeep.prepare()
    monkeypatch.setattr(failures, "pause_if_unchanged", busy)
    with caplog.at_level(logging.WARNING):
        upkeep.step()
    assert "wait to be paused" in caplog.text
    monkeypatch.setattr(failures, "pause_if_unchanged", pause)
    upkeep.step()
    upkeep.close()
    assert stands(keeper, job)[:2] == (True, "scheduler")
