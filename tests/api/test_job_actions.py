"""What is done to a job by a verb, and how often where it is asked for twice."""

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from apps.tenants import keys
from tests.api.conftest import ACME, ACTOR, ApiClient
from tests.api.test_jobs import JOBS, at, body, call, events, problem

KEY = {"Idempotency_Key": "k1"}


@pytest.fixture
def conn(connect):
    return connect()


@pytest.fixture
def job(client):
    """A job's public form, as it was created."""
    return call(client, "post", JOBS, body(payload={"n": 1})).json()


def count(conn, table, where="true"):
    [(number,)] = conn.execute(f"SELECT count(*) FROM {table} WHERE {where}").fetchall()
    return number


def timers(conn, job):
    """Return how many timers of a job ask for a manual run."""
    where = f"job_id = '{job['id']}' AND kind = 3"
    return sum(count(conn, one, where) for one in ("chrono_timer", "chrono_timer_far"))


def test_a_job_is_run_at_once(client, conn, job):
    answer = call(
        client,
        "post",
        at(job, "run"),
        {"payload": None, "priority": "high", "reason": "by phone"},
    )
    assert answer.status_code == 202
    run = answer.json()
    assert answer["Location"] == f"/api/v1/runs/{run['id']}"
    assert (run["status"], run["trigger"], run["priority"]) == (
        "pending",
        "manual",
        "high",
    )
    assert (run["payload"], run["job_id"]) == (None, job["id"])
    assert client.get(answer["Location"]).json() == run
    [listed] = client.get("/api/v1/runs").json()["items"]
    assert listed.items() <= run.items()
    [(_, reason, _, after, _)] = events(conn, "job.run")
    assert (reason, after["run_id"]) == ("by phone", run["id"])
    plain = call(client, "post", at(job, "run"), {"beside": True}).json()
    assert (plain["payload"], plain["priority"]) == ({"n": 1}, "normal")


def test_the_same_key_gets_the_same_run(client, conn, job):
    first = call(client, "post", at(job, "run"), {}, **KEY)
    second = call(client, "post", at(job, "run"), {}, **KEY)
    short = call(client, "post", at(job, "run").removeprefix("/api/v1"), {}, **KEY)
    for again in (second, short):
        assert (again.status_code, again.json()) == (202, first.json())
        assert again["Location"] == first["Location"]
        assert again["Idempotency-Replayed"] == "true"
    assert timers(conn, job) == 1
    other = call(client, "post", at(job, "run"), {"payload": 2}, **KEY)
    problem(other, 422, "request_mismatch")
    problem(call(client, "post", at(job, "pause"), {}, **KEY), 422, "request_mismatch")
    assert timers(conn, job) == 1


@pytest.mark.parametrize(
    ("fields", "status", "pointer"),
    [
        ({"priority": 1}, 422, "/priority"),
        ({"priority": "urgent"}, 422, "/priority"),
        ({"payload": "x" * 2**18}, 422, "/payload"),
        ({"reason": 7}, 422, "/reason"),
        ({"run_at": "2055-01-01T00:00:00Z"}, 422, "/run_at"),
    ],
)
def test_a_run_that_cannot_be_is_refused(client, conn, job, fields, status, pointer):
    answer = call(client, "post", at(job, "run"), fields)
    assert answer.status_code == status
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert timers(conn, job) == 0


