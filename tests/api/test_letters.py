"""Dead letters of the API, and runs that are run again."""

import uuid

import pytest

from chrono.rules.instants import HOUR, MINUTE, format_instant
from chrono.rules.keys import run_id
from tests.api import test_jobs
from tests.api.test_jobs import events
from tests.support.seed import make_ended, make_job, make_ready

LETTERS = "/api/v1/dead-letters"


@pytest.fixture
def conn(connect):
    return connect()


@pytest.fixture
def now(conn):
    """The database's clock, to the hour."""
    [(moment,)] = conn.execute(
        "SELECT floor(extract(epoch FROM clock_timestamp()))::bigint * 1000"
    ).fetchall()
    return moment // HOUR * HOUR


@pytest.fixture
def job(conn):
    """A job that can be planned with, and is tagged."""
    job = make_job(
        conn,
        target={"kind": "http", "url": "https://example.org/pay"},
        payload={"n": 1},
    )
    conn.execute(
        "UPDATE chrono_job_revision SET schedule = %s WHERE job_id = %s",
        ['{"cron": "* * * * *", "timezone": "UTC"}', job.id],
    )
    conn.execute("UPDATE chrono_job SET tags = '{payroll}' WHERE id = %s", [job.id])
    return job


def problem(answer, status, code, pointer=None):
    place = {} if pointer is None else {"pointer": pointer}
    return test_jobs.problem(answer, status, code, **place)


def died(conn, job, now, n=1, **more):
    return make_ended(conn, job, now - n * MINUTE, state=3, **more)


def listed(client, query=""):
    answer = client.get(f"{LETTERS}{query}")
    assert answer.status_code == 200, answer.content
    return [item["run_id"] for item in answer.json()["items"]]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("state=sick", "state is one of open, "),
        ("state=open,rerun", "state is one of open, "),
        ("reason=bad", "reason is one of "),
    ],
)
def test_a_word_that_is_not_known_is_answered_with_those_that_are(client, query, said):
    told = problem(client.get(f"{LETTERS}?{query}"), 400, "bad_parameter")
    assert said in told["detail"]


def test_the_open_ones_are_listed_newest_first_in_pages(client, conn, job, now):
    runs = [str(died(conn, job, now, n)) for n in (1, 2, 3)]
    page = client.get(f"{LETTERS}?limit=2").json()
    assert [item["run_id"] for item in page["items"]] == runs[:2]
    rest = client.get(f"{LETTERS}?limit=2&cursor={page['next_cursor']}").json()
    assert [item["run_id"] for item in rest["items"]] == runs[2:]
    assert rest["next_cursor"] is None
    first = page["items"][0]
    assert (first["state"], first["error"], first["job_key"]) == (
        "open",
        "it broke",
        str(job.id),
    )


def test_filters_fit_job_target_reason_tag_queue_and_time(client, conn, job, now):
    run = str(died(conn, job, now))
    task = make_job(conn, target={"kind": "task", "name": "shop.close"}, queue="slow")
    other = str(died(conn, task, now, 2))
    conn.execute("UPDATE chrono_dead_letter SET reason = 17 WHERE run_id = %s", [other])
    for query, expected in {
        f"job={job.id}": [run],
        "target=https://example.org/": [run],
        "target=shop.close": [other],
        "target=shop": [],
        "reason=non_retryable": [other],
        "tag=payroll": [run],
        "queue=slow": [other],
        f"died_after={format_instant(now - MINUTE)}": [run],
        f"died_before={format_instant(now - MINUTE)}": [other],
        "state=discarded": [],
        "state=all": [run, other],
    }.items():
        assert listed(client, f"?{query}") == expected, query


def test_one_is_shown_whole(client, conn, job, now):
    run = died(conn, job, now)
    conn.execute(
        "UPDATE chrono_dead_letter SET payload = '[1]', errors = jsonb_build_array("
        "jsonb_build_object('attempt', 1, 'reason', 30, 'error', 'first', "
        "'finished_at', clock_timestamp()), '3')"
    )
    shown = client.get(f"{LETTERS}/{run}").json()
    assert shown["payload"] == [1]
    [error] = shown["errors"]
    assert (error["attempt"], error["reason"], error["error"]) == (
        1,
        "attempt_failed",
        "first",
    )
    assert error["finished_at"].endswith("Z")


