"""Http targets, against a server that wishes nobody well."""

import base64
import email.utils
import itertools
import socket

import pytest
from standardwebhooks import Webhook

from apps.worker.egress import parse_openings
from apps.worker.handlers.http import retry_after_of, verdict
from apps.worker.handlers.request import request_of
from apps.worker.signature import key_of
from chrono.rules.errors import BadValue
from chrono.rules.retry import Failure
from chrono.rules.states import Reason, RunState
from tests.support.seed import DUE, make_job, make_ready
from tests.worker.hostile import hostile
from tests.worker.support import FAST, count, running, settled, waiting

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
ONCE = {"max_attempts": 1}


@pytest.fixture
def server():
    with hostile() as server:
        yield server


def http_job(conn, url, *, payload=None, retry_policy=ONCE, **target):
    return make_job(
        conn,
        target={"kind": "http", "url": url, **target},
        payload=payload,
        retry_policy=retry_policy,
    )


def errors(conn):
    return [
        error
        for (error,) in conn.execute(
            "SELECT error FROM chrono_attempt ORDER BY run_id"
        ).fetchall()
    ]


def test_a_request_says_all_that_a_receiver_needs(dsn, connect, server):
    conn = connect()
    job = http_job(
        conn,
        f"{server.url}/status/200",
        payload={"text": "ü", "n": 1},
        headers={"X-Team": "billing"},
    )
    [run] = make_ready(conn, job, attempt=2, fence=41, due_at=DUE + 250)
    with running(dsn, webhook_key=key_of(SECRET)):
        assert settled(conn) == [(run, RunState.SUCCESS, None, 2, None)]
    [request] = server.received
    headers = request.headers
    assert request.method == "POST"
    assert request.body == '{"n":1,"text":"ü"}'.encode()
    assert headers["content-type"] == "application/json"
    assert headers["idempotency-key"] == headers["chrono-run-id"] == str(run)
    assert headers["chrono-fence"] == "41"
    assert headers["chrono-attempt"] == "2"
    assert headers["chrono-scheduled-for"] == "2025-11-29T15:00:00.250Z"
    assert headers["user-agent"].startswith("Chrono/")
    assert headers["x-team"] == "billing"
    assert headers["webhook-id"] == str(run)
    assert Webhook(SECRET).verify(request.body, headers) == request.json


def test_without_a_secret_requests_go_unsigned(dsn, connect, server):
    conn = connect()
    make_ready(conn, http_job(conn, f"{server.url}/status/200", method="GET"))
    with running(dsn):
        settled(conn)
    [request] = server.received
    assert (request.method, request.body) == ("GET", b"")
    assert not [name for name in request.headers if name.startswith("webhook-")]
    assert "content-type" not in request.headers


def test_an_unusual_success_leaves_its_status(dsn, connect, server):
    conn = connect()
    for status in (200, 202, 204):
        make_ready(conn, http_job(conn, f"{server.url}/status/{status}"))
    with running(dsn):
        rows = settled(conn, 3)
    assert [row[4] for row in rows] == [None, {"status": 202}, None]


@pytest.mark.parametrize("path", ["hang", "drip"])
def test_the_deadline_spans_the_whole_exchange(dsn, connect, server, path):
    conn = connect()
    job = http_job(conn, f"{server.url}/{path}", timeout="2s", retry_policy=FAST)
    [run] = make_ready(conn, job)
    with running(dsn):
        [(ref, attempt, _)] = waiting(conn)
    assert (ref, attempt) == (run, 2)
    assert errors(conn) == ["no complete answer within 2000 ms"]
    [(reason,)] = conn.execute("SELECT reason FROM chrono_attempt").fetchall()
    assert reason == Reason.TIMED_OUT
    if path == "drip":
        assert server.broken.acquire(timeout=5), "the connection was kept"


def test_a_body_without_end_is_cut_and_its_status_counts(dsn, connect, server):
    conn = connect()
    [run] = make_ready(conn, http_job(conn, f"{server.url}/flood"))
    with running(dsn):
        assert settled(conn) == [(run, RunState.SUCCESS, None, 1, None)]
    assert server.broken.acquire(timeout=5), "the connection was kept"


def test_a_redirect_is_not_followed(dsn, connect, server):
    conn = connect()
    [run] = make_ready(conn, http_job(conn, f"{server.url}/move", retry_policy=FAST))
    with running(dsn):
        rows = settled(conn)
    assert rows == [(run, RunState.DEAD, Reason.NON_RETRYABLE, 1, None)]
    assert [request.path for request in server.received] == ["/move"]
    assert errors(conn) == [
        "HTTP 307: redirects are not followed; name the final address"
    ]


