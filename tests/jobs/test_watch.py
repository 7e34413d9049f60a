"""What the keeper notices of jobs and runs, told once and once more when it is over."""

import uuid

import pytest

from apps.jobs import watch, watch_store
from apps.jobs.commands import (
    create_job,
    delete_job,
    patch_job,
    pause_job,
    restore_job,
    resume_job,
    skip_next,
)
from apps.jobs.manual import run_now
from apps.jobs.watch import Watch, purge
from apps.runtime.sessions import connect_upkeep
from apps.tenants.actor import Actor
from chrono.rules import jitter
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND, parse_instant
from chrono.rules.keys import run_id
from chrono.rules.partitions import partition_of
from chrono.rules.states import RunState
from chrono.rules.watch import WatchKind
from tests.support.definitions import definition
from tests.support.seed import SeededJob, make_ended, make_ready, make_skip

NOON = parse_instant("2055-03-01T12:00:00Z")
SYSTEM = Actor.system("scheduler")
LATE, LONG, NO_SUCCESS = WatchKind
DEAD, SUCCESS = RunState.DEAD, RunState.SUCCESS


@pytest.fixture
def keeper(dsn):
    """The keeper's session; what is planned lies in the far table."""
    with connect_upkeep(dsn, name="test upkeep") as conn:
        conn.execute("UPDATE chrono_dispatch_state SET horizon = 'epoch'")
        yield conn


@pytest.fixture
def watcher():
    return Watch()


def make(key="job", *, now=NOON - DAY, **fields):
    fields = {"interval": "1d", "jitter_window": "0s", **fields}
    job = create_job(definition(key=key, **fields), now=now).job_id
    return SeededJob(id=job, part=partition_of(job), queue="default")


def step(watcher, keeper, now):
    return watcher.step(keeper, actor=SYSTEM, now=now)


def told(keeper, job):
    """Return (kind, over, run) of a job's events, in order."""
    events = watch_store.list_events(keeper, job=job.id, before=1 << 62, limit=100)
    return [(one.kind, one.over, one.run_id) for one in reversed(events)]


def last_detail(keeper, job):
    [event] = watch_store.list_events(keeper, job=job.id, before=1 << 62, limit=1)
    return event.detail


def open_breaches(keeper, job):
    return [w.kind for w in watch_store.list_breaches(keeper, job=job.id, limit=100)]


def lease(keeper, job, at, *, started, attempt=1):
    """Move a run into execution, from wherever it is."""
    run = run_id(job.id, at, 0, job.part)
    keeper.execute("DELETE FROM chrono_ready WHERE run_id = %s", [run])
    keeper.execute("DELETE FROM chrono_blocked WHERE run_id = %s", [run])
    keeper.execute("DELETE FROM chrono_lease WHERE run_id = %s", [run])
    keeper.execute(
        """
        INSERT INTO chrono_lease (due_at, dispatched_at, run_id, job_id, tag, fence,
            revision, tenant, part, priority, attempt, queue, token, worker, started_at)
        VALUES (to_timestamp(%s / 1000.0), to_timestamp(%s / 1000.0), %s, %s, 1, 1, 1,
            1, %s, 2, %s, 'default', gen_random_uuid(), gen_random_uuid(),
            to_timestamp(%s / 1000.0))
        """,
        [at, at, run, job.id, job.part, attempt, started],
    )
    return run


def unlease(keeper, run):
    keeper.execute("DELETE FROM chrono_lease WHERE run_id = %s", [run])


def block(keeper, job, at, *, backfill=None, group=0):
    run = run_id(job.id, at, group, job.part)
    keeper.execute(
        """
        INSERT INTO chrono_blocked (due_at, dispatched_at, run_id, job_id, tag, fence,
            revision, tenant, part, priority, attempt, queue, gate, reason, backfill)
        VALUES (to_timestamp(%s / 1000.0), now(), %s, %s, 1, 1, 1, 1, %s, 2, 1,
            'default', 'overlap', 2, %s)
        """,
        [at, run, job.id, job.part, backfill],
    )
    return run


