"""How many executions were under way at once: counted as they are read, and asked."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.jobs import audit as auditing
from apps.jobs import audit_bounds
from apps.jobs.audit import Scope, audit, examine
from apps.jobs.audit_bounds import Bounds
from apps.jobs.audit_store import Execution
from apps.jobs.commands import change_job, create_job
from apps.tenants.actor import Actor
from apps.tenants.directory import change_share
from chrono.rules.fairness import Share
from chrono.rules.instants import MINUTE, SECOND
from chrono.rules.keys import run_id
from chrono.rules.partitions import partition_of
from tests.jobs.history import EVERY, FENCE, fail, found, one, plan, prepare
from tests.support.definitions import definition

JOB = uuid.UUID(int=7)


def execution(number, began, ended, *, most=1, key=None):
    return Execution(
        run_id=uuid.UUID(int=number),
        job_id=JOB,
        revision=1,
        tenant=1,
        most=most,
        key=key,
        most_of_key=1,
        most_of_tenant=None,
        started_at=began,
        ended_at=ended,
    )


lives = st.tuples(st.integers(0, 30), st.integers(0, 8), st.integers(0, 8))
"""The instant of a run, how much later it begins, and for how long it goes on."""


@given(st.lists(lives, max_size=20), st.integers(1, 3), st.integers(1, 5))
def test_what_is_read_page_by_page_is_judged_as_if_it_were_read_at_once(
    lives, most, page
):
    runs = [
        (moment, execution(n, moment + late, moment + late + length, most=most))
        for n, (moment, late, length) in enumerate(sorted(lives))
    ]
    bounds, told = Bounds(), []
    for begin in range(0, len(runs), page):
        bounds.hear(one for _, one in runs[begin : begin + page])
        told += bounds.judge(runs[min(begin + page, len(runs)) - 1][0])
    told += bounds.judge(None)
    spans = [(one.started_at, one.ended_at, one.run_id) for _, one in runs]
    # Of those that begin at one instant the second finds the first, not the other way.
    wrong = {
        run
        for began, ended, run in spans
        if sum(
            b <= began < e
            for b, e, other in spans
            if (b, e, other) < (began, ended, run)
        )
        >= most
    }
    assert {subject for _, subject, _ in told} == {f"run {run}" for run in wrong}
    assert len(told) == len(wrong), "each is told once"


def test_more_than_can_be_held_is_said(monkeypatch):
    monkeypatch.setattr(audit_bounds, "MOST", 10)
    bounds = Bounds()
    bounds.hear(execution(n, 5, 100 + n, most=99) for n in range(11))
    assert list(bounds.judge(5)) == []
    assert bounds.cut
    bounds.hear([execution(99, 6, 7, most=5)])
    assert list(bounds.judge(None)) == []


@pytest.fixture
def now(ledger):
    return prepare(ledger)


@pytest.fixture
def born(now):
    return now - MINUTE


def make(ledger, born, key, **policy):
    job = create_job(definition(key=key, interval="10s", **policy), now=born).job_id
    plan(ledger, job, born + EVERY)
    return job


def execute(ledger, job, moment, began, ended, *, group=0, revision=1):
    """Write an occurrence as fired and its run as settled, executed in between."""
    part = partition_of(job)
    run = run_id(job, moment, group, part)
    ledger.conn.execute(
        "INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence, version, "
        "revision, part, outcome, kind, attempt_group) VALUES "
        "(to_timestamp(%s / 1000.0), %s, %s, %s, %s, %s, %s, 1, %s, %s)",
        [moment, job, run, FENCE, revision, revision, part, 3 if group else 1, group],
    )
    ledger.conn.execute(
        "INSERT INTO chrono_run (id, part, due_at, dispatched_at, started_at, "
        "finished_at, job_id, fence, revision, tenant, state, attempt) SELECT %s, %s, "
        "d, d, to_timestamp(%s / 1000.0), to_timestamp(%s / 1000.0), %s, %s, %s, 1, 1, "
        "1 FROM to_timestamp(%s / 1000.0) AS d",
        [run, part, began, ended, job, FENCE, revision, moment],
    )
    if not group:
        plan(ledger, job, moment + EVERY)
    return run


def test_runs_of_a_schedule_beside_each_other(ledger, born):
    job = make(ledger, born, "single")
    first, second = born + EVERY, born + 2 * EVERY
    execute(ledger, job, first, first, second + SECOND)
    # One behind the other is right, and so is what a person adds.
    execute(ledger, job, born + 15 * SECOND, second, second + SECOND, group=1)
    assert audit(ledger.conn) == []
    run = execute(ledger, job, second, second, second + SECOND)
    said = f"as number 2 of job {job} at revision 1, not 1"
    assert one(ledger, "limits").startswith(f"run {run} began at ")
    assert one(ledger, "limits").endswith(said)


def test_as_many_runs_of_a_schedule_as_may_be(ledger, born):
    three = make(ledger, born, "three", max_concurrent_runs=3)
    free = make(ledger, born, "free", overlap_policy="allow_all")
    for n in range(1, 4):
        for job in (three, free):
            execute(ledger, job, born + n * EVERY, born + 4 * EVERY, born + 5 * EVERY)
    assert audit(ledger.conn) == []
    for job in (three, free):
        execute(ledger, job, born + 4 * EVERY, born + 4 * EVERY, born + 5 * EVERY)
    assert one(ledger, "limits").endswith(
        f"as number 4 of job {three} at revision 1, not 3"
    )


def test_runs_of_another_revision_had_another_bound(ledger, born):
    job = make(ledger, born, "changed", max_concurrent_runs=2)
    for n in (1, 2):
        execute(ledger, job, born + n * EVERY, born + 2 * EVERY, born + 4 * EVERY)
    change_job(
        job,
        definition(key="changed", interval="10s", max_concurrent_runs=3),
        now=born + 25 * SECOND,
    )
    execute(
        ledger, job, born + 3 * EVERY, born + 3 * EVERY, born + 4 * EVERY, revision=2
    )
    assert "limits" not in found(ledger)[0]


@pytest.mark.parametrize("limit", [None, 2])
def test_runs_that_share_a_key_beside_each_other(ledger, born, limit, monkeypatch):
    monkeypatch.setattr(auditing, "RUNS", 1)
    shared = {"concurrency_key": "bank"}
    if limit is not None:
        shared["concurrency_limit"] = limit
    jobs = [make(ledger, born, f"of {n}", **shared) for n in range(3)]
    other = make(ledger, born, "other", concurrency_key="bank", concurrency_limit=1)
    most = limit or 1
    # One with a lower limit may have been let in first.
    chosen = [other, jobs[0]] if limit is not None else [jobs[0]]
    for n, job in enumerate(chosen):
        execute(ledger, job, born + EVERY + n, born + 2 * EVERY, born + 3 * EVERY)
    assert "limits" not in found(ledger)[0]
    # A person's run is one of the key as any other is.
    execute(
        ledger, jobs[-1], born + 2 * EVERY, born + 2 * EVERY, born + 3 * EVERY, group=1
    )
    _, findings = found(ledger)
    [told] = [f for f in findings if f.check.name == "limits"]
    assert told.detail.endswith(
        f"as number {most + 1} of key bank of tenant 1, not {most}"
    )
    assert "limits" not in found(ledger, jobs=(jobs[0], jobs[-1]))[0]
    report = examine(ledger.conn, Scope(jobs=(jobs[0],)))
    assert report.left_out[-2].endswith("limits")


def test_runs_of_a_tenant_beyond_its_quota(ledger, born):
    jobs = [make(ledger, born, f"of {n}", overlap_policy="allow_all") for n in range(3)]
    change_share(1, Share(max_running=2), actor=Actor.command("test"))
    for job in jobs:
        execute(ledger, job, born + EVERY, born + 2 * EVERY, born + 3 * EVERY)
    assert audit(ledger.conn) == [], "the quota was changed lately"
    ledger.conn.execute("UPDATE chrono_tenant SET max_running = NULL")
    assert audit(ledger.conn) == []
    forget_changes(ledger)
    assert audit(ledger.conn) == []
    ledger.conn.execute("UPDATE chrono_tenant SET max_running = 2")
    assert one(ledger, "limits").endswith("as number 3 of tenant 1, not 2")


def forget_changes(ledger):
    """Have nobody know that a quota was changed."""
    ledger.conn.execute(
        "ALTER TABLE chrono_audit_event DISABLE TRIGGER chrono_audit_event_append_only;"
        "DELETE FROM chrono_audit_event WHERE action = 'tenant.change';"
        "ALTER TABLE chrono_audit_event "
        "ENABLE ALWAYS TRIGGER chrono_audit_event_append_only"
    )


def test_an_attempt_that_failed_and_one_that_goes_on_count(ledger, born):
    jobs = [make(ledger, born, f"of {n}", concurrency_key="bank") for n in range(2)]
    moment = born + EVERY
    run = execute(ledger, jobs[0], moment, born + 3 * EVERY, born + 4 * EVERY)
    ledger.conn.execute("UPDATE chrono_run SET attempt = 2")
    leased = ledger.fired(jobs[1], moment, fence=FENCE)
    plan(ledger, jobs[1], moment + EVERY)
    ledger.conn.execute(
        """
        INSERT INTO chrono_lease (run_id, part, due_at, dispatched_at, started_at,
            job_id, tag, fence, revision, tenant, priority, attempt, queue, token,
            worker)
        SELECT %s, %s, d, d, d + interval '30 s', %s, 1, %s, 1, 1, 2, 1, 'default',
            gen_random_uuid(), gen_random_uuid()
        FROM to_timestamp(%s / 1000.0) AS d
        """,
        [leased, partition_of(jobs[1]), jobs[1], FENCE, moment],
    )
    fail(ledger, run, 1, ended="due_at + interval '9 s'")
    ledger.conn.execute("UPDATE chrono_attempt SET part = %s", [partition_of(jobs[0])])
    assert found(ledger)[0] == set()
    ledger.conn.execute(
        "UPDATE chrono_lease SET started_at = started_at - interval '5 s'"
    )
    _, findings = found(ledger)
    [told] = [f for f in findings if f.check.name == "limits"]
    assert told.subject == f"run {leased}", "it goes on since then"
    ledger.conn.execute("UPDATE chrono_lease SET started_at = due_at + interval '8 s'")
    _, findings = found(ledger)
    assert {f.subject for f in findings if f.check.name == "limits"} == {
        f"run {run}",
        f"run {leased}",
    }
