"""The audit is silent where all is right, and names each planted fault."""

import io
import uuid

import pytest
from django.core.management import call_command

from apps.jobs.audit import CHECKS, audit, judge_ledger
from apps.jobs.commands import create_job, delete_job, pause_job
from apps.jobs.manual import run_now
from apps.jobs.store import Ledger as Decisions
from apps.runs.days import ensure_days
from chrono.rules.instants import MINUTE, SECOND, format_instant
from chrono.rules.keys import run_id
from chrono.rules.schedule import Interval, schedule_to_json
from tests.support.definitions import definition
from tests.support.seed import make_job, make_ready

FENCE = 7


@pytest.fixture
def now(ledger):
    """The database's time, in a database with day leaves and a leadership."""
    [(now,)] = ledger.rows(
        "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    )
    ensure_days(ledger.conn, now=now)
    ledger.conn.execute("UPDATE chrono_partition SET fence = %s", [FENCE])
    return now


@pytest.fixture
def job(ledger, now):
    """A job that fired twice, settled the one run and leased the other."""
    born = now - MINUTE
    job = create_job(definition(interval="10s"), now=born).job_id
    settled = ledger.fired(job, born + 10 * SECOND, fence=FENCE)
    leased = ledger.fired(job, born + 20 * SECOND, fence=FENCE)
    settle(ledger, settled, born + 10 * SECOND)
    lease(ledger, leased, born + 20 * SECOND)
    return job


def settle(ledger, run, due, *, state=1):
    ledger.conn.execute(
        """
        INSERT INTO chrono_run (id, part, due_at, dispatched_at, started_at,
            finished_at, job_id, fence, revision, tenant, state, attempt)
        SELECT %s, part, to_timestamp(%s / 1000.0), to_timestamp(%s / 1000.0),
            to_timestamp(%s / 1000.0), now(), id, %s, 1, 1, %s, 1
        FROM chrono_job LIMIT 1
        """,
        [run, due, due, due + 1, FENCE, state],
    )


def lease(ledger, run, due):
    ledger.conn.execute(
        """
        INSERT INTO chrono_lease (run_id, part, due_at, dispatched_at, started_at,
            job_id, tag, fence, revision, tenant, priority, attempt, queue, token,
            worker)
        SELECT %s, part, to_timestamp(%s / 1000.0), to_timestamp(%s / 1000.0), now(),
            id, 1, %s, 1, 1, 2, 1, 'default', gen_random_uuid(), gen_random_uuid()
        FROM chrono_job LIMIT 1
        """,
        [run, due, due, FENCE],
    )


def fail(ledger, run, attempt, *, ended="now()"):
    ledger.conn.execute(
        f"""
        INSERT INTO chrono_attempt (run_id, part, attempt, started_at, finished_at,
            worker, fence, reason, error)
        SELECT %s, part, %s, now() - interval '9 s', {ended}, gen_random_uuid(), 0, 20,
            'no'
        FROM chrono_job LIMIT 1
        """,
        [run, attempt],
    )


def found(ledger):
    """Return the invariants that are violated, with all that is said."""
    violations = audit(ledger.conn)
    return {violation.invariant for violation in violations}, violations


def test_all_is_right(ledger, job):
    assert audit(ledger.conn) == []


def test_all_is_right_after_edits(ledger, job):
    pause_job(job)
    assert audit(ledger.conn) == []
    create_job(definition(key="other", run_at="2100-01-01T00:00:00Z"))
    delete_job(job)
    assert audit(ledger.conn) == []


def test_a_constraint_that_is_gone(ledger, job):
    ledger.conn.execute(
        "ALTER TABLE chrono_occurrence DROP CONSTRAINT chrono_occurrence_pkey"
    )
    names, [violation] = found(ledger)
    assert names == {"constraints"}
    assert violation.subject == "chrono_occurrence.chrono_occurrence_pkey"


def test_a_constraint_that_was_never_validated(ledger, job):
    ledger.conn.execute(
        "ALTER TABLE chrono_job DROP CONSTRAINT chrono_job_instants; "
        "ALTER TABLE chrono_job ADD CONSTRAINT chrono_job_instants CHECK (true) "
        "NOT VALID"
    )
    assert found(ledger)[0] == {"constraints"}


def test_an_occurrence_that_was_never_decided(ledger, job):
    ledger.conn.execute(
        "DELETE FROM chrono_occurrence WHERE scheduled_for = "
        "(SELECT min(scheduled_for) FROM chrono_occurrence)"
    )
    names, [violation] = found(ledger)
    assert names == {"decisions"}
    assert violation.detail.endswith("undecided")


def test_a_decision_of_an_instant_that_is_no_occurrence(ledger, job, now):
    moment = now - MINUTE + 15 * SECOND
    settle(ledger, ledger.fired(job, moment, fence=FENCE), moment)
    names, [violation] = found(ledger)
    assert names == {"decisions"}
    assert violation.detail == f"has no occurrence at {format_instant(moment)}"


def test_a_run_fired_from_a_stale_definition(ledger, job, now):
    moment = now - MINUTE + 30 * SECOND
    settle(ledger, ledger.fired(job, moment, fence=FENCE, version=0), moment)
    names, [violation] = found(ledger)
    assert names == {"decisions"}
    assert "decided by plan 0 in the time of plan 1" in violation.detail


def test_a_run_fired_after_its_job_was_paused(ledger, job, now):
    pause_job(job)
    moment = ledger.job(job)["activated_at"] + 10 * SECOND
    run = ledger.fired(job, moment, fence=FENCE)
    settle(ledger, run, moment)
    names, violations = found(ledger)
    assert "decisions" in names
    assert any("is paused or deleted" in violation.detail for violation in violations)


def test_a_job_without_its_timer(ledger, job):
    ledger.conn.execute("DELETE FROM chrono_timer_far")
    names, [violation] = found(ledger)
    assert (names, violation.detail) == ({"plans"}, "has 0 timers")


def test_a_job_with_two_timers(ledger, job):
    ledger.conn.execute(
        "INSERT INTO chrono_timer_far (due_at, scheduled_for, ref, job_id, version, "
        "revision, part, kind) SELECT due_at + interval '1 s', scheduled_for, ref, "
        "job_id, version, revision, part, kind FROM chrono_timer_far"
    )
    names, [violation] = found(ledger)
    assert (names, violation.detail) == ({"plans"}, "has 2 timers")


def test_a_paused_job_with_a_live_timer(ledger, job):
    pause_job(job)
    ledger.conn.execute("UPDATE chrono_timer_far SET version = 2")
    names, _ = found(ledger)
    assert "plans" in names


def test_a_single_instant_that_is_over_needs_no_timer(ledger, job, now):
    once = create_job(definition(key="once", run_at=format_instant(now)))
    ledger.conn.execute("DELETE FROM chrono_timer_far WHERE ref = %s", [once.job_id])
    assert found(ledger)[0] == {"plans"}, "its instant is not decided yet"
    run = ledger.fired(once.job_id, now, fence=FENCE)
    part = ledger.job(once.job_id)["part"]
    settle(ledger, run, now)
    ledger.conn.execute("UPDATE chrono_run SET part = %s WHERE id = %s", [part, run])
    assert found(ledger)[0] <= {"updates"}


@pytest.mark.parametrize("place", ["ready", "run"])
def test_a_run_in_two_places(ledger, job, place):
    [(run, due)] = ledger.rows(
        "SELECT run_id, floor(extract(epoch FROM due_at) * 1000)::bigint "
        "FROM chrono_lease"
    )
    if place == "ready":
        ledger.conn.execute(
            "INSERT INTO chrono_ready (due_at, dispatched_at, run_id, job_id, tag, "
            "fence, revision, tenant, part, priority, attempt, slice, queue) "
            "SELECT due_at, dispatched_at, run_id, job_id, tag, fence, revision, "
            "tenant, part, priority, attempt, 0, queue FROM chrono_lease"
        )
    else:
        settle(ledger, run, due)
    names, [violation] = found(ledger)
    assert (names, violation.subject) == ({"doubles"}, f"run {run}")


def test_a_cancelled_run_may_still_lie_in_ready(ledger, now):
    job = make_job(ledger.conn, target={"kind": "task", "name": "x"}, deleted=True)
    [run] = make_ready(ledger.conn, job, due_at=now - MINUTE)
    ledger.conn.execute(
        "INSERT INTO chrono_run (due_at, finished_at, id, job_id, fence, revision, "
        "tenant, part, state, attempt) SELECT due_at, now(), run_id, job_id, fence, "
        "revision, tenant, part, 4, 1 FROM chrono_ready"
    )
    assert found(ledger)[0] == {"doubles"}
    ledger.conn.execute(
        "INSERT INTO chrono_withdrawn (run_id, part) VALUES (%s, %s)", [run, job.part]
    )
    assert found(ledger)[0] == set()


def test_a_run_that_is_nowhere(ledger, job):
    ledger.conn.execute("DELETE FROM chrono_lease")
    names, [violation] = found(ledger)
    assert names == {"lost"}
    assert violation.detail.endswith("was fired and is nowhere")


def test_a_row_with_a_fence_that_nobody_holds(ledger, job):
    ledger.conn.execute("UPDATE chrono_partition SET fence = %s", [FENCE - 1])
    names, violations = found(ledger)
    assert names == {"fences"}
    assert len(violations) == 4


def test_a_gap_between_attempts(ledger, job):
    [(run,)] = ledger.rows("SELECT run_id FROM chrono_lease")
    fail(ledger, run, 2)
    names, [violation] = found(ledger)
    assert names == {"attempts"}
    assert violation.detail == "attempt 2 without the one before it"


def test_more_attempts_than_the_policy_allows(ledger, job):
    ledger.conn.execute("UPDATE chrono_lease SET attempt = 7")
    names, [violation] = found(ledger)
    assert (names, violation.detail) == ({"attempts"}, "attempt 7 of 6")


def test_an_attempt_that_began_before_the_last_ended(ledger, job):
    [(run,)] = ledger.rows("SELECT run_id FROM chrono_lease")
    ledger.conn.execute("UPDATE chrono_lease SET attempt = 2")
    fail(ledger, run, 1, ended="now() - interval '1 s'")
    assert found(ledger)[0] == set()
    ledger.conn.execute("DELETE FROM chrono_attempt")
    fail(ledger, run, 1, ended="now() + interval '1 min'")
    assert found(ledger)[0] == {"overlaps"}


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE chrono_run SET state = 4",
        "UPDATE chrono_occurrence SET decided_at = decided_at",
        "UPDATE chrono_timer_far SET revision = 2",
    ],
    ids=lambda change: change.split()[1],
)
def test_a_row_that_was_updated(ledger, job, change):
    assert found(ledger)[0] == set()
    ledger.conn.execute(change)
    ledger.rows("SELECT pg_stat_force_next_flush()")
    names, [violation] = found(ledger)
    assert names == {"updates"}
    assert violation.subject.startswith(change.split()[1])