def test_a_redrive_is_tried_first_and_done_then(client, conn, job, now):
    runs = [died(conn, job, now, n) for n in (2, 1)]
    asked = {"filter": {"tag": "payroll"}, "rate": 10}
    dry = client.send(f"{LETTERS}/redrive", {**asked, "dry_run": True})
    assert dry.status_code == 200, dry.content
    assert (dry.json()["id"], dry.json()["count"]) == (None, 2)
    made = client.send(f"{LETTERS}/redrive", {**asked, "reason": "bank is back"})
    assert made.status_code == 202
    assert [item["run_id"] for item in made.json()["items"]] == [str(r) for r in runs]
    assert not made.json()["more"]
    rerun = made.json()["items"][0]["rerun_as"]
    assert rerun == str(run_id(job.id, now - 2 * MINUTE, 1, job.part))
    shown = client.get(f"/api/v1/runs/{rerun}").json()
    assert (shown["state"], shown["trigger"], shown["rerun_of"]) == (
        "parked",
        "redrive",
        str(runs[0]),
    )
    assert client.get(f"/api/v1/runs/{runs[0]}").json()["rerun_as"] == rerun
    assert listed(client) == []
    assert listed(client, "?state=rerun") == [str(run) for run in reversed(runs)]
    assert len(events(conn, "run.redrive")) == 2
    [(_, reason, _, after, _)] = events(conn, "job.redrive")
    assert (reason, after["runs"]) == ("bank is back", 2)


def test_a_second_redrive_is_a_409_that_names_the_place(client, conn, job, now):
    first, second = (died(conn, job, now, n) for n in (1, 2))
    body = {"ids": [str(first)]}
    assert client.send(f"{LETTERS}/redrive", body).status_code == 202
    again = client.send(f"{LETTERS}/redrive", {"ids": [str(second), str(first)]})
    problem(again, 409, "dead_letter_closed", "/ids/1")
    assert listed(client) == [str(second)]


def test_a_repeated_request_makes_one_redrive(client, conn, job, now):
    body = {"ids": [str(died(conn, job, now))]}
    answers = [
        client.send(f"{LETTERS}/redrive", body, headers={"Idempotency-Key": "r1"})
        for _ in range(2)
    ]
    assert [one.status_code for one in answers] == [202, 202]
    assert answers[0].json() == answers[1].json()


@pytest.mark.parametrize(
    ("body", "status", "code", "place"),
    [
        ({}, 422, "bad_value", "/ids"),
        ({"ids": []}, 422, "bad_value", "/ids"),
        ({"ids": ["x"]}, 422, "bad_value", "/ids/0"),
        ({"ids": [str(uuid.uuid4())] * 1001}, 422, "bad_value", "/ids"),
        ({"ids": [str(uuid.UUID(int=5))]}, 404, "dead_letter_not_found", "/ids/0"),
        ({"filter": []}, 422, "bad_value", "/filter"),
        ({"filter": {"jobs": 1}}, 422, "unknown_field", "/filter/jobs"),
        ({"filter": {"reason": "bad"}}, 422, "bad_value", "/filter/reason"),
        ({"filter": {"tag": "\x7f"}}, 422, "bad_value", "/filter/tag"),
        ({"filter": {"died_after": "soon"}}, 422, "bad_instant", "/filter/died_after"),
        ({"filter": {}, "limit": 1001}, 422, "bad_value", "/limit"),
        ({"filter": {}, "limit": True}, 422, "bad_value", "/limit"),
        ({"filter": {}, "rate": 0}, 422, "bad_value", "/rate"),
        ({"filter": {}, "payload": 1}, 422, "bad_value", "/payload"),
        ({"filter": {}, "queue": "Ü"}, 422, "bad_value", "/queue"),
        ({"filter": {}, "dry_run": "no"}, 422, "bad_value", "/dry_run"),
        ({"filters": {}}, 422, "unknown_field", "/filters"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(client, body, status, code, place):
    problem(client.send(f"{LETTERS}/redrive", body), status, code, place)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"ids": ["x"]}, "ids.0 is a UUID."),
        ({"filter": {"job": 7}}, "filter.job is a UUID."),
        ({"filter": {"reason": "bad"}}, "filter.reason is one of "),
    ],
)
def test_a_refusal_says_the_right_form(client, body, said):
    told = problem(client.send(f"{LETTERS}/redrive", body), 422, "bad_value")
    assert told["detail"].startswith(said)


