"""One thing is wrong at a time, and the audit says what.

All tests share one database and its history; each one's rows are put back after it.
"""

import uuid
from dataclasses import replace

import psycopg
import pytest

from apps.jobs.audit import Scope, audit, examine
from apps.runtime.locks import PARTITION_LOCKS
from chrono.rules.instants import DAY, MINUTE, SECOND, format_instant
from chrono.rules.keys import run_id
from chrono.rules.partitions import partition_of
from tests.jobs.conftest import Ledger
from tests.jobs.history import (
    EVERY,
    FENCE,
    commit_times,
    fail,
    fire,
    found,
    make_history,
    one,
    plan,
    prepare,
    ready,
    settle,
    skip,
)
from tests.support import pg

MOVING = (
    "partition",
    "occurrence",
    "run",
    "lease",
    "ready",
    "attempt",
    "dead_letter",
    "death",
    "blocked",
    "timer_far",
    "slot",
)


@pytest.fixture(scope="module")
def shared(databases):
    """A database with a job that fired twice, when that was made, and its address."""
    with (
        databases.clone() as url,
        pg.default_connection(url),
        psycopg.connect(url, autocommit=True, options="-c TimeZone=UTC") as conn,
    ):
        conn.execute("UPDATE chrono_dispatch_state SET horizon = 'epoch'")
        ledger = Ledger(conn)
        born = prepare(ledger) - MINUTE
        job = make_history(ledger, born)
        for table in MOVING:
            conn.execute(f"CREATE TABLE kept_{table} AS TABLE chrono_{table}")
        yield ledger, job, born, url


@pytest.fixture
def ledger(shared):
    """The tables of the shared database; what a test does to them is undone."""
    ledger, *_ = shared
    yield ledger
    for table in MOVING:
        ledger.conn.execute(
            f"DELETE FROM chrono_{table}; "
            f"INSERT INTO chrono_{table} SELECT * FROM kept_{table}"
        )
    ledger.rows("SELECT pg_stat_force_next_flush()")
    ledger.rows("SELECT pg_stat_reset()")


@pytest.fixture
def job(shared):
    return shared[1]


@pytest.fixture
def born(shared):
    return shared[2]


@pytest.fixture
def stranger(shared):
    """Another session."""
    with psycopg.connect(shared[3], autocommit=True, options="-c TimeZone=UTC") as conn:
        yield conn


def test_all_is_right(ledger, job):
    assert audit(ledger.conn) == []


# I1, I15: what promises rest on.


@pytest.mark.parametrize(
    "wrong",
    [
        lambda job, at: run_id(job, at + 1, 0, partition_of(job)),
        lambda job, at: run_id(job, at, 0, partition_of(job) ^ 1),
        lambda job, at: run_id(job, at, 1, partition_of(job)),
    ],
    ids=["instant", "partition", "group"],
)
def test_a_run_whose_id_is_another_s(ledger, job, born, wrong):
    moment = born + 3 * EVERY
    run = fire(ledger, job, moment)
    other = wrong(job, moment)
    ledger.conn.execute("DELETE FROM chrono_run WHERE id = %s", [run])
    ledger.conn.execute(
        "UPDATE chrono_occurrence SET run_id = %s WHERE run_id = %s", [other, run]
    )
    names, findings = found(ledger)
    assert "ids" in names
    assert any("whose id is another's" in finding.detail for finding in findings)


@pytest.mark.parametrize("place", ["run", "ready"])
def test_a_run_that_the_ledger_knows_nothing_of(ledger, job, born, place):
    moment = born + 2 * EVERY
    run = run_id(job, moment, 1, partition_of(job))
    if place == "run":
        settle(ledger, run, moment)
    else:
        ledger.conn.execute("UPDATE chrono_lease SET run_id = %s", [run])
        settle(ledger, run_id(job, moment, 0, partition_of(job)), moment)
    assert one(ledger, "orphans") == f"run {run} has no row in the ledger"


