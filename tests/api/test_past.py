"""What is asked of a job's past: run it again, say why, move what waits."""

import uuid

import pytest
from django.db import connection

from apps.jobs.commands import pause_job, resume_job
from chrono.rules.instants import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    format_instant,
    parse_instant,
)
from tests.api.test_jobs import JOBS, at, body, call, events, problem

HOURLY = {"cron": "0 * * * *", "interval": None, "jitter_window": "0s"}


@pytest.fixture
def conn(connect):
    return connect()


@pytest.fixture
def now(conn):
    """The database's clock, to the second."""
    [(moment,)] = conn.execute(
        "SELECT floor(extract(epoch FROM clock_timestamp()))::bigint * 1000"
    ).fetchall()
    return moment


@pytest.fixture
def paused_for_hours(client, now):
    """A job that was paused over the last three hours."""
    job = call(client, "post", JOBS, body(**HOURLY)).json()
    ident = uuid.UUID(job["id"])
    start = now - 4 * HOUR
    # As if it had been made then: the plan begins with its activation.
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE chrono_job SET activated_at = to_timestamp(%s), "
            "created_at = to_timestamp(%s) WHERE id = %s",
            [start / 1000, start / 1000, ident],
        )
        cursor.execute(
            "UPDATE chrono_job_revision SET created_at = to_timestamp(%s) "
            "WHERE job_id = %s",
            [start / 1000, ident],
        )
    pause_job(ident, note="moving", now=start + SECOND)
    resume_job(ident, now=now - SECOND)
    return job


def hours(now):
    """Return the last full hours before an instant, oldest first."""
    last = now // HOUR * HOUR
    return [last - 2 * HOUR, last - HOUR, last]


def span(now):
    return {
        "from": format_instant(hours(now)[0] - MINUTE),
        "to": format_instant(hours(now)[-1] - MINUTE),
    }


def test_a_range_of_the_past_is_run_again(client, conn, now, paused_for_hours):
    address = at(paused_for_hours, "backfill")
    dry = call(client, "post", address, {**span(now), "dry_run": True})
    assert (dry.status_code, dry.json()["id"]) == (200, None)
    answer = call(client, "post", address, {**span(now), "reason": "lost data"})
    assert answer.status_code == 202
    made = answer.json()
    expected = [format_instant(moment) for moment in hours(now)[:2]]
    assert made["occurrences"] == dry.json()["occurrences"] == expected
    [listed] = client.get(address).json()["items"]
    assert (listed["id"], listed["runs"], listed["waiting"]) == (made["id"], 2, 2)
    [(_, reason, _, after, _)] = events(conn, "job.backfill")
    assert (reason, after["runs"]) == ("lost data", 2)
    again = call(client, "post", address, span(now)).json()
    assert (again["id"], again["passed_over"]) == (None, 2)
    gone = call(client, "post", f"{address}/{made['id']}/cancel")
    assert gone.json() == {"cancelled": 2}
    assert client.get(address).json()["items"][0]["waiting"] == 0


def test_a_repeated_request_makes_one_backfill(client, now, paused_for_hours):
    address = at(paused_for_hours, "backfill")
    answers = [
        call(client, "post", address, span(now), Idempotency_Key="b1") for _ in range(2)
    ]
    assert answers[0].json() == answers[1].json()
    assert len(client.get(address).json()["items"]) == 1


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"from": None}, "bad_value", "from"),
        ({"to": "soon"}, "bad_instant", "to"),
        ({"to": "2026-01-01T00:00:00Z"}, "bad_value", "to"),
        ({"to": "2199-01-01T00:00:00Z"}, "bad_value", "to"),
        ({"from": "1999-01-01T00:00:00Z"}, "bad_value", "from"),
        ({"order": "sideways"}, "bad_value", "order"),
        ({"reprocess": ["none"]}, "bad_value", "reprocess"),
        ({"rate": 1.5}, "bad_value", "rate"),
        ({"rate": True}, "bad_value", "rate"),
        ({"dry_run": "yes"}, "bad_value", "dry_run"),
        ({"until": "x"}, "unknown_field", "until"),
    ],
)
def test_a_bad_range_is_refused(client, now, paused_for_hours, change, code, field):
    address = at(paused_for_hours, "backfill")
    answer = call(client, "post", address, {**span(now), **change})
    assert problem(answer, 422, code, pointer=f"/{field}")


def test_a_range_of_too_many_is_refused(client, now, paused_for_hours):
    changed = call(
        client,
        "patch",
        at(paused_for_hours),
        {"cron": "* * * * * *", "seconds": True},
        If_Match="*",
    )
    assert changed.status_code == 200
    answer = call(
        client,
        "post",
        at(paused_for_hours, "backfill"),
        {"from": format_instant(now - 4 * HOUR), "to": format_instant(now)},
    )
    assert problem(answer, 422, "backfill_too_large")


