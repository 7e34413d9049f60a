"""Edits on a real database: nothing lost, nothing fired from a stale definition."""

import uuid

import psycopg
import pytest

from apps.jobs import commands
from apps.jobs.commands import (
    MOST_TIMERS,
    change_job,
    create_job,
    create_jobs,
    delete_job,
    edit_jobs,
    pause_job,
    pause_jobs,
    restore_job,
    resume_job,
    resume_jobs,
)
from apps.jobs.editing import Edit
from apps.jobs.errors import JobNotFound, JobsBusy, KeyTaken
from apps.timers.buckets import ensure_buckets
from chrono.rules.catchup import MOST_RUNS
from chrono.rules.errors import BadValue
from chrono.rules.instants import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    format_instant,
    parse_instant,
)
from chrono.rules.jitter import offset
from chrono.rules.keys import run_id
from chrono.rules.partitions import partition_of
from chrono.rules.states import Reason
from tests.jobs.sessions import in_thread
from tests.support import pg
from tests.support.definitions import definition

NOON = parse_instant("2054-11-30T12:00:00Z")


def test_a_new_job_waits_for_its_first_occurrence(ledger):
    job = create_job(definition(interval="10s", name="Ten"), now=NOON).job_id
    row = ledger.job(job)
    assert (row["version"], row["revision"], row["epoch"]) == (1, 1, 0)
    assert row["activated_at"] == NOON
    assert row["part"] == partition_of(job)
    due = NOON + 10 * SECOND
    assert ledger.timers(job) == [(1, 1, 1, due, due, job, None)]


def test_what_many_jobs_left_open_is_planned_in_bounded_transactions(ledger):
    fields = {"interval": "1s", "catchup_policy": "run_all"}
    jobs = [
        made.job_id
        for made in create_jobs(
            [definition(key=f"j{n}", **fields) for n in range(25)], now=NOON
        )
    ]
    edits = [Edit(job_id=job, patch={"interval": "2s"}) for job in jobs]
    outcomes = edit_jobs(edits, now=NOON + HOUR)
    assert [done.job_id for done in outcomes] == jobs
    assert {done.actions for done in outcomes} == {("changed",)}
    planned = ledger.rows(
        "SELECT count(*), count(DISTINCT job_id) FROM chrono_timer_far "
        "WHERE kind = 2 GROUP BY xmin::text"
    )
    runs, changed = zip(*planned, strict=True)
    assert (sum(runs), sum(changed)) == (25 * (MOST_RUNS + 61), 25)
    assert max(runs) <= MOST_TIMERS
    assert len(planned) == 3


def test_creating_raises_no_epoch(ledger):
    before = ledger.rows("SELECT sum(epoch) FROM chrono_partition")
    create_job(definition(interval="10s"), now=NOON)
    assert ledger.rows("SELECT sum(epoch) FROM chrono_partition") == before


def test_a_timer_is_due_after_its_job_s_jitter(ledger):
    job = create_job(definition(cron="0 18 * * *", jitter_window="1h"), now=NOON).job_id
    [(_, _, _, scheduled_for, due_at, _, _)] = ledger.timers(job)
    assert scheduled_for == NOON + 6 * HOUR
    assert due_at == scheduled_for + offset(job, HOUR)


def test_a_paused_new_job_has_no_timer(ledger):
    job = create_job(definition(interval="10s", paused=True), now=NOON).job_id
    assert ledger.job(job)["paused"]
    assert not ledger.timers(job)


