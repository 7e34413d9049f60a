"""Incidents: payroll started from two windows, and a job that succeeds at nothing."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from apps.jobs.commands import create_job
from apps.jobs.manual import RunRef, run_now
from apps.runs.errors import RunUnderWay
from chrono.rules.states import Reason, RunState
from tests.support.definitions import definition
from tests.support.seed import make_job, make_ready
from tests.worker.support import running, settled


def test_h05_of_two_triggers_one_runs_and_the_other_is_told_of_it(client):
    job = create_job(definition(interval="1d")).job_id
    first = client.post(f"/api/v1/jobs/{job}/run", {}, content_type="application/json")
    assert first.status_code == 202
    run = first.json()["id"]
    second = client.post(f"/api/v1/jobs/{job}/run", {}, content_type="application/json")
    assert second.status_code == 409
    assert second.json()["code"] == "run_under_way"
    assert f"/runs/{run} is under way" in second.json()["detail"]
    beside = client.post(
        f"/api/v1/jobs/{job}/run", {"beside": True}, content_type="application/json"
    )
    assert beside.status_code == 202
    for under_way in (run, beside.json()["id"]):
        client.post(
            f"/api/v1/runs/{under_way}/cancel", {}, content_type="application/json"
        )
    again = client.post(f"/api/v1/jobs/{job}/run", {}, content_type="application/json")
    assert again.status_code == 202


@pytest.mark.usefixtures("dsn")
def test_h05_however_close_they_are():
    job = create_job(definition(interval="1d")).job_id

    def ask(_):
        try:
            return run_now(job, beside=False)
        except RunUnderWay as refused:
            return refused
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as windows:
        found = list(windows.map(ask, range(4)))
    assert sum(isinstance(one, RunRef) for one in found) == 1


@pytest.mark.parametrize("transactional", [False, True])
def test_h06_a_run_that_did_nothing_is_no_success(dsn, connect, transactional):
    conn = connect()
    target = {"kind": "task", "name": "export", "min_items_ok": 1}
    results = [{"items_ok": 3, "items_failed": 1}, {"items_ok": 0}, "fine", None]
    runs = []
    for payload in results:
        once = {"max_attempts": 1}
        job = make_job(conn, target=target, payload=payload, retry_policy=once)
        runs += make_ready(conn, job)
    tasks = {"export": lambda payload: payload}
    known = {"transactional": tasks} if transactional else {"tasks": tasks}
    with running(dsn, **known):
        rows = {row[0]: row[1:3] for row in settled(conn, 4)}
    dead = (RunState.DEAD, Reason.ATTEMPTS_EXHAUSTED)
    assert [rows[run] for run in runs] == [(RunState.SUCCESS, None), dead, dead, dead]
    errors = conn.execute("SELECT error FROM chrono_attempt ORDER BY error").fetchall()
    assert errors[0][0].startswith("It returned, but did 0 items")
    assert errors[1][0].startswith("It returned, but not how much it did")
