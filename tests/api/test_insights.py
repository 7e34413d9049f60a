"""GET /insights/long-running: pages of jobs that take longer than their period."""

from uuid import UUID

import pytest

from apps.jobs import insights
from chrono.rules.instants import MINUTE
from chrono.rules.keys import run_id
from chrono.rules.partitions import partition_of
from tests.api.test_jobs import JOBS, TASK, call, problem

PATH = "/api/v1/insights/long-running"


@pytest.fixture
def slow(client, connect):
    """Three jobs of every minute with a run of 90 s each; their public forms."""
    conn = connect()
    jobs = []
    for number in range(3):
        fields = {"key": f"job-{number}", "target": TASK, "cron": "* * * * *"}
        job = call(client, "post", JOBS, fields).json()
        jobs.append(job)
        conn.execute(
            """
            WITH taken AS (
                SELECT date_trunc('minute', now()) AS at
            ), decided AS (
                INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence,
                    version, revision, part, outcome, kind)
                SELECT at, %(job)s, %(run)s, 1, 1, 1, %(part)s, 1, 1 FROM taken
            )
            INSERT INTO chrono_run (due_at, started_at, finished_at, id, job_id, fence,
                revision, tenant, part, state, attempt)
            SELECT at, at, at + interval '90 s', %(run)s, %(job)s, 1, 1, 1, %(part)s, 1,
                1 FROM taken
            """,
            {"job": job["id"], **ids(job)},
        )
    return jobs


def ids(job):
    ident = UUID(job["id"])
    part = partition_of(ident)
    return {"part": part, "run": run_id(ident, 30 * MINUTE, 0, part)}


def test_each_job_says_how_long_it_takes(client, slow):
    answer = client.get(PATH)
    assert answer.status_code == 200
    told = answer.json()
    assert told["next_cursor"] is None
    assert [one["job_key"] for one in told["items"]] == ["job-2", "job-1", "job-0"]
    assert told["items"][2] == {
        "job_id": slow[0]["id"],
        "job_key": "job-0",
        "name": "",
        "period_ms": 60_000,
        "runs": 1,
        "longer": 1,
        "median_ms": 90_000,
        "longest_ms": 90_000,
        "longest_run": str(ids(slow[0])["run"]),
    }


def test_pages_have_a_place_to_go_on(client, slow, monkeypatch):
    monkeypatch.setattr(insights, "LOOK", 2)
    first = client.get(PATH).json()
    assert [one["job_key"] for one in first["items"]] == ["job-2", "job-1"]
    rest = client.get(PATH, {"cursor": first["next_cursor"]}).json()
    assert [one["job_key"] for one in rest["items"]] == ["job-0"]
    assert rest["next_cursor"] is None
    one = client.get(PATH, {"limit": 1}).json()
    assert [item["job_key"] for item in one["items"]] == ["job-2"]
    problem(client.get(PATH, {"cursor": "?"}), 400, "bad_cursor", parameter="cursor")


def test_a_stranger_sees_none_of_them(stranger, slow):
    assert stranger.get(PATH).json() == {"items": [], "next_cursor": None}
