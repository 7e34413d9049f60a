"""The audit is silent where all is right, and tells what it looked at.

What it finds where one thing is wrong is in test_audit_faults; here are the faults of
what somebody edits, each in a database of its own.
"""

import gc
import io
import tracemalloc
from collections import Counter

import psycopg
import pytest
from django.core.management import CommandError, call_command

from apps.jobs import audit_store
from apps.jobs.audit import CHECKS, Scope, audit, examine
from apps.jobs.audit_checks import CONSTRAINTS
from apps.jobs.commands import (
    change_job,
    create_job,
    delete_job,
    pause_job,
    replan_jobs,
    restore_job,
    resume_job,
    skip_next,
)
from apps.jobs.manual import run_now
from apps.runs.cancel import cancel, cancel_by
from apps.runtime.locks import PARTITION_LOCKS
from apps.tenants.actor import Actor
from apps.tenants.directory import create_tenant
from apps.tenants.keys import issue
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND, format_instant
from chrono.rules.partitions import partition_of
from tests.jobs.history import (
    EVERY,
    FENCE,
    commit_times,
    fail,
    fire,
    found,
    make_history,
    make_jobs,
    one,
    plan,
    prepare,
    ready,
    settle,
    skip,
)
from tests.scheduler.conftest import lead
from tests.support.definitions import definition


@pytest.fixture
def now(ledger):
    """The database's time, in a database with day leaves and a leadership."""
    return prepare(ledger)


@pytest.fixture
def born(now):
    """When the job was made: a minute ago."""
    return now - MINUTE


@pytest.fixture
def job(ledger, born):
    """A job of every ten seconds that fired twice: one settled, one leased."""
    return make_history(ledger, born)


# Where all is right.


def test_all_is_right(ledger, job):
    assert audit(ledger.conn) == []


def test_all_is_right_after_edits(ledger, job):
    pause_job(job)
    assert audit(ledger.conn) == []
    create_job(definition(key="other", run_at="2100-01-01T00:00:00Z"))
    delete_job(job)
    assert audit(ledger.conn) == []
    restore_job(job)
    resume_job(job)
    skip_next(job, count=3)
    assert audit(ledger.conn) == []
    issue(name="ci", scopes=["read"], tenant=1, actor=Actor.command("test"))
    create_tenant("second", actor=Actor.command("test"))
    assert audit(ledger.conn) == []


def test_a_history_that_the_engine_made_is_right(dsn, ledger, now):
    """Edits, pauses, skips, an outage and clock changes, on the engine itself."""
    start = now - now % HOUR - 12 * HOUR
    with lead(dsn, start) as leader:
        jobs = {
            "minutes": leader.create("minutes", cron="*/7 * * * *"),
            "seconds": leader.create("seconds", cron="*/20 * * * * *", seconds=True),
            "jitter": leader.create("jitter", cron="* * * * *", jitter_window="20s"),
            "steps": leader.create("steps", interval="90s", overlap_policy="allow_all"),
            "away": leader.create(
                "away", cron="H/10 * * * *", timezone="America/St_Johns"
            ),
            "once": leader.create("once", run_at=format_instant(start + HOUR)),
            "few": leader.create("few", interval="1m", remaining_runs=3),
            "all": leader.create("all", interval="4m", catchup_policy="run_all"),
            "none": leader.create("none", interval="5m", catchup_policy="skip"),
            "queue": leader.create(
                "queue", interval="30s", overlap_policy="buffer_one"
            ),
            "bound": leader.create(
                "bound",
                cron="* * * * *",
                starts_at=format_instant(start + 2 * MINUTE),
                ends_at=format_instant(start + 15 * MINUTE),
            ),
            "delay": leader.create("delay", fixed_delay="40s"),
        }
        leader.run_to(start + 5 * MINUTE, every=5 * SECOND)
        pause_job(jobs["seconds"], now=leader.clock.moment)
        change_job(
            jobs["minutes"],
            definition(key="minutes", cron="*/2 * * * *", jitter_window="0s"),
            now=leader.clock.moment,
        )
        leader.run_to(start + 9 * MINUTE, every=5 * SECOND)
        resume_job(jobs["seconds"], now=leader.clock.moment)
        replan_jobs({jobs["away"]: 1}, now=leader.clock.moment)
        skip_next(jobs["jitter"], count=4, now=leader.clock.moment)
        leader.run_to(start + 20 * MINUTE, every=5 * SECOND)
        # An outage, in which somebody goes on editing.
        leader.clock.moment += 2 * HOUR
        now = leader.clock.moment
        change_job(
            jobs["steps"],
            definition(key="steps", interval="5m", overlap_policy="allow_all"),
            now=now,
        )
        leader.run_to(now + 10 * MINUTE, every=5 * SECOND)
        delete_job(jobs["away"], now=leader.clock.moment)
        leader.run_to(now + 15 * MINUTE, every=5 * SECOND)
    report = examine(ledger.conn, Scope())
    assert report.findings == []
    assert report.jobs == len(jobs)
    assert report.occurrences > 500
    # With one row gone, whichever it is but the last of its job, it is not. Of a pause
    # there is one row or none, and a delay and other rules of a zone tell no instants.
    rows = ledger.rows(
        "SELECT part, job_id, scheduled_for FROM chrono_occurrence o "
        "WHERE scheduled_for < (SELECT max(scheduled_for) FROM chrono_occurrence l "
        "WHERE l.job_id = o.job_id) AND reason IS DISTINCT FROM 1 "
        "AND job_id <> ALL(%s) ORDER BY md5(scheduled_for::text) LIMIT 12",
        [jobs["delay"], jobs["away"]],
    )
    ledger.conn.execute("CREATE TEMPORARY TABLE gone (LIKE chrono_occurrence)")
    for row in rows:
        ledger.conn.execute(
            "WITH gone AS (DELETE FROM chrono_occurrence WHERE (part, job_id, "
            "scheduled_for) = (%s, %s, %s) RETURNING *) INSERT INTO gone TABLE gone",
            row,
        )
        assert "decisions" in found(ledger, jobs=(row[1],))[0], row
        ledger.conn.execute(
            "WITH back AS (DELETE FROM gone RETURNING *) "
            "INSERT INTO chrono_occurrence TABLE back"
        )


