"""Task targets, from the ready row to the history."""

import asyncio
import sys
import threading
from datetime import UTC, datetime

from chrono.rules.keys import run_id
from chrono.rules.states import Reason, RunState
from tests.support.seed import DUE, make_job, make_ready
from tests.worker.support import FAST, count, running, settled, waiting


def task_job(conn, name, **options):
    return make_job(conn, target={"kind": "task", "name": name}, **options)


def test_runs_are_executed_and_leave_their_results(dsn, connect):
    conn = connect()

    async def double(payload):
        return payload["n"] * 2

    runs = make_ready(conn, task_job(conn, "double", payload={"n": 21}), count=300)
    with running(dsn, {"double": double}):
        rows = settled(conn, 300)
    assert rows == [(run, 1, None, 1, 42) for run in runs]
    assert count(conn, "ready") == count(conn, "lease") == count(conn, "attempt") == 0


def test_plain_functions_run_beside_each_other_in_threads(dsn, connect):
    conn = connect()
    both = threading.Barrier(2, timeout=5)
    threads = set()

    def meet(payload):
        both.wait()
        threads.add(threading.current_thread().name)
        return "met"

    make_ready(conn, task_job(conn, "meet"), count=2)
    with running(dsn, {"meet": meet}):
        rows = settled(conn, 2)
    assert [row[4] for row in rows] == ["met", "met"]
    assert len(threads) == 2


def test_a_handler_is_told_what_it_executes(dsn, connect):
    conn = connect()
    seen = []

    def look(payload, ctx):
        seen.append(ctx)

    job = task_job(conn, "look")
    [run] = make_ready(conn, job, due_at=DUE + 250, attempt=3, fence=77)
    with running(dsn, {"look": look}):
        settled(conn)
    [ctx] = seen
    assert run == run_id(job.id, DUE + 250, 0, job.part)
    assert ctx.run_id == ctx.key == str(run)
    assert ctx.job_id == str(job.id)
    assert (ctx.attempt, ctx.fence, ctx.cancelled) == (3, 77, False)
    assert ctx.scheduled_for == datetime(2025, 11, 29, 15, 0, 0, 250_000, tzinfo=UTC)


def test_one_run_cannot_spoil_the_payload_of_the_next(dsn, connect):
    conn = connect()

    async def grow(payload):
        payload["list"].append(1)
        return payload["list"]

    make_ready(conn, task_job(conn, "grow", payload={"list": []}), count=3)
    with running(dsn, {"grow": grow}):
        assert [row[4] for row in settled(conn, 3)] == [[1], [1], [1]]


def test_queues_are_served_and_others_left_alone(dsn, connect):
    conn = connect()

    async def noop(payload):
        return None

    for queue in ("mail", "default", "other"):
        make_ready(conn, task_job(conn, "noop", queue=queue))
    with running(dsn, {"noop": noop}, queues=("default", "mail")):
        settled(conn, 2)
    assert conn.execute("SELECT queue FROM chrono_ready").fetchall() == [("other",)]


def test_a_failed_attempt_comes_again_with_its_error_kept(dsn, connect):
    conn = connect()

    def fail(payload):
        raise ValueError("no\x00such \ud800 thing")

    [run] = make_ready(conn, task_job(conn, "fail", retry_policy=FAST))
    with running(dsn, {"fail": fail}):
        [(ref, attempt, _)] = waiting(conn)
    assert (ref, attempt) == (run, 2)
    [(number, reason, error)] = conn.execute(
        "SELECT attempt, reason, error FROM chrono_attempt"
    ).fetchall()
    assert (number, reason) == (1, Reason.ATTEMPT_FAILED)
    assert error.startswith("ValueError: no\ufffdsuch ? thing\n")
    assert "in fail" in error
    assert "worker/handlers" not in error
    assert count(conn, "run") == count(conn, "lease") == 0


def test_the_last_attempt_buries_the_run_with_all_that_redriving_needs(dsn, connect):
    conn = connect()

    async def fail(payload):
        raise RuntimeError("again")

    job = task_job(conn, "fail", retry_policy=FAST, payload={"order": 7})
    [run] = make_ready(conn, job, attempt=3)
    with running(dsn, {"fail": fail}):
        rows = settled(conn)
    assert rows == [(run, RunState.DEAD, Reason.ATTEMPTS_EXHAUSTED, 3, None)]
    [(payload, errors)] = conn.execute(
        "SELECT payload, errors FROM chrono_dead_letter"
    ).fetchall()
    assert payload == {"order": 7}
    assert [(e["attempt"], e["error"].splitlines()[0]) for e in errors] == [
        (3, "RuntimeError: again")
    ]


