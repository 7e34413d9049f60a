"""Every address of the URL map: headers, policy, keys, and strangers."""

import functools
import json
import uuid
from collections.abc import Iterator

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from apps.api.job_by_key import JobByKey
from apps.api.queues import PauseQueue, ResumeQueue
from apps.api.view import ApiView
from apps.jobs.commands import create_job
from apps.runtime.store import read_clock
from chrono.rules.instants import HOUR
from chrono.rules.partitions import partition_of
from tests.support.definitions import definition
from tests.support.seed import SeededJob, make_ended, make_ready

POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "frame-ancestors 'none'; form-action 'self'"
)


def patterns(resolver=None, prefix="/") -> Iterator[tuple[str, URLPattern]]:
    for one in (resolver or get_resolver()).url_patterns:
        path = prefix + str(one.pattern).removeprefix("^").removesuffix("$")
        if isinstance(one, URLResolver):
            yield from patterns(one, path)
        else:
            yield path, one


ALL = [path for path, _ in patterns()]
API = [
    (path, one.callback.view_class)
    for path, one in patterns()
    if issubclass(getattr(one.callback, "view_class", object), ApiView)
]


def filled(path: str, **values: str) -> str:
    """Return the path with its parts filled, those that are not named with `x`."""
    for name, value in values.items():
        path = path.replace(f"<str:{name}>", value).replace(f"<path:{name}>", value)
    parts = [
        "x" if part.startswith("<") or "(" in part else part for part in path.split("/")
    ]
    return "/".join(parts)


def test_the_map_is_read_whole():
    assert len(ALL) > 20
    assert {"/livez", "/api/v1/runs", "/runs/<str:run_id>", "/admin/login/"} <= set(ALL)
    assert len(API) >= 5


HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def test_every_answer_has_its_headers(nobody):
    for path in [*ALL, "/nothing", "/static/nothing.css", "/static/api/docs.js"]:
        answer = nobody.get(filled(path))
        # Nobody leads here, so nothing fires, which the one address has to say.
        assert answer.status_code < 500 or path == "/status/firing", path
        assert HEADERS.items() <= dict(answer.items()).items(), path
        assert len(answer["X-Request-Id"]) == 32, path
        for cookie in answer.cookies.values():
            assert cookie["httponly"], path
            assert cookie["samesite"] == "Lax", path
        answer.close()


def test_every_resource_wants_a_key_and_keeps_out_of_caches(nobody):
    for path, view in API:
        for method in view.scopes:
            answer = nobody.generic(method, filled(path))
            assert answer.status_code == 401, (method, path)
            assert answer["Cache-Control"] == "no-store", (method, path)


@pytest.mark.parametrize(("path", "view"), API)
def test_no_address_of_the_api_ends_with_a_slash(path, view):
    assert not path.endswith("/")
    assert view.scopes


ASKED = {
    "/backfill": {"from": "2026-11-28T00:00:00Z", "to": "2026-11-29T00:00:00Z"},
    "/reschedule": {"due_at": "2058-01-01T00:00:00Z"},
    "/resolve": {"outcome": "success", "reason": "seen"},
    "/note": {"note": "seen"},
}
"""What has to be said so that nothing is refused for want of it."""


def asked(path):
    """Return an address with its parameters, and the body, by how the address ends."""
    body = next((ASKED[end] for end in ASKED if path.endswith(end)), {})
    query = "?at=2026-11-28T02:30:00Z" if path.endswith("/explain") else ""
    return path + query, json.dumps(body)


@functools.cache
def nested() -> list[tuple[str, str]]:
    """Return each method of each address that names an object."""
    return [
        (method, path)
        for path, view in API
        if "<" in path
        for method in view.scopes
        # A key names another job for each tenant: what is put there is their own. So is
        # what a tenant has in a queue.
        if (method, view) != ("PUT", JobByKey) and view not in (PauseQueue, ResumeQueue)
    ]


def read_audit(conn):
    rows = conn.execute(
        "SELECT action FROM chrono_audit_event WHERE object_kind = 'job'"
    )
    return [action for (action,) in rows]


@pytest.mark.parametrize(("method", "path"), nested())
def test_a_stranger_s_object_is_not_there(client, stranger, connect, method, path):
    made = create_job(definition(cron="30 2 * * *"))
    job = SeededJob(id=made.job_id, part=partition_of(made.job_id), queue="default")
    if "/dead-letters/" in path:
        run = make_ended(connect(), job, int(read_clock(connect())) - HOUR, state=3)
    else:
        [run] = make_ready(connect(), job)
    other = str(uuid.uuid4())
    real = filled(path, run_id=str(run), job_id=str(job.id), key=made.key)
    none = filled(path, run_id=other, job_id=other, key=other)
    theirs, missing = (
        stranger.generic(
            method,
            asked(one)[0],
            data=asked(one)[1],
            content_type="application/json",
            headers={"If-Match": "*"},
        )
        for one in (real, none)
    )
    assert theirs.status_code == 404
    # The same size and words as for what is nowhere.
    shown, gone = theirs.json(), missing.json()
    for body in (shown, gone):
        del body["request_id"], body["instance"]
    assert gone == json.loads(json.dumps(shown).replace(str(job.id), other))
    assert read_audit(connect()) == ["job.create"]
    if method == "GET":
        assert client.generic(method, asked(real)[0]).status_code == 200


def test_the_first_page_is_the_admin(nobody):
    assert nobody.get("/")["Location"] == "/admin/"


def test_the_docs_come_from_here_alone(nobody):
    page = nobody.get("/api/v1/docs").content.decode()
    assert "http://" not in page
    assert "https://" not in page
    assert "<style" not in page
    assert "<script>" not in page
    assert 'data-schema="/api/v1/openapi.json"' in page
    for part in page.split('"'):
        if part.startswith("/static/"):
            file = nobody.get(part)
            assert file.status_code == 200
            file.close()


def test_head_is_answered_without_a_body(client, nobody):
    answer = client.head("/api/v1/runs")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer["Content-Length"] == str(len(client.get("/api/v1/runs").content))
    assert nobody.head("/livez").status_code == 200