def test_an_occurrence_that_was_skipped_and_ran(ledger, job, born):
    fire(ledger, job, born + 3 * EVERY)
    ledger.conn.execute(
        "DELETE FROM chrono_occurrence WHERE scheduled_for = to_timestamp(%s / 1000.0)",
        [born + 3 * EVERY],
    )
    skip(ledger, job, born + 3 * EVERY)
    assert "was skipped, and there is a run" in one(ledger, "orphans")


# I3: one decision for each occurrence.


def test_an_occurrence_that_was_never_decided(ledger, job, born):
    ledger.conn.execute(
        "DELETE FROM chrono_occurrence WHERE scheduled_for = to_timestamp(%s / 1000.0)",
        [born + EVERY],
    )
    ledger.conn.execute("DELETE FROM chrono_run")
    assert one(ledger, "decisions") == (
        f"job {job} has {format_instant(born + EVERY)} undecided"
    )


def test_an_occurrence_that_waits_in_a_late_timer_is_none(ledger, job, born):
    run = run_id(job, born + EVERY, 0, partition_of(job))
    ledger.conn.execute("DELETE FROM chrono_occurrence WHERE run_id = %s", [run])
    ledger.conn.execute("DELETE FROM chrono_run")
    ledger.conn.execute(
        "INSERT INTO chrono_timer_far (due_at, scheduled_for, ref, job_id, version, "
        "revision, part, kind) SELECT to_timestamp(%s / 1000.0), "
        "to_timestamp(%s / 1000.0), %s, id, 1, 1, part, 2 FROM chrono_job",
        [born + MINUTE, born + EVERY, run],
    )
    assert audit(ledger.conn) == []


def test_a_decision_of_an_instant_that_is_no_occurrence(ledger, job, born):
    moment = born + 3 * EVERY - 5 * SECOND
    fire(ledger, job, moment)
    plan(ledger, job, born + 3 * EVERY)
    said = one(ledger, "decisions")
    assert f"{format_instant(moment)} decided, which is no occurrence of plan 1" in said


def test_a_run_fired_from_a_stale_definition(ledger, job, born):
    fire(ledger, job, born + 3 * EVERY, version=0)
    assert "decided by plan 0 in the time of plan 1" in one(ledger, "decisions")


@pytest.mark.parametrize(
    ("count", "fence", "right"),
    [(3, FENCE, True), (2, FENCE, False), (4, FENCE, False), (2, 0, False)],
)
def test_a_row_that_stands_for_several(ledger, job, born, count, fence, right):
    skip(ledger, job, born + 3 * EVERY, born + 5 * EVERY, count=count, fence=FENCE)
    plan(ledger, job, born + 6 * EVERY)
    if right:
        assert audit(ledger.conn) == []
    else:
        assert f"as {count} occurrences, where there are" in one(ledger, "decisions")


def test_a_job_without_its_timer(ledger, job):
    ledger.conn.execute("DELETE FROM chrono_timer_far")
    assert one(ledger, "plans") == f"job {job} has 0 timers"


def test_a_job_with_two_timers(ledger, job):
    ledger.conn.execute(
        "INSERT INTO chrono_timer_far (due_at, scheduled_for, ref, job_id, version, "
        "revision, part, kind) SELECT due_at + interval '1 s', scheduled_for, ref, "
        "job_id, version, revision, part, kind FROM chrono_timer_far"
    )
    assert one(ledger, "plans").endswith("has 2 timers")


def test_a_timer_that_passes_over_an_occurrence(ledger, job, born):
    plan(ledger, job, born + 4 * EVERY)
    said = one(ledger, "plans")
    assert said.endswith(f"where {format_instant(born + 3 * EVERY)} comes first")


def test_a_run_that_is_nowhere(ledger, job):
    ledger.conn.execute("DELETE FROM chrono_lease")
    assert one(ledger, "lost").endswith(f"of job {job} was fired and is nowhere")