def wait(keeper, job, at, *, kind, attempt=1, due=None, version=0):
    """Write a timer of a run into the hour's bucket."""
    run = run_id(job.id, at, 0, job.part)
    ref = job.id if kind == 1 else run
    due = at if due is None else due
    keeper.execute(
        "CREATE TABLE IF NOT EXISTS chrono_timer_test PARTITION OF chrono_timer "
        "FOR VALUES FROM ('2055-02-01') TO ('2055-04-01')"
    )
    keeper.execute(
        """
        INSERT INTO chrono_timer (due_at, scheduled_for, ref, job_id, version, revision,
            part, kind, attempt)
        VALUES (to_timestamp(%s / 1000.0), to_timestamp(%s / 1000.0), %s, %s, %s, 1, %s,
            %s, %s)
        """,
        [due, at, ref, job.id, version, job.part, kind, attempt],
    )
    return run


def test_what_waits_anywhere_is_looked_at(keeper):
    def anything():
        return watch_store.watch_anything(keeper, before=NOON)

    job = make()
    wait(keeper, job, NOON, kind=1)
    assert not anything()
    block(keeper, job, NOON)
    assert anything()
    keeper.execute("TRUNCATE chrono_blocked")
    assert not anything()
    wait(keeper, job, NOON, kind=4)
    assert anything()


# Runs that do not begin


def test_a_run_that_does_not_begin_is_told_once_and_again_when_it_begins(
    keeper, watcher
):
    job, patient = make(late_after="5m"), make("patient", late_after="1h")
    careless = make("careless")
    for one in (job, patient, careless):
        make_ready(keeper, one, due_at=NOON)
    run = run_id(job.id, NOON, 0, job.part)
    assert step(watcher, keeper, NOON + 5 * MINUTE) == 0
    assert step(watcher, keeper, NOON + 5 * MINUTE + 1) == 1
    for later in (6, 7):
        assert step(watcher, keeper, NOON + later * MINUTE) == 0
    assert step(Watch(), keeper, NOON + 8 * MINUTE) == 0
    assert told(keeper, job) == [(LATE, False, run)]
    assert "waits for a worker" in last_detail(keeper, job)
    assert "2055-03-01T12:00:00Z" in last_detail(keeper, job)
    lease(keeper, job, NOON, started=NOON + 9 * MINUTE)
    assert step(watcher, keeper, NOON + 9 * MINUTE + 5 * SECOND) == 1
    assert told(keeper, job) == [(LATE, False, run), (LATE, True, run)]
    assert open_breaches(keeper, job) == []
    assert told(keeper, patient) == told(keeper, careless) == []


@pytest.mark.parametrize("end", ["over", "kept", "retry", "skipped", "no policy"])
def test_it_is_over_however_it_ends(keeper, watcher, end):
    job = make(late_after="5m")
    make_ready(keeper, job, due_at=NOON)
    assert step(watcher, keeper, NOON + HOUR) == 1
    keeper.execute("DELETE FROM chrono_ready")
    if end == "over":
        make_ended(keeper, job, NOON, state=RunState.CANCELLED)
    elif end == "kept":
        make_ended(keeper, job, NOON, table="chrono_run_kept")
    elif end == "retry":
        wait(keeper, job, NOON, kind=4, attempt=2, due=NOON + DAY)
    elif end == "skipped":
        make_skip(keeper, job, NOON, reason=5, count=3, last=NOON + 2 * DAY)
    else:
        patch_job(job.id, {"late_after": None}, now=NOON + HOUR)
    assert step(watcher, keeper, NOON + HOUR + 5 * SECOND) == 1
    assert [over for _, over, _ in told(keeper, job)] == [False, True]


