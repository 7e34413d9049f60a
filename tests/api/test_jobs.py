"""Jobs by the API: made, read, changed, deleted, restored, put by key."""

import json
import uuid

import jsonschema
import pytest

from apps.api import docs, job_shapes
from apps.jobs.definition import FIELDS
from apps.jobs.public import READ_ONLY
from apps.tenants.actor import Actor
from apps.tenants.directory import change_timezone
from chrono.rules.instants import MINUTE, parse_instant
from chrono.rules.schedule import SCHEDULE_FIELDS
from tests.support.seed import make_job

JOBS = "/api/v1/jobs"
TASK = {"kind": "task", "name": "tests.nothing"}
HTTP = {
    "kind": "http",
    "url": "https://example.org/hook",
    "headers": {"X-Token": "s3cret"},
}


def body(**fields):
    return {"key": "nightly", "cron": "30 2 * * *", "target": TASK, **fields}


def call(client, method, path, fields=None, **headers):
    """Send a request with a body, where there is one, and headers."""
    options = {"headers": {k.replace("_", "-"): v for k, v in headers.items()}}
    if method != "get":
        data = "" if fields is None else json.dumps(fields)
        options |= {"data": data, "content_type": "application/json"}
    return getattr(client, method)(path, **options)


@pytest.fixture
def job(client):
    """A job's public form, as it was created."""
    answer = call(client, "post", JOBS, body())
    assert answer.status_code == 201, answer.content
    return answer.json()


def at(job, verb=""):
    return f"{JOBS}/{job['id']}" + (f"/{verb}" if verb else "")


def problem(answer, status, code, **place):
    assert answer.status_code == status, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    told = answer.json()
    assert told["code"] == code
    if place:
        [error] = told["errors"]
        assert place.items() <= error.items()
    return told


def events(conn, action):
    rows = conn.execute(
        "SELECT actor_kind, reason, before, after, request_id FROM chrono_audit_event"
        " WHERE action = %s ORDER BY at",
        [action],
    )
    return rows.fetchall()


@pytest.fixture
def conn(connect):
    return connect()


def test_a_job_is_created_and_read_back(client, conn):
    answer = call(
        client,
        "post",
        JOBS,
        body(
            timezone="Europe/Berlin", payload={"n": 1}, reason="asked for by the office"
        ),
    )
    assert answer.status_code == 201
    told = answer.json()
    assert answer["Location"] == at(told)
    assert answer["ETag"].startswith('"v1.')
    assert (told["state"], told["version"], told["payload"]) == ("active", 1, {"n": 1})
    assert len(told["next_runs"]) == 5
    assert told["next_run_at"] == told["next_runs"][0]
    # Jitter may be nothing, and text has no order where milliseconds are left out.
    late = parse_instant(told["next_due_at"]) - parse_instant(told["next_run_at"])
    assert 0 <= late < MINUTE
    assert told["schedule_text"] == "At 02:30 every day, Europe/Berlin time."
    read = client.get(answer["Location"])
    assert (read.status_code, read.json(), read["ETag"]) == (200, told, answer["ETag"])
    [(kind, reason, before, after, request)] = events(conn, "job.create")
    assert (kind, reason, before) == ("key", "asked for by the office", None)
    assert after["key"] == "nightly"
    assert request == answer["X-Request-Id"]


@pytest.mark.parametrize(
    "fields",
    [
        {"remaining_runs": 3},
        {"paused": True, "remaining_runs": 2},
        {"cron": None, "run_at": "2999-01-01T00:00:00Z", "tags": ["b", "a"]},
        {"cron": None, "interval": "1h", "ends_at": "2999-01-01T00:00:00Z"},
        {"cron": None, "fixed_delay": "5m", "payload": {"long": 1e17, "a": [1.0]}},
    ],
)
def test_the_answer_to_a_create_is_what_is_read_then(client, fields):
    answer = call(client, "post", JOBS, body(**fields))
    assert answer.status_code == 201, answer.content
    read = client.get(answer["Location"])
    assert (read.json(), read["ETag"]) == (answer.json(), answer["ETag"])