def test_discarding_takes_a_note_and_closes(client, conn, job, now):
    run = died(conn, job, now)
    body = {"ids": [str(run)], "note": "paid by hand"}
    problem(
        client.send(f"{LETTERS}/discard", {**body, "note": ""}),
        422,
        "bad_value",
        "/note",
    )
    assert client.send(f"{LETTERS}/discard", body).json() == {"discarded": 1}
    [item] = client.get(f"{LETTERS}?state=discarded").json()["items"]
    assert item["note"] == "paid by hand"
    assert item["closed_by"].startswith("test")
    problem(
        client.send(f"{LETTERS}/discard", body), 409, "dead_letter_closed", "/ids/0"
    )
    problem(
        client.send(f"{LETTERS}/redrive", {"ids": [str(run)]}),
        409,
        "dead_letter_closed",
        "/ids/0",
    )
    assert client.get(f"/api/v1/runs/{run}").json()["state"] == "dead"


def test_a_note_is_put_and_taken_away(client, conn, job, now):
    address = f"{LETTERS}/{died(conn, job, now)}/note"
    assert client.send(address, {"note": "asked the bank"}).json()["note"] == (
        "asked the bank"
    )
    assert client.send(address, {"note": None}).json()["note"] is None
    problem(client.send(address, {}), 422, "bad_value", "/note")
    problem(
        client.send(f"{LETTERS}/{uuid.uuid4()}/note", {"note": "x"}),
        404,
        "dead_letter_not_found",
    )


def test_another_tenant_sees_and_touches_nothing(client, stranger, conn, job, now):
    run = died(conn, job, now)
    assert listed(stranger) == []
    problem(stranger.get(f"{LETTERS}/{run}"), 404, "dead_letter_not_found")
    for verb, more in (("redrive", {}), ("discard", {"note": "x"})):
        answer = stranger.send(f"{LETTERS}/{verb}", {"ids": [str(run)], **more})
        problem(answer, 404, "dead_letter_not_found", "/ids/0")
    problem(
        stranger.send(f"{LETTERS}/{run}/note", {"note": "x"}),
        404,
        "dead_letter_not_found",
    )
    problem(stranger.send(f"/api/v1/runs/{run}/retry"), 404, "run_not_found")
    assert listed(client) == [str(run)]


def test_reading_is_not_enough(make_client, conn, job, now):
    reader = make_client("read")
    run = died(conn, job, now)
    assert listed(reader) == [str(run)]
    for address in (
        f"{LETTERS}/redrive",
        f"{LETTERS}/discard",
        f"{LETTERS}/{run}/note",
        f"/api/v1/runs/{run}/retry",
    ):
        problem(reader.send(address, {}), 403, "forbidden")


def test_a_finished_run_is_run_again_with_a_payload_of_its_own(client, conn, job, now):
    run = make_ended(conn, job, now - MINUTE)
    answer = client.send(f"/api/v1/runs/{run}/retry", {"payload": {"n": 2}})
    assert answer.status_code == 202, answer.content
    made = answer.json()
    assert answer["Location"] == f"/api/v1/runs/{made['id']}"
    assert (made["rerun_of"], made["payload"], made["trigger"]) == (
        str(run),
        {"n": 2},
        "redrive",
    )
    assert made["scheduled_for"] == format_instant(now - MINUTE)
    again = client.send(f"/api/v1/runs/{run}/retry")
    problem(again, 409, "run_rerun_already")
    assert made["id"] in again.json()["detail"]
    assert client.get(f"/api/v1/runs/{run}").json()["rerun_as"] == made["id"]


def test_a_run_that_is_not_over_is_not_run_again(client, conn, job):
    [run] = make_ready(conn, job)
    problem(client.send(f"/api/v1/runs/{run}/retry"), 409, "run_not_finished")
    problem(client.send("/api/v1/runs/x/retry"), 404, "run_not_found")
