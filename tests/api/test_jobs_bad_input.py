"""POST /jobs refuses what is wrong with the field and the right form, and never breaks.

After each refusal a leader on the same database still fires a good job.
"""

import json
import re
from collections.abc import Iterator

import pytest

from apps.jobs.definition import FIELDS
from apps.runtime.clock import ManualClock
from apps.runtime.sessions import connect_hot, connect_upkeep
from apps.scheduler import store
from apps.scheduler.dispatcher import Dispatcher
from tests.rules.test_dialect import table
from tests.scheduler.conftest import NOON, Leader, prepare

JOBS = "/api/v1/jobs"
TASK = {"kind": "task", "name": "tests.nothing"}
HTTP = {"kind": "http", "url": "https://example.org/hook"}
GOOD = {"key": "bad", "cron": "30 2 * * *", "target": TASK}


@pytest.fixture
def leader(dsn: str) -> Iterator[Leader]:
    """A leader at a noon, with a job that is due each second."""
    with connect_upkeep(dsn, name="test upkeep") as upkeep:
        prepare(upkeep, NOON)
    with connect_hot(dsn, name="test leader") as conn:
        clock = ManualClock(NOON)
        dispatcher = Dispatcher(conn, clock)
        dispatcher.adopt(store.take_over(conn, parts=range(64), owner="test"))
        made = Leader(conn=conn, clock=clock, dispatcher=dispatcher)
        made.create("each-second", interval="1s", overlap_policy="allow_all")
        made.step()
        yield made


@pytest.fixture
def refuses(client, leader):
    """Return a check: this body is refused, changes nothing, and the leader fires."""

    def check(body, status, pointer, said=None, code=None):
        sent = body if isinstance(body, bytes) else json.dumps(body)
        answer = client.send(JOBS, sent)
        shown = (sent[:200], answer.content[:600])
        assert answer.status_code == status, shown
        assert answer["Content-Type"] == "application/problem+json"
        told = answer.json()
        if pointer is None:
            assert told["errors"] == [], shown
        else:
            [place] = told["errors"]
            assert place["pointer"] == pointer, shown
            assert place["detail"] == told["detail"]
        assert told["detail"].endswith((".", "?")), shown
        if said is not None:
            assert said in told["detail"], shown
        if code is not None:
            assert told["code"] == code, shown
        [(jobs,)] = leader.conn.execute("SELECT count(*) FROM chrono_job").fetchall()
        assert jobs == 1, shown
        leader.clock.moment += 1_000
        assert leader.step() == 1, shown
        return told

    return check