def test_a_4xx_is_final_and_a_5xx_is_not(dsn, connect, server):
    conn = connect()
    job = http_job(conn, f"{server.url}/status/404", retry_policy=FAST)
    [final] = make_ready(conn, job)
    job = http_job(conn, f"{server.url}/status/500", retry_policy=FAST)
    [again] = make_ready(conn, job)
    with running(dsn):
        assert settled(conn) == [(final, RunState.DEAD, Reason.NON_RETRYABLE, 1, None)]
        [(ref, attempt, _)] = waiting(conn)
    assert (ref, attempt) == (again, 2)
    assert errors(conn) == [
        "HTTP 404: \\x1b[31m<b>as asked\\x00</b>",
        "HTTP 500: \\x1b[31m<b>as asked\\x00</b>",
    ]


def test_retry_after_is_honoured(dsn, connect, server):
    conn = connect()
    policy = {"max_attempts": 3, "backoff": {"base_ms": 0, "cap_ms": 60_000}}
    make_ready(conn, http_job(conn, f"{server.url}/busy/30", retry_policy=policy))
    with running(dsn):
        [(_, attempt, wait_s)] = waiting(conn)
    assert attempt == 2
    assert 20 < wait_s <= 30


def test_what_is_no_answer_fails_in_words_that_name_no_address(dsn, connect, server):
    conn = connect()
    urls = [
        f"{server.url}/garbage",
        f"{server.url}/silence",
        f"{server.url}/cut",
        "http://127.0.0.1:1/",
        "https://name.invalid/",
        f"https://127.0.0.1:{server.server_port}/status/200",
    ]
    for url in urls:
        make_ready(conn, http_job(conn, url))
    with running(dsn):
        # A resolver may take its time to know that there is no such name.
        rows = settled(conn, 6, timeout=40)
    assert {row[2] for row in rows} == {Reason.ATTEMPTS_EXHAUSTED}
    assert errors(conn) == [
        "the answer was not valid HTTP",
        "the target closed the connection without an answer",
        "the answer broke off",
        "Connection refused",
        "the host name does not resolve",
        "TLS could not be agreed on",
    ]


def test_answers_are_neither_unpacked_nor_remembered(dsn, connect, server):
    conn = connect()
    make_ready(conn, http_job(conn, f"{server.url}/bomb"))
    job = http_job(conn, f"{server.url}/cookie")
    make_ready(conn, job)
    with running(dsn, concurrency=1):
        settled(conn, 2)
        make_ready(conn, job)
        rows = settled(conn, 3)
    assert {row[1] for row in rows} == {RunState.SUCCESS}
    assert not any("cookie" in request.headers for request in server.received)


def test_the_environment_names_no_proxy(dsn, connect, server, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    conn = connect()
    make_ready(conn, http_job(conn, f"{server.url}/status/200"))
    with running(dsn):
        [row] = settled(conn)
    assert row[1] == RunState.SUCCESS


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.1", "0x7f000001", "2130706433", "[::1]", "0"],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_no_spelling_of_a_private_address_is_connected_to(
    dsn, connect, server, host, scheme
):
    conn = connect()
    url = f"{scheme}://{host}:{server.server_port}/status/200"
    [run] = make_ready(conn, http_job(conn, url, retry_policy=FAST))
    with running(dsn, openings=parse_openings(["10.0.0.0/8"])):
        rows = settled(conn)
    assert rows == [(run, RunState.DEAD, Reason.NON_RETRYABLE, 1, None)]
    assert server.received == []
    assert "127.0.0.1" not in errors(conn)[0]


