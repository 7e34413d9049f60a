"""What a run is told of the missed occurrences that it stands for."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from apps.runs import store
from apps.runtime.sessions import connect_hot
from apps.worker.claims import load_missed
from chrono.rules.instants import HOUR, MINUTE, from_millis
from chrono.rules.keys import run_id
from chrono.rules.states import Reason
from chrono.tasks import Missed
from tests.support.seed import DUE, make_job, make_ready, make_skip
from tests.worker.hostile import hostile
from tests.worker.support import FAST, running, settled, waiting

COLLAPSED = Reason.COLLAPSED


@pytest.fixture
def hot(dsn):
    with connect_hot(dsn, name="test claim") as conn:
        yield conn


def task_job(conn, **options):
    return make_job(conn, target={"kind": "task", "name": "look"}, **options)


def missed(hot, job, at=DUE):
    """Return what the run of an instant stands for."""
    run = run_id(job.id, at, 0, job.part)
    return store.load_missed(hot, runs=[(run, job.id)]).get(run)


def test_a_task_is_told_and_every_attempt_is_told_the_same(dsn, connect):
    conn = connect()
    job = task_job(conn, retry_policy=FAST)
    make_skip(conn, job, DUE - 7 * HOUR, reason=COLLAPSED, count=7, last=DUE - 1 * HOUR)
    make_ready(conn, job, due_at=DUE)
    seen = []

    def look(payload, context):
        seen.append((context.attempt, context.missed))
        if context.attempt == 1:
            raise RuntimeError("not yet")

    with running(dsn, {"look": look}):
        waiting(conn)
        make_ready(conn, job, due_at=DUE, attempt=2)
        settled(conn)
    noon = datetime(2025, 11, 29, 15, tzinfo=UTC)
    told = Missed(first=noon - timedelta(hours=7), last=noon, count=8)
    assert seen == [(1, told), (2, told)]


def test_an_address_is_told_in_headers(dsn, connect):
    conn = connect()
    with hostile() as server:
        job = make_job(conn, target={"kind": "http", "url": f"{server.url}/status/200"})
        make_skip(conn, job, DUE - 2 * HOUR, reason=COLLAPSED)
        make_skip(conn, job, DUE - 1 * HOUR, reason=COLLAPSED)
        make_ready(conn, job, due_at=DUE)
        with running(dsn):
            settled(conn)
        [request] = server.received
    assert request.headers["chrono-missed-from"] == "2025-11-29T13:00:00Z"
    assert request.headers["chrono-missed-to"] == "2025-11-29T15:00:00Z"
    assert request.headers["chrono-missed-count"] == "3"


def test_a_run_for_itself_alone_is_told_nothing(dsn, connect):
    conn = connect()
    with hostile() as server:
        make_ready(
            conn,
            make_job(conn, target={"kind": "http", "url": f"{server.url}/status/200"}),
        )
        with running(dsn):
            settled(conn)
        [request] = server.received
    assert not [name for name in request.headers if name.startswith("chrono-missed")]


def test_only_what_lies_directly_before_a_run_counts(connect, hot):
    conn = connect()
    job, other = task_job(conn), task_job(conn)
    make_skip(conn, job, DUE - 9 * HOUR, reason=COLLAPSED)
    make_skip(conn, job, DUE - 8 * HOUR, reason=Reason.OVERLAP)
    for hours in range(1, 8):
        make_skip(conn, job, DUE - hours * HOUR, reason=COLLAPSED)
    make_skip(conn, job, DUE - HOUR // 2, reason=Reason.OPERATOR, group=1)
    make_skip(conn, job, DUE + HOUR, reason=COLLAPSED)
    make_skip(conn, other, DUE - HOUR, reason=Reason.MISSED_SKIP)
    found = missed(hot, job)
    assert (found.first, found.last, found.count) == (DUE - 7 * HOUR, DUE, 8)
    assert missed(hot, other) is None


def test_a_row_may_stand_for_a_stretch_and_no_run_reads_rows_without_end(
    connect, hot, monkeypatch
):
    conn = connect()
    job = task_job(conn)
    for hours in range(1, 8):
        begins = DUE - hours * HOUR
        make_skip(
            conn, job, begins, reason=COLLAPSED, count=60, last=begins + 59 * MINUTE
        )
    assert missed(hot, job).count == 7 * 60 + 1
    monkeypatch.setattr(store, "MOST_COLLAPSED", 3)
    found = missed(hot, job)
    assert (found.first, found.count) == (DUE - 3 * HOUR, 3 * 60 + 1)


def test_nobody_looks_where_no_run_of_a_claim_is_late(connect, hot, monkeypatch):
    conn = connect()
    job = task_job(conn)
    make_ready(conn, job, count=5, due_at=DUE)
    make_ready(conn, job, due_at=DUE - HOUR, group=1)
    make_skip(conn, job, DUE - HOUR, reason=COLLAPSED)
    leases = store.claim_ready(hot, queue="default", limit=10, worker=uuid.uuid4())
    assert len(leases) == 6
    asked = []
    look = store.load_missed

    def count(conn, *, runs):
        asked.append(len(runs))
        return look(conn, runs=runs)

    monkeypatch.setattr(store, "load_missed", count)
    assert load_missed(hot, leases, now=DUE + MINUTE) == {}
    assert asked == []
    found = load_missed(hot, leases, now=DUE + MINUTE + 4)
    assert asked == [4]
    assert {from_millis(one.first) for one in found.values()} == {
        from_millis(DUE - HOUR)
    }
