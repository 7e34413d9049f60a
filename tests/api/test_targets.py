"""Targets by the API: which are sick, and the switch of their circuits."""

import json
import uuid

import jsonschema
import pytest

from apps.api import docs, gate_shapes
from apps.runs import targets
from apps.runs.targets import Told
from chrono.rules.retry import RetryPolicy
from tests.api.test_jobs import call, events, problem

TARGETS = "/api/v1/targets"
OPEN, CLOSE = f"{TARGETS}/open", f"{TARGETS}/close"


@pytest.fixture
def conn(connect):
    return connect()


def fail(conn, name, *, times=1, tenant=1):
    told = [
        Told(
            key=(tenant, name),
            run=uuid.uuid4(),
            token=uuid.uuid4(),
            good=False,
            retry=True,
            policy=RetryPolicy(),
        )
        for _ in range(times)
    ]
    targets.report(conn, told, firsts={})


def validate(value, shape):
    document = json.loads(docs.FILE.read_bytes())
    jsonschema.validate(value, {**shape, **document})


def test_targets_that_failed_are_listed_with_circuit_and_budget(client, conn):
    fail(conn, "sick", times=20)
    fail(conn, "https://example.org:443", times=2)
    answer = call(client, "get", TARGETS)
    assert answer.status_code == 200, answer.content
    found = answer.json()
    first, second = found["items"]
    assert found["next_cursor"] is None
    assert first["target"] == "https://example.org:443"
    assert (first["state"], first["failures"]) == ("closed", 2)
    assert first["budget"]["granted"] == 2
    assert 0.5 < first["budget"]["left"] <= 1
    assert (second["target"], second["state"]) == ("sick", "open")
    assert second["next_probe_at"] > second["since"]
    assert second["budget"] | {"left": 0} == {"left": 0, "granted": 5, "refused": 15}
    assert (second["manual"], second["waiting"], second["probes"]) == (False, 0, [])


def test_the_list_is_narrowed_and_paged(client, conn):
    names = [f"task-{n}" for n in range(5)]
    for name in names:
        fail(conn, name)
    fail(conn, "x" * 300, times=20)
    answer = call(client, "get", f"{TARGETS}?state=open").json()
    assert [one["target"] for one in answer["items"]] == ["x" * 300]
    answer = call(client, "get", f"{TARGETS}?target=task-3").json()
    assert [one["target"] for one in answer["items"]] == ["task-3"]
    seen, query = [], ""
    while True:
        page = call(client, "get", f"{TARGETS}?limit=2{query}").json()
        seen += [one["target"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        query = f"&cursor={page['next_cursor']}"
    assert seen == [*names, "x" * 300]
    fail(conn, "y" * 300)
    last = call(client, "get", f"{TARGETS}?limit=6").json()["next_cursor"]
    rest = call(client, "get", f"{TARGETS}?limit=6&cursor={last}").json()
    assert [one["target"] for one in rest["items"]] == ["y" * 300]


def test_a_target_is_stopped_and_called_again(client, conn):
    asked = {"target": "https://Example.org/hooks", "reason": "they move house"}
    opened = call(client, "post", OPEN, asked)
    assert opened.status_code == 200, opened.content
    found = opened.json()
    assert found["target"] == "https://example.org:443"
    assert (found["state"], found["manual"]) == ("open", True)
    assert found["next_probe_at"] is None
    assert found["note"] == "they move house"
    assert found["changed_by"]
    closed = call(client, "post", CLOSE, {"target": "https://example.org"}).json()
    assert (closed["state"], closed["manual"]) == ("closing", False)
    [(kind, reason, before, after, request)] = events(conn, "target.open")
    assert (kind, reason) == ("key", "they move house")
    assert (before, after) == ({"state": "closed"}, {"state": "open"})
    assert request
    assert len(events(conn, "target.close")) == 1


def test_what_a_key_repeats_is_done_once(client, conn):
    for _ in range(2):
        answer = call(client, "post", OPEN, {"target": "sick"}, Idempotency_Key="one")
        assert answer.status_code == 200
    assert len(events(conn, "target.open")) == 1


def test_a_stranger_sees_nothing_and_stops_his_own_alone(client, stranger, conn):
    fail(conn, "sick", times=20)
    assert call(stranger, "get", TARGETS).json()["items"] == []
    call(stranger, "post", CLOSE, {"target": "sick"})
    assert call(client, "get", TARGETS).json()["items"][0]["state"] == "open"


def test_who_may_only_read_stops_nothing(make_client, conn):
    reader = make_client("read")
    assert call(reader, "get", TARGETS).status_code == 200
    problem(call(reader, "post", OPEN, {"target": "sick"}), 403, "forbidden")
    assert conn.execute("SELECT count(*) FROM chrono_target").fetchone() == (0,)


@pytest.mark.parametrize(
    ("fields", "code", "pointer"),
    [
        ({}, "bad_value", "/target"),
        ({"target": 7}, "bad_value", "/target"),
        ({"target": "ftp://example.org"}, "bad_value", "/target"),
        ({"target": "sick", "state": "open"}, "unknown_field", "/state"),
        ({"target": "sick", "reason": 7}, "bad_value", "/reason"),
    ],
)
def test_a_wrong_field_is_refused(client, fields, code, pointer):
    told = problem(call(client, "post", OPEN, fields), 422, code)
    assert [error["pointer"] for error in told["errors"]] == [pointer]


@pytest.mark.parametrize(
    "query", ["state=sick", "target=ftp://x", "cursor=%20", "limit=0", "q=x"]
)
def test_a_wrong_parameter_is_refused(client, query):
    assert call(client, "get", f"{TARGETS}?{query}").status_code == 400


def test_the_answers_have_the_documented_shape(client, conn):
    fail(conn, "sick", times=20)
    validate(call(client, "get", TARGETS).json(), gate_shapes.TargetPage)
    opened = call(client, "post", OPEN, {"target": "sick"}).json()
    validate(opened, gate_shapes.Target)