def test_what_was_handed_back_unbegun_is_late_by_its_first_instant(keeper, watcher):
    job = make(late_after="5m")
    later = NOON + 10 * MINUTE
    run = wait(keeper, job, NOON, kind=4, attempt=1, due=later + MINUTE)
    wait(keeper, job, NOON - DAY, kind=4, attempt=2, due=later + MINUTE)
    # It is leased for the moment in which the worker finds that it has no handler.
    lease(keeper, job, NOON, started=later - 500)
    assert step(watcher, keeper, later) == 1
    assert told(keeper, job) == [(LATE, False, run)]
    assert step(watcher, keeper, later) == 0


def test_what_is_held_back_is_late_but_for_a_backfill(keeper, watcher):
    job = make(late_after="5m")
    run = block(keeper, job, NOON)
    block(keeper, job, NOON - HOUR, backfill=uuid.uuid4(), group=1)
    # One that was let in waits for a worker since then.
    [filled] = make_ready(keeper, job, due_at=NOON - 2 * HOUR, group=1)
    keeper.execute("UPDATE chrono_ready SET due_at = to_timestamp(%s)", [NOON / 1000])
    assert filled
    assert step(watcher, keeper, NOON + HOUR) == 1
    assert told(keeper, job) == [(LATE, False, run)]


def test_an_occurrence_that_no_leader_decides_is_late(keeper, watcher):
    job, stale = make(late_after="5m"), make("stale", late_after="5m")
    run = wait(keeper, job, NOON, kind=1, version=1)
    wait(keeper, stale, NOON, kind=1, version=0)
    assert step(watcher, keeper, NOON + MINUTE) == 0
    assert step(watcher, keeper, NOON + 6 * MINUTE) == 1
    assert step(watcher, keeper, NOON + 7 * MINUTE) == 0
    assert told(keeper, job) == [(LATE, False, run)]
    assert "No scheduler" in last_detail(keeper, job)


def test_it_counts_from_the_due_instant_jitter_included(keeper, watcher):
    job = make(late_after="1s", jitter_window="1h")
    offset = jitter.offset(job.id, HOUR)
    assert offset > 0
    make_ready(keeper, job, due_at=NOON)
    assert step(watcher, keeper, NOON + offset + SECOND) == 0
    assert step(watcher, keeper, NOON + offset + SECOND + 1) == 1


def test_a_run_that_somebody_asked_for_may_be_late_too(keeper, watcher):
    job = make(late_after="5m")
    run = run_now(job.id, now=NOON).run_id
    keeper.execute(
        """
        WITH moved AS (DELETE FROM chrono_timer_far WHERE kind = 3 RETURNING *)
        INSERT INTO chrono_ready (due_at, dispatched_at, run_id, job_id, tag, fence,
            revision, tenant, part, priority, attempt, slice, queue)
        SELECT due_at, due_at, ref, job_id, 1, 1, 1, 1, part, 2, 1, 0, 'default'
        FROM moved
        """
    )
    assert step(watcher, keeper, NOON + 6 * MINUTE) == 1
    assert told(keeper, job) == [(LATE, False, run)]


def test_a_cancelled_run_and_another_attempt_are_not_late(keeper, watcher):
    job = make(late_after="5m")
    make_ready(keeper, job, due_at=NOON, attempt=2)
    [run] = make_ready(keeper, job, due_at=NOON + 1)
    keeper.execute(
        "INSERT INTO chrono_withdrawn (run_id, part) VALUES (%s, %s)", [run, job.part]
    )
    assert step(watcher, keeper, NOON + HOUR) == 0