def test_a_success_stays_one_whatever_it_returns(dsn, connect):
    conn = connect()
    results = {
        "nan": float("nan"),
        "object": object(),
        "long": "x" * 70_000,
        "wide": [1] * 20_000,
        "nul": "a\x00b",
        "half": "\ud800",
    }

    async def give(payload):
        return results[payload]

    for name in results:
        make_ready(conn, task_job(conn, "give", payload=name))
    with running(dsn, {"give": give}):
        rows = settled(conn, len(results))
    assert {row[1] for row in rows} == {RunState.SUCCESS}
    assert {row[4]["note"] for row in rows} == {"result not stored"}
    assert "NaN" in rows[0][4]["why"]


def test_no_way_of_leaving_a_handler_takes_the_worker_along(dsn, connect):
    conn = connect()

    def leave(payload):
        sys.exit(3)

    async def leave_async(payload):
        sys.exit(3)

    async def cancel_itself(payload):
        asyncio.current_task().cancel()
        await asyncio.Event().wait()

    def stop(payload):
        raise StopIteration

    class Rude(Exception):
        def __str__(self):
            raise ValueError

    async def rude(payload):
        raise Rude

    tasks = {
        "leave": leave,
        "leave_async": leave_async,
        "cancel_itself": cancel_itself,
        "stop": stop,
        "rude": rude,
    }
    for name in tasks:
        make_ready(conn, task_job(conn, name, retry_policy={"max_attempts": 1}))
    with running(dsn, tasks):
        rows = settled(conn, 5)
    assert {row[1] for row in rows} == {RunState.DEAD}
    errors = conn.execute("SELECT error FROM chrono_attempt ORDER BY run_id").fetchall()
    assert [error.splitlines()[0] for (error,) in errors] == [
        "SystemExit: 3",
        "SystemExit: 3",
        "The task cancelled itself.",
        "StopIteration: ",
        "Rude",
    ]


def test_a_run_without_handler_is_handed_back_for_a_minute(dsn, connect):
    conn = connect()
    [run] = make_ready(conn, task_job(conn, "nobody"), attempt=2)
    with running(dsn):
        [(ref, attempt, wait_s)] = waiting(conn)
    assert (ref, attempt) == (run, 2)
    assert 50 < wait_s <= 60
    assert count(conn, "attempt") == count(conn, "run") == 0


def test_a_run_of_a_deleted_job_is_cancelled_unexecuted(dsn, connect):
    conn = connect()
    executed = []
    [run] = make_ready(conn, task_job(conn, "note", deleted=True))
    with running(dsn, {"note": executed.append}):
        rows = settled(conn)
    assert rows == [(run, RunState.CANCELLED, Reason.DELETED, 1, None)]
    assert executed == []


def test_a_target_that_makes_no_sense_is_dead_at_once(dsn, connect):
    conn = connect()
    known = make_job(conn, target={"kind": "task", "name": "noop"})
    jobs = [make_job(conn, target={}) for _ in range(5)]
    runs = [make_ready(conn, job)[0] for job in [*jobs, known]]
    gone, *others = jobs
    conn.execute("DELETE FROM chrono_job_revision WHERE job_id = %s", [gone.id])
    # The last one is fit for jsonb and not for Python.
    for job, column, value in zip(
        others,
        ("target", "target", "target", "payload"),
        ('{"kind": "carrier pigeon"}', '{"kind": "task"}', "[]", "9" * 5_000),
        strict=True,
    ):
        conn.execute(
            f"UPDATE chrono_job_revision SET {column} = %s WHERE job_id = %s",
            [value, job.id],
        )

    async def noop(payload):
        return None

    with running(dsn, {"noop": noop}):
        rows = settled(conn, 6)
    dead = (RunState.DEAD, Reason.NON_RETRYABLE, 1, None)
    assert rows == [
        *((run, *dead) for run in runs[:5]),
        (runs[5], RunState.SUCCESS, None, 1, None),
    ]
