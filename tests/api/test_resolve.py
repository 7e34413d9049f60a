"""POST /runs/{id}/resolve: a person says what became of a run."""

import pytest

from apps.runs.days import drop_old_days, purge_kept
from chrono.rules.instants import DAY
from tests.api.test_jobs import problem
from tests.api.test_runs import conn, job, leased, settled  # noqa: F401  (fixtures)

UNKNOWN, DEAD, SUCCESS, FAILED = 6, 3, 1, 2


def resolve(client, run, **body):
    return client.post(
        f"/api/v1/runs/{run}/resolve", body, content_type="application/json"
    )


def ids(client, **query):
    return [one["id"] for one in client.get("/api/v1/runs", query).json()["items"]]


@pytest.fixture
def unknown(conn, job):  # noqa: F811
    return settled(conn, job, n=1, state=UNKNOWN, reason=21)


def test_what_a_person_says_is_shown_from_then_on(client, conn, job, unknown):  # noqa: F811
    before = client.get(f"/api/v1/runs/{unknown}").json()
    assert (before["state"], before["status"]) == ("unknown", "failed")
    assert (before["reason"], before["resolution"]) == ("worker_lost", None)
    answer = resolve(client, unknown, outcome="success", reason="the bank has it")
    assert answer.status_code == 200
    shown = answer.json()
    assert (shown["state"], shown["status"]) == ("success", "success")
    assert shown["reason"] == "resolved"
    said = shown["resolution"]
    assert (said["outcome"], said["reason"]) == ("success", "the bank has it")
    assert said["by"]
    assert said["at"].endswith("Z")
    assert client.get(f"/api/v1/runs/{unknown}").json() == shown
    [(state, reason)] = conn.execute("SELECT state, reason FROM chrono_run").fetchall()
    assert (state, reason) == (UNKNOWN, 21), "the history is not touched"
    [(before, after, reason)] = conn.execute(
        "SELECT before, after, reason FROM chrono_audit_event "
        "WHERE action = 'run.resolve'"
    ).fetchall()
    assert (before, after) == ({"state": "unknown"}, {"state": "success"})
    assert reason == "the bank has it"


@pytest.mark.parametrize("kept", [False, True])
def test_lists_and_filters_go_by_what_was_said(client, conn, job, kept):  # noqa: F811
    runs = {
        name: str(settled(conn, job, n=n, state=state, kept=kept and state != SUCCESS))
        for n, (name, state) in enumerate(
            {"a": UNKNOWN, "b": DEAD, "c": UNKNOWN, "d": SUCCESS, "e": DEAD}.items(), 1
        )
    }
    resolve(client, runs["a"], outcome="success", reason="seen")
    resolve(client, runs["b"], outcome="failed", reason="seen")

    def named(**query):
        by_id = {run: name for name, run in runs.items()}
        return "".join(by_id[run] for run in ids(client, **query))

    for mine in ({}, {"job": str(job.id)}):
        assert named(**mine) == "abcde"
        assert named(state="unknown", **mine) == "c"
        assert named(state="dead", **mine) == "e"
        assert named(state="failed", **mine) == "b"
        assert named(state="success", **mine) == "ad"
        assert named(status="failed", **mine) == "bce"
        assert named(state="success,dead", limit="2", **mine) == "ad"
    states = {
        one["id"]: one["state"] for one in client.get("/api/v1/runs").json()["items"]
    }
    assert [states[runs[name]] for name in "abc"] == ["success", "failed", "unknown"]
    listed = client.get(f"/api/v1/jobs/{job.id}/runs").json()["items"]
    assert [one["state"] for one in listed][:3] == ["success", "failed", "unknown"]
    assert listed[0]["reason"] == "resolved"


def test_the_same_again_changes_nothing_and_the_other_is_refused(
    client,
    conn,  # noqa: F811
    unknown,
):
    first = resolve(client, unknown, outcome="failed", reason="no").json()
    assert resolve(client, unknown, outcome="failed", reason="again").json() == first
    other = resolve(client, unknown, outcome="success", reason="but")
    assert problem(other, 409, "run_resolved")
    [(count,)] = conn.execute(
        "SELECT count(*) FROM chrono_audit_event WHERE action = 'run.resolve'"
    ).fetchall()
    assert count == 1


@pytest.mark.parametrize("state", [SUCCESS, 4])
def test_what_is_known_is_not_resolved(client, conn, job, state):  # noqa: F811
    run = settled(conn, job, n=1, state=state)
    answer = resolve(client, run, outcome="failed", reason="no")
    assert problem(answer, 409, "run_not_resolvable")
    live = leased(conn, job, n=2)
    answer = resolve(client, live, outcome="failed", reason="no")
    assert problem(answer, 409, "run_not_resolvable")


def test_bad_input_is_told_where(client, make_client, stranger, unknown):
    for body, pointer in (
        ({"reason": "x"}, "/outcome"),
        ({"outcome": "cancelled", "reason": "x"}, "/outcome"),
        ({"outcome": ["success"], "reason": "x"}, "/outcome"),
        ({"outcome": "success"}, "/reason"),
        ({"outcome": "success", "reason": "  "}, "/reason"),
        ({"outcome": "success", "reason": 7}, "/reason"),
    ):
        assert problem(
            resolve(client, unknown, **body), 422, "bad_value", pointer=pointer
        )
    odd = resolve(client, unknown, outcome="success", reason="x", by="me")
    assert problem(odd, 422, "unknown_field")
    known = {"outcome": "success", "reason": "x"}
    assert problem(resolve(stranger, unknown, **known), 404, "run_not_found")
    reader = make_client("read")
    assert problem(resolve(reader, unknown, **known), 403, "forbidden")
    assert client.get(f"/api/v1/runs/{unknown}").json()["state"] == "unknown"


def test_a_verdict_goes_after_its_run(client, conn, job, connect):  # noqa: F811
    run = settled(conn, job, n=1, state=UNKNOWN, kept=True)
    resolve(client, run, outcome="failed", reason="no")
    [(now,)] = conn.execute(
        "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    ).fetchall()
    drop_old_days(connect(), now=now)

    def left():
        return conn.execute("SELECT count(*) FROM chrono_resolution").fetchall()

    purge_kept(connect(), now=now + 29 * DAY)
    assert left() == [(1,)]
    purge_kept(connect(), now=now + 31 * DAY)
    assert left() == [(0,)]