def test_to_create_a_job_reads_nothing_that_a_new_one_cannot_have(client, said):
    assert call(client, "post", JOBS, body()).status_code == 201
    assert [name for name in said if not name.endswith("_key")] == [
        "set_limits",
        "read_terms",
        "insert_jobs",
        "read_terms",
        "insert_revisions",
        "insert_timers",
        "insert_audit_events",
        "notify_leaders",
        "load_jobs",
    ]


def test_what_is_read_creates_the_same_job_again(client, job):
    again = {name: value for name, value in job.items() if name not in READ_ONLY}
    assert set(again) <= FIELDS
    answer = call(client, "post", JOBS, {**again, "key": "other"})
    assert answer.status_code == 201
    other = answer.json()
    for name in again:
        assert name == "key" or other[name] == job[name]


ALL = {
    "starts_at": "2055-01-01T00:00:00Z",
    "ends_at": "2058-01-01T00:00:00Z",
    "catchup_policy": "deadline",
    "max_delay": "2h",
    "overlap_policy": "buffer_all",
    "max_concurrent_runs": 3,
    "remaining_runs": 40,
    "pause_on_failure": 5,
    "late_after": "5m",
    "max_runtime": "90m",
    "max_time_since_success": "36h",
    "delivery": "at_most_once",
}


def test_every_policy_and_bound_comes_back_as_it_was_sent(client):
    told = call(client, "post", JOBS, body(**ALL)).json()
    assert {name: told[name] for name in ALL} == ALL
    assert (told["runs_left"], told["state"]) == (40, "active")
    assert told["next_run_at"] == "2055-01-01T02:30:00Z"
    [item] = client.get(JOBS).json()["items"]
    assert {name: item[name] for name in ALL} == ALL
    [made] = client.get(f"{at(told)}/revisions").json()["items"]
    assert {name: made[name] for name in ALL} == ALL
    text = "At 02:30 every day, UTC, from 2055-01-01T00:00:00Z on, until "
    assert told["schedule_text"] == f"{text}2058-01-01T00:00:00Z."
    document = json.loads(docs.FILE.read_bytes())
    for shape, one in (("Job", told), ("JobItem", item)):
        jsonschema.validate(one, {**job_shapes.ref(shape), **document})


def test_a_job_without_policies_shows_what_holds(client, job):
    assert (job["catchup_policy"], job["overlap_policy"]) == ("run_once", "skip")
    assert job["delivery"] == "at_least_once"
    given = {"catchup_policy", "overlap_policy", "delivery", "starts_at", "ends_at"}
    off = set(ALL) - given
    assert {job[name] for name in off} == {None}
    assert job["runs_left"] is None
    assert not {"starts_at", "ends_at"} & set(job)


def test_a_fixed_delay_is_created_and_moved_to_a_cron(client):
    made = {**body(cron=None), "fixed_delay": "5m", "ends_at": ALL["ends_at"]}
    told = call(client, "post", JOBS, made).json()
    assert (told["fixed_delay"], len(told["next_runs"])) == ("5m", 1)
    [one] = client.get(f"{at(told)}/next").json()["items"]
    assert one["scheduled_for"] == told["next_run_at"]
    moved = call(client, "patch", at(told), {"cron": "0 9 * * *"}, if_match="*").json()
    assert (moved["cron"], moved["ends_at"]) == ("0 9 * * *", ALL["ends_at"])
    assert not {"fixed_delay", "starts_at"} & set(moved)


def test_an_overlap_policy_is_known_by_other_words(client):
    told = call(client, "post", JOBS, body(overlap_policy="Replace")).json()
    assert told["overlap_policy"] == "cancel_other"


