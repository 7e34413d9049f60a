"""Runs that somebody asks for, and occurrences that somebody leaves out."""

import uuid

import pytest

from apps.jobs.audit import audit
from apps.jobs.commands import (
    create_job,
    delete_job,
    pause_job,
    resume_job,
    skip_next,
)
from apps.jobs.errors import JobDeleted, JobNotFound, NothingToSkip
from apps.jobs.manual import run_now
from apps.runs import days, slots
from apps.runs import store as runs
from apps.runs.cancel import cancel
from apps.runtime.requests import RequestMismatch
from apps.runtime.sessions import connect_upkeep
from apps.scheduler.load import OVERDUE_EVERY
from chrono.rules.errors import BadValue
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND, parse_instant
from chrono.rules.keys import is_extra, run_id
from chrono.rules.partitions import partition_of
from chrono.rules.states import Priority, Reason, TimerKind
from tests.jobs.sessions import in_session
from tests.support.definitions import definition

NOON = parse_instant("2054-11-30T12:00:00Z")


def manual(ledger, job):
    """Return (scheduled_for, due_at, ref, attempt_group) of the manual timers."""
    return ledger.rows(
        """
        SELECT floor(extract(epoch FROM scheduled_for) * 1000)::bigint,
            floor(extract(epoch FROM due_at) * 1000)::bigint, ref, attempt_group
        FROM chrono_timer_far WHERE job_id = %s AND kind = 3 ORDER BY attempt_group
        """,
        job,
    )


def inputs(ledger):
    return ledger.rows("SELECT run_id, payload::text, priority FROM chrono_run_input")


def test_a_manual_run_is_a_timer_due_at_once_in_a_group_of_its_own(ledger):
    job = create_job(definition(interval="1h"), now=NOON).job_id
    ref = run_now(job, now=NOON + MINUTE)
    assert ref.created
    assert ref.run_id == run_id(job, NOON + MINUTE, 1, partition_of(job))
    assert is_extra(ref.run_id)
    moment = NOON + MINUTE
    assert manual(ledger, job) == [(moment, moment, ref.run_id, 1)]
    assert inputs(ledger) == []
    assert ledger.job(job)["version"] == 1, "no plan is touched"


def test_the_runs_of_one_millisecond_are_different_runs(ledger):
    job = create_job(definition(interval="1h"), now=NOON).job_id
    ledger.fired(job, NOON, group=0)
    made = [run_now(job, now=NOON).run_id for _ in range(3)]
    assert [row[2:] for row in manual(ledger, job)] == [
        (run, group) for group, run in enumerate(made, start=1)
    ]
    ledger.conn.execute("DELETE FROM chrono_timer_far WHERE kind = 3")
    ledger.fired(job, NOON, group=3)
    [*_, after] = [run_now(job, now=NOON), run_now(job, now=NOON)]
    assert after.run_id == run_id(job, NOON, 5, partition_of(job))


def test_many_at_once_are_as_many_runs(ledger, background):
    job = create_job(definition(interval="1h"), now=NOON).job_id
    calls = [background(in_session, run_now, job, now=NOON) for _ in range(12)]
    made = {call.result(timeout=20).run_id for call in calls}
    assert len(made) == len(manual(ledger, job)) == 12
    assert [row[3] for row in manual(ledger, job)] == list(range(1, 13))


def test_a_payload_and_a_priority_of_its_own_are_kept_where_they_differ(ledger):
    job = create_job(definition(interval="1h", payload={"a": 1}), now=NOON).job_id
    run_now(job, payload={"a": 1}, priority=Priority.NORMAL, now=NOON)
    assert inputs(ledger) == []
    own = run_now(job, payload={"a": 2}, now=NOON).run_id
    urgent = run_now(job, priority=Priority.CRITICAL, now=NOON).run_id
    null = run_now(job, payload=None, priority=Priority.BULK, now=NOON).run_id
    assert set(inputs(ledger)) == {
        (own, '{"a": 2}', None),
        (urgent, None, 0),
        (null, "null", 4),
    }


@pytest.mark.parametrize("payload", ["\x00", float("nan"), "x" * 300_000, {1: 2}])
def test_a_payload_that_no_reader_could_read_is_refused(ledger, payload):
    job = create_job(definition(interval="1h"), now=NOON).job_id
    with pytest.raises(BadValue) as refused:
        run_now(job, payload=payload, now=NOON)
    assert refused.value.field == "payload"
    assert manual(ledger, job) == []