def test_a_manual_run_in_the_schedule_s_own_group(ledger, job, born):
    fire(ledger, job, born + 3 * EVERY)
    ledger.conn.execute(
        "UPDATE chrono_occurrence SET kind = 3 WHERE scheduled_for = "
        "to_timestamp(%s / 1000.0)",
        [born + 3 * EVERY],
    )
    assert found(ledger)[0] == {"ids"}


# I4, I5: fences in the order of commits.


def test_a_row_with_a_fence_that_nobody_holds(ledger, job):
    ledger.conn.execute("UPDATE chrono_partition SET fence = %s", [FENCE - 1])
    names, findings = found(ledger)
    assert names == {"fences"}
    assert len(findings) == 4


def test_a_row_that_was_committed_after_the_takeover(ledger, job, born):
    part = partition_of(job)
    ledger.conn.execute(
        "UPDATE chrono_partition SET fence = fence + 1, taken_at = clock_timestamp() "
        "WHERE id = %s",
        [part],
    )
    assert audit(ledger.conn) == []
    fire(ledger, job, born + 3 * EVERY)
    assert "was fired in a term that was over" in one(ledger, "terms")


def test_a_row_that_began_before_the_takeover_and_was_committed_after(
    ledger, job, born, stranger
):
    with stranger.transaction():
        # Its own instant lies before the takeover; its commit does not.
        run = replace(ledger, conn=stranger).fired(job, born + 3 * EVERY, fence=FENCE)
        ledger.conn.execute(
            "UPDATE chrono_partition SET fence = fence + 1, "
            "taken_at = clock_timestamp()"
        )
    settle(ledger, run, born + 3 * EVERY)
    plan(ledger, job, born + 4 * EVERY)
    names, _ = found(ledger)
    assert names == ({"terms"} if commit_times(ledger) else set())


def test_a_fence_that_falls(ledger, job, born):
    fire(ledger, job, born + 3 * EVERY, fence=FENCE - 2)
    assert f"with fence {FENCE - 2}" in one(ledger, "fences")


def test_a_fence_that_rises_is_right(ledger, job, born):
    ledger.conn.execute("UPDATE chrono_partition SET fence = %s", [FENCE + 2])
    fire(ledger, job, born + 3 * EVERY, fence=FENCE + 1)
    fire(ledger, job, born + 4 * EVERY, fence=FENCE + 2)
    assert audit(ledger.conn) == []


# I6, I7, I11: attempts.


def test_a_gap_between_attempts(ledger, job):
    [(run,)] = ledger.rows("SELECT run_id FROM chrono_lease")
    fail(ledger, run, 2)
    assert one(ledger, "attempts") == f"run {run} attempt 2 without the one before"


@pytest.mark.parametrize("table", ["lease", "run"])
def test_an_attempt_without_the_one_before(ledger, job, table):
    ledger.conn.execute(f"UPDATE chrono_{table} SET attempt = 2")
    assert "attempt 2 without the one before" in {f.detail for f in found(ledger)[1]}
    [(run,)] = ledger.rows(
        f"SELECT {'id' if table == 'run' else 'run_id'} FROM chrono_{table}"
    )
    fail(ledger, run, 1, ended="due_at")
    ledger.rows("SELECT pg_stat_force_next_flush()")
    ledger.rows("SELECT pg_stat_reset()")
    assert [f for f in audit(ledger.conn) if f.check.name != "overlaps"] == []


def test_a_failure_behind_the_last_attempt(ledger, job, born):
    run = ledger.fired(job, born + 3 * EVERY, fence=FENCE)
    settle(ledger, run, born + 3 * EVERY, state=4)
    plan(ledger, job, born + 4 * EVERY)
    fail(ledger, run, 1)
    assert audit(ledger.conn) == []
    fail(ledger, run, 2, ended="started_at + interval '10 s'")
    said = "attempt 2 failed, and it ended with attempt 1"
    assert one(ledger, "attempts") == f"run {run} {said}"


