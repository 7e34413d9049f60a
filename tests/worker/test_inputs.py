"""Runs with a payload of their own, beside those with their revision's."""

import pytest

from apps.runs import store
from chrono.rules.states import Reason, RunState
from tests.support.seed import make_job, make_ready
from tests.worker.support import FAST, running, settled


async def echo(payload):
    return {"got": payload}


async def fail(payload):
    raise RuntimeError("no")


def job_of(conn, name, **options):
    return make_job(conn, target={"kind": "task", "name": name}, **options)


def own(conn, job, payload, **options):
    """Make a run ready that has a payload of its own, as JSON text."""
    [run] = make_ready(conn, job, group=1, **options)
    store.insert_run_input(conn, run=run, part=job.part, payload=payload, priority=None)
    return run


@pytest.mark.parametrize("payload", ['{"n": 2}', "null", '"text"', "[1, 2]", "0"])
def test_a_run_gets_its_own_payload_and_the_others_their_revision_s(
    dsn, connect, payload
):
    conn = connect()
    job = job_of(conn, "echo", payload={"n": 1})
    plain = make_ready(conn, job, count=3)
    mine = own(conn, job, payload)
    with running(dsn, {"echo": echo}):
        results = {row[0]: row[4] for row in settled(conn, 4)}
    [(expected,)] = conn.execute("SELECT %s::jsonb", [payload]).fetchall()
    assert results.pop(mine) == {"got": expected}
    assert results == {run: {"got": {"n": 1}} for run in plain}


def test_a_manual_run_without_a_payload_of_its_own_has_its_revision_s(dsn, connect):
    conn = connect()
    make_ready(conn, job_of(conn, "echo", payload={"n": 1}), group=1)
    with running(dsn, {"echo": echo}):
        [(*_, result)] = settled(conn)
    assert result == {"got": {"n": 1}}


def test_each_attempt_gets_it_and_the_dead_letter_keeps_it(dsn, connect):
    conn = connect()
    job = job_of(conn, "fail", payload={"n": 1}, retry_policy=FAST)
    run = own(conn, job, '{"n": 2}', attempt=3)
    with running(dsn, {"fail": fail}):
        rows = settled(conn)
    assert rows == [(run, RunState.DEAD, Reason.ATTEMPTS_EXHAUSTED, 3, None)]
    assert conn.execute("SELECT payload FROM chrono_dead_letter").fetchall() == [
        ({"n": 2},)
    ]


def test_a_payload_that_cannot_be_read_costs_its_run_and_no_other(dsn, connect):
    conn = connect()
    job = job_of(conn, "echo", payload={"n": 1})
    bad = own(conn, job, "1" * 5_000)
    good = own(conn, job, '{"n": 3}')
    [plain] = make_ready(conn, job)
    with running(dsn, {"echo": echo}):
        rows = {row[0]: row[1:] for row in settled(conn, 3)}
    assert rows[bad][:2] == (RunState.DEAD, Reason.NON_RETRYABLE)
    [(error,)] = conn.execute("SELECT error FROM chrono_attempt").fetchall()
    assert error.endswith("Change the job, or run it with another payload.")
    assert rows[good][3] == {"got": {"n": 3}}
    assert rows[plain][3] == {"got": {"n": 1}}


def test_a_target_of_a_kind_of_a_later_release_says_what_to_do(dsn, connect):
    conn = connect()
    make_ready(conn, make_job(conn, target={"kind": "carrier pigeon"}))
    with running(dsn):
        [row] = settled(conn)
    assert row[1:3] == (RunState.DEAD, Reason.NON_RETRYABLE)
    [(error,)] = conn.execute("SELECT error FROM chrono_attempt").fetchall()
    assert error.endswith("to the workers of this queue, and redrive the run.")


def test_nobody_looks_for_what_a_run_of_the_schedule_cannot_have(
    dsn, connect, monkeypatch
):
    conn = connect()
    asked = []

    def look(conn, *, runs):
        asked.extend(run for _, run in runs)
        return {}

    monkeypatch.setattr(store, "load_run_inputs", look)
    job = job_of(conn, "echo")
    make_ready(conn, job, count=20)
    [extra] = make_ready(conn, job, group=2)
    with running(dsn, {"echo": echo}):
        settled(conn, 21)
    assert asked == [extra]