def test_a_second_request_of_one_key_gets_the_first_run(ledger):
    job = create_job(definition(interval="1h"), now=NOON).job_id
    first = run_now(job, payload=1, request_key="k", now=NOON)
    again = run_now(job, payload=1, request_key="k", now=NOON + HOUR)
    assert (again.run_id, first.created, again.created) == (first.run_id, True, False)
    assert len(manual(ledger, job)) == 1
    for other in ({"payload": 2}, {}, {"payload": 1, "priority": Priority.HIGH}):
        with pytest.raises(RequestMismatch):
            run_now(job, request_key="k", now=NOON, **other)
    other = create_job(definition(key="other", interval="1h"), now=NOON).job_id
    assert run_now(other, payload=1, request_key="k", now=NOON).created


def test_requests_of_one_key_at_once_get_one_run(ledger, background):
    job = create_job(definition(interval="1h"), now=NOON).job_id
    calls = [background(in_session, run_now, job, request_key="k") for _ in range(12)]
    refs = [call.result(timeout=20) for call in calls]
    assert len({ref.run_id for ref in refs}) == 1
    assert [ref.created for ref in refs].count(True) == 1
    assert len(manual(ledger, job)) == 1


def test_a_job_that_is_deleted_or_nobody_s_does_not_run(ledger):
    job = create_job(definition(interval="1h"), now=NOON).job_id
    delete_job(job, now=NOON)
    with pytest.raises(JobDeleted):
        run_now(job, now=NOON)
    with pytest.raises(JobNotFound):
        run_now(uuid.uuid4(), now=NOON)
    assert manual(ledger, job) == []


def test_a_delete_cancels_a_manual_run_that_waits(ledger):
    job = create_job(definition(interval="1h"), now=NOON).job_id
    run = run_now(job, now=NOON).run_id
    delete_job(job, now=NOON)
    assert manual(ledger, job) == []
    assert ledger.rows("SELECT id, state, reason FROM chrono_run") == [
        (run, 4, Reason.DELETED)
    ]
    assert slots.clear(ledger.conn) == 1


def test_leaders_hear_of_a_manual_run(ledger, connect):
    job = create_job(definition(interval="1h"), now=NOON).job_id
    listener = connect()
    listener.execute("LISTEN chrono_jobs")
    run_now(job, now=NOON)
    [notice] = listener.notifies(timeout=5, stop_after=1)
    assert notice.payload == str(partition_of(job))


@pytest.mark.parametrize(
    ("fields", "bounded"),
    [
        ({"interval": "1h"}, True),
        ({"interval": "1h", "overlap_policy": "allow_all"}, False),
        ({"run_at": "2055-01-01T00:00:00Z"}, False),
    ],
    ids=["skip", "allow_all", "once"],
)
def test_only_a_run_of_a_bounded_job_has_a_slot(ledger, fields, bounded):
    job = create_job(definition(**fields), now=NOON).job_id
    run = run_now(job, now=NOON).run_id
    rows = ledger.rows("SELECT run_id FROM chrono_slot")
    assert rows == ([(run,)] if bounded else [])


# Beside a leader.


def test_a_manual_run_is_fired_with_its_group_kind_and_priority(leader):
    job = leader.create("a", interval="1h")
    ref = run_now(job, priority=Priority.HIGH, now=leader.clock.moment)
    leader.dispatcher.notice()
    assert leader.step() == 1
    [row] = leader.conn.execute(
        "SELECT run_id, attempt_group, kind, outcome FROM chrono_occurrence"
    ).fetchall()
    assert row == (ref.run_id, 1, TimerKind.MANUAL, 1)
    ready = leader.conn.execute("SELECT run_id, priority FROM chrono_ready").fetchall()
    assert ready == [(ref.run_id, 1)]


def test_a_paused_job_runs_when_it_is_asked_to(leader):
    job = leader.create("a", interval="1h")
    pause_job(job, now=leader.clock.moment)
    run_now(job, now=leader.clock.moment)
    leader.dispatcher.notice()
    assert leader.step() == 1


