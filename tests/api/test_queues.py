"""Pausing queues by the API."""

import pytest

from apps.api import gate_shapes
from tests.api.test_jobs import call, events, problem
from tests.api.test_targets import validate

QUEUES = "/api/v1/queues"
PAUSED = f"{QUEUES}/paused"


@pytest.fixture
def conn(connect):
    return connect()


def test_a_queue_is_paused_and_resumed(client, conn):
    paused = call(client, "post", f"{QUEUES}/default/pause", {"reason": "a deploy"})
    assert paused.status_code == 200, paused.content
    found = paused.json()
    assert (found["queue"], found["paused"], found["note"]) == (
        "default",
        True,
        "a deploy",
    )
    assert found["held"] == 0
    assert found["paused_by"]
    validate(found, gate_shapes.Queue)
    again = call(client, "post", f"{QUEUES}/default/pause", {"reason": "other"}).json()
    assert again == found
    listed = call(client, "get", PAUSED).json()
    assert listed == {"items": [found], "next_cursor": None}
    validate(listed, gate_shapes.QueuePage)
    resumed = call(client, "post", f"{QUEUES}/default/resume").json()
    assert (resumed["paused"], resumed["paused_at"]) == (False, None)
    validate(resumed, gate_shapes.Queue)
    assert call(client, "get", PAUSED).json()["items"] == []
    [(_, reason, before, after, _)] = events(conn, "queue.pause")
    assert (reason, before, after) == ("a deploy", {"paused": False}, {"paused": True})
    assert len(events(conn, "queue.resume")) == 1


def test_the_list_is_paged_by_name(client):
    names = [f"q{n}" for n in range(5)]
    for name in names:
        call(client, "post", f"{QUEUES}/{name}/pause")
    seen, query = [], ""
    while query is not None:
        page = call(client, "get", f"{PAUSED}?limit=2{query}").json()
        seen += [one["queue"] for one in page["items"]]
        cursor = page["next_cursor"]
        query = None if cursor is None else f"&cursor={cursor}"
    assert seen == names


def test_a_stranger_pauses_his_own_alone(client, stranger):
    call(stranger, "post", f"{QUEUES}/default/pause")
    assert call(client, "get", PAUSED).json()["items"] == []
    call(client, "post", f"{QUEUES}/default/resume")
    assert len(call(stranger, "get", PAUSED).json()["items"]) == 1


def test_what_a_key_repeats_is_done_once(client, conn):
    for _ in range(2):
        answer = call(client, "post", f"{QUEUES}/default/pause", Idempotency_Key="once")
        assert answer.status_code == 200
    assert len(events(conn, "queue.pause")) == 1


def test_who_may_only_read_pauses_nothing(make_client):
    reader = make_client("read")
    problem(call(reader, "post", f"{QUEUES}/default/pause"), 403, "forbidden")
    assert call(reader, "get", PAUSED).json()["items"] == []


def test_what_is_no_queue_is_not_found_and_other_fields_are_refused(client):
    told = problem(call(client, "post", f"{QUEUES}/De fault/pause"), 404, "not_found")
    assert "a-z, 0-9" in told["detail"]
    path = f"{QUEUES}/default/pause"
    problem(call(client, "post", path, {"until": 7}), 422, "unknown_field")