def test_a_long_queue_is_looked_at_piece_by_piece(keeper, watcher, monkeypatch):
    for name in ("READY", "BLOCKED", "TIMED", "BREACHES"):
        monkeypatch.setattr(watch, name, 3)
    job = make(late_after="5m")
    make_ready(keeper, job, count=8, due_at=NOON)
    for n in range(7):
        block(keeper, job, NOON - HOUR + n)
        wait(keeper, job, NOON - 2 * HOUR + n, kind=4, due=NOON + DAY)
    later = NOON + HOUR
    noted = [step(watcher, keeper, later) for _ in range(4)]
    assert noted == [9, 9, 4, 0]
    assert len(told(keeper, job)) == 22
    keeper.execute("TRUNCATE chrono_ready, chrono_blocked, chrono_timer")
    for n in range(8):
        lease(keeper, job, NOON + n, started=later)
    for n in range(7):
        lease(keeper, job, NOON - HOUR + n, started=later)
        lease(keeper, job, NOON - 2 * HOUR + n, started=later)
    ended = [step(watcher, keeper, later + MINUTE) for _ in range(9)]
    assert sum(ended) == 22
    assert open_breaches(keeper, job) == []


# Attempts that do not end


def test_an_attempt_that_takes_too_long_is_told_and_the_next_one_is_another(
    keeper, watcher
):
    job, slow = make(max_runtime="10m"), make("slow")
    run = lease(keeper, job, NOON, started=NOON)
    lease(keeper, slow, NOON, started=NOON)
    assert step(watcher, keeper, NOON + 10 * MINUTE) == 0
    assert step(watcher, keeper, NOON + 10 * MINUTE + 1) == 1
    assert step(watcher, keeper, NOON + 11 * MINUTE) == 0
    assert "Attempt 1" in last_detail(keeper, job)
    lease(keeper, job, NOON, started=NOON + 12 * MINUTE, attempt=2)
    assert step(watcher, keeper, NOON + 13 * MINUTE) == 1
    assert step(watcher, keeper, NOON + 23 * MINUTE) == 1
    assert "Attempt 2" in last_detail(keeper, job)
    unlease(keeper, run)
    assert step(watcher, keeper, NOON + 24 * MINUTE) == 1
    assert told(keeper, job) == [(LONG, False, run), (LONG, True, run)] * 2
    assert told(keeper, slow) == []


def test_many_executions_are_looked_at_piece_by_piece(keeper, watcher, monkeypatch):
    monkeypatch.setattr(watch, "LEASES", 2)
    job = make(max_runtime="1s")
    for n in range(5):
        lease(keeper, job, NOON + n, started=NOON)
    noted = [step(watcher, keeper, NOON + MINUTE) for _ in range(5)]
    assert noted == [2, 2, 1, 0, 0]


# Jobs without a success


def test_h06_a_job_without_a_success_is_told_and_again_once_it_has_one(keeper, watcher):
    job, free = make(max_time_since_success="26h"), make("free")
    make_ended(keeper, job, NOON - HOUR)
    begins = NOON - HOUR + SECOND + 26 * HOUR
    assert step(watcher, keeper, begins) == 0
    make_ended(keeper, job, NOON + DAY, state=DEAD)
    assert step(watcher, keeper, begins + 1) == 1
    assert "2055-03-01T11:00:01Z" in last_detail(keeper, job)
    assert step(watcher, keeper, begins + HOUR) == 0
    make_ended(keeper, job, begins + HOUR, group=1)
    assert step(watcher, keeper, begins + 2 * HOUR) == 1
    assert told(keeper, job) == [(NO_SUCCESS, False, None), (NO_SUCCESS, True, None)]
    assert open_breaches(keeper, job) == []
    assert told(keeper, free) == []


def test_while_it_succeeds_hardly_anything_is_read(keeper, watcher, monkeypatch):
    job = make(interval="1m", max_time_since_success="1h")
    asked = []
    find = watch_store.find_successes

    def count(conn, *, sought, gone):
        asked.append(len(sought))
        return find(conn, sought=sought, gone=gone)

    monkeypatch.setattr(watch_store, "find_successes", count)
    # A look is due when the job is an hour old, and an hour after what it found.
    for minute in range(0, 181, 5):
        make_ended(keeper, job, NOON - DAY + minute * MINUTE)
        step(watcher, keeper, NOON - DAY + minute * MINUTE + 30 * SECOND)
    assert sum(asked) == 3
    assert told(keeper, job) == []