def test_how_many_runs_are_left_is_news_though_the_version_stays(client, conn):
    told = call(client, "post", JOBS, body(remaining_runs=2))
    conn.execute("UPDATE chrono_timer SET remaining = 1")
    conn.execute("UPDATE chrono_timer_far SET remaining = 1")
    read = client.get(at(told.json()), headers={"If-None-Match": told["ETag"]})
    assert (read.status_code, read.json()["runs_left"]) == (200, 1)


def test_a_new_cron_job_is_in_its_tenant_s_zone_and_stays_there(client, conn):
    admin = Actor.command("tests")
    change_timezone(1, "Europe/Berlin", actor=admin)
    made = call(client, "post", JOBS, body(key="berlin")).json()
    assert made["timezone"] == "Europe/Berlin"
    named = call(client, "post", JOBS, body(key="utc", timezone="UTC")).json()
    assert named["timezone"] == "UTC"
    other = {**body(key="tick", cron=None), "interval": "1m"}
    assert "timezone" not in call(client, "post", JOBS, other).json()
    change_timezone(1, "Asia/Tokyo", actor=admin)
    address = f"{JOBS}/by-key/berlin"
    assert client.get(address).json() == made
    # Sent again as it was, it is still the job that it was.
    again = call(client, "put", address, body(key="berlin"))
    assert (again.status_code, again.json()) == (200, made)
    other_time = body(key="berlin", cron="0 9 * * *")
    assert call(client, "put", address, other_time).json()["timezone"] == (
        "Europe/Berlin"
    )
    null = call(client, "patch", at(made), {"timezone": None}, if_match="*").json()
    assert null["timezone"] == "Asia/Tokyo"


def test_the_short_addresses_answer_the_same(client):
    made = call(client, "post", "/jobs", body()).json()
    run = call(client, "post", f"/jobs/{made['id']}/run", {})
    assert run.status_code == 202
    assert client.get(f"/runs/{run.json()['id']}").json()["trigger"] == "manual"
    assert call(client, "delete", f"/jobs/{made['id']}").status_code == 200
    assert client.get("/jobs").json()["items"] == []


def test_a_key_is_taken_once(client, job):
    problem(call(client, "post", JOBS, body()), 409, "key_taken", pointer="/key")
    assert [one["id"] for one in client.get(JOBS).json()["items"]] == [job["id"]]


@pytest.mark.parametrize("text", ["x", "1" * 36, str(uuid.UUID(int=1))])
def test_a_job_that_is_not_there_is_a_problem(client, text):
    told = problem(client.get(f"{JOBS}/{text}"), 404, "job_not_found")
    assert told["errors"] == []


def test_a_client_that_has_the_job_is_told_so_until_something_changes(client, job):
    tag = client.get(at(job))["ETag"]
    answer = call(client, "get", at(job), If_None_Match=f'"x", W/{tag}')
    assert (answer.status_code, answer.content, answer["ETag"]) == (304, b"", tag)
    assert call(client, "get", at(job), If_None_Match='"v1"').status_code == 200
    assert call(client, "get", at(job), If_None_Match="*").status_code == 304


def test_a_last_run_is_news_though_the_version_stays(client, conn, job):
    tag = client.get(at(job))["ETag"]
    part = int(call(client, "post", at(job, "run"), {}).json()["partition"])
    run = uuid.UUID(int=1)
    conn.execute(
        """
        INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence, version,
            revision, part, attempt_group, outcome, kind)
        VALUES (date_trunc('minute', now()), %s, %s, 1, 1, 1, %s, 1, 1, 3)
        """,
        [job["id"], run, part],
    )
    answer = call(client, "get", at(job), If_None_Match=tag)
    assert answer.status_code == 200
    assert answer.json()["last_run"]["id"] == str(run)
    assert answer["ETag"].partition(".")[0] == tag.partition(".")[0] == '"v1'


