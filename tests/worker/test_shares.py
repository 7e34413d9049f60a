"""How a worker shares its seats between priorities."""

import uuid

import pytest

from apps.runs import store, worker_store
from apps.runtime.sessions import connect_hot
from tests.support.seed import make_job, make_ready
from tests.worker.support import running, settled

HIGH, NORMAL, BULK = 0, 2, 4
TARGET = {"kind": "task", "name": "note"}


@pytest.fixture
def job(connect):
    return make_job(connect(), target=TARGET)


def test_one_run_in_twenty_goes_to_who_has_waited_longest(dsn, connect, job):
    conn = connect()
    waited = make_ready(conn, job, count=3, priority=BULK)
    urgent = make_ready(conn, job, count=70, priority=HIGH)
    begun = []
    with running(dsn, {"note": lambda _, ctx: begun.append(ctx.run_id)}, concurrency=1):
        settled(conn, 73, timeout=30)
    order = [uuid.UUID(str(run)) for run in begun]
    assert [order.index(run) for run in waited] == [19, 39, 59]
    assert [run for run in order if run in urgent] == urgent


@pytest.mark.server
def test_by_age_is_the_longest_waiting_and_then_those_of_less_priority(
    dsn, connect, job
):
    conn = connect()
    oldest = make_ready(conn, job, priority=NORMAL)
    later = make_ready(conn, job, count=2, priority=HIGH)
    latest = make_ready(conn, job, priority=BULK)
    worker = uuid.uuid4()
    worker_store.register_worker(
        conn, worker=worker, host="t", pid=1, concurrency=9, queues=["default"]
    )

    def claim(limit, *, by_age):
        with connect_hot(dsn, name="test") as hot:
            least = store.find_oldest_priority(hot, queue="default") if by_age else 0
            leases = store.claim_ready(
                hot,
                queue="default",
                limit=limit,
                worker=worker,
                start=(least, store.FRONT[1]),
            )
        return {lease.run_id for lease in leases}

    assert claim(1, by_age=False) == {later[0]}
    assert claim(9, by_age=True) == {*oldest, *latest}
    assert claim(9, by_age=True) == {later[1]}
    assert claim(9, by_age=True) == set()