def test_the_schedule_skips_while_a_manual_run_lives(leader):
    job = leader.create("a", interval="10s")
    start = leader.clock.moment
    run = run_now(job, now=start).run_id
    leader.run_to(start + 25 * SECOND)
    reasons = [(outcome, reason) for _, outcome, reason, _ in leader.ledger(job)]
    assert reasons == [(1, None), (2, Reason.OVERLAP), (2, Reason.OVERLAP)]
    settle(leader, run)
    leader.run_to(start + 35 * SECOND)
    assert [row[1:3] for row in leader.ledger(job)][-1] == (1, None)


def test_a_slot_of_a_settled_run_has_no_effect_before_it_is_forgotten(leader):
    job = leader.create("a", interval="10s")
    start = leader.clock.moment
    run = run_now(job, now=start).run_id
    leader.run_to(start + 1 * SECOND)
    settle(leader, run)
    assert leader.count("chrono_slot") == 1
    leader.run_to(start + 15 * SECOND)
    assert [row[1] for row in leader.ledger(job)] == [1, 1]
    assert slots.clear(leader.conn) == 1
    assert leader.count("chrono_slot") == 0


def test_a_cancelled_manual_run_does_not_hold_the_schedule_up(leader):
    job = leader.create("a", interval="10s")
    start = leader.clock.moment
    waiting = run_now(job, now=start).run_id
    cancel(leader.conn, waiting)
    ready = run_now(job, now=start + 1).run_id
    leader.run_to(start + 1 * SECOND)
    cancel(leader.conn, ready)
    leader.run_to(start + 15 * SECOND)
    assert [row[1] for row in leader.ledger(job)] == [2, 1, 1]
    assert slots.clear(leader.conn) == 2


def test_a_manual_run_runs_beside_the_schedule_s_own(leader):
    job = leader.create("a", interval="10s")
    start = leader.clock.moment
    leader.run_to(start + 10 * SECOND)
    run_now(job, now=start + 11 * SECOND)
    leader.run_to(start + 12 * SECOND)
    assert [row[1] for row in leader.ledger(job)] == [1, 1]
    assert leader.count("chrono_ready") == 2


def test_a_manual_run_counts_where_the_last_run_is_older_than_the_history(leader, dsn):
    job = leader.create("a", interval="8d")
    start = leader.clock.moment
    leader.run_to(start + 8 * DAY, every=DAY)
    leader.conn.execute("DELETE FROM chrono_ready")
    run = run_now(job, now=leader.clock.moment).run_id
    leader.step()
    with connect_upkeep(dsn, name="test upkeep") as upkeep:
        days.ensure_days(upkeep, now=start + 16 * DAY)
    leader.run_to(start + 16 * DAY, every=DAY)
    rows = leader.ledger(job)
    assert [(row[1], row[2]) for row in rows] == [
        (1, None),
        (1, None),
        (2, Reason.OVERLAP),
    ]
    settle(leader, run)
    leader.run_to(start + 24 * DAY, every=DAY)
    assert leader.ledger(job)[-1][1:3] == (1, None)


def test_a_retry_keeps_the_priority_of_its_run(leader):
    job = leader.create("a", interval="1h")
    run = run_now(job, priority=Priority.HIGH, now=leader.clock.moment).run_id
    leader.dispatcher.notice()
    leader.step()
    worker = uuid.uuid4()
    [lease] = runs.claim_ready(leader.conn, queue="default", limit=1, worker=worker)
    again = runs.Settlement(
        run_id=run, token=lease.token, state=0, error="no", reason=30
    )
    runs.settle_if_leased(leader.conn, [again], horizon=0)
    # The retry is due by the server's clock, long overdue by the leader's.
    leader.run_to(leader.clock.moment + OVERDUE_EVERY)
    ready = leader.conn.execute("SELECT priority, attempt FROM chrono_ready").fetchall()
    assert ready == [(1, 2)]


def settle(leader, run):
    """Claim all that is ready and settle one run of it, the others too."""
    leases = runs.claim_ready(
        leader.conn, queue="default", limit=10, worker=uuid.uuid4()
    )
    assert run in {lease.run_id for lease in leases}
    done = [runs.Settlement(run_id=x.run_id, token=x.token) for x in leases]
    runs.settle_if_leased(leader.conn, done, horizon=leader.clock.moment)


