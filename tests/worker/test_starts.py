"""Where in its queue a claim begins to look."""

import uuid

import pytest

from apps.runs import store, worker_store
from apps.runs.store import FRONT, Lease
from apps.runtime.clock import ManualClock
from apps.runtime.sessions import connect_hot
from apps.worker.starts import LONG, LONGEST_REST, REST, Starts
from tests.support.seed import make_job, make_ready

HIGH, NORMAL = 0, 2
TOOK = 2 * LONG


def lease(priority: int, tag: int) -> Lease:
    run = uuid.uuid4()
    return Lease(run, 1, run, 1, 1, 1, 1, run, False, 1, priority, tag)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000)


@pytest.fixture
def starts(clock: ManualClock) -> Starts:
    return Starts(clock.now)


def claim(starts: Starts, clock: ManualClock, took: int, *leases: Lease) -> None:
    start, begun = starts.of("default"), clock.moment
    clock.moment += took
    starts.note("default", leases, start=start, begun=begun)


def test_a_claim_that_takes_no_time_is_followed_by_one_from_the_front(starts, clock):
    claim(starts, clock, LONG - 1, lease(NORMAL, 7))
    assert starts.of("default") == FRONT


def test_after_one_that_took_long_some_begin_where_the_last_ended(starts, clock):
    claim(starts, clock, TOOK, lease(NORMAL, 9), lease(HIGH, 12), lease(NORMAL, 7))
    assert starts.of("default") == (NORMAL, 9)
    assert starts.of("another") == FRONT
    claim(starts, clock, 1, lease(NORMAL, 20))
    assert starts.of("default") == (NORMAL, 20)
    # However long those take: it is time for the front when it was said to be.
    claim(starts, clock, TOOK * REST - 2, lease(NORMAL, 30))
    assert starts.of("default") == (NORMAL, 30)
    clock.moment += 1
    assert starts.of("default") == FRONT


def test_a_slow_network_keeps_nobody_from_the_front_for_long(starts, clock):
    claim(starts, clock, LONGEST_REST, lease(NORMAL, 9))
    clock.moment += LONGEST_REST - 1
    assert starts.of("default") == (NORMAL, 9)
    clock.moment += 1
    assert starts.of("default") == FRONT


def test_one_that_found_less_is_followed_by_one_from_the_front(starts, clock):
    claim(starts, clock, TOOK, lease(NORMAL, 9))
    starts.forget("default")
    assert starts.of("default") == FRONT


@pytest.mark.server
def test_what_lies_before_is_passed_over_and_found_from_the_front(dsn, connect):
    conn = connect()
    job = make_job(conn, target={"kind": "task", "name": "note"})
    first, second, third = make_ready(conn, job, count=3, priority=NORMAL)
    urgent = make_ready(conn, job, priority=HIGH)
    worker = uuid.uuid4()
    worker_store.register_worker(
        conn, worker=worker, host="t", pid=1, concurrency=9, queues=["default"]
    )
    [(tag,)] = conn.execute(
        "SELECT tag FROM chrono_ready WHERE run_id = %s", [second]
    ).fetchall()

    def claimed(start):
        with connect_hot(dsn, name="test") as hot:
            leases = store.claim_ready(
                hot, queue="default", limit=9, worker=worker, start=start
            )
        return {(lease.run_id, lease.priority) for lease in leases}

    assert claimed((NORMAL, tag)) == {(second, NORMAL), (third, NORMAL)}
    assert claimed(FRONT) == {(*urgent, HIGH), (first, NORMAL)}