# I1, I15: what promises rest on.


def test_every_constraint_of_the_schema_is_asked_for(ledger):
    there = ledger.rows(
        """
        SELECT r.relname, c.conname FROM pg_constraint c
        JOIN pg_class r ON r.oid = c.conrelid
        WHERE r.relname ^@ 'chrono_' AND NOT r.relispartition
            AND c.contype IN ('c', 'u', 'p')
        UNION
        SELECT r.relname, i.relname FROM pg_index x
        JOIN pg_class r ON r.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
        WHERE r.relname ^@ 'chrono_' AND NOT r.relispartition AND x.indisunique
        UNION
        SELECT r.relname, t.tgname FROM pg_trigger t
        JOIN pg_class r ON r.oid = t.tgrelid
        WHERE r.relname ^@ 'chrono_' AND NOT t.tgisinternal
        """
    )
    asked = {(table, name) for table in CONSTRAINTS for name in CONSTRAINTS[table]}
    # Foreign keys that Django names are not among them; this one is ours.
    assert {*there, ("chrono_job", "chrono_job_tenant")} == asked


def test_a_constraint_that_is_gone(ledger, job):
    ledger.conn.execute(
        "ALTER TABLE chrono_occurrence DROP CONSTRAINT chrono_occurrence_pkey"
    )
    assert one(ledger, "constraints") == (
        "chrono_occurrence.chrono_occurrence_pkey is missing"
    )


def test_a_constraint_that_was_never_validated(ledger, job):
    ledger.conn.execute(
        "ALTER TABLE chrono_job DROP CONSTRAINT chrono_job_instants; "
        "ALTER TABLE chrono_job ADD CONSTRAINT chrono_job_instants CHECK (true) "
        "NOT VALID"
    )
    assert one(ledger, "constraints").endswith("was never validated")


def test_a_unique_index_that_is_not_unique(ledger, job):
    ledger.conn.execute(
        "DROP INDEX chrono_job_key; CREATE INDEX chrono_job_key ON chrono_job (key)"
    )
    assert one(ledger, "constraints").endswith("is no valid unique index")


def test_audit_events_that_could_be_changed(ledger, job):
    ledger.conn.execute(
        "ALTER TABLE chrono_audit_event ENABLE TRIGGER chrono_audit_event_append_only"
    )
    assert one(ledger, "constraints").endswith("is switched off for some sessions")


# I2: what was acknowledged.


def test_a_change_that_was_acknowledged_and_is_lost(ledger, job):
    pause_job(job)
    ledger.conn.execute("UPDATE chrono_job SET changes = 1")
    names, findings = found(ledger)
    assert names == {"versions", "recorded"}
    assert findings[-1].detail == "is at version 1, though 2 was acknowledged"