def test_a_patch_changes_what_it_names(client, conn, job):
    answer = call(
        client,
        "patch",
        at(job),
        {"cron": "0 4 * * *", "payload": [1], "reason": "after the backup"},
        If_Match=client.get(at(job))["ETag"],
    )
    assert answer.status_code == 200
    told = answer.json()
    assert (told["cron"], told["payload"], told["version"]) == ("0 4 * * *", [1], 2)
    assert told == client.get(at(job)).json()
    assert answer["ETag"] == client.get(at(job))["ETag"]
    [(_, reason, before, after, _)] = events(conn, "job.change")
    assert (reason, before["cron"]) == ("after the backup", "30 2 * * *")
    assert after["cron"] == "0 4 * * *"


def test_tags_are_changed_without_a_new_revision(client, conn, job):
    assert job["tags"] == []
    told = call(
        client, "patch", at(job), {"tags": ["eu", "pay", "a/b"]}, If_Match="*"
    ).json()
    assert (told["tags"], told["version"], told["revision"]) == (
        ["a/b", "eu", "pay"],
        2,
        1,
    )
    assert client.get(JOBS).json()["items"][0]["tags"] == told["tags"]
    [(_, _, before, after, _)] = events(conn, "job.change")
    assert (before["tags"], after["tags"]) == ([], told["tags"])
    for wrong in ("pay", ["Pay"], ["a", "a"], [7], {"0": "a"}):
        answer = call(client, "patch", at(job), {"tags": wrong}, If_Match="*")
        problem(answer, 422, answer.json()["code"], pointer="/tags")
    # Put without tags it has none, as with every field that is left out.
    put = call(client, "put", f"{JOBS}/by-key/nightly", body())
    assert (put.json()["tags"], put.json()["version"]) == ([], 3)


def test_a_patch_may_call_itself_one(client, job):
    answer = client.patch(
        at(job),
        '{"name": "n"}',
        content_type="application/merge-patch+json",
        headers={"If-Match": "*"},
    )
    assert (answer.status_code, answer.json()["name"]) == (200, "n")
    refused = client.post(
        JOBS, json.dumps(body(key="b")), content_type="application/merge-patch+json"
    )
    problem(refused, 415, "unsupported_media_type")


def test_a_patch_that_changes_nothing_leaves_the_version(client, job):
    answer = call(client, "patch", at(job), {"name": job["name"]}, If_Match='"v1"')
    assert (answer.status_code, answer.json()["version"]) == (200, 1)


@pytest.mark.parametrize(
    ("tag", "status", "code"),
    [
        (None, 428, "precondition_required"),
        ('"v2"', 412, "version_conflict"),
        ('"v1', 400, "bad_header"),
        ("v1", 400, "bad_header"),
        ("", 400, "bad_header"),
        ('"7"', 412, "version_conflict"),
        ('"v1.xyz"', 412, "version_conflict"),
        ('"v99999999999"', 412, "version_conflict"),
        ('"v1", "v2"', 400, "bad_header"),
    ],
)
def test_a_patch_names_the_version_it_is_made_to(client, job, tag, status, code):
    headers = {} if tag is None else {"If_Match": tag}
    answer = call(client, "patch", at(job), {"name": "n"}, **headers)
    problem(answer, status, code, header="If-Match")
    assert client.get(at(job)).json()["version"] == 1


@pytest.mark.parametrize("tag", ['"v1"', 'W/"v1"', "*", '"v1.01234567"'])
def test_the_version_alone_decides(client, job, tag):
    assert (
        call(client, "patch", at(job), {"name": "n"}, If_Match=tag).status_code == 200
    )


@pytest.mark.parametrize("name", READ_ONLY)
def test_what_is_told_of_a_job_is_not_changed_by_a_patch(client, job, name):
    answer = call(client, "patch", at(job), {name: "x"}, If_Match="*")
    assert problem(answer, 422, "bad_value", pointer=f"/{name}")