def test_a_job_is_paused_and_resumed(client, conn, job):
    until = "2059-01-01T08:00:00Z"
    answer = call(
        client,
        "post",
        at(job, "pause"),
        {"note": "The printer is away.", "until": until, "reason": "holiday"},
        If_Match=client.get(at(job))["ETag"],
    )
    assert answer.status_code == 200
    told = answer.json()
    assert answer["ETag"] == client.get(at(job))["ETag"]
    assert (told["state"], told["paused"], told["next_run_at"]) == (
        "paused",
        True,
        None,
    )
    assert (told["pause_note"], told["paused_until"]) == ("The printer is away.", until)
    assert told["paused_by"] != ""
    assert events(conn, "job.pause")[0][1] == "holiday"
    items = client.get(at(job, "next")).json()["items"]
    assert items[0]["scheduled_for"] == "2059-01-02T02:30:00Z"
    again = call(client, "post", at(job, "pause"), {})
    assert (again.status_code, again.json()["version"]) == (200, 2)
    late = call(client, "post", at(job, "resume"), {}, If_Match='"v1"')
    problem(late, 412, "version_conflict", header="If-Match")
    resumed = call(client, "post", at(job, "resume"), {"reason": "it is back"})
    told = resumed.json()
    assert (told["state"], told["paused_until"], told["version"]) == ("active", None, 3)
    assert events(conn, "job.resume")[0][1] == "it is back"


def test_whoever_pauses_by_a_patch_or_a_put_is_named(client, job):
    call(client, "patch", at(job), {"paused": True}, If_Match="*")
    by = client.get(at(job)).json()["paused_by"]
    assert by != ""
    call(client, "post", at(job, "resume"))
    path = f"{JOBS}/by-key/{job['key']}"
    put = call(client, "put", path, body(payload={"n": 1}, paused=True))
    assert (put.json()["state"], put.json()["paused_by"]) == ("paused", by)


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"until": "2020-01-01T00:00:00Z"}, "/until"),
        ({"until": "9999-01-01T00:00:00Z"}, "/until"),
        ({"until": "tomorrow"}, "/until"),
        ({"until": 7}, "/until"),
        ({"note": 7}, "/note"),
        ({"note": "x" * 1001}, "/note"),
        ({"notes": "x"}, "/notes"),
    ],
)
def test_a_pause_that_cannot_be_is_refused(client, job, fields, pointer):
    answer = call(client, "post", at(job, "pause"), fields)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert client.get(at(job)).json()["state"] == "active"


def test_the_next_occurrences_are_skipped(client, conn, job):
    coming = job["next_runs"]
    answer = call(
        client, "post", at(job, "skip-next"), {"count": 2, "reason": "closed"}
    )
    assert answer.status_code == 200
    told = answer.json()
    assert told["skipped"] == coming[:2]
    assert told["job"]["next_runs"][:3] == coming[2:]
    assert told["job"] == client.get(at(job)).json()
    assert call(client, "post", at(job, "skip-next")).json()["skipped"] == [coming[2]]
    skipped = client.get(at(job, "runs") + "?state=skipped").json()["items"]
    assert [one["scheduled_for"] for one in skipped] == coming[2::-1]
    for fields in ({"count": 0}, {"count": 101}, {"count": "1"}, {"count": True}):
        answer = call(client, "post", at(job, "skip-next"), fields)
        assert answer.json()["errors"][0]["pointer"] == "/count"
    call(client, "post", at(job, "pause"))
    problem(call(client, "post", at(job, "skip-next")), 409, "nothing_to_skip")


def test_what_comes_next_is_told_with_jitter_and_clock_changes(client):
    made = call(
        client,
        "post",
        JOBS,
        body(timezone="America/New_York", jitter_window="10m"),
    ).json()
    path = at(made, "next")
    first = client.get(path).json()["items"]
    assert len(first) == 10
    assert [one["scheduled_for"] for one in first[:5]] == made["next_runs"]
    assert first[0]["due_at"] == made["next_due_at"]
    spring = client.get(f"{path}?n=2&after=2055-03-14T00:00:00Z").json()["items"]
    assert [(one["scheduled_for"], one["local"]) for one in spring] == [
        ("2055-03-14T07:00:00Z", "2055-03-14T03:00:00-04:00"),
        ("2055-03-15T06:30:00Z", "2055-03-15T02:30:00-04:00"),
    ]
    assert "02:30 does not exist" in spring[0]["note"]
    assert spring[1]["note"] is None
    assert len(client.get(f"{path}?n=100").json()["items"]) == 100
    for question, name in (
        ("n=0", "n"),
        ("n=101", "n"),
        ("n=x", "n"),
        ("after=now", "after"),
    ):
        answer = client.get(f"{path}?{question}")
        problem(answer, 400, "bad_parameter", parameter=name)
    problem(client.get(f"{path}?count=1"), 400, "unknown_parameter", parameter="count")