def test_a_job_that_was_acknowledged_and_is_gone(ledger, job):
    other = create_job(definition(key="other", run_at="2100-01-01T00:00:00Z")).job_id
    ledger.conn.execute("DELETE FROM chrono_job_revision WHERE job_id = %s", [other])
    ledger.conn.execute("DELETE FROM chrono_job WHERE id = %s", [other])
    assert one(ledger, "versions") == (
        f"job {other} is gone, though job.create was acknowledged"
    )


# I3: one decision for each occurrence.


def test_a_run_fired_after_its_job_was_paused(ledger, job):
    pause_job(job)
    moment = ledger.job(job)["activated_at"] + EVERY
    settle(ledger, ledger.fired(job, moment, fence=FENCE, version=2), moment)
    assert "fired by plan 2, which is paused or deleted" in one(ledger, "decisions")


def test_a_row_of_an_edit_stands_for_at_least_so_many(ledger, now):
    start = now - 2 * HOUR
    job = create_job(definition(interval="10s"), now=start).job_id
    # Nobody fired for two hours: 720 occurrences, of which 500 were counted.
    skip(ledger, job, start + EVERY, now - now % EVERY + start % EVERY, count=500)
    last = now - now % EVERY + start % EVERY
    plan(ledger, job, last + EVERY)
    assert "as 500 occurrences, where there are 501" in one(ledger, "decisions")
    pause_job(job)
    ledger.conn.execute("UPDATE chrono_occurrence SET fence = 0")
    names, _ = found(ledger)
    assert "decisions" not in names


def test_a_stretch_that_began_before_the_look(ledger, now):
    start = now - 47 * HOUR
    job = create_job(definition(interval="1h"), now=start).job_id
    skip(ledger, job, start + HOUR, start + 40 * HOUR, count=40)
    plan(ledger, job, start + 41 * HOUR)
    assert audit(ledger.conn) == []
    plan(ledger, job, start + 42 * HOUR)
    assert "where" in one(ledger, "plans")


def test_an_old_plan_that_left_an_occurrence_out(ledger, job, born):
    fire(ledger, job, born + 3 * EVERY)
    fire(ledger, job, born + 4 * EVERY)
    change_job(job, definition(run_at="2100-01-01T00:00:00Z"), now=born + 45 * SECOND)
    assert audit(ledger.conn) == []
    ledger.conn.execute(
        "DELETE FROM chrono_occurrence WHERE scheduled_for = to_timestamp(%s / 1000.0)",
        [born + 3 * EVERY],
    )
    names, findings = found(ledger)
    assert names == {"decisions", "orphans"}
    assert findings[0].detail.endswith("undecided")


def test_a_schedule_that_nobody_can_read(ledger, job):
    ledger.conn.execute('UPDATE chrono_job_revision SET schedule = \'{"cron": "?"}\'')
    names, findings = found(ledger)
    assert names >= {"decisions", "plans"}
    assert any("cannot be read: cron ?" in finding.detail for finding in findings)


def test_a_paused_job_with_a_live_timer(ledger, job, born):
    pause_job(job)
    plan(ledger, job, born + 3 * EVERY)
    assert one(ledger, "plans").endswith("is paused or deleted and has 1 timers")


def test_a_single_instant_that_is_over_needs_no_timer(ledger, job, now):
    once = create_job(definition(key="once", run_at=format_instant(now))).job_id
    ledger.conn.execute("DELETE FROM chrono_timer_far WHERE ref = %s", [once])
    assert one(ledger, "plans").endswith("has 0 timers"), "it is not decided yet"
    fire(ledger, once, now)
    assert one(ledger, "plans").endswith("after its schedule's end")
    ledger.conn.execute("DELETE FROM chrono_timer_far WHERE ref = %s", [once])
    assert audit(ledger.conn) == []


def test_runs_that_are_used_up_need_no_timer(ledger, born):
    few = create_job(
        definition(
            key="few", interval="10s", remaining_runs=2, overlap_policy="allow_all"
        ),
        now=born,
    ).job_id
    fire(ledger, few, born + EVERY)
    fire(ledger, few, born + 2 * EVERY)
    ledger.conn.execute("DELETE FROM chrono_timer_far")
    assert audit(ledger.conn) == []
    pause_job(few)
    assert audit(ledger.conn) == []


