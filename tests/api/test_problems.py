"""Refusals: one form, the right status, no word about how it works inside."""

import psycopg
import pytest
from django.contrib.auth import get_user_model

from apps.api import errors
from apps.jobs.errors import UnknownField
from chrono.rules.errors import BadValue, ChronoError

MEMBERS = {
    "type",
    "title",
    "status",
    "detail",
    "instance",
    "code",
    "errors",
    "request_id",
}
PREVIEW = "/api/v1/schedules/preview"


def refusal(answer, status, code):
    """Return the problem of an answer that must be one."""
    assert (answer.status_code, answer["Content-Type"]) == (
        status,
        "application/problem+json",
    ), answer.content
    body = answer.json()
    assert set(body) == MEMBERS
    assert (body["code"], body["status"]) == (code, status)
    assert body["type"] == f"/problems/{code.replace('_', '-')}"
    assert body["request_id"] == answer["X-Request-Id"]
    assert body["instance"] == answer.wsgi_request.path
    return body


def subclasses(of):
    for one in of.__subclasses__():
        yield one
        yield from subclasses(one)


ROOMS = ("apps.api", "apps.tenants", "apps.runs.errors", "apps.jobs.errors")


def test_every_error_that_can_come_to_the_door_has_a_status():
    unknown = {
        one.__qualname__
        for one in subclasses(ChronoError)
        if one.__module__.startswith((*ROOMS, "apps.runtime.requests"))
        and not issubclass(one, BadValue)
        and one.code not in errors.STATUS
    }
    assert not unknown


@pytest.mark.parametrize("path", ["/api/v1/runs", "/runs/x", PREVIEW])
def test_without_a_key_nothing_is_told(nobody, path):
    send = nobody.send if path == PREVIEW else nobody.get
    answer = send(path)
    refusal(answer, 401, "key_missing")
    assert answer["WWW-Authenticate"] == 'Bearer realm="chrono"'


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        ("Basic dXNlcjpwYXNz", 400, "bad_header"),
        ("Bearer", 400, "bad_header"),
        ("Bearer " + "x" * 300, 400, "bad_header"),
        ("Bearer x", 401, "key_malformed"),
        ("Bearer \u00e9", 401, "key_malformed"),
    ],
)
def test_what_is_no_key_opens_nothing(nobody, text, status, code):
    answer = nobody.get("/api/v1/runs", headers={"Authorization": text})
    refusal(answer, status, code)
    assert text.removeprefix("Bearer ") not in answer.content.decode() or len(text) < 9


def test_a_cookie_opens_nothing(nobody, django_user):
    nobody.force_login(django_user)
    refusal(nobody.get("/api/v1/runs"), 401, "key_missing")


@pytest.fixture
def django_user(database):
    return get_user_model().objects.create_superuser("root", "", "x")


@pytest.mark.parametrize(
    "path",
    ["/nothing", "/api/v1/", "/api/v1/runs/", "/api/v2/runs", "/runs/", "/jobs/"],
)
def test_an_address_where_nothing_is_answers_in_json(client, path):
    refusal(client.get(path), 404, "not_found")


def test_a_page_that_is_not_there_is_a_page(nobody, django_user):
    nobody.force_login(django_user)
    answer = nobody.get("/admin/nothing/")
    assert answer.status_code == 404
    assert answer["Content-Type"].startswith("text/html")


@pytest.mark.parametrize(
    "method", ["post", "put", "patch", "delete", "options", "trace"]
)
def test_a_method_that_is_not_there_is_refused(client, method):
    answer = getattr(client, method)("/api/v1/runs")
    refusal(answer, 405, "method_not_allowed")
    assert "GET" in answer["Allow"]


@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        (b"a=1", "application/x-www-form-urlencoded", 415, "unsupported_media_type"),
        (b"{}", "text/plain", 415, "unsupported_media_type"),
        (b"{", "application/json", 400, "bad_body"),
        (b"[]", "application/json", 400, "bad_body"),
        (b"null", "application/json", 400, "bad_body"),
        (b'{"croon": "* * * * *"}', "application/json", 422, "unknown_field"),
        (b'{"a": "' + b"x" * 2**20 + b'"}', "application/json", 413, "body_too_large"),
    ],
)
def test_a_wrong_body_is_refused(client, body, kind, status, code):
    refusal(client.send(PREVIEW, body, content_type=kind), status, code)


def test_a_body_without_a_length_is_refused(client):
    answer = client.send(PREVIEW, b"{}", headers={"Transfer-Encoding": "chunked"})
    refusal(answer, 411, "length_required")


def test_the_place_at_fault_is_a_pointer_into_the_body(client):
    body = refusal(client.send(PREVIEW, b'{"cron": 5}'), 422, "bad_schedule")
    assert body["errors"] == [
        {"pointer": "/cron", "code": "bad_schedule", "detail": "cron is text."}
    ]
    assert errors.pointer("target.headers.X/Y~Z") == "/target/headers/X~1Y~0Z"


def test_an_unknown_field_is_told_the_close_one(client):
    body = refusal(client.send(PREVIEW, b'{"croon": "x"}'), 422, UnknownField.code)
    assert "is it cron?" in body["detail"]


def test_an_unknown_parameter_is_refused_everywhere(client):
    answer = client.send(f"{PREVIEW}?dry_run=1", b'{"cron": "* * * * *"}')
    assert refusal(answer, 400, "unknown_parameter")["errors"][0] == {
        "parameter": "dry_run",
        "code": "unknown_parameter",
        "detail": "There is no parameter dry_run here.",
    }


def test_a_host_that_is_not_ours_is_refused(nobody):
    refusal(nobody.get("/runs/x", headers={"Host": "evil.example"}), 400, "bad_request")


@pytest.mark.parametrize(
    ("given", "kept"),
    [("abc-1.2:3_4", True), ("x" * 129, False), ("a b", False), ("a\u00e9", False)],
)
def test_a_request_id_is_taken_if_it_is_one(nobody, given, kept):
    answer = nobody.get("/livez", headers={"X-Request-Id": given})
    assert (answer["X-Request-Id"] == given) is kept
    assert len(answer["X-Request-Id"]) >= 10


def test_a_fault_of_ours_tells_nothing_but_the_id(client, monkeypatch, caplog):
    def broken(*args, **kwargs):
        raise RuntimeError("secret of the house")

    monkeypatch.setattr("apps.runs.selectors.list_runs", broken)
    client.raise_request_exception = False
    answer = client.get("/api/v1/runs")
    refusal(answer, 500, "internal_error")
    assert b"secret" not in answer.content
    assert "secret of the house" in caplog.text


@pytest.mark.parametrize(
    "error", [psycopg.errors.QueryCanceled("late"), psycopg.OperationalError("gone")]
)
def test_a_database_that_does_not_answer_is_503(client, monkeypatch, error):
    def broken(*args, **kwargs):
        raise error

    monkeypatch.setattr("apps.runs.selectors.list_runs", broken)
    answer = client.get("/api/v1/runs")
    refusal(answer, 503, "database_unavailable")
    assert answer["Retry-After"] == "5"


def test_no_page_is_shown_with_a_trace_even_to_who_asks_for_html(client):
    answer = client.get("/api/v1/runs/x", headers={"Accept": "text/html"})
    refusal(answer, 404, "run_not_found")