def test_runs_wait_for_slow_targets_beside_each_other(dsn, connect, server):
    conn = connect()
    make_ready(conn, http_job(conn, f"{server.url}/hang", timeout="5s"), count=50)
    with running(dsn, concurrency=50):
        for _ in range(50):
            assert server.busy.acquire(timeout=5)
        assert count(conn, "lease") == 50
        settled(conn, 50, timeout=30)


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ({}, "target.url"),
        ({"url": 1}, "target.url"),
        ({"url": "ftp://a.example/"}, "target.url"),
        ({"url": "https:///path"}, "target.url"),
        ({"url": "https://a.example:0/"}, "target.url"),
        ({"url": "https://a.example:99999/"}, "target.url"),
        ({"url": "https://user:pass@a.example/"}, "target.url"),
        ({"method": "TRACE"}, "target.method"),
        ({"method": 1}, "target.method"),
        ({"headers": []}, "target.headers"),
        ({"headers": {"a b": "c"}}, "target.headers"),
        ({"headers": {"a": "b\r\nHost: c"}}, "target.headers"),
        ({"headers": {"a": "b\x00"}}, "target.headers"),
        ({"headers": {"a": 1}}, "target.headers"),
        ({"headers": {"Host": "b"}}, "target.headers"),
        ({"headers": {"content-length": "1"}}, "target.headers"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "target.headers"),
        ({"headers": {"Connection": "close"}}, "target.headers"),
        ({"headers": {"Idempotency-Key": "mine"}}, "target.headers"),
        ({"headers": {"chrono-fence": "9"}}, "target.headers"),
        ({"headers": {"Webhook-Signature": "v1,"}}, "target.headers"),
        ({"headers": {f"h{n}": "" for n in range(51)}}, "target.headers"),
        ({"timeout": 5}, "target.timeout"),
        ({"timeout": "soon"}, "target.timeout"),
        ({"timeout": "0s"}, "target.timeout"),
        ({"timeout": "2h"}, "target.timeout"),
    ],
)
def test_a_target_that_cannot_be_called_is_refused_by_field(target, field):
    given = {"url": "https://a.example/", **target} if target else target
    with pytest.raises(BadValue) as refused:
        request_of(given, b"")
    assert refused.value.field == field


def test_a_target_has_defaults():
    request = request_of({"url": "https://a.example/"}, b"{}")
    assert (request.method, request.timeout, request.plain) == ("POST", 60_000, False)
    given = {"url": "http://a.example/", "headers": {"content-type": "a/b"}}
    request = request_of(given, b"{}")
    assert request.plain
    assert request.headers == {"Content-Type": "a/b"}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (301, "bad_target"),
        (304, "bad_target"),
        (400, "4xx"),
        (404, "4xx"),
        (408, "throttled"),
        (410, "4xx"),
        (425, "throttled"),
        (429, "throttled"),
        (500, "5xx"),
        (503, "5xx"),
        (599, "5xx"),
        (999, "5xx"),
    ],
)
def test_statuses_are_failures_of_a_kind(status, kind):
    failure = verdict(status, {"Retry-After": "7"}, b"", DUE)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.status) == (kind, status)
    assert failure.retry_after == (None if kind == "bad_target" else 7_000)


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        (None, None),
        ("0", 0),
        (" 120 ", 120_000),
        ("9" * 50, 999_999_999_000),
        ("-1", None),
        ("1.5", None),
        ("²", None),
        ("soon", None),
        ("", None),
        (email.utils.formatdate((DUE + 90_000) / 1000, usegmt=True), 90_000),
        (email.utils.formatdate((DUE - 90_000) / 1000, usegmt=True), 0),
        ("Sat, 29 Nov 2025 15:00:00", None),
        ("Sat, 99 Nov 2025 15:00:00 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text, wait):
    assert retry_after_of(text, DUE) == wait


def test_a_name_that_changes_its_address_reaches_no_closed_one(
    dsn, connect, server, monkeypatch
):
    """127.0.0.2 is open here and 127.0.0.1 closed; names lie about which they are.

    Each name is asked anew: one gives the open address first and the closed one the
    next time, another gives both at once.
    """
    answers = itertools.cycle(
        [["127.0.0.2"], ["127.0.0.1"], ["127.0.0.1", "127.0.0.2"]]
    )
    asked = socket.getaddrinfo

    def lying(host, port, *args, **kwargs):
        if not str(host).endswith("rebinding.example"):
            return asked(host, port, *args, **kwargs)
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(*kind, (address, port)) for address in next(answers)]

    monkeypatch.setattr(socket, "getaddrinfo", lying)
    conn = connect()
    names = [f"n{number}.rebinding.example" for number in range(9)]
    with hostile("127.0.0.2", server.server_port) as allowed:
        for name in names:
            url = f"http://{name}:{server.server_port}/status/200"
            make_ready(conn, http_job(conn, url))
        with running(dsn, openings=parse_openings(["127.0.0.2/32"])):
            rows = settled(conn, len(names))
    assert server.received == []
    assert len(allowed.received) == 6
    assert [row[1] for row in rows].count(RunState.SUCCESS) == 6
    assert len(errors(conn)) == 3
    assert all("CHRONO_EGRESS_ALLOW" in error for error in errors(conn))