def test_a_fixed_delay_without_its_timer(ledger, born):
    delayed = create_job(definition(key="delayed", fixed_delay="10s"), now=born).job_id
    assert audit(ledger.conn) == []
    ledger.conn.execute("DELETE FROM chrono_timer_far")
    assert one(ledger, "plans") == f"job {delayed} has 0 timers"


def test_a_manual_run_and_its_slot(ledger, job):
    run = run_now(job).run_id
    assert audit(ledger.conn) == []
    ledger.conn.execute("DELETE FROM chrono_timer_far WHERE kind = 3")
    assert one(ledger, "slots") == f"run {run} holds a slot of job {job} and is nowhere"


# I8: what is final stays.


@pytest.mark.parametrize(
    "change",
    [
        "chrono_run SET started_at = due_at, finished_at = now() - interval '2 min'",
        "chrono_occurrence SET decided_at = now() - interval '2 min'",
    ],
)
def test_a_row_that_was_written_long_after_its_time(ledger, now, change):
    start = now - HOUR
    job = create_job(definition(interval="10s"), now=start).job_id
    fire(ledger, job, start + EVERY)
    assert audit(ledger.conn) == []
    ledger.conn.execute(f"UPDATE {change}")
    names, _ = found(ledger)
    assert names == ({"rewritten"} if commit_times(ledger) else set())


def test_a_cancelled_run_may_still_lie_in_ready(ledger, job):
    ready(ledger)
    ledger.conn.execute("DELETE FROM chrono_lease")
    [(run,)] = ledger.rows("SELECT run_id FROM chrono_ready")
    cancel_by(ledger.conn, run, tenant=1, actor=Actor.command("test"))
    assert audit(ledger.conn) == []
    ledger.conn.execute("DELETE FROM chrono_withdrawn")
    assert one(ledger, "doubles").startswith(f"run {run} is settled and in ready")


# I10: never early.


@pytest.fixture
def jittered(ledger, born):
    """A job with a jitter that is neither 0 nor its whole window, and its offset."""
    for number in range(20):
        job = create_job(
            definition(key=f"j{number}", cron="* * * * *", jitter_window="30s"),
            now=born - HOUR,
        ).job_id
        [(_, _, _, scheduled_for, due_at, _, _)] = ledger.timers(job)
        if MINUTE > due_at - scheduled_for > SECOND:
            return job, scheduled_for, due_at - scheduled_for
        delete_job(job)
    raise AssertionError("no jitter")


def test_a_timer_that_is_due_apart_from_its_jitter(ledger, jittered, now):
    job, scheduled_for, offset = jittered
    assert audit(ledger.conn) == []
    plan(ledger, job, scheduled_for, late=offset - 1)
    assert "is due at" in one(ledger, "jitter")
    # After its time it may be due later, as after an outage; before, it may not.
    plan(ledger, job, scheduled_for, late=offset + MINUTE)
    assert audit(ledger.conn) == []
    pause_job(job)
    resume_job(job)
    [(_, _, _, scheduled_for, _, _, _)] = ledger.live(job)
    plan(ledger, job, scheduled_for, late=offset + MINUTE)
    assert "is due at" in one(ledger, "jitter")


def test_a_run_that_was_due_before_its_jitter(ledger, jittered):
    job, moment, offset = jittered
    run = ledger.fired(job, moment, fence=FENCE)
    settle(ledger, run, moment + offset, job=job)
    plan(ledger, job, moment + MINUTE, late=offset)
    assert audit(ledger.conn) == []
    ledger.conn.execute("DELETE FROM chrono_run")
    settle(ledger, run, moment + offset - 1, job=job)
    assert "before its instant and its job's jitter" in one(ledger, "jitter")


# I14: who changed what.


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE chrono_job SET name = 'by hand'",
        "UPDATE chrono_job_revision SET queue = 'other'",
        "UPDATE chrono_job SET updated_at = now(), paused_by = 'nobody'",
    ],
)
def test_a_change_that_nobody_wrote_down(ledger, job, change):
    ledger.conn.execute(change)
    names, findings = found(ledger)
    assert names == {"recorded"}
    assert findings[0].subject == f"job {job}"


def test_a_change_whose_event_is_of_another_transaction(ledger, job):
    run_now(job)
    ledger.conn.execute("UPDATE chrono_job SET changes = changes")
    assert one(ledger, "recorded").endswith(
        "its row was written without an audit event"
    )


