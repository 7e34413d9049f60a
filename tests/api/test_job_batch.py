"""Many jobs at once: each is made, changed, left or refused for itself."""

import pytest

from apps.jobs import applying, commands
from apps.jobs.errors import KeyTaken

PATH = "/api/v1/jobs/batch"


def item(key, **fields):
    return {
        "key": key,
        "interval": "1h",
        "target": {"kind": "task", "name": "nothing"},
        **fields,
    }


def send(client, *items, **fields):
    answer = client.send(PATH, {"items": [*items], **fields})
    assert answer.status_code == 200, answer.content
    return answer.json()["results"]


def briefly(results):
    return [(one["index"], one["status"], one["key"]) for one in results]


def test_jobs_are_made_changed_and_left(client):
    made = send(client, *(item(f"job-{n}") for n in range(3)), reason="they moved in")
    assert briefly(made) == [(0, 201, "job-0"), (1, 201, "job-1"), (2, 201, "job-2")]
    assert all(one["actions"] == ["created"] and not one["problem"] for one in made)
    again = send(client, item("job-0"), item("job-1", interval="2h"), item("job-3"))
    assert [one["actions"] for one in again] == [
        ["unchanged"],
        ["changed"],
        ["created"],
    ]
    assert [one["status"] for one in again] == [200, 200, 201]
    assert [one["id"] for one in again[:2]] == [one["id"] for one in made[:2]]
    job = client.get(f"/api/v1/jobs/{made[1]['id']}").json()
    assert (job["key"], job["interval"]) == ("job-1", "2h")


@pytest.mark.parametrize(
    ("wrong", "code", "pointer"),
    [
        (item("bad", interval="soon"), None, "/interval"),
        (item("bad", cron="* * * * *"), None, None),
        (item("bad", colour="red"), "unknown_field", "/colour"),
        (item("bad", colour=None), "unknown_field", "/colour"),
        (item("job-0", interval="3h"), "bad_value", "/key"),
        ("job", "bad_value", None),
        (None, "bad_value", None),
        ({}, None, None),
    ],
)
def test_one_that_is_wrong_keeps_no_other_back(client, wrong, code, pointer):
    first, bad, last = send(client, item("job-0"), wrong, item("job-1"))
    assert (first["status"], last["status"]) == (201, 201)
    problem = bad["problem"]
    assert bad["status"] == problem["status"] == 422
    assert bad["id"] is None
    assert bad["actions"] == []
    if code is not None:
        assert problem["code"] == code
    if pointer is not None:
        assert [one["pointer"] for one in problem["errors"]] == [pointer]


def test_a_run_at_that_is_over_is_refused_by_itself(client):
    past = {**item("old"), "run_at": "2001-01-01T00:00:00Z"}
    del past["interval"]
    results = send(client, item("job-0"), past)
    assert [one["status"] for one in results] == [201, 422]
    assert results[1]["problem"]["errors"][0]["pointer"] == "/run_at"


def test_where_somebody_takes_a_key_in_between_the_rest_is_made(client, monkeypatch):
    """What is together in a transaction is refused together, and then asked singly."""

    def refused(*args, **kwargs):
        raise KeyTaken(field="key")

    monkeypatch.setattr(applying, "_apply", refused)
    monkeypatch.setattr(
        applying, "put_job", lambda definition, **by: take(definition, by)
    )

    def take(definition, by):
        if definition.key == "theirs":
            raise KeyTaken(field="key")
        return commands.create_job(definition, **by)

    results = send(client, item("mine"), item("theirs"), item("also-mine"))
    assert [one["status"] for one in results] == [201, 409, 201]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"items": {}},
        {"items": None},
        {"items": [1] * 1_001},
        {"items": [], "jobs": []},
        [],
    ],
)
def test_a_body_that_is_no_batch_is_refused(client, body):
    answer = client.send(PATH, body)
    assert answer.status_code in (400, 422)
    assert answer.json()["code"] in ("bad_value", "unknown_field", "bad_body")


def test_an_empty_batch_does_nothing(client):
    assert send(client) == []


def test_it_is_of_the_key_s_tenant_and_needs_write(client, stranger, make_client):
    send(client, item("job-0"))
    [theirs] = send(stranger, item("job-0"))
    assert theirs["status"] == 201
    assert make_client("read").send(PATH, {"items": []}).status_code == 403


def test_a_batch_costs_the_same_statements_at_any_length(client, said):
    def statements(*items):
        said.clear()
        send(client, *items)
        return [name for name in said if not name.endswith("_key")]

    few, many = [item("one")], [item(f"job-{n}") for n in range(500)]
    made = statements(*few)
    assert len(made) == 10
    assert statements(*many) == made
    left = statements(*few)
    assert len(left) == 3
    assert statements(*many) == left


def test_a_thousand_are_made_and_found(client):
    results = send(client, *(item(f"job-{n}") for n in range(1_000)))
    assert {one["status"] for one in results} == {201}
    assert len({one["id"] for one in results}) == 1_000
