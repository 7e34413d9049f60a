"""Idempotency-Key: one effect and one answer, whatever happens in between."""

import hashlib
import threading

import pytest
from django.db import connection
from django.http import HttpRequest
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api import idempotency
from apps.api.errors import BadHeader
from apps.runtime import requests
from apps.runtime.django_session import enclose, is_enclosed, raw_connection
from apps.runtime.requests import KeyedRequest, RequestInProgress, RequestMismatch
from apps.tenants.actor import Scope
from apps.tenants.keys import Principal


def keyed(**changes):
    return KeyedRequest(
        **{
            "tenant": 1,
            "key": "k",
            "method": "POST",
            "path": "/things",
            "fingerprint": hashlib.sha256(b"{}").digest(),
            **changes,
        }
    )


def asked(key, body=b"{}", tenant=1):
    """Return a POST of a key's holder, as a view gets it."""
    raw = HttpRequest()
    raw.method, raw.path, raw._body = "POST", "/api/v1/things", body
    if key is not None:
        raw.META["HTTP_IDEMPOTENCY_KEY"] = key
    request = Request(raw)
    request.auth = Principal(
        key="x", name="x", tenant=tenant, scopes=frozenset({Scope.WRITE})
    )
    return request


@pytest.fixture
def things(connect):
    """A table that effects write to, and how many rows it has."""
    conn = connect()
    conn.execute("CREATE TABLE thing (id serial)")

    def count():
        [(number,)] = conn.execute("SELECT count(*) FROM thing").fetchall()
        return number

    return count


def make():
    assert is_enclosed()
    raw_connection().execute("INSERT INTO thing DEFAULT VALUES")
    return Response({"b": 1, "a": [1.5, None]}, status=201, headers={"ETag": '"v1"'})


def test_the_second_gets_the_first_answer_and_has_no_effect(things):
    first = idempotency.once(asked("k"), make)
    second = idempotency.once(asked("k"), make)
    assert things() == 1
    assert (second.status_code, list(second.data)) == (201, ["b", "a"])
    assert second.data == first.data
    assert second["ETag"] == '"v1"'
    assert second[idempotency.REPLAYED] == "true"
    assert not first.has_header(idempotency.REPLAYED)


def test_without_a_key_each_has_its_effect(things):
    def bare():
        raw_connection().execute("INSERT INTO thing DEFAULT VALUES")
        return Response({})

    idempotency.once(asked(None), bare)
    idempotency.once(asked(None), bare)
    assert things() == 2


def test_another_body_under_the_same_key_is_refused(things):
    idempotency.once(asked("k"), make)
    with pytest.raises(RequestMismatch):
        idempotency.once(asked("k", body=b"[]"), make)
    assert things() == 1


def test_another_tenant_s_key_is_another_key(things):
    idempotency.once(asked("k"), make)
    idempotency.once(asked("k", tenant=2), make)
    assert things() == 2


def test_an_effect_that_fails_keeps_nothing_and_may_be_tried_again(things):
    def fail():
        make()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        idempotency.once(asked("k"), fail)
    assert things() == 0
    assert idempotency.once(asked("k"), make).status_code == 201
    assert things() == 1


@pytest.mark.parametrize("key", ["", "x" * 256, "a\u00e9", "a\nb"])
def test_what_is_no_key_is_refused(key):
    with pytest.raises(BadHeader):
        idempotency.keyed_request(asked(key))


def test_of_twenty_at_once_one_has_the_effect(things, background):
    gate = threading.Barrier(16)
    refused = []

    def ask():
        gate.wait(timeout=10)
        try:
            return idempotency.once(asked("k"), make)
        except RequestInProgress:
            refused.append(1)
            return None
        finally:
            connection.close()

    answers = [one.result(timeout=20) for one in [background(ask) for _ in range(16)]]
    shown = [one for one in answers if one is not None]
    assert things() == 1
    assert len(shown) + len(refused) == 16
    assert sum(not one.has_header(idempotency.REPLAYED) for one in shown) == 1


def test_while_one_is_under_way_the_other_is_told_at_once(things, background):
    began, go_on = threading.Event(), threading.Event()

    def slow():
        answer = make()
        began.set()
        assert go_on.wait(timeout=20)
        return answer

    def ask():
        try:
            return idempotency.once(asked("k"), slow)
        finally:
            connection.close()

    first = background(ask)
    assert began.wait(timeout=20)
    with pytest.raises(RequestInProgress):
        idempotency.once(asked("k"), make)
    go_on.set()
    assert first.result(timeout=20).status_code == 201
    assert idempotency.once(asked("k"), make)[idempotency.REPLAYED] == "true"
    assert things() == 1


def test_keys_older_than_a_day_are_forgotten(connect, database):
    conn = connect()
    for key in ("old", "new"):
        with enclose() as session:
            assert requests.begin(session, keyed(key=key)) is None
            requests.finish(
                session, keyed(key=key), status=200, headers="{}", answer="1"
            )
    conn.execute(
        "UPDATE chrono_request_key SET created_at = now() - interval '25 hours'"
        " WHERE key = 'old'"
    )
    requests.purge(conn)
    assert conn.execute("SELECT key FROM chrono_request_key").fetchall() == [("new",)]