def test_deleted_again_it_stays_deleted_with_the_same_answer(client, conn, job):
    first = call(client, "delete", at(job), {"reason": "over"}, If_Match='"v1"')
    assert first.status_code == 200
    told = first.json()
    assert told == {
        "id": job["id"],
        "key": "nightly",
        "state": "deleted",
        "version": 2,
        "deleted_at": told["deleted_at"],
    }
    for headers in ({}, {"If_Match": '"v1"'}):
        again = call(client, "delete", at(job), **headers)
        assert (again.status_code, again.json()) == (200, told)
    [(_, reason, before, after, _)] = events(conn, "job.delete")
    assert (reason, before["key"], after) == ("over", "nightly", None)


def test_of_a_deleted_job_its_end_is_told(client, job):
    deleted = call(client, "delete", at(job)).json()
    gone = client.get(at(job))
    told = problem(gone, 410, "job_deleted")
    assert told["deleted_at"] == deleted["deleted_at"]
    problem(
        call(client, "patch", at(job), {"name": "n"}, If_Match="*"), 410, "job_deleted"
    )
    for verb in ("run", "pause", "resume", "skip-next"):
        problem(call(client, "post", at(job, verb), {}), 410, "job_deleted")
    problem(client.get(at(job, "next")), 410, "job_deleted")
    for verb in ("runs", "revisions"):
        assert client.get(at(job, verb)).status_code == 200


def test_a_deleted_job_is_restored_paused(client, job):
    problem(call(client, "post", at(job, "restore")), 409, "job_not_deleted")
    call(client, "delete", at(job))
    answer = call(client, "post", at(job, "restore"), {"reason": "by mistake"})
    assert answer.status_code == 200
    assert (answer.json()["state"], answer.json()["deleted_at"]) == ("paused", None)
    call(client, "delete", at(job))
    call(client, "post", JOBS, body())
    problem(call(client, "post", at(job, "restore")), 409, "key_taken")


def test_a_job_is_put_by_its_key(client):
    path = f"{JOBS}/by-key/nightly"
    wanted = {"cron": "30 2 * * *", "target": TASK}
    made = call(client, "put", path, wanted)
    assert made.status_code == 201
    assert made["Location"] == at(made.json())
    same = call(client, "put", path, {**wanted, "key": "nightly"})
    assert (same.status_code, same.json()) == (200, made.json())
    changed = call(client, "put", path, {**wanted, "name": "n"}, If_Match=made["ETag"])
    assert (changed.status_code, changed.json()["version"]) == (200, 2)
    late = call(client, "put", path, wanted, If_Match=made["ETag"])
    problem(late, 412, "version_conflict", header="If-Match")
    read = client.get(path)
    assert (read.json(), read["ETag"]) == (changed.json(), changed["ETag"])


def test_put_where_something_must_be_there(client, job):
    wanted = {"cron": "30 2 * * *", "target": TASK}
    there = call(client, "put", f"{JOBS}/by-key/nightly", wanted, If_Match="*")
    assert there.status_code == 200
    for tag in ("*", '"v1"'):
        answer = call(client, "put", f"{JOBS}/by-key/other", wanted, If_Match=tag)
        problem(answer, 412, "version_conflict", header="If-Match")


@pytest.mark.parametrize("key", ["a/b", "ä ö", "50%", "a?b#c"])
def test_a_key_may_be_any_text(client, key):
    path = f"{JOBS}/by-key/{''.join(f'%{byte:02X}' for byte in key.encode())}"
    made = call(client, "put", path, {"cron": "30 2 * * *", "target": TASK})
    assert (made.status_code, made.json()["key"]) == (201, key)
    assert client.get(path).json()["key"] == key


def test_the_key_in_the_body_is_the_one_in_the_address(client):
    answer = call(client, "put", f"{JOBS}/by-key/other", body())
    problem(answer, 422, "bad_value", pointer="/key")
    assert client.get(JOBS).json()["items"] == []