def test_a_single_instant_comes_once(client):
    moment = "2059-01-01T08:00:00Z"
    made = call(client, "post", JOBS, {**body(cron=None), "run_at": moment}).json()
    [one] = client.get(at(made, "next")).json()["items"]
    assert (one["scheduled_for"], one["due_at"]) == (moment, moment)
    assert client.get(at(made, "next") + f"?after={moment}").json()["items"] == []


def test_the_runs_of_a_job_are_its_own(client, job):
    other = call(client, "post", JOBS, body(key="other")).json()
    run = call(client, "post", at(job, "run"), {}).json()["id"]
    call(client, "post", at(other, "run"), {})
    listed = client.get(at(job, "runs") + "?state=scheduled").json()
    assert [one["id"] for one in listed["items"]] == [run]
    assert listed["next_cursor"] is None
    problem(client.get(at(job, "runs") + f"?job={job['id']}"), 400, "unknown_parameter")


def test_every_definition_is_kept(client, job):
    for n in range(4):
        call(client, "patch", at(job), {"payload": "x" * n}, If_Match="*")
    call(client, "patch", at(job), {"name": "no part of a revision"}, If_Match="*")
    call(client, "patch", at(job), {"cron": "0 5 * * *"}, If_Match="*")
    seen, path = [], at(job, "revisions") + "?limit=4"
    page = client.get(path).json()
    seen += page["items"]
    page = client.get(f"{path}&cursor={page['next_cursor']}").json()
    assert page["next_cursor"] is None
    seen += page["items"]
    assert [one["revision"] for one in seen] == [6, 5, 4, 3, 2, 1]
    assert [one["payload_bytes"] for one in seen] == [5, 5, 4, 3, 2, 8]
    assert [one["cron"] for one in seen] == ["0 5 * * *", *["30 2 * * *"] * 5]
    wrong = client.get(at(job, "revisions") + "?cursor=eA==")
    problem(wrong, 400, "bad_cursor", parameter="cursor")


@pytest.mark.parametrize("verb", ["pause", "resume", "restore", "skip-next", "run"])
def test_each_verb_is_carried_out_once_for_a_key(client, conn, job, verb):
    if verb == "restore":
        call(client, "delete", at(job))
    if verb == "resume":
        call(client, "post", at(job, "pause"))
    first = call(client, "post", at(job, verb), {}, **KEY)
    done = count(conn, "chrono_audit_event")
    second = call(client, "post", at(job, verb), {}, **KEY)
    assert first.status_code in (200, 202)
    assert (second.status_code, second.content) == (first.status_code, first.content)
    assert second["Idempotency-Replayed"] == "true"
    assert second.get("ETag") == first.get("ETag")
    assert count(conn, "chrono_audit_event") == done


def at_once(number, send):
    """Send requests at the same time, each with its own session; return the answers."""

    def ask():
        try:
            return send()
        finally:
            connection.close()

    with ThreadPoolExecutor(max_workers=number) as pool:
        return [one.result() for one in [pool.submit(ask) for _ in range(number)]]


@pytest.fixture
def secret(database):
    """The text of a key that may write and operate."""
    issued = keys.issue(
        tenant=ACME, name="test", scopes=("operate", "write"), actor=ACTOR
    )
    return issued.text