def test_it_counts_from_when_the_job_was_made_resumed_or_restored(keeper, watcher):
    job = make(max_time_since_success="1h")
    made = NOON - DAY
    assert step(watcher, keeper, made + HOUR) == 0
    assert step(watcher, keeper, made + HOUR + 1) == 1
    assert "No success of it is known" in last_detail(keeper, job)
    pause_job(job.id, now=made + 2 * HOUR)
    assert step(watcher, keeper, made + 3 * HOUR) == 0
    assert open_breaches(keeper, job) == []
    resume_job(job.id, now=made + 4 * HOUR)
    assert step(watcher, keeper, made + 5 * HOUR) == 0
    assert step(watcher, keeper, made + 5 * HOUR + 1) == 1
    delete_job(job.id, now=made + 6 * HOUR)
    assert step(watcher, keeper, made + 7 * HOUR) == 0
    restore_job(job.id, now=made + 8 * HOUR)
    assert step(watcher, keeper, made + 9 * HOUR) == 0
    resume_job(job.id, now=made + 9 * HOUR)
    assert step(watcher, keeper, made + 10 * HOUR) == 0
    assert step(watcher, keeper, made + 10 * HOUR + 1) == 1
    assert told(keeper, job) == [(NO_SUCCESS, False, None)] * 3


def test_a_success_that_ended_late_counts_whatever_its_instant(keeper, watcher):
    job = make(max_time_since_success="1h")
    make_ended(keeper, job, NOON - HOUR, ended=NOON - HOUR + SECOND)
    make_ended(keeper, job, NOON - 20 * HOUR, ended=NOON - MINUTE)
    assert step(watcher, keeper, NOON) == 0
    assert step(watcher, keeper, NOON + HOUR) == 1


def test_a_success_is_known_though_the_history_has_it_no_more(keeper, watcher):
    job = make(now=NOON - 60 * DAY, max_time_since_success="40d")
    make_ended(keeper, job, NOON - 45 * DAY)
    assert step(watcher, keeper, NOON - 44 * DAY) == 0
    # History, and then the ledger, are kept for a while only.
    keeper.execute("TRUNCATE chrono_run")
    assert step(watcher, keeper, NOON - 20 * DAY) == 0
    keeper.execute("TRUNCATE chrono_occurrence")
    assert step(Watch(), keeper, NOON - 6 * DAY) == 0
    assert step(Watch(), keeper, NOON - 4 * DAY) == 1
    assert "2055-01-15" in last_detail(keeper, job)


def test_a_run_older_than_the_history_was_a_success(keeper, watcher):
    job = make(now=NOON - 60 * DAY, max_time_since_success="10d")
    make_ended(keeper, job, NOON - 8 * DAY)
    keeper.execute("TRUNCATE chrono_run")
    assert step(watcher, keeper, NOON) == 0
    assert step(watcher, keeper, NOON + 3 * DAY) == 1


def test_a_schedule_that_is_over_needs_no_success(keeper, watcher):
    job = make(
        interval=None, run_at="2055-03-01T13:00:00Z", max_time_since_success="1h"
    )
    later = NOON + 2 * HOUR
    assert step(watcher, keeper, later) == 1
    make_ended(keeper, job, NOON + HOUR, ended=later)
    assert step(watcher, keeper, later + MINUTE) == 1
    assert step(watcher, keeper, later + DAY) == 0
    assert [over for _, over, _ in told(keeper, job)] == [False, True]