def test_a_key_is_free_only_after_its_job_is_deleted(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    with pytest.raises(KeyTaken, match="nightly") as refused:
        create_jobs(
            [definition(key="other", interval="1m"), definition(interval="20s")],
            now=NOON,
        )
    assert refused.value.field == "key"
    assert ledger.rows("SELECT count(*) FROM chrono_job") == [(1,)]
    delete_job(job, now=NOON)
    assert create_job(definition(interval="20s"), now=NOON).job_id != job


def test_a_timer_within_the_horizon_gets_its_bucket(database, connect):
    conn = connect()
    [(now,)] = conn.execute(
        "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    ).fetchall()
    ensure_buckets(conn, now=now)
    soon = create_job(definition(interval="10s")).job_id
    late = create_job(definition(key="late", interval="30d")).job_id
    assert conn.execute("SELECT ref FROM chrono_timer").fetchall() == [(soon,)]
    assert conn.execute("SELECT ref FROM chrono_timer_far").fetchall() == [(late,)]


# One-shots.


def test_a_single_instant_of_the_last_day_runs_at_once(ledger):
    at = NOON - DAY
    job = create_job(definition(run_at=format_instant(at)), now=NOON).job_id
    assert ledger.timers(job) == [(1, 1, 1, at, NOON, job, None)]
    assert ledger.job(job)["activated_at"] == at - 1


def test_a_single_instant_of_earlier_is_refused(ledger):
    with pytest.raises(BadValue) as refused:
        create_job(definition(run_at=format_instant(NOON - DAY - 1)), now=NOON)
    assert refused.value.field == "run_at"
    assert ledger.rows("SELECT count(*) FROM chrono_job") == [(0,)]


def test_a_single_instant_that_waits_survives_an_edit(ledger):
    at = NOON - HOUR
    job = create_job(definition(run_at=format_instant(at)), now=NOON).job_id
    later = format_instant(NOON + DAY)
    change_job(job, definition(run_at=later), now=NOON + 1)
    assert [t[3] for t in ledger.timers(job, kind=2)] == [at]
    assert [t[3] for t in ledger.live(job)] == [NOON + DAY]


def test_a_job_is_not_moved_to_an_instant_that_is_over(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    with pytest.raises(BadValue) as refused:
        change_job(job, definition(run_at=format_instant(NOON)), now=NOON)
    assert refused.value.field == "run_at"
    assert ledger.job(job)["version"] == 1


def test_an_instant_of_the_far_future_keeps_its_milliseconds(ledger):
    at = parse_instant("9998-12-31T23:59:59.999Z")
    job = create_job(definition(run_at=format_instant(at)), now=NOON).job_id
    assert [t[3] for t in ledger.timers(job)] == [at]


# What takes a planning version, and what an edit leaves alone.


def test_an_edit_that_changes_nothing_writes_nothing(ledger):
    fields = {"interval": "10s", "payload": {"a": [1, True, 1e17, None]}}
    job = create_job(definition(**fields), now=NOON).job_id
    part = ledger.job(job)["part"]
    before = ledger.epoch(part)
    outcome = change_job(job, definition(**fields), now=NOON + DAY)
    assert outcome.actions == ("unchanged",)
    assert ledger.epoch(part) == before
    assert ledger.job(job)["revision"] == 1


@pytest.mark.parametrize(
    "change",
    [
        {"payload": {"a": 2}},
        {"queue": "slow"},
        {"priority": "high"},
        {"overlap_policy": "allow_all"},
        {"retry_policy": {"max_attempts": 2}},
        {"target": {"kind": "task", "name": "tests.other"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_payload_or_policy_is_a_revision_of_the_same_plan(ledger, change):
    job = create_job(definition(interval="10s", payload={"a": 1}), now=NOON).job_id
    timers = ledger.timers(job)
    epoch = ledger.epoch(ledger.job(job)["part"])
    outcome = change_job(
        job, definition(interval="10s", **{"payload": {"a": 1}, **change}), now=NOON + 5
    )
    row = ledger.job(job)
    assert (outcome.version, outcome.revision) == (row["version"], row["revision"])
    assert (row["version"], row["revision"], row["activated_at"]) == (1, 2, NOON)
    assert row["epoch"] == ledger.epoch(row["part"]) == epoch + 1
    assert ledger.timers(job) == timers


@pytest.mark.parametrize(
    "change", [{"interval": "20s"}, {"interval": "10s", "jitter_window": "5s"}]
)
def test_another_schedule_or_jitter_begins_a_new_plan(ledger, change):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    change_job(job, definition(**change), now=NOON + 5)
    row = ledger.job(job)
    assert (row["version"], row["revision"], row["activated_at"]) == (2, 2, NOON + 5)
    assert len(ledger.live(job)) == 1
    assert len(ledger.timers(job)) == 2, "the old timer is left to the leader"


def test_another_name_is_neither_a_plan_nor_a_revision(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    outcome = change_job(job, definition(interval="10s", name="New"), now=NOON)
    assert (outcome.actions, outcome.version, outcome.revision) == (("changed",), 1, 1)
    assert ledger.rows("SELECT name FROM chrono_job") == [("New",)]


def test_other_tags_are_neither_a_plan_nor_a_revision(ledger):
    job = create_job(definition(interval="10s", tags=["b", "a"]), now=NOON).job_id
    timers = ledger.timers(job)
    outcome = change_job(job, definition(interval="10s", tags=["c", "a"]), now=NOON)
    assert outcome.actions == ("changed",)
    assert (outcome.version, outcome.revision, outcome.changes) == (1, 1, 2)
    assert ledger.timers(job) == timers
    assert tags_of(ledger, job) == ["a", "c"]
    [(before, after)] = ledger.rows(
        "SELECT before -> 'tags', after -> 'tags' FROM chrono_audit_event "
        "WHERE action = 'job.change'"
    )
    assert (before, after) == (["a", "b"], ["a", "c"])
    again = change_job(job, definition(interval="10s", tags=["c", "a"]), now=NOON)
    assert again.actions == ("unchanged",)


def test_tags_stay_through_what_is_no_change_of_them(ledger):
    jobs = create_jobs(
        [
            definition(key="none", interval="10s"),
            definition(key="two", interval="10s", tags=["b", "a"]),
        ],
        now=NOON,
    )
    ids = [made.job_id for made in jobs]
    pause_jobs(ids, now=NOON)
    resume_jobs(ids, now=NOON)
    delete_job(ids[1], now=NOON)
    restore_job(ids[1], now=NOON)
    assert [tags_of(ledger, one) for one in ids] == [[], ["a", "b"]]


def tags_of(ledger, job):
    [(tags,)] = ledger.rows("SELECT tags FROM chrono_job WHERE id = %s", job)
    return tags


def test_no_row_has_tags_that_an_edit_would_change(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    text = "UPDATE chrono_job SET tags = %s::text[] WHERE id = %s"
    for tags in (
        ["A"],
        [""],
        [None],
        ["a", "", "b"],
        ["x" * 51],
        ["a\n"],
        ["a", "b\nc"],
        [["a", "b"]],
        [f"t{n}" for n in range(21)],
    ):
        with pytest.raises(psycopg.errors.CheckViolation, match="chrono_job_tags"):
            ledger.conn.execute(text, [tags, job])
    for tags in ([], ["x" * 50], [f"a/b.c:d_e-{n}" for n in range(20)]):
        ledger.conn.execute(text, [tags, job])


def test_the_key_of_a_job_does_not_change(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    with pytest.raises(BadValue) as refused:
        change_job(job, definition(key="other", interval="10s"), now=NOON)
    assert refused.value.field == "key"


def test_pause_and_resume_take_a_version_each_and_leave_one_live_timer(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    assert pause_job(job, note="holiday", now=NOON + 1).version == 2
    row = ledger.job(job)
    assert (row["paused"], row["pause_note"]) == (True, "holiday")
    assert (row["activated_at"], ledger.live(job)) == (NOON + 1, [])
    assert resume_job(job, now=NOON + 2).version == 3
    assert (ledger.job(job)["paused"], ledger.job(job)["pause_note"]) == (False, "")
    [timer] = ledger.live(job)
    assert timer[1:4] == (3, 1, NOON + 10 * SECOND)


def test_pausing_twice_and_resuming_twice_is_done_once(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    pause_job(job, note="once", now=NOON)
    assert pause_job(job, now=NOON).actions == ("unchanged",)
    assert ledger.job(job)["pause_note"] == "once"
    resume_job(job, now=NOON)
    assert resume_job(job, now=NOON).actions == ("unchanged",)
    assert ledger.job(job)["version"] == 3


def test_a_paused_job_may_be_changed_and_stays_without_a_timer(ledger):
    job = create_job(definition(interval="10s", paused=True), now=NOON).job_id
    change_job(job, definition(interval="20s"), now=NOON + HOUR)
    row = ledger.job(job)
    assert (row["version"], row["paused"], row["activated_at"]) == (
        2,
        True,
        NOON + HOUR,
    )
    assert not ledger.timers(job)
    assert ledger.skips(job) == [
        (NOON + 10 * SECOND, Reason.PAUSED, 360, NOON + HOUR)
    ], "by the schedule of that time"


def test_a_change_and_a_pause_at_once_take_one_version(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    outcome = change_job(job, definition(interval="20s", paused=True), now=NOON + 1)
    assert outcome.actions == ("changed", "paused")
    assert (outcome.version, ledger.job(job)["version"]) == (2, 2)
    assert ledger.live(job) == []


def test_whoever_is_not_there_is_said_to_be_missing(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    gone = create_job(definition(key="gone", interval="10s"), now=NOON).job_id
    delete_job(gone, now=NOON)
    for missing in (uuid.uuid4(), gone):
        with pytest.raises(JobNotFound):
            pause_jobs([job, missing], now=NOON)
    assert not ledger.job(job)["paused"]


# The past belongs to the old definition, the future to the new one.


def test_moving_a_job_from_evening_to_morning_at_noon_fires_nothing_at_once(ledger):
    job = create_job(definition(cron="0 18 * * *"), now=NOON - HOUR).job_id
    change_job(job, definition(cron="0 8 * * *"), now=NOON)
    assert ledger.timers(job, kind=2) == []
    assert ledger.skips(job) == []
    [timer] = ledger.live(job)
    assert timer[3] == parse_instant("2054-12-01T08:00:00Z")


def test_an_edit_during_an_outage_loses_nothing(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    fired = ledger.fired(job, NOON + 10 * SECOND)
    now = NOON + 5 * MINUTE + 1
    change_job(job, definition(interval="7s"), now=now)
    late = ledger.timers(job, kind=2)
    # 12:04:00 was due a minute and a millisecond ago: the newest that was missed.
    assert [t[3] for t in late] == [NOON + s * SECOND for s in range(240, 301, 10)]
    for kind, version, revision, moment, due_at, ref, prev in late:
        assert (kind, version, revision, prev) == (2, 1, 1, None)
        assert ref == run_id(job, moment, 0, partition_of(job))
        assert due_at == moment
    assert ledger.skips(job) == [
        (NOON + 20 * SECOND, Reason.COLLAPSED, 22, NOON + 230 * SECOND)
    ]
    [timer] = ledger.live(job)
    assert timer[3] > now
    assert (timer[3] - NOON) % (7 * SECOND) == 0
    assert timer[6] == fired


def test_what_was_missed_for_up_to_a_minute_runs_and_older_ones_collapse(ledger):
    job = create_job(definition(cron="* * * * *", time_critical=True), now=NOON).job_id
    now = NOON + 5 * MINUTE
    change_job(job, definition(cron="*/2 * * * *", time_critical=True), now=now)
    minutes = [(t[3] - NOON) // MINUTE for t in ledger.timers(job, kind=2)]
    assert minutes == [3, 4, 5]
    assert ledger.skips(job) == [
        (NOON + MINUTE, Reason.COLLAPSED, 2, NOON + 2 * MINUTE)
    ]
    assert [t[3] for t in ledger.live(job)] == [NOON + 6 * MINUTE]


def test_a_single_older_one_is_a_plain_row(ledger):
    job = create_job(definition(interval="1h"), now=NOON).job_id
    change_job(job, definition(interval="2h"), now=NOON + 2 * HOUR + 30 * MINUTE)
    assert [t[3] for t in ledger.timers(job, kind=2)] == [NOON + 2 * HOUR]
    assert ledger.skips(job) == [(NOON + HOUR, Reason.COLLAPSED, None, None)]


def test_an_occurrence_waiting_for_its_jitter_keeps_its_old_due_time(ledger):
    job = create_job(
        definition(cron="0 12 * * *", jitter_window="1h"), now=NOON - HOUR
    ).job_id
    change_job(job, definition(cron="0 18 * * *", time_critical=True), now=NOON + 1)
    [late] = ledger.timers(job, kind=2)
    assert late[3:5] == (NOON, NOON + offset(job, HOUR))
    [timer] = ledger.live(job)
    assert timer[3:5] == (NOON + 6 * HOUR, NOON + 6 * HOUR)


def test_a_second_edit_decides_nothing_again(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    change_job(job, definition(interval="7s"), now=NOON + 30 * SECOND)
    late = ledger.timers(job, kind=2)
    assert len(late) == 3
    change_job(job, definition(interval="9s"), now=NOON + 31 * SECOND)
    assert ledger.timers(job, kind=2) == late
    assert ledger.job(job)["activated_at"] == NOON + 31 * SECOND


def test_the_ledger_s_stretch_counts_to_its_last_instant(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    ledger.conn.execute(
        """
        INSERT INTO chrono_occurrence (scheduled_for, job_id, fence, version, revision,
            part, outcome, kind, reason, occurrences, last_scheduled_for)
        SELECT to_timestamp(%s / 1000.0), id, 0, 1, 1, part, 2, 1, 5, 3,
            to_timestamp(%s / 1000.0) FROM chrono_job
        """,
        [NOON + 10 * SECOND, NOON + 30 * SECOND],
    )
    change_job(job, definition(interval="7s"), now=NOON + 45 * SECOND)
    assert [t[3] for t in ledger.timers(job, kind=2)] == [NOON + 40 * SECOND]


def test_manual_runs_decide_nothing_of_the_schedule(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    ledger.fired(job, NOON + 25 * SECOND, group=1)
    change_job(job, definition(interval="7s"), now=NOON + 30 * SECOND)
    assert [t[3] for t in ledger.timers(job, kind=2)] == [
        NOON + s * SECOND for s in (10, 20, 30)
    ]
    assert [t[6] for t in ledger.live(job)] == [None]


def test_nothing_is_planned_before_what_is_decided_already(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    ledger.fired(job, NOON + 20 * SECOND)
    change_job(job, definition(interval="7s"), now=NOON + 15 * SECOND)
    assert ledger.job(job)["activated_at"] == NOON + 20 * SECOND
    assert [t[3] for t in ledger.live(job)] == [NOON + 21 * SECOND]


def test_a_pause_records_what_was_not_fired(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    ledger.fired(job, NOON + 10 * SECOND)
    pause_job(job, now=NOON + 40 * SECOND)
    assert ledger.timers(job, kind=2) == []
    assert ledger.skips(job) == [
        (NOON + 20 * SECOND, Reason.PAUSED, 3, NOON + 40 * SECOND)
    ]
    resume_job(job, now=NOON + HOUR)
    assert [t[3] for t in ledger.live(job)] == [NOON + HOUR + 10 * SECOND]
    assert ledger.skips(job)[1:] == [
        (NOON + 50 * SECOND, Reason.PAUSED, 356, NOON + HOUR)
    ], "what the pause left out is known once it is over"


def test_a_delete_ends_what_was_not_fired_and_plans_no_more(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    outcome = delete_job(job, now=NOON + 10 * SECOND)
    assert (outcome.actions, outcome.version) == (("deleted",), 2)
    assert ledger.job(job)["deleted"]
    assert ledger.live(job) == []
    assert ledger.skips(job) == [(NOON + 10 * SECOND, Reason.ENDED, None, None)]


def test_a_delete_settles_the_runs_that_wait(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    other = create_job(definition(key="other", interval="10s"), now=NOON).job_id
    for one in (job, other):
        key = "nightly" if one == job else "other"
        change_job(one, definition(key=key, interval="9s"), now=NOON + 10 * SECOND)
    retried = ledger.fired(job, NOON - HOUR)
    ledger.conn.execute(
        """
        INSERT INTO chrono_timer_far (due_at, scheduled_for, ref, job_id, version,
            revision, part, kind, attempt)
        SELECT to_timestamp(%s / 1000.0), to_timestamp(%s / 1000.0), %s, id, 0, 1, part,
            4, 3 FROM chrono_job WHERE id = %s
        """,
        [NOON + HOUR, NOON - HOUR, retried, job],
    )
    [late] = ledger.timers(job, kind=2)
    delete_job(job, now=NOON + 10 * SECOND)
    assert {t[0] for t in ledger.timers(job)} == {1}
    settled = ledger.rows("SELECT id, state, reason, attempt FROM chrono_run")
    assert set(settled) == {(late[5], 4, 26, 1), (retried, 4, 26, 3)}
    assert (NOON + 10 * SECOND, Reason.DELETED, None, None) in ledger.skips(job)
    assert len(ledger.timers(other, kind=2)) == 1


# Several at once.


def test_many_are_paused_and_resumed_in_one_go(ledger):
    jobs = [
        outcome.job_id
        for outcome in create_jobs(
            [definition(key=f"job-{n}", interval="10s") for n in range(30)], now=NOON
        )
    ]
    paused = pause_jobs([*jobs, jobs[0]], note="all", now=NOON + 10 * SECOND)
    assert [outcome.job_id for outcome in paused] == jobs
    assert all(len(ledger.skips(job)) == 1 for job in jobs)
    for job in jobs:
        row = ledger.job(job)
        assert row["epoch"] == ledger.epoch(row["part"]) == 2
    resume_jobs(jobs, now=NOON + 20 * SECOND)
    assert all(len(ledger.live(job)) == 1 for job in jobs)


def test_more_than_a_batch_takes_several_transactions(ledger, monkeypatch):
    monkeypatch.setattr(commands, "BATCH", 4)
    create_jobs(
        [definition(key=f"job-{n}", interval="10s") for n in range(10)], now=NOON
    )
    [(transactions,)] = ledger.rows("SELECT count(DISTINCT xmin::text) FROM chrono_job")
    assert transactions == 3


# Beside others.


def test_an_edit_waits_for_a_fire_in_flight_and_sees_what_it_decided(
    ledger, connect, background
):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    part = ledger.job(job)["part"]
    leader = connect(autocommit=False)
    leader.execute("SELECT FROM chrono_partition WHERE id = %s FOR SHARE", [part])
    edit, pid = in_thread(background, pause_job, job, now=NOON + 10 * SECOND)
    pg.wait_until_blocked(ledger.conn, pid)
    moment = NOON + 10 * SECOND
    run = run_id(job, moment, 0, part)
    leader.execute(
        "INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence, version, "
        "revision, part, outcome, kind) VALUES (to_timestamp(%s / 1000.0), %s, %s, 0, "
        "1, 1, %s, 1, 1)",
        [moment, job, run, part],
    )
    leader.commit()
    assert edit.result(timeout=5).actions == ("paused",)
    assert ledger.skips(job) == []
    resume_job(job, now=NOON + HOUR)
    assert [t[6] for t in ledger.live(job)] == [run]


def test_the_second_of_two_edits_builds_on_the_first(ledger, connect, background):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    first = connect(autocommit=False)
    first.execute("SELECT FROM chrono_job WHERE id = %s FOR UPDATE", [job])
    second, pid = in_thread(
        background, change_job, job, definition(interval="7s"), now=NOON + 1
    )
    pg.wait_until_blocked(ledger.conn, pid)
    first.execute(
        "INSERT INTO chrono_job_revision (job_id, revision, schedule, jitter_window, "
        "overlap_policy, queue, priority, target, payload, retry_policy, created_at) "
        "SELECT job_id, 2, schedule, jitter_window, overlap_policy, 'slow', priority, "
        "target, payload, retry_policy, created_at FROM chrono_job_revision"
    )
    first.execute("UPDATE chrono_job SET revision = 2 WHERE id = %s", [job])
    first.commit()
    assert second.result(timeout=5).revision == 3


def test_edits_of_the_same_partitions_do_not_meet_in_a_deadlock(ledger, background):
    jobs = [
        outcome.job_id
        for outcome in create_jobs(
            [definition(key=f"job-{n}", interval="10s") for n in range(40)], now=NOON
        )
    ]
    odd, even = jobs[::2], jobs[1::2]

    def toggle(ids):
        for _ in range(10):
            pause_jobs(ids, now=NOON)
            resume_jobs(ids[::-1], now=NOON)

    futures = [in_thread(background, toggle, ids)[0] for ids in (odd, even)]
    for future in futures:
        future.result(timeout=30)
    assert {ledger.job(job)["version"] for job in jobs} == {21}


@pytest.mark.parametrize("table", ["chrono_job", "chrono_partition"])
def test_locks_are_taken_in_the_order_of_ids_whatever_that_of_the_rows(
    ledger, connect, background, table
):
    made = create_jobs(
        [definition(key=f"job-{n}", interval="10s") for n in range(40)], now=NOON
    )
    jobs = [outcome.job_id for outcome in made]
    # The lowest ids become the last rows, and no index puts them in order again: an
    # unsorted scan would come to them last.
    ledger.conn.execute(
        """
        DO $$ BEGIN
            EXECUTE format('ALTER DATABASE %I SET enable_indexscan = off',
                current_database());
            EXECUTE format('ALTER DATABASE %I SET enable_bitmapscan = off',
                current_database());
        END $$
        """
    )
    wanted = jobs if table == "chrono_job" else [partition_of(job) for job in jobs]
    for one in sorted(set(wanted))[:3]:
        ledger.conn.execute(f"UPDATE {table} SET epoch = epoch WHERE id = %s", [one])
    holder = connect(autocommit=False)
    holder.execute(f"SELECT FROM {table} WHERE id = %s FOR SHARE", [min(wanted)])
    edit, pid = in_thread(background, pause_jobs, jobs, now=NOON)
    pg.wait_until_blocked(ledger.conn, pid)
    free = ledger.rows(
        f"SELECT id FROM {table} WHERE id = ANY(%s) FOR UPDATE SKIP LOCKED",
        sorted(set(wanted)),
    )
    assert len(free) == len(set(wanted)) - 1
    holder.rollback()
    assert len(edit.result(timeout=5)) == len(jobs)


def test_a_lock_that_is_not_to_be_had_is_said_and_nothing_is_changed(ledger, connect):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    holder = connect(autocommit=False)
    holder.execute("SELECT FROM chrono_partition FOR UPDATE")
    with pytest.raises(JobsBusy):
        pause_job(job, now=NOON)
    holder.rollback()
    assert not ledger.job(job)["paused"]
    assert pause_job(job, now=NOON).actions == ("paused",)


def test_an_edit_that_stops_half_way_gives_its_partitions_back(ledger, monkeypatch):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    monkeypatch.setattr(
        commands.store,
        "update_jobs",
        lambda conn, **_: _wait_for_the_end(ledger.conn, conn),
    )
    with pytest.raises(JobsBusy):
        pause_job(job, now=NOON)
    monkeypatch.undo()
    assert pause_job(job, now=NOON).actions == ("paused",)


def _wait_for_the_end(observer, conn):
    """Do nothing in an open transaction until the server has ended the session."""
    pid = conn.info.backend_pid
    with pytest.raises(TimeoutError):
        pg.wait_until_blocked(observer, pid, timeout=3)
    conn.execute("SELECT 1")


def test_leaders_hear_of_the_partitions_after_the_commit(ledger, connect):
    listener = connect()
    listener.execute("LISTEN chrono_jobs")
    job = create_job(definition(interval="10s"), now=NOON).job_id
    part = ledger.job(job)["part"]
    pause_job(job, now=NOON)
    heard = [n.payload for n in listener.notifies(timeout=5, stop_after=2)]
    assert heard == [str(part), str(part)]
    assert change_job(job, definition(interval="10s"), now=NOON).actions
    assert list(listener.notifies(timeout=0.05)) == []


def test_a_hint_that_fails_does_not_undo_what_is_done(ledger, monkeypatch):
    def refuse(conn, *, partitions):
        raise RuntimeError("no hint")

    monkeypatch.setattr(commands.store, "notify_leaders", refuse)
    job = create_job(definition(interval="10s"), now=NOON).job_id
    assert ledger.job(job)["version"] == 1