@pytest.mark.parametrize(
    ("table", "change", "said"),
    [
        ("run", "started_at = due_at - interval '1 ms'", "started before it was due"),
        ("run", "dispatched_at = due_at - interval '1 ms'", "ready before it was due"),
        ("run", "due_at = due_at - interval '1 s'", "due before its instant"),
        ("run", "finished_at = started_at - interval '1 s'", "ended before"),
        ("run", "finished_at = 'infinity'", "is infinite"),
        ("lease", "dispatched_at = started_at + interval '1 s'", "before it was ready"),
        ("timer_far", "due_at = scheduled_for - interval '1 s'", "before its instant"),
        (
            "occurrence",
            "decided_at = scheduled_for - interval '1 s'",
            "was fired before",
        ),
    ],
)
def test_what_came_too_early(ledger, job, table, change, said):
    ledger.conn.execute(f"UPDATE chrono_{table} SET {change}")
    names, violations = found(ledger)
    assert names - {"updates"} == {"instants"}
    told = [v for v in violations if v.invariant == "instants"]
    assert all(said in violation.detail for violation in told)


def test_a_dead_run_without_its_error_or_letter(ledger, job, now):
    born = now - MINUTE
    run = ledger.fired(job, born + 30 * SECOND, fence=FENCE)
    settle(ledger, run, born + 30 * SECOND, state=3)
    names, [violation] = found(ledger)
    assert (names, violation.detail) == (
        {"dead"},
        "is dead without an attempt that failed",
    )
    fail(ledger, run, 1)
    assert found(ledger)[1][0].detail == "is dead without a dead letter"
    ledger.conn.execute(
        "INSERT INTO chrono_dead_letter (run_id, part, tenant, job_id, revision, "
        "queue, reason, attempt, errors) SELECT id, part, tenant, job_id, revision, "
        "'default', 16, 1, '[]' FROM chrono_run WHERE state = 3"
    )
    assert found(ledger)[0] == set()