@pytest.mark.parametrize("key", ["other", "a%00b", "x" * 300])
def test_a_key_that_nobody_has_is_not_found(client, key):
    told = problem(client.get(f"{JOBS}/by-key/{key}"), 404, "job_not_found")
    assert told["errors"] == []


def test_header_values_are_for_those_who_may_write(make_client, client):
    made = call(client, "post", JOBS, body(target=HTTP)).json()
    assert made["target"]["headers"] == {"X-Token": "s3cret"}
    read = make_client("read").get(at(made))
    assert read.json()["target"]["headers"] == {"X-Token": "(hidden)"}
    for path in (JOBS, at(made, "revisions")):
        assert b"s3cret" not in make_client("read").get(path).content


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("read", {"get"}),
        ("operate", {"get", "run"}),
        ("write", {"get", "post", "patch", "pause", "resume", "skip-next", "delete"}),
        ("worker", set()),
    ],
)
def test_each_scope_allows_what_it_says(make_client, job, scope, allowed):
    other = make_client(scope)
    answers = {
        "get": other.get(at(job)),
        "post": call(other, "post", JOBS, body(key="other")),
        "patch": call(other, "patch", at(job), {"name": "n"}, If_Match="*"),
        "run": call(other, "post", at(job, "run"), {}),
        "pause": call(other, "post", at(job, "pause"), {}),
        "resume": call(other, "post", at(job, "resume"), {}),
        "skip-next": call(other, "post", at(job, "skip-next"), {}),
        "delete": call(other, "delete", at(job)),
    }
    done = {name for name, answer in answers.items() if answer.status_code < 300}
    assert done == allowed
    refused = {a.status_code for n, a in answers.items() if n not in allowed}
    assert refused <= {403}


def test_a_row_that_cannot_be_read_is_shown_as_such(client, conn, job):
    broken = make_job(conn, target=TASK)
    conn.execute(
        "UPDATE chrono_job_revision SET schedule = %s WHERE job_id = %s",
        ['{"cron": "* * * * *", "timezone": "Mars/Base"}', broken.id],
    )
    empty = make_job(conn, target=TASK)
    items = client.get(JOBS).json()["items"]
    states = {one["id"]: one["state"] for one in items}
    assert states == {
        job["id"]: "active",
        str(broken.id): "broken",
        str(empty.id): "broken",
    }
    told = client.get(f"{JOBS}/{broken.id}").json()
    assert (told["state"], told["next_runs"]) == ("broken", [])
    assert "Mars/Base" in told["schedule_text"]
    answer = client.get(f"{JOBS}/{broken.id}/next")
    assert answer.status_code == 422


UNREADABLE = [
    "{}",
    "null",
    "[]",
    "[7]",
    '"30 2 * * *"',
    '{"cron": 7}',
    '{"cron": "99 * * * *"}',
    '{"cron": "30 2 * * *", "written": 7}',
    '{"cron": "30 2 * * *", "seconds": "yes"}',
    '{"cron": "30 2 * * *", "timezone": "Mars/Base"}',
    '{"cron": "30 2 * * *", "run_at": "2058-01-01T00:00:00Z"}',
    '{"cron": "H H * * *", "written": "H H * * *"}',
    '{"interval": "90s"}',
    '{"interval": "0s", "starts_at": "2026-01-01T00:00:00Z"}',
    '{"interval": "90s", "starts_at": "yesterday"}',
    '{"run_at": "tomorrow"}',
    '{"id": "x", "key": "other", "name": 7}',
]
"""Schedules as no code of ours writes them."""


@pytest.fixture
def unreadable(client, conn):
    """A job with each of them."""
    jobs = []
    for n, schedule in enumerate(UNREADABLE):
        made = call(client, "post", JOBS, body(key=f"job-{n}")).json()
        conn.execute(
            "UPDATE chrono_job_revision SET schedule = %s WHERE job_id = %s",
            [schedule, made["id"]],
        )
        jobs.append(made)
    return jobs