def test_a_key_that_nobody_wrote_down(ledger, job):
    issued = issue(name="ci", scopes=["read"], tenant=1, actor=Actor.command("test"))
    assert audit(ledger.conn) == []
    ledger.conn.execute("UPDATE chrono_api_key SET name = 'by hand'")
    assert one(ledger, "recorded").startswith(f"key {issued.key.id} ")
    # A key that was used has been written by its use.
    ledger.conn.execute("UPDATE chrono_api_key SET last_used_at = now()")
    assert audit(ledger.conn) == []


def test_a_cancel_that_nobody_wrote_down(ledger, job):
    ready(ledger)
    ledger.conn.execute("DELETE FROM chrono_lease")
    [(run,)] = ledger.rows("SELECT run_id FROM chrono_ready")
    cancel(ledger.conn, run)
    assert one(ledger, "recorded") == f"run {run} was written without an audit event"


# I16: nothing due is left lying.


def test_what_an_edit_left_behind_waits_for_nobody(ledger, job, born, connect):
    pause_job(job)
    leader = connect()
    ledger.conn.execute("UPDATE chrono_partition SET taken_at = now() - interval '1 h'")
    leader.execute(
        "SELECT pg_advisory_lock(%s, %s)", [PARTITION_LOCKS, partition_of(job)]
    )
    plan(ledger, job, born + 3 * EVERY, version=1)
    assert audit(ledger.conn) == []


# What is looked at, and how it is told.


def test_one_job_or_one_tenant_alone(ledger, job, born):
    other = create_job(definition(key="other", interval="1h")).job_id
    ledger.conn.execute("DELETE FROM chrono_timer_far WHERE ref = %s", [other])
    ledger.conn.execute("UPDATE chrono_run SET started_at = due_at - interval '1 s'")
    assert found(ledger, jobs=(other,))[0] == {"plans"}
    assert found(ledger, jobs=(job,))[0] == {"instants"}
    assert found(ledger, tenant=1)[0] == {"plans", "instants"}
    assert found(ledger, tenant=2)[0] == set()
    report = examine(ledger.conn, Scope(jobs=(job,)))
    assert (report.jobs, report.occurrences) == (1, 2)
    assert "nobody's own" in report.left_out[-1]


def test_no_further_back_than_was_asked_for(ledger, now):
    start = now - 3 * HOUR
    job = create_job(definition(interval="1h"), now=start).job_id
    fire(ledger, job, start + 2 * HOUR)
    plan(ledger, job, start + 3 * HOUR)
    assert "undecided" in one(ledger, "decisions")
    assert found(ledger, back=90 * MINUTE)[0] == set()
    report = examine(ledger.conn, Scope(back=40 * DAY))
    assert [words.split()[0] for words in report.left_out][:2] == ["all", "what"]


def test_many_findings_are_counted_and_the_first_hundred_told(ledger, now):
    for number in range(102):
        create_job(definition(key=f"k{number}", interval="1h"))
    ledger.conn.execute("DELETE FROM chrono_timer_far")
    report = examine(ledger.conn, Scope())
    assert report.counts == Counter(plans=102)
    assert len(report.findings) == 100


def test_a_batch_that_takes_too_long_is_told_and_left(ledger, job, connect):
    blocker = connect()
    with blocker.transaction():
        blocker.execute("LOCK TABLE chrono_slot IN ACCESS EXCLUSIVE MODE")
        names, findings = found(ledger)
    assert names == {"answers"}
    assert "lock timeout" in findings[0].detail
    assert audit(ledger.conn) == []


def test_the_audit_writes_nothing_and_keeps_no_session_setting(ledger, job):
    seen = []

    def rest(seconds):
        seen.append(ledger.conn.info.transaction_status)

    examine(ledger.conn, Scope(), rest=rest)
    assert set(seen) == {psycopg.pq.TransactionStatus.IDLE}
    assert ledger.rows("SHOW statement_timeout") == [("0",)]
    with (
        audit_store.audit_snapshot(ledger.conn, timeout=1_000),
        pytest.raises(psycopg.errors.ReadOnlySqlTransaction),
    ):
        ledger.conn.execute("DELETE FROM chrono_lease")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_ten_thousand_jobs_need_no_more_memory_than_a_few(ledger, now):
    make_jobs(ledger, 10_000, born=now - 2 * HOUR)
    used = []

    def tell(report):
        if report.jobs % 1_000 == 0:
            gc.collect()  # What waits for it depends on all the tests before.
            used.append((report.jobs, tracemalloc.get_traced_memory()[0]))

    tracemalloc.start()
    try:
        report = examine(ledger.conn, Scope(), tell=tell)
    finally:
        tracemalloc.stop()
    assert (report.findings, report.jobs) == ([], 10_000)
    assert report.occurrences == 20_000
    early = max(memory for jobs, memory in used if jobs <= 1_000)
    late = max(memory for jobs, memory in used if jobs > 1_000)
    assert late < early + 2_000_000