def test_a_manual_run_and_its_slot(ledger, job, now):
    run = run_now(job).run_id
    assert found(ledger)[0] == set()
    ledger.conn.execute("DELETE FROM chrono_timer_far WHERE kind = 3")
    names, [violation] = found(ledger)
    assert (names, violation.subject) == ({"manual"}, f"run {run}")
    assert "holds a slot" in violation.detail


@pytest.mark.parametrize("group", [0, 1])
def test_a_manual_run_in_the_schedule_s_own_group(ledger, job, now, group):
    moment = now - MINUTE + 5 * SECOND
    run = ledger.fired(job, moment, group=1, fence=FENCE)
    settle(ledger, run, moment)
    ledger.conn.execute(
        "UPDATE chrono_occurrence SET kind = 3 WHERE run_id = %s", [run]
    )
    assert found(ledger)[0] == set()
    wrong = run_id(job, moment, 0, ledger.job(job)["part"])
    ledger.conn.execute(
        "UPDATE chrono_occurrence SET attempt_group = %s, run_id = %s WHERE kind = 3",
        [group, wrong],
    )
    ledger.conn.execute("UPDATE chrono_run SET id = %s WHERE id = %s", [wrong, run])
    names, violations = found(ledger)
    assert "manual" in names
    assert f"run {wrong}" in {violation.subject for violation in violations}