def test_an_earlier_revision_s_policy_asks_for_nothing(keeper, watcher, monkeypatch):
    monkeypatch.setattr(watch, "JOBS", 2)
    former = [make(f"former {n}", max_time_since_success="1h") for n in range(5)]
    for job in former:
        patch_job(job.id, {"max_time_since_success": None}, now=NOON)
    job = make("job", max_time_since_success="1h")
    assert sum(step(watcher, keeper, NOON + DAY) for _ in range(5)) == 1
    assert told(keeper, job) == [(NO_SUCCESS, False, None)]
    patch_job(job.id, {"max_time_since_success": None}, now=NOON + DAY)
    assert step(watcher, keeper, NOON + DAY) == 1
    assert told(keeper, job)[1:] == [(NO_SUCCESS, True, None)]


# All of them


def test_nothing_is_told_of_a_job_that_is_paused_or_deleted(keeper, watcher):
    fields = {"late_after": "1s", "max_runtime": "1s", "max_time_since_success": "1s"}
    paused, deleted = make("paused", **fields), make("deleted", **fields)
    for job in (paused, deleted):
        make_ready(keeper, job, due_at=NOON)
        lease(keeper, job, NOON - DAY, started=NOON)
    pause_job(paused.id, now=NOON)
    delete_job(deleted.id, now=NOON)
    assert step(watcher, keeper, NOON + HOUR) == 0
    resume_job(paused.id, now=NOON + HOUR)
    assert step(watcher, keeper, NOON + 2 * HOUR) == 3
    assert sorted(open_breaches(keeper, paused)) == [LATE, LONG, NO_SUCCESS]
    pause_job(paused.id, now=NOON + 2 * HOUR)
    assert step(watcher, keeper, NOON + 3 * HOUR) == 0
    assert open_breaches(keeper, paused) == []
    assert len(told(keeper, paused)) == 3
    assert told(keeper, deleted) == []


def test_a_policy_that_cannot_be_read_stops_nothing(keeper, watcher):
    fields = {"late_after": "1m", "max_runtime": "1m", "max_time_since_success": "1m"}
    bad, good = make("bad", **fields), make("good", **fields)
    keeper.execute(
        """
        UPDATE chrono_job_revision SET policy = '{"late_after": 7,
            "max_runtime": "soon", "max_time_since_success": ["1h"]}' WHERE job_id = %s
        """,
        [bad.id],
    )
    for job in (bad, good):
        make_ready(keeper, job, due_at=NOON)
        lease(keeper, job, NOON - DAY, started=NOON)
    assert step(watcher, keeper, NOON + HOUR) == 3
    assert told(keeper, bad) == []


def test_two_keepers_tell_it_once(keeper, dsn):
    job = make(late_after="1m", max_time_since_success="1m")
    make_ready(keeper, job, due_at=NOON)
    wait(keeper, job, NOON + 1, kind=1, version=1)
    with connect_upkeep(dsn, name="test other") as other:
        found = watch_store.watch_ready(
            keeper, after=watch_store.FIRST_READY, now=NOON + HOUR, limit=10
        )
        assert len(found.suspects) == 1
        assert step(Watch(), other, NOON + HOUR) == 3
        assert step(Watch(), keeper, NOON + HOUR) == 0
    assert len(told(keeper, job)) == 3


def test_events_are_deleted_after_ninety_days(keeper, watcher, monkeypatch):
    monkeypatch.setattr(watch, "PURGE", 2)
    job = make(late_after="1m")
    make_ready(keeper, job, count=5, due_at=NOON)
    assert step(watcher, keeper, NOON + HOUR) == 5
    make_ready(keeper, job, due_at=NOON + DAY)
    assert step(watcher, keeper, NOON + 2 * DAY) == 1
    assert purge(keeper, now=NOON + 90 * DAY) == 0
    later = NOON + 90 * DAY + 2 * HOUR
    assert [purge(keeper, now=later) for _ in range(4)] == [2, 2, 1, 0]
    assert len(told(keeper, job)) == 1


def test_skipping_ahead_moves_the_instant_from_which_it_counts(keeper, watcher):
    job = make(max_time_since_success="1h")
    skip_next(job.id, count=3, now=NOON)
    assert step(watcher, keeper, NOON + 2 * DAY) == 0