def test_attempts_that_ended_with_their_process_are_spared(ledger, job):
    [(run,)] = ledger.rows("SELECT run_id FROM chrono_lease")
    ledger.conn.execute("UPDATE chrono_lease SET attempt = 7")
    for attempt in range(1, 7):
        ended = f"started_at - interval '{10 * (7 - attempt)} s'"
        fail(ledger, run, attempt, ended=ended)
    said = "has more attempts than its policy allows"
    assert one(ledger, "attempts") == f"run {run} {said}"
    ledger.conn.execute(
        "INSERT INTO chrono_death (run_id, part, deaths) "
        "SELECT run_id, part, 1 FROM chrono_lease"
    )
    assert audit(ledger.conn) == []


@pytest.mark.parametrize("table", ["lease", "run"])
def test_more_attempts_than_the_policy_allows(ledger, job, table):
    ledger.conn.execute(f"UPDATE chrono_{table} SET attempt = 7")
    names, findings = found(ledger)
    assert names == {"attempts"}
    assert "has more attempts than its policy allows" in {f.detail for f in findings}


def test_an_attempt_that_began_before_the_last_ended(ledger, job):
    [(run,)] = ledger.rows("SELECT run_id FROM chrono_lease")
    ledger.conn.execute("UPDATE chrono_lease SET attempt = 2")
    fail(ledger, run, 1, ended="started_at - interval '1 s'")
    assert audit(ledger.conn) == []
    ledger.conn.execute("DELETE FROM chrono_attempt")
    fail(ledger, run, 1, ended="started_at + interval '1 s'")
    assert "before the end of attempt 1" in one(ledger, "overlaps")


def test_an_attempt_that_ended_before_it_began(ledger, job):
    [(run,)] = ledger.rows("SELECT run_id FROM chrono_lease")
    fail(ledger, run, 1, ended="due_at")
    ledger.conn.execute("UPDATE chrono_lease SET attempt = 2")
    assert audit(ledger.conn) == []
    ledger.conn.execute(
        "UPDATE chrono_attempt SET started_at = finished_at + interval '1 s'"
    )
    said = "attempt 1 ended 00:00:01 before it began"
    assert one(ledger, "overlaps") == f"run {run} {said}"


def test_a_dead_run_without_its_error_or_letter(ledger, job, born):
    run = ledger.fired(job, born + 3 * EVERY, fence=FENCE)
    settle(ledger, run, born + 3 * EVERY, state=3)
    plan(ledger, job, born + 4 * EVERY)
    assert one(ledger, "dead").endswith("is dead without an attempt that failed")
    fail(ledger, run, 1)
    assert one(ledger, "dead").endswith("is dead without a dead letter")
    ledger.conn.execute(
        "INSERT INTO chrono_dead_letter (run_id, part, tenant, job_id, revision, "
        "queue, reason, attempt, errors) SELECT id, part, tenant, job_id, revision, "
        "'default', 16, 1, '[]' FROM chrono_run WHERE state = 3"
    )
    assert audit(ledger.conn) == []


# I9, I11, I12: one end, and one begin where only one may be.


def test_a_success_beside_a_failure_of_the_same_attempt(ledger, job):
    [(run,)] = ledger.rows("SELECT id FROM chrono_run")
    fail(ledger, run, 1)
    assert one(ledger, "results").endswith(
        "succeeded with attempt 1, and attempt 1 failed"
    )
    ledger.conn.execute("UPDATE chrono_run SET attempt = 2")
    assert found(ledger)[0] <= {"overlaps"}, "a failure before is none"


def test_a_run_that_is_unknown_without_a_cause(ledger, job, born):
    run = ledger.fired(job, born + 3 * EVERY, fence=FENCE)
    settle(ledger, run, born + 3 * EVERY, state=6)
    plan(ledger, job, born + 4 * EVERY)
    assert one(ledger, "unknown").endswith("could have been begun again")


