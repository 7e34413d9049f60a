"""Cancel, dead letters and history against what befell others."""

import uuid

import pytest

from apps.api.errors import status_of
from apps.jobs.rerun import Wanted, redrive, retry_run
from apps.runs import store as runs
from apps.runs import worker_store
from apps.runs.cancel import cancel
from apps.runs.errors import LetterClosed, RunRerunAlready
from apps.runs.sweep import rescue
from apps.runtime import sql
from chrono.rules.errors import BadValue
from chrono.rules.instants import HOUR, SECOND
from chrono.rules.partitions import partition_of
from chrono.rules.retry import from_json
from chrono.rules.states import Reason, RunState
from tests.scheduler.conftest import NOON
from tests.support.seed import SeededJob, make_ended, make_ready


@pytest.fixture
def job(leader):
    made = leader.create("it", cron="0 0 1 1 *", overlap_policy="allow_all")
    return SeededJob(id=made, part=partition_of(made), queue="default")


def claimed(conn):
    worker = uuid.uuid4()
    worker_store.register_worker(
        conn, worker=worker, host="t", pid=1, concurrency=9, queues=["default"]
    )
    return worker, runs.claim_ready(conn, queue="default", limit=9, worker=worker)


def test_e02_a_run_that_kills_its_worker_is_cancelled_and_never_claimed_again(
    leader, job
):
    conn = leader.conn
    [run] = make_ready(conn, job, due_at=NOON)
    worker, [lease] = claimed(conn)
    assert cancel(conn, run) is RunState.RUNNING
    # The worker dies before it hears of it; the sweep would offer the run again.
    worker_store.stop_worker(conn, worker=worker)
    orphans = worker_store.list_orphans(conn, limit=9)
    assert [one.run_id for one in orphans] == [run]
    assert rescue(conn, orphans, now=leader.clock.moment, horizon=NOON + HOUR) == 1
    leader.run_to(leader.clock.moment + 5 * SECOND)
    assert claimed(conn)[1] == []
    assert conn.execute("SELECT state, reason FROM chrono_run").fetchall() == [
        (RunState.CANCELLED, Reason.OPERATOR)
    ]
    assert runs.locate_run(conn, run=run, part=job.part)[0].table == "run"
    assert lease.run_id == run


def test_e05_more_attempts_than_their_column_holds_are_refused():
    assert from_json({"max_attempts": 1_000}).max_attempts < 1 << 15
    for wrong in (0, 1_001, 70_000):
        with pytest.raises(BadValue):
            from_json({"max_attempts": wrong})


def test_d21_what_is_run_again_while_it_was_run_again_is_refused_and_no_crash(
    leader, job
):
    run = make_ended(leader.conn, job, NOON - HOUR, state=3)
    redrive(Wanted(ids=(run,)), tenant=1, now=leader.clock.moment)
    for again, error in (
        (lambda: redrive(Wanted(ids=(run,)), tenant=1), LetterClosed),
        (lambda: retry_run(run), RunRerunAlready),
    ):
        with pytest.raises(error) as refused:
            again()
        assert status_of(refused.value) == 409


@pytest.mark.parametrize("name", ["list_runs", "list_job_runs", "list_dead_letters"])
def test_f15_a_list_reads_neither_payloads_nor_results_nor_logs(name):
    text = sql.load("runs", name).text
    for large in ("payload", "result", " log", "checkpoint"):
        assert large not in text