def test_of_twenty_equal_requests_at_once_one_makes_a_job(secret, conn):
    headers = {"Idempotency_Key": str(uuid.uuid4())}

    def send():
        return call(ApiClient(secret), "post", JOBS, body(), **headers)

    answers = at_once(20, send)
    assert {one.status_code for one in answers} <= {201, 409}
    for one in answers:
        if one.status_code == 409:
            problem(one, 409, "request_in_progress")
            assert one["Retry-After"] == "1"
    made = [one for one in answers if one.status_code == 201]
    assert len({one.content for one in made}) == 1
    assert sum("Idempotency-Replayed" not in one for one in made) == 1
    again = send()
    assert (again.status_code, again.content) == (201, made[0].content)
    assert (again["Location"], again["ETag"]) == (made[0]["Location"], made[0]["ETag"])
    assert count(conn, "chrono_job") == 1
    assert count(conn, "chrono_job_revision") == 1
    assert len(events(conn, "job.create")) == 1
    other = call(ApiClient(secret), "post", JOBS, body(name="n"), **headers)
    problem(other, 422, "request_mismatch")


def test_of_twenty_without_a_key_one_gets_the_job_s_name(secret, conn):
    answers = at_once(20, lambda: call(ApiClient(secret), "post", JOBS, body()))
    statuses = sorted(one.status_code for one in answers)
    # Who waits too long for the others is told to come again.
    assert statuses[0] == 201
    assert set(statuses[1:]) <= {409, 503}
    answers.append(call(ApiClient(secret), "post", JOBS, body()))
    assert answers[-1].status_code == 409
    for one in answers:
        if one.status_code == 409:
            problem(one, 409, "key_taken", pointer="/key")
    assert count(conn, "chrono_job") == 1


def test_of_twenty_at_once_one_runs_the_job(secret, conn):
    job = call(ApiClient(secret), "post", JOBS, body()).json()

    def send():
        return call(ApiClient(secret), "post", at(job, "run"), {}, **KEY)

    answers = at_once(20, send)
    assert {one.status_code for one in answers} <= {202, 409}
    assert len({one.content for one in answers if one.status_code == 202}) == 1
    assert timers(conn, job) == 1
    assert send()["Idempotency-Replayed"] == "true"


def test_of_twenty_patches_to_one_version_one_is_made(secret, conn):
    job = call(ApiClient(secret), "post", JOBS, body()).json()
    names = iter(range(20))

    def send():
        fields = {"name": f"n{next(names)}"}
        return call(ApiClient(secret), "patch", at(job), fields, If_Match='"v1"')

    statuses = sorted(one.status_code for one in at_once(20, send))
    # Who waits too long for the others is told to come again, and changed nothing.
    assert statuses[0] == 200
    assert set(statuses[1:]) <= {412, 503}
    assert len(events(conn, "job.change")) == 1


def test_a_refusal_keeps_no_key(client, conn):
    wrong = call(client, "post", JOBS, body(cron="61 * * * *"), **KEY)
    assert wrong.status_code == 422
    right = call(client, "post", JOBS, body(), **KEY)
    assert (right.status_code, "Idempotency-Replayed" in right) == (201, False)
    taken = call(client, "post", JOBS, body(), Idempotency_Key="k2")
    problem(taken, 409, "key_taken")
    call(client, "delete", at(right.json()))
    assert call(client, "post", JOBS, body(), Idempotency_Key="k2").status_code == 201


def test_a_run_whose_payload_does_not_fill_the_key_is_refused(client, conn):
    keyed = {"concurrency_key": "of {payload.n}"}
    refused = call(client, "post", JOBS, body(payload={"m": 1}, **keyed))
    problem(refused, 422, "bad_value", pointer="/concurrency_key")
    job = call(client, "post", JOBS, body(payload={"n": 1}, **keyed)).json()
    assert job["concurrency_key"] == "of {payload.n}"
    path = f"{JOBS}/{job['id']}/run"
    for payload in ({"m": 1}, None, {"n": []}):
        told = problem(
            call(client, "post", path, {"payload": payload}),
            422,
            "bad_value",
            pointer="/payload",
        )
        assert "payload.n" in told["detail"]
    assert timers(conn, job) == 0
    assert call(client, "post", path, {"payload": {"n": 2}}).status_code == 202
    [(key,)] = conn.execute("SELECT concurrency_key FROM chrono_run_input").fetchall()
    assert key == "of 2"