# I8: what is final stays.


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE chrono_run SET queue = 'other'",
        "UPDATE chrono_occurrence SET decided_at = decided_at",
        "UPDATE chrono_timer_far SET revision = 2",
    ],
    ids=lambda change: change.split()[1],
)
def test_a_row_that_was_updated(ledger, job, change):
    assert audit(ledger.conn) == []
    ledger.conn.execute(change)
    ledger.rows("SELECT pg_stat_force_next_flush()")
    [finding] = audit(ledger.conn)
    assert finding.check.name == "updates"
    assert finding.subject.startswith(change.split()[1])


@pytest.mark.parametrize("place", ["ready", "run"])
def test_a_run_in_two_places(ledger, job, place):
    [(run, due)] = ledger.rows(
        "SELECT run_id, floor(extract(epoch FROM due_at) * 1000)::bigint "
        "FROM chrono_lease"
    )
    if place == "ready":
        ready(ledger)
    else:
        settle(ledger, run, due)
    assert one(ledger, "doubles").startswith(f"run {run} is ")


# I10: never early.


@pytest.mark.parametrize(
    ("table", "change", "said"),
    [
        ("run", "started_at = due_at - interval '1 ms'", "started before it was due"),
        ("run", "dispatched_at = due_at - interval '1 ms'", "ready before it was due"),
        ("run", "due_at = due_at - interval '1 s'", "due before its instant"),
        ("run", "finished_at = started_at - interval '1 s'", "ended before"),
        ("run", "finished_at = 'infinity'", "has an infinite instant"),
        ("lease", "dispatched_at = started_at + interval '1 s'", "before it was ready"),
        ("lease", "started_at = due_at - interval '1 s'", "started before it was due"),
        (
            "occurrence",
            "decided_at = scheduled_for - interval '1 s'",
            "was fired before",
        ),
    ],
)
def test_what_came_too_early(ledger, job, table, change, said):
    ledger.conn.execute(f"UPDATE chrono_{table} SET {change}")
    names, findings = found(ledger)
    assert names == {"instants"}
    told = [one for one in findings if one.check.name == "instants"]
    assert all(said in finding.detail for finding in told)


# I14: who changed what.


def test_a_decision_that_nobody_wrote_down(ledger, job, born):
    skip(ledger, job, born + 3 * EVERY, fence=0, reason=18)
    plan(ledger, job, born + 4 * EVERY)
    assert "was written without an audit event" in one(ledger, "recorded")


# I16: nothing due is left lying.


def test_what_is_due_for_long_in_a_partition_that_is_led(ledger, job, stranger):
    part = partition_of(job)
    ledger.conn.execute("UPDATE chrono_partition SET taken_at = now() - interval '1 h'")
    assert audit(ledger.conn) == []
    stranger.execute("SELECT pg_advisory_lock(%s, %s)", [PARTITION_LOCKS, part])
    said = one(ledger, "overdue")
    assert said.startswith(f"partition {part} has a timer of job {job}, due ")
    # A leader of this moment is still loading.
    ledger.conn.execute("UPDATE chrono_partition SET taken_at = now()")
    assert audit(ledger.conn) == []


def test_what_is_fired_between_two_looks_was_not_left_lying(
    ledger, job, born, stranger
):
    part = partition_of(job)
    ledger.conn.execute("UPDATE chrono_partition SET taken_at = now() - interval '1 h'")
    stranger.execute("SELECT pg_advisory_lock(%s, %s)", [PARTITION_LOCKS, part])
    waited = []

    def rest(seconds):
        if seconds:
            waited.append(seconds)
            fire(ledger, job, born + 3 * EVERY)

    assert examine(ledger.conn, Scope(), rest=rest).findings == []
    assert waited == [2]


def test_a_row_of_a_day_that_has_no_leaf(ledger, job, born):
    moment = born + 90 * DAY
    settle(ledger, uuid.UUID(int=moment << 80), moment)
    names, _ = found(ledger)
    assert "strays" in names
