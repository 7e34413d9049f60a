"""What a tenant's quotas refuse is a 429 that names the quota and what to do."""

import pytest

from apps.jobs import store
from apps.jobs.quotas import Quotas, change_quotas
from tests.api.conftest import ACME, ACTOR

TARGET = {"kind": "task", "name": "nothing"}
LONG = {"text": "x" * 100}


@pytest.fixture(autouse=True)
def quotas(database, monkeypatch):
    monkeypatch.setattr(store, "hurry", lambda conn: None)
    limits = Quotas(max_jobs=2, max_payload_bytes=100)
    change_quotas(ACME, limits, actor=ACTOR)


def fields(key, **others):
    return {"key": key, "interval": "1h", "target": TARGET, **others}


def make(client, key, **others):
    return client.send("/api/v1/jobs", fields(key, **others))


def keys_of(client):
    found = client.get("/api/v1/jobs").json()["items"]
    return sorted(one["key"] for one in found)


def assert_refused(answer, quota, said):
    assert answer.status_code == 429, answer.content
    problem = answer.json()
    assert problem["code"] == "quota"
    assert problem["type"] == "/problems/quota"
    assert said in problem["detail"]
    assert [(one["quota"], one["code"]) for one in problem["errors"]] == [
        (quota, "quota")
    ]


def test_a_job_above_the_number_is_refused_by_every_way(client):
    gone = make(client, "gone").json()["id"]
    client.delete(f"/api/v1/jobs/{gone}")
    for key in ("one", "two"):
        assert make(client, key).status_code == 201
    said = "would make it 3 jobs: delete some that are not needed"
    assert_refused(make(client, "three"), "max_jobs", said)
    put = client.put(
        "/api/v1/jobs/by-key/three", fields("three"), content_type="application/json"
    )
    assert_refused(put, "max_jobs", said)
    restored = client.send(f"/api/v1/jobs/{gone}/restore")
    assert_refused(restored, "max_jobs", said)
    assert keys_of(client) == ["one", "two"]


def test_a_refused_create_may_be_sent_again_with_its_key(client):
    for key in ("one", "two"):
        assert make(client, key).status_code == 201
    sent = {"headers": {"Idempotency-Key": "k"}}
    refused = client.send("/api/v1/jobs", fields("three"), **sent)
    assert refused.status_code == 429
    change_quotas(ACME, Quotas(max_jobs=3), actor=ACTOR)
    assert client.send("/api/v1/jobs", fields("three"), **sent).status_code == 201


def test_items_of_a_batch_are_refused_each_for_itself(client):
    assert make(client, "one").status_code == 201
    items = [
        fields("one", interval="2h"),
        fields("long", payload=LONG),
        fields("two"),
        fields("three"),
    ]
    answer = client.send("/api/v1/jobs/batch", {"items": items}).json()["results"]
    assert [one["status"] for one in answer] == [200, 429, 201, 429]
    named = [one["problem"]["errors"][0]["quota"] for one in (answer[1], answer[3])]
    assert named == ["max_payload_bytes", "max_jobs"]
    assert keys_of(client) == ["one", "two"]


def test_a_longer_payload_is_refused_by_every_way(client):
    said = "is 100 bytes of JSON: shorten the payload"
    assert_refused(make(client, "job", payload=LONG), "max_payload_bytes", said)
    job = make(client, "job").json()["id"]
    patched = client.patch(
        f"/api/v1/jobs/{job}",
        {"payload": LONG, "interval": "2h"},
        content_type="application/json",
        headers={"If-Match": "*"},
    )
    assert_refused(patched, "max_payload_bytes", said)
    ran = client.send(f"/api/v1/jobs/{job}/run", {"payload": LONG})
    assert_refused(ran, "max_payload_bytes", said)
    assert client.get(f"/api/v1/jobs/{job}").json()["interval"] == "1h"
    assert client.get(f"/api/v1/jobs/{job}/runs").json()["items"] == []
    assert client.send(f"/api/v1/jobs/{job}/run", {"payload": {}}).status_code == 202


def test_another_tenant_s_quotas_are_its_own(client, stranger):
    for key in ("one", "two"):
        assert make(client, key).status_code == 201
    for key in ("one", "two", "three"):
        assert make(stranger, key, payload=LONG).status_code == 201