def test_a_row_of_a_day_that_has_no_leaf(ledger, job, now):
    settle(ledger, uuid.UUID(int=(now + 90 * 86_400_000) << 80), now + 90 * 86_400_000)
    names, _ = found(ledger)
    assert "strays" in names


def test_the_command_tells_each_check_and_ends_with_1_where_one_fails(ledger, job):
    out = io.StringIO()
    call_command("chronoaudit", stdout=out)
    lines = out.getvalue().splitlines()
    assert lines[-1] == f"chronoaudit: {len(CHECKS)} checks, 0 violations"
    assert [line.split()[:2] for line in lines[:-1]] == [
        [check.name, "ok"] for check in CHECKS
    ]
    ledger.conn.execute("DELETE FROM chrono_lease")
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("chronoaudit", stdout=out)
    assert ended.value.code == 1
    assert out.getvalue().splitlines()[-1].endswith("checks, 1 violations")


# How decisions are compared with a schedule.


def decisions(rows, *, stopped=False, activated_at=0):
    """Return a job that fires each second since 0, with rows of (first, last)."""
    return Decisions(
        job_id=uuid.UUID(int=1),
        version=1,
        stopped=stopped,
        activated_at=activated_at,
        schedule=schedule_to_json(Interval(every=SECOND, anchor=SECOND)),
        scheduled_for=[int(first * SECOND) for first, _ in rows],
        last_for=[last and last * SECOND for _, last in rows],
        versions=[1] * len(rows),
    )


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(1, None), (2, None), (3, None)], []),
        ([(1, 5), (6, None)], []),
        ([(2, None)], ["01Z undecided"]),
        ([(1, None), (4, None)], ["02Z undecided", "03Z undecided"]),
        ([(1, 3), (3, None)], ["03Z decided twice"]),
        ([(1, 4), (2, None), (5, None)], ["02Z decided twice"]),
        (
            [(1, None), (1.5, None), (2, None)],
            ["no occurrence at 1970-01-01T00:00:01.5"],
        ),
    ],
)
def test_decisions_are_compared_with_the_schedule(rows, said):
    ledger = decisions(rows)
    details = [detail for _, detail in judge_ledger(ledger, since=0)]
    assert len(details) == len(said)
    for detail, part in zip(details, said, strict=True):
        assert part in detail


def test_a_plan_older_than_the_window_begins_with_its_first_decision():
    assert list(judge_ledger(decisions([(5, None), (6, None)]), since=1)) == []


def test_a_stopped_job_decides_nothing():
    [(_, detail)] = judge_ledger(decisions([(5, None)], stopped=True), since=0)
    assert "paused or deleted" in detail


def test_the_run_ids_of_the_seeded_rows_are_those_of_the_product(ledger, job, now):
    part = ledger.job(job)["part"]
    [(first,)] = ledger.rows("SELECT id FROM chrono_run")
    assert first == run_id(job, now - MINUTE + 10 * SECOND, 0, part)