def test_a_job_that_cannot_be_read_can_be_deleted(client, conn, unreadable):
    for job in unreadable:
        deleted = call(client, "delete", at(job), {"reason": "beyond repair"})
        assert deleted.status_code == 200, deleted.content
        assert deleted.json()["state"] == "deleted"
        restored = call(client, "post", at(job, "restore"))
        assert (restored.status_code, restored.json()["state"]) == (200, "paused")
        assert call(client, "delete", at(job)).status_code == 200
        # Its key is free for a job that is right.
        assert call(client, "post", JOBS, body(key=job["key"])).status_code == 201
    told = events(conn, "job.delete")
    assert len(told) == 2 * len(unreadable)
    for (_, reason, before, after, _), job in zip(told[::2], unreadable, strict=True):
        assert (reason, before["key"], after) == ("beyond repair", job["key"], None)


WHOLE = [
    {"cron": "0 4 * * *", "timezone": "Europe/Berlin", "seconds": False},
    {"interval": "5m"},
    {"run_at": "2090-01-01T00:00:00Z"},
]


@pytest.mark.parametrize("schedule", WHOLE, ids=lambda one: next(iter(one)))
def test_a_job_that_cannot_be_read_is_mended_by_a_schedule(
    client, conn, unreadable, schedule
):
    nothing = {"cron": None, "interval": None, "run_at": None, "starts_at": None}
    for job in unreadable:
        patch = {**nothing, **schedule}
        mended = call(client, "patch", at(job), patch, If_Match="*")
        assert mended.status_code == 200, mended.content
        told = mended.json()
        assert (told["state"], told["version"], told["key"]) == (
            "active",
            2,
            job["key"],
        )
        assert told["next_run_at"] is not None
        plans = conn.execute(
            "SELECT version FROM (SELECT * FROM chrono_timer UNION ALL "
            "SELECT * FROM chrono_timer_far) t WHERE job_id = %s ORDER BY version",
            [job["id"]],
        )
        assert plans.fetchall() == [(1,), (2,)]


def test_a_job_that_cannot_be_read_is_put_whole(client, unreadable):
    for job in unreadable:
        fields = body(key=job["key"], cron="0 4 * * *")
        put = call(client, "put", f"{JOBS}/by-key/{job['key']}", fields)
        assert (put.status_code, put.json()["state"]) == (200, "active"), put.content


def test_a_patch_that_leaves_a_schedule_unreadable_names_it(client, unreadable):
    for job, schedule in zip(unreadable, UNREADABLE, strict=True):
        answer = call(client, "patch", at(job), {"name": "x"}, If_Match="*")
        if "H H" in schedule:
            # As it was written it is right, and means something again.
            assert answer.json()["state"] == "active"
            continue
        assert answer.status_code == 422, (schedule, answer.content)
        [error] = answer.json()["errors"]
        assert error["pointer"][1:] in SCHEDULE_FIELDS | {"jitter_window"}, schedule


def test_nothing_done_to_a_job_that_cannot_be_read_is_a_fault(client, unreadable):
    for job in unreadable:
        assert call(client, "post", at(job, "pause"), {}).status_code == 200
        for method, path, fields in (
            ("patch", at(job), {"cron": "0 4 * * *", "timezone": "Mars/Base"}),
            ("post", at(job, "run"), {}),
            ("post", at(job, "skip-next"), {}),
            ("post", at(job, "resume"), {}),
        ):
            answer = call(client, method, path, fields, If_Match="*")
            assert answer.status_code < 500, (path, fields, answer.content)
        for verb in ("", "next", "runs", "revisions"):
            assert client.get(at(job, verb)).status_code < 500
    for question in ("", "?q=job", "?state=active,paused"):
        assert client.get(f"{JOBS}{question}").status_code == 200