CODES = {
    *("bad_value", "bad_schedule", "bad_cron", "never_fires"),
    *("bad_duration", "bad_instant", "unknown_timezone"),
    *("unknown_field", "not_supported_yet"),
}
"""What is wrong with a field of a job; a refusal that is no such thing is a fault."""
WRONG = {
    "key": [None, True, 7, 1.5, [], {}, "", " x", "x ", "a\tb", "x" * 201],
    "name": [True, 7, [], {}, " x", "two\nlines", "x" * 201],
    "tags": [
        *(True, 7, {}, "", "payroll", {"payroll": True}),
        *(
            [7],
            [None],
            [True],
            [[]],
            [{}],
            [""],
            [" "],
            ["a b"],
            ["Payroll"],
            ["\u00e4"],
        ),
        *(["a\tb"], ["x" * 51], ["a", "a"], [f"t{n}" for n in range(21)]),
    ],
    "cron": [True, 7, [], {}, ["30 2 * * *"], ""],
    "timezone": [True, 7, [], {}, "", "Mars/Base", "CEST", "../UTC", "x" * 10_000],
    "seconds": [0, 1, "true", [], {}],
    "dst_gap": [True, 7, [], {}, "", "both"],
    "dst_fold": [True, 7, [], {}, "", "third"],
    "jitter_window": [True, 60, [], {}, "", "60", "-1s", "2h", "1e3s", "9" * 400 + "s"],
    "time_critical": [0, 1, "yes", [], {}],
    "overlap_policy": [True, 7, [], {}, "", "SKIP", "buffer_two", "allow_all "],
    "catchup_policy": [True, 7, [], {}, "", "SKIP", "none", "deadline"],
    "delivery": [True, 7, [], {}, "", "exactly_once", "AT_MOST_ONCE"],
    **{
        name: [True, 60, [], {}, "", "60", "-1s", "0s", "999ms", "9" * 400 + "s"]
        for name in ("max_delay", "late_after", "max_runtime", "max_time_since_success")
    },
    "max_concurrent_runs": [True, 0, -1, 1.5, "3", "", [], {}, 1_001, 10**30],
    "remaining_runs": [True, 0, -1, 1.5, "3", "", [], {}, 1_000_001, 10**30],
    "pause_on_failure": [True, 0, -1, 1.5, "3", "", [], {}, 101, 10**30],
    "concurrency_key": [True, 7, [], {}, "", "a\tb", "x" * 1_000, "{a}", "{payload.x}"],
    "concurrency_limit": [True, 0, -1, 1.5, "3", "", [], {}, 3, 10**30],
    "rate_limit": [
        *(True, 7, "10", [], {}, {"limit": 10}, {"period": "1m"}),
        {"limit": 10, "period": "1m", "burst": 2},
    ],
    "on_limit": [True, 7, [], {}, "", "WAIT", "queue", "drop"],
    "queue": [True, 7, [], {}, "", "Upper", "a b", "ä", "x" * 65],
    "priority": [True, 2, -1, [], {}, "", "urgent", "NORMAL"],
    "paused": [0, 1, "no", [], {}],
    "retry_policy": [True, 7, "6", []],
    "target": [None, True, 7, "https://example.org", []],
}
INSTANTS = [
    *(True, 0, [], {}, "", "tomorrow", "2055-01-01", "2055-01-01T12:00:00"),
    *("9999-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "infinity"),
]
WRONG["starts_at"] = INSTANTS
WRONG["ends_at"] = [*INSTANTS, "2001-01-01T00:00:00Z"]
INSTEAD = {
    "fixed_delay": [True, 90, [], {}, "", "90", "soon", "0s", "-5s", "500ms", "20000d"],
    "interval": [True, 90, [], {}, "", "90", "soon", "0s", "-5s", "500ms", "20000d"],
    "run_at": [
        *(True, 1_900_000_000, [], {}, "", "tomorrow", "2055-01-01", "12:00"),
        *("2055-01-01T12:00:00", "2055-02-30T12:00:00Z", "2055-01-01T25:00:00Z"),
        *("10000-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1969-12-31T23:59:59Z"),
        *("2055-01-01T12:00:00.0001Z", "infinity", "now", "2020-01-01T00:00:00Z"),
    ],
}


def test_every_field_is_here():
    assert WRONG.keys() | INSTEAD.keys() | {"payload"} == FIELDS


@pytest.mark.parametrize("name", WRONG)
def test_a_field_of_a_wrong_type_or_value_is_named(refuses, name):
    for value in WRONG[name]:
        pointer = "max_delay" if value == "deadline" else name
        told = refuses({**GOOD, name: value}, 422, f"/{pointer}")
        assert told["code"] in CODES, (value, told)


@pytest.mark.parametrize("name", INSTEAD)
def test_so_is_a_schedule_of_another_kind(refuses, name):
    for value in INSTEAD[name]:
        told = refuses({"key": "bad", "target": TASK, name: value}, 422, f"/{name}")
        assert told["code"] in CODES, (value, told)


def test_what_is_missing_is_named(refuses):
    for name, pointer in (("key", "/key"), ("cron", "/cron"), ("target", "/target")):
        left_out = refuses({k: v for k, v in GOOD.items() if k != name}, 422, pointer)
        null = refuses({**GOOD, name: None}, 422, pointer)
        assert (null["code"], null["detail"]) == (left_out["code"], left_out["detail"])
    refuses({}, 422, "/cron")
    for body in ([], None, "x", 7, True):
        refuses(json.dumps(body).encode(), 400, None, "The body is an object")
    refuses(b"", 422, "/cron")
    refuses(b"   ", 400, None, "not JSON")


def test_what_contradicts_itself_is_named(refuses):
    later = "2058-01-01T00:00:00Z"
    interval = {"key": "bad", "target": TASK, "interval": "5m"}
    once = {"key": "bad", "target": TASK, "run_at": later}
    delay = {"key": "bad", "target": TASK, "fixed_delay": "5m"}
    backwards = {"starts_at": later, "ends_at": "2057-01-01T00:00:00Z"}
    never = {"starts_at": "2057-01-01T00:00:01Z", "ends_at": "2057-01-01T00:00:02Z"}
    last = "9998-12-31T23:59:59.999Z"
    for body, pointer in (
        ({**GOOD, "interval": "5m"}, "/interval"),
        ({**GOOD, "run_at": later}, "/run_at"),
        ({**interval, "run_at": later}, "/run_at"),
        ({**GOOD, "fixed_delay": "5m"}, "/fixed_delay"),
        ({**interval, "fixed_delay": "5m"}, "/fixed_delay"),
        ({**delay, "run_at": later}, "/run_at"),
        *(({**kind, **backwards}, "/ends_at") for kind in (GOOD, interval, delay)),
        ({**GOOD, **never}, "/ends_at"),
        ({**GOOD, "starts_at": last}, "/cron"),
        ({**once, "run_at": last, "jitter_window": "1h"}, "/run_at"),
        ({**interval, "ends_at": "2020-01-01T00:00:00Z"}, "/ends_at"),
        ({**delay, "ends_at": "2020-01-01T00:00:00Z"}, "/ends_at"),
        ({**once, "ends_at": later}, "/ends_at"),
        ({**once, "remaining_runs": 1}, "/remaining_runs"),
        ({**delay, "catchup_policy": "skip"}, "/catchup_policy"),
        ({**delay, "max_delay": "5m"}, "/max_delay"),
        ({**delay, "timezone": "UTC"}, "/timezone"),
        ({**GOOD, "catchup_policy": "deadline"}, "/max_delay"),
        ({**once, "starts_at": later}, "/starts_at"),
        ({**interval, "timezone": "UTC"}, "/timezone"),
        ({**interval, "seconds": True}, "/seconds"),
        ({**once, "dst_gap": "skip"}, "/dst_gap"),
        ({**once, "dst_fold": "both"}, "/dst_fold"),
        ({**GOOD, "time_critical": True, "jitter_window": "10s"}, "/jitter_window"),
        ({**interval, "jitter_window": "151s"}, "/jitter_window"),
        ({**interval, "starts_at": "never"}, "/starts_at"),
        ({**interval, "starts_at": "2055-01-01T00:00:00"}, "/starts_at"),
        ({**interval, "starts_at": "9999-01-01T00:00:00Z"}, "/starts_at"),
        ({**interval, "starts_at": 5}, "/starts_at"),
    ):
        told = refuses(body, 422, pointer)
        assert told["code"] in CODES, (body, told)


TARGETS = [
    ({}, "/target/kind"),
    ({"kind": "smtp"}, "/target/kind"),
    ({"kind": ["http"]}, "/target/kind"),
    ({"kind": "command", "name": "x"}, "/target/kind"),
    ({"kind": "task"}, "/target/name"),
    ({"kind": "task", "name": "a b"}, "/target/name"),
    ({"kind": "task", "name": 7}, "/target/name"),
    ({**TASK, "url": "https://example.org"}, "/target/url"),
    ({**TASK, "a/b~c": 1}, "/target/a~1b~0c"),
    ({"kind": "http"}, "/target/url"),
    *(
        ({"kind": "http", "url": url}, "/target/url")
        for url in (
            *(None, 7, [], "", "example.org", "ftp://example.org", "file:///etc/x"),
            *("https://", "https:///x", "https://u:p@example.org/", "http://[::1"),
            *(
                "https://example.org:0/",
                "https://example.org:99999/",
                "javascript:x",
            ),
            *("https://example.org/#a", "https://example.org/a b", " https://a.b/"),
            "https://example.org/" + "x" * 2048,
        )
    ),
    *(({**HTTP, "method": one}, "/target/method") for one in (7, "", "TRACE", [])),
    *(
        ({**HTTP, "headers": one}, "/target/headers")
        for one in (
            *(7, [], "X: y", {"X": 7}, {"X": "a\r\nb"}, {"X y": "z"}, {"": "z"}),
            *({"Host": "x"}, {"Chrono-Fence": "1"}, {"Content-Length": "1"}),
            *({"X": "1", "x": "2"}, {"X": "z" * 2001}, {"X": "\u20ac"}),
            {f"X-{n}": "" for n in range(51)},
        )
    ),
    *(
        ({**HTTP, "timeout": one}, "/target/timeout")
        for one in (7, "", "0s", "2h", "soon", [])
    ),
]


def test_what_is_wrong_with_a_target_is_named(refuses):
    for target, pointer in TARGETS:
        told = refuses({**GOOD, "target": target}, 422, pointer)
        assert told["code"] in CODES, (target, told)


def test_what_is_wrong_with_retries_is_named(refuses):
    base = "/retry_policy"
    for policy, pointer in (
        ({"attempts": 3}, "/attempts"),
        *(
            ({"max_attempts": n}, "/max_attempts")
            for n in (0, -1, 1001, 1.5, "3", True)
        ),
        ({"backoff": 7}, "/backoff"),
        ({"backoff": {"base": 1}}, "/backoff/base"),
        ({"backoff": {"base_ms": -1}}, "/backoff/base_ms"),
        ({"backoff": {"base_ms": "1s"}}, "/backoff/base_ms"),
        ({"backoff": {"base_ms": 10, "cap_ms": 5}}, "/backoff/cap_ms"),
        ({"backoff": {"cap_ms": 10**30}}, "/backoff/cap_ms"),
        ({"backoff": {"jitter": "none"}}, "/backoff/jitter"),
        ({"retry_on": "5xx"}, "/retry_on"),
        ({"retry_on": ["4xx"]}, "/retry_on"),
        ({"retry_on": [5]}, "/retry_on"),
        ({"budget": 7}, "/budget"),
        ({"budget": {"x": 1}}, "/budget/x"),
        ({"circuit_breaker": {"x": 1}}, "/circuit_breaker/x"),
    ):
        told = refuses({**GOOD, "retry_policy": policy}, 422, base + pointer)
        assert told["code"] in CODES, (policy, told)


def test_a_payload_has_its_bounds(refuses):
    refuses({**GOOD, "payload": "x" * (256 * 1024)}, 422, "/payload", "256 KiB")
    refuses({**GOOD, "payload": [1e300] * 1000}, 422, "/payload", "256 KiB")
    told = refuses({**GOOD, "payload": "x" * 2**20}, 413, None)
    assert told["code"] == "body_too_large"


def test_an_unknown_field_is_answered_with_the_one_that_is_meant(refuses):
    refuses({**GOOD, "tmezone": "UTC"}, 422, "/tmezone", "is it timezone?")
    refuses({**GOOD, "schedule": {}}, 422, "/schedule", code="unknown_field")
    refuses({**GOOD, "id": "x"}, 422, "/id", code="unknown_field")
    refuses({**GOOD, "colour": None}, 422, "/colour", code="unknown_field")
    refuses({**GOOD, "tenant": 2}, 422, "/tenant", code="unknown_field")
    refuses({**GOOD, "version": 1}, 422, "/version", code="unknown_field")
    refuses({**GOOD, "x" * 5000: 1}, 422, "/" + "x" * 60, code="unknown_field")
    for name in ("lease_ttl", "unique_key", "on_conflict"):
        refuses({**GOOD, name: "x"}, 422, f"/{name}", "not supported yet")
    for value in (7, [], {}, "x" * 1001, "a\x07b"):
        told = refuses({**GOOD, "reason": value}, 422, "/reason")
        assert told["code"] == "bad_value"


RAW = [
    (b'"a\\u0000b"', "NUL"),
    (b'"\\ud800"', "surrogate"),
    (b'["\\udfff"]', "surrogate"),
    (b"NaN", "no JSON number"),
    (b"[-Infinity]", "no JSON number"),
    (b"1e999", "too large"),
    (b"9" * 101, "over 100 digits"),
    (b"[" * 40 + b"]" * 40, "deeper than 32"),
    (b'{"a": 1, "a": 2}', "given twice"),
]


@pytest.mark.parametrize("raw", RAW, ids=range(len(RAW)))
def test_what_no_reader_behind_would_take_is_refused_in_every_field(refuses, raw):
    value, said = raw
    for name in sorted(FIELDS):
        body = json.dumps({**GOOD, name: "HERE"}).encode()
        told = refuses(
            body.replace(b'"HERE"', value), 400, _place(name, value), said, "bad_body"
        )
        assert len(told["detail"]) < 200


def _place(name, value):
    return f"/{name}/0" if value[:1] == b"[" and value[:2] != b"[[" else f"/{name}"


def test_what_is_no_json_is_refused(refuses):
    for body in (
        b"{",
        b"{'key': 1}",
        b'{"key": 1,}',
        b"\xff",
        b'{"key": "\xed\xa0\x80"}',
    ):
        assert refuses(body, 400, None)["code"] == "bad_body"
    assert refuses(b"[" * 100_000, 400, None)["code"] == "bad_body"


def cron_cases():
    """Return (expression, seconds, what its message has): decision and field cases."""
    cases = [
        (text, seconds, re.findall(r"`[^`]+`", offer) or [offer])
        for text, seconds, offer in table("Refused")
    ]
    cases += [
        (text, False, [said])
        for text, said in (
            ("0 0 30 2 *", "never fires"),
            ("0 0 31 4,6,9,11 *", "never fires"),
            ("0 0 31 9 *", "never fires"),
            ("0 0 29 2 1#1", "`*` as the day of month"),
            ("*/90 * * * *", "`@every 90m`"),
            ("1-5/0 * * * *", "a step from 1 to 59"),
            ("0-99999999/1 * * * *", "`0` to `59`"),
            ("*/99999999999 * * * *", "a step from 1 to 59"),
            ("0 0 1 0 0", "`1` to `12`"),
            ("0 0 * * 7-1", "`0,1`"),
            ("0 0 * * 6-2", "`6,0,1,2`"),
            ("R R * * *", "`H`"),
            ("0 0 9 ? * 2-6", "`seconds: true`"),
            ("30 0 9 * * MON", "`seconds: true`"),
            ("0 9 * * * *", "`9 * * * *`"),
            ("* * * *", "4 fields instead of 5"),
            ("* * * * * * * *", "8 fields instead of 5"),
            ("0 0 9 * * ? 2055", "year"),
            ("   ", "fields"),
            ("CRON_TZ=UTC 0 9 * * *", "timezone"),
            ("1, * * * *", "list with commas"),
            (",* * * * *", "list with commas"),
            ("1,,2 * * * *", "list with commas"),
            ("+5 * * * *", "`0-59`"),
            ("0x5 * * * *", "`0` to `59`"),
            ("0 0 * JANUARY *", "`jan`"),
            ("\u0665 * * * *", "ASCII"),
            ("* * * * *\n* * * * *", "one line"),
            ("* * * * * ".replace(" ", "\u00a0"), "ASCII"),
            ("@every", "`@every 90s`"),
            ("@every -5s", "@every"),
            ("@every 0s", "interval"),
            ("@every 1ms", "interval"),
            ("@fortnightly", "`@weekly`"),
            ("@", "@hourly"),
            ("H(50-10) * * * *", "H"),
            ("H(0-99) * * * *", "H"),
            ("HH * * * *", "`0` to `59`"),
            ("0 0 H/2 2 *" + " " * 250, "256"),
            ("* " * 200, "256"),
            ("9" * 5000, "256"),
        )
    ]
    return cases


@pytest.mark.parametrize("part", range(4))
def test_every_refused_expression_is_told_the_right_form(refuses, part):
    for text, seconds, wanted in cron_cases()[part::4]:
        body = {**GOOD, "cron": text, **({"seconds": True} if seconds else {})}
        every = text.startswith("@every") and any(c.isdigit() for c in text)
        told = refuses(body, 422, "/interval" if every and "-" not in text else "/cron")
        detail = told["detail"].casefold()
        assert [one for one in wanted if one.casefold() not in detail] == [], told
        assert told["code"] in ("bad_cron", "never_fires", "bad_schedule"), told


def test_whether_an_expression_is_refused_does_not_wait_for_a_long_search(client):
    # The greedy ones of the field cases: what they cost elsewhere is memory and hours.
    for text in ("0-99999999/1 * * * *", "0 0 31 2 *", "0 0 29 2 1#1", "*/0 * * * *"):
        answer = client.send(JOBS, json.dumps({**GOOD, "cron": text}))
        assert answer.status_code == 422


def test_far_dates_wait_and_fire_nothing(client, leader):
    for n, moment in enumerate(
        ("2055-04-01T00:00:00Z", "2100-01-01T00:00:00Z", "9998-12-30T23:59:59Z")
    ):
        body = {"key": f"far-{n}", "target": TASK, "run_at": moment}
        answer = client.send(JOBS, json.dumps(body))
        assert answer.status_code == 201, answer.content
        assert answer.json()["next_run_at"] == moment
    for _ in range(3):
        leader.clock.moment += 1_000
        assert leader.step() == 1