def explained(client, job, moment):
    answer = client.get(at(job, "explain"), {"at": format_instant(moment)})
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_a_skip_is_explained_by_its_reason(client, now, paused_for_hours):
    found = explained(client, paused_for_hours, hours(now)[1])
    assert (found["verdict"], found["reason"]) == ("skipped", "paused")
    assert found["text"].startswith("The job was paused then.")
    assert found["previous"] == format_instant(hours(now)[0])
    assert found["next"] == format_instant(hours(now)[2])


def test_an_instant_that_is_none_is_explained_by_its_field(
    client, now, paused_for_hours
):
    found = explained(client, paused_for_hours, hours(now)[1] + 5 * MINUTE)
    assert found["verdict"] == "no_occurrence"
    assert [one["column"] for one in found["mismatches"]] == ["minute"]
    assert "it fires at 0" in found["text"]


def test_what_is_to_come_and_what_was_before_are_explained(
    client, now, paused_for_hours
):
    coming = explained(client, paused_for_hours, hours(now)[-1] + HOUR)
    assert coming["verdict"] == "to_come"
    before = explained(client, paused_for_hours, hours(now)[0] - 5 * HOUR)
    assert before["verdict"] == "not_yet_created"


def test_a_run_that_waits_is_explained_by_what_holds_it(client, now, paused_for_hours):
    call(client, "post", at(paused_for_hours, "backfill"), span(now))
    found = explained(client, paused_for_hours, hours(now)[0])
    assert (found["verdict"], found["reason"]) == ("run", "catch_up")
    assert found["run"]["state"] == "parked"
    assert "lane of missed and backfilled runs" in found["text"]


@pytest.mark.parametrize(
    ("note", "told"),
    [
        ("budget freeze", ": budget freeze."),
        ("Until Monday!", ": Until Monday!"),
        ("", "."),
    ],
)
def test_a_paused_job_says_who_paused_it(client, now, paused_for_hours, note, told):
    until = format_instant(now + DAY)
    pausing = {"note": note, "until": until}
    paused = call(client, "post", at(paused_for_hours, "pause"), pausing).json()
    found = explained(client, paused_for_hours, hours(now)[-1] + HOUR)
    assert found["verdict"] == "paused"
    assert found["text"].endswith(
        f"by {paused['paused_by']}{told} The pause ends at {until}."
    )


def test_explain_asks_for_an_instant(client, paused_for_hours):
    address = at(paused_for_hours, "explain")
    assert problem(client.get(address), 400, "bad_parameter")
    assert problem(client.get(address, {"at": "noon"}), 400, "bad_parameter")


def test_a_run_that_waits_is_moved(client, conn, now, paused_for_hours):
    run = call(client, "post", at(paused_for_hours, "run")).json()
    later = format_instant(now + HOUR)
    address = f"/api/v1/runs/{run['id']}/reschedule"
    moved = call(client, "post", address, {"due_at": later, "reason": "later"})
    assert moved.status_code == 200, moved.content
    assert (moved.json()["due_at"], moved.json()["scheduled_for"]) == (
        later,
        run["scheduled_for"],
    )
    [(_, reason, before, after, _)] = events(conn, "run.reschedule")
    assert reason == "later"
    assert (before["due_at"], after["due_at"]) == (run["due_at"], later)
    past = call(client, "post", address, {"due_at": "2020-01-01T00:00:00Z"})
    soonest = parse_instant(past.json()["due_at"])
    assert soonest > parse_instant(run["due_at"]), "now at the earliest"


def test_a_run_that_is_over_is_not_moved(client, paused_for_hours):
    run = call(client, "post", at(paused_for_hours, "run")).json()
    call(client, "post", f"/api/v1/runs/{run['id']}/cancel")
    address = f"/api/v1/runs/{run['id']}/reschedule"
    moved = call(client, "post", address, {"due_at": "2058-01-01T00:00:00Z"})
    assert problem(moved, 409, "run_not_waiting")
    missing = call(client, "post", address, {})
    assert problem(missing, 422, "bad_value", pointer="/due_at")


def test_strangers_find_nothing(stranger, now, paused_for_hours):
    for answer in (
        call(stranger, "post", at(paused_for_hours, "backfill"), span(now)),
        stranger.get(at(paused_for_hours, "backfill")),
        stranger.get(at(paused_for_hours, "explain"), {"at": format_instant(now)}),
    ):
        assert problem(answer, 404, "job_not_found")