# The next occurrences left out.


def test_the_next_occurrences_are_skipped_and_the_plan_goes_on_after_them(ledger):
    job = create_job(definition(interval="1h"), now=NOON).job_id
    outcome = skip_next(job, count=2, now=NOON + MINUTE)
    hours = [NOON + n * HOUR for n in (1, 2, 3)]
    assert (outcome.actions, outcome.skipped) == (("skipped",), tuple(hours[:2]))
    assert outcome.version == ledger.job(job)["version"] == 2
    assert ledger.skips(job) == [
        (moment, Reason.OPERATOR, None, None) for moment in hours[:2]
    ]
    assert ledger.job(job)["activated_at"] == hours[1]
    [timer] = ledger.live(job)
    assert timer[3] == hours[2]
    again = skip_next(job, now=NOON + MINUTE)
    assert again.skipped == (hours[2],)


def test_a_skip_leaves_what_is_late_to_the_old_plan(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    skip_next(job, now=NOON + 25 * SECOND)
    late = [timer[3] for timer in ledger.timers(job, kind=TimerKind.LATE)]
    assert late == [NOON + 10 * SECOND, NOON + 20 * SECOND]
    assert [row[0] for row in ledger.skips(job)] == [NOON + 30 * SECOND]


def test_what_was_skipped_stays_so_through_a_pause(ledger):
    job = create_job(definition(interval="1h"), now=NOON).job_id
    skip_next(job, now=NOON)
    pause_job(job, now=NOON + MINUTE)
    resume_job(job, now=NOON + 2 * MINUTE)
    [timer] = ledger.live(job)
    assert timer[3] == NOON + 2 * HOUR
    assert len(ledger.skips(job)) == 1


def test_a_job_without_a_next_occurrence_skips_none(ledger):
    job = create_job(definition(interval="1h", paused=True), now=NOON).job_id
    with pytest.raises(NothingToSkip):
        skip_next(job, now=NOON)
    once = definition(key="once", run_at="2054-11-30T13:00:00Z")
    job = create_job(once, now=NOON).job_id
    assert skip_next(job, count=5, now=NOON).skipped == (NOON + HOUR,)
    with pytest.raises(NothingToSkip):
        skip_next(job, now=NOON)


@pytest.mark.parametrize("count", [0, -1, 101, 1.5, True, "1"])
def test_how_many_are_skipped_is_a_number_from_1_to_100(ledger, count):
    job = create_job(definition(interval="1h"), now=NOON).job_id
    with pytest.raises(BadValue) as refused:
        skip_next(job, count=count, now=NOON)
    assert refused.value.field == "count"


def test_a_skip_of_a_day_without_a_leaf_is_no_alarm(ledger, dsn):
    [(now,)] = ledger.rows(
        "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    )
    job = create_job(definition(interval="20d")).job_id
    skip_next(job)
    with connect_upkeep(dsn, name="test") as upkeep:
        assert days.ensure_days(upkeep, now=now) == 0
        assert ledger.rows("SELECT count(*) FROM chrono_occurrence_default") == [(1,)]
        assert audit(ledger.conn) == []
        assert days.ensure_days(upkeep, now=now + 19 * DAY) == 0
    assert ledger.rows("SELECT count(*) FROM chrono_occurrence_default") == [(0,)]
    assert len(ledger.skips(job)) == 1


def test_a_leader_goes_on_after_a_skip(leader):
    job = leader.create("a", interval="10s")
    start = leader.clock.moment
    leader.run_to(start + 11 * SECOND)
    leader.conn.execute("DELETE FROM chrono_ready")
    leader.conn.execute(
        "INSERT INTO chrono_run (due_at, finished_at, id, job_id, fence, revision, "
        "tenant, part, state, attempt) SELECT scheduled_for, now(), run_id, job_id, 0, "
        "1, 1, part, 1, 1 FROM chrono_occurrence"
    )
    skip_next(job, count=2, now=leader.clock.moment)
    leader.run_to(start + 41 * SECOND)
    assert [(row[1], row[2]) for row in leader.ledger(job)] == [
        (1, None),
        (2, Reason.OPERATOR),
        (2, Reason.OPERATOR),
        (1, None),
    ]