def test_the_command_tells_each_check_and_ends_with_1_where_one_fails(ledger, job):
    out = io.StringIO()
    call_command("chronoaudit", "--pause", "0s", stdout=out)
    lines = out.getvalue().splitlines()
    assert lines[-1] == "chronoaudit: 0 findings in 1 jobs, 2 occurrences"
    told = [line.split()[:3] for line in lines[: len(CHECKS)]]
    assert told == [[check.code, check.name, "ok"] for check in CHECKS]
    assert (len(lines) == len(CHECKS) + 1) == commit_times(ledger)
    ledger.conn.execute("DELETE FROM chrono_lease")
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("chronoaudit", "--pause", "0s", stdout=out)
    assert ended.value.code == 1
    text = out.getvalue()
    assert text.splitlines()[-1].startswith("chronoaudit: 1 findings in 1 jobs")
    assert "\n  To do: Run the job by hand" in text


def test_the_command_finds_jobs_by_key_and_id(ledger, job):
    out = io.StringIO()
    other = create_job(definition(key="other", interval="1h")).job_id
    options = {"stdout": out, "pause": "0s"}
    call_command("chronoaudit", "--jobs", "nightly", str(other), **options)
    assert out.getvalue().splitlines()[-1].endswith("in 2 jobs, 2 occurrences")
    with pytest.raises(CommandError, match="The tenant default has no job nothing"):
        call_command("chronoaudit", "--jobs", "nothing", **options)
    with pytest.raises(CommandError, match="no tenant"):
        call_command("chronoaudit", "--tenant", "nobody", **options)
    with pytest.raises(CommandError, match="duration"):
        call_command("chronoaudit", "--since", "yesterday", **options)


# I11, I12: a revision that is changed is not recorded either, so each has a database.


@pytest.fixture
def once(ledger, job):
    """Have the job delivered at most once."""
    change = "UPDATE chrono_job_revision SET policy = %s WHERE job_id = %s"
    ledger.conn.execute(change, ['{"delivery": "at_most_once"}', job])


def test_a_run_that_may_be_begun_once_and_was_begun_twice(ledger, once):
    assert found(ledger)[0] == {"recorded"}
    ledger.conn.execute("UPDATE chrono_run SET attempt = 2")
    names, findings = found(ledger)
    assert "effects" in names
    assert "may be begun once, and ended with attempt 2" in {
        one.detail for one in findings
    }


def test_a_run_that_may_be_begun_once_and_is_to_be_begun_again(ledger, once):
    [(run,)] = ledger.rows("SELECT run_id FROM chrono_lease")
    fail(ledger, run, 1)
    names, findings = found(ledger)
    assert "effects" in names
    assert "may be begun once, was, and is to be begun again" in {
        one.detail for one in findings
    }


def test_a_run_that_may_be_begun_once_and_waits_behind_a_gate_to_be_begun_again(
    ledger, once
):
    [(run,)] = ledger.rows("SELECT run_id FROM chrono_lease")
    fail(ledger, run, 1)
    ledger.conn.execute(
        "WITH moved AS (DELETE FROM chrono_lease RETURNING *) INSERT INTO "
        "chrono_blocked (due_at, dispatched_at, run_id, job_id, tag, fence, revision, "
        "tenant, part, priority, attempt, queue, gate, reason) SELECT due_at, "
        "dispatched_at, run_id, job_id, tag, fence, revision, tenant, part, priority, "
        "1, queue, 'process_crash', 22 FROM moved"
    )
    assert "effects" in found(ledger)[0]


def test_an_unknown_run_has_its_error(ledger, job, born, once):
    run = ledger.fired(job, born + 3 * EVERY, fence=FENCE)
    settle(ledger, run, born + 3 * EVERY, state=6)
    plan(ledger, job, born + 4 * EVERY)
    _, findings = found(ledger)
    assert "is unknown without an error" in {one.detail for one in findings}
    fail(ledger, run, 1)
    assert "unknown" not in found(ledger)[0]
