"""Jobs that are delivered at most once: begun once, and then done, dead or unknown."""

import pytest

from apps.runs import store, worker_store
from apps.runs.cancel import cancel
from apps.runs.sweep import rescue
from apps.runtime.sessions import connect_hot
from chrono.rules.instants import MINUTE
from chrono.rules.states import Reason, RunState
from tests.support.seed import DUE, make_job, make_ready
from tests.worker.support import FAST, count, running, settled, waiting
from tests.worker.test_lives import handler  # noqa: F401  (a fixture)

ONCE = {"delivery": "at_most_once"}


def job_of(conn, name, **options):
    target = {"kind": "task", "name": name}
    return make_job(conn, target=target, policy=ONCE, retry_policy=FAST, **options)


def orphan(dsn, conn, **options):
    """Have a worker that nobody knows hold a run; return the run."""
    [run] = make_ready(conn, job_of(conn, "x", **options))
    with connect_hot(dsn, name="test") as hot:
        store.claim_ready(hot, queue="default", limit=1, worker=run)
    return run


def sweep(dsn):
    with connect_hot(dsn, name="test") as hot:
        orphans = worker_store.list_orphans(hot, limit=10)
        return rescue(hot, orphans, now=DUE, horizon=0)


def test_a_run_whose_worker_died_is_unknown_and_offered_to_nobody(dsn, connect):
    conn = connect()
    run = orphan(dsn, conn)
    assert sweep(dsn) == 1
    assert settled(conn) == [(run, RunState.UNKNOWN, Reason.WORKER_LOST, 1, None)]
    assert [count(conn, t) for t in ("ready", "timer", "timer_far", "lease")] == [0] * 4
    assert count(conn, "dead_letter") == 0
    [(reason, error)] = conn.execute(
        "SELECT reason, error FROM chrono_attempt"
    ).fetchall()
    assert (reason, "unknown" in error) == (Reason.WORKER_LOST, True)


def test_a_cancel_or_a_delete_does_not_make_its_end_known(dsn, connect):
    conn = connect()
    cancelled, deleted = orphan(dsn, conn), orphan(dsn, conn, deleted=True)
    assert cancel(conn, cancelled) is RunState.RUNNING
    assert sweep(dsn) == 2
    rows = settled(conn, 2)
    assert {(run, state) for run, state, *_ in rows} == {
        (cancelled, RunState.UNKNOWN),
        (deleted, RunState.UNKNOWN),
    }


def test_a_failure_is_final_whatever_the_retry_policy_says(dsn, connect):
    conn = connect()
    calls = []

    def fail(payload):
        calls.append(payload)
        raise ValueError("no")

    [run] = make_ready(conn, job_of(conn, "fail"))
    with running(dsn, {"fail": fail}):
        rows = settled(conn)
    assert rows == [(run, RunState.DEAD, Reason.ATTEMPTS_EXHAUSTED, 1, None)]
    assert len(calls) == 1
    assert count(conn, "dead_letter") == 1


@pytest.mark.parametrize("name", ["wait", "block"])
def test_a_handler_that_a_stop_interrupts_leaves_its_run_unknown(
    dsn,
    connect,
    handler,  # noqa: F811
    name,
):
    conn = connect()
    [run] = make_ready(conn, job_of(conn, name))
    with running(dsn, handler.tasks, drain_s=4.1) as worker:
        assert handler.begun.acquire(timeout=5)
        worker.stop()
        assert worker.result() is True
    assert settled(conn) == [(run, RunState.UNKNOWN, Reason.WORKER_LOST, 1, None)]
    assert count(conn, "timer_far") == 0


def test_one_that_no_handler_was_called_for_is_handed_back(dsn, connect):
    conn = connect()
    [run] = make_ready(conn, job_of(conn, "nobody knows it"))
    with running(dsn, {}):
        [(ref, attempt, wait_s)] = waiting(conn)
    assert (ref, attempt) == (run, 1)
    assert 50 < wait_s <= MINUTE / 1000


def test_success_is_success(dsn, connect):
    conn = connect()
    [run] = make_ready(conn, job_of(conn, "work"))
    with running(dsn, {"work": lambda payload: "paid"}):
        assert settled(conn) == [(run, RunState.SUCCESS, None, 1, "paid")]
