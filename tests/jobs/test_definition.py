"""Definitions: what is accepted, what is refused by the name of its field."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.jobs.definition import FIELDS, Definition, parse_definition
from apps.jobs.errors import NotSupportedYet, UnknownField
from chrono.rules.errors import BadSchedule, BadValue, UnknownTimezone
from chrono.rules.instants import HOUR, MINUTE, parse_instant
from chrono.rules.policy import OVERLAP_POLICIES, Policy, RateLimit
from chrono.rules.schedule import (
    CronSchedule,
    FixedDelay,
    Interval,
    Once,
    schedule_from_json,
)
from chrono.rules.states import Priority
from tests.support.definitions import TASK, definition

JOB = UUID("01234567-89ab-7def-8123-456789abcdef")
HTTP = {"kind": "http", "url": "https://example.org/hook"}


def test_defaults_are_filled_in():
    job = definition(cron="0 9 * * *")
    assert job.schedule == CronSchedule(expression="0 9 * * *")
    assert (job.name, job.queue, job.overlap_policy) == ("", "default", "skip")
    assert job.priority is Priority.NORMAL
    assert job.jitter_window == MINUTE
    assert job.payload is None
    assert job.paused is None
    assert job.retry_policy["max_attempts"] == 6


@pytest.mark.parametrize(
    ("fields", "window"),
    [
        ({"cron": "* * * * *"}, MINUTE // 2),
        ({"cron": "* * * * * *", "seconds": True}, 0),
        ({"interval": "10m"}, 0),
        ({"run_at": "2055-01-01T00:00:00Z"}, 0),
        ({"cron": "0 9 * * *", "time_critical": True}, 0),
        ({"cron": "0 9 * * *", "time_critical": True, "jitter_window": "0s"}, 0),
        ({"cron": "0 9 * * *", "jitter_window": "1h"}, HOUR),
        ({"interval": "10m", "jitter_window": "5m"}, 5 * MINUTE),
        ({"run_at": "2055-01-01T00:00:00Z", "jitter_window": "1h"}, HOUR),
    ],
)
def test_the_jitter_window(fields, window):
    assert definition(**fields).jitter_window == window


def test_an_interval_counts_from_the_job_s_creation_unless_told():
    created = parse_instant("2054-11-29T15:00:00.250Z")
    own = definition(interval="10s").schedule_of(JOB, created_at=created)
    assert own == Interval(every=10_000, anchor=created)
    told = definition(interval="10s", starts_at="2026-01-01T00:00:00Z")
    assert told.schedule_of(JOB, created_at=created) == told.schedule
    every = definition(cron="@every 90s").schedule_of(JOB, created_at=created)
    assert every == Interval(every=90_000, anchor=created)


def test_h_is_resolved_by_the_job_s_id_and_what_was_written_is_kept():
    job = definition(cron="H 3 * * *")
    fields = job.schedule_json(JOB, created_at=0)
    assert fields["written"] == "H 3 * * *"
    schedule = job.schedule_of(JOB, created_at=0)
    assert schedule_from_json(fields) == schedule
    assert "H" not in fields["cron"]
    assert schedule == job.schedule_of(JOB, created_at=1)


def test_a_target_gets_its_defaults():
    job = definition(interval="1m", target={**HTTP, "method": "put", "timeout": "90s"})
    assert job.target == {
        "kind": "http",
        "url": "https://example.org/hook",
        "method": "PUT",
        "headers": {},
        "timeout": "90s",
    }
    assert definition(interval="1m", target=HTTP).target["timeout"] == "1m"


def test_a_task_has_the_limits_it_is_given_and_none_else():
    task = {"kind": "task", "name": "shop.close"}
    assert definition(interval="1m", target=task).target == task
    bare = {**task, "timeout": None, "progress_deadline": None}
    assert definition(interval="1m", target=bare).target == task
    limited = {**task, "timeout": "PT2H", "progress_deadline": "90s"}
    job = definition(interval="1m", target=limited)
    assert job.target == {**task, "timeout": "2h", "progress_deadline": "90s"}


def test_a_single_instant():
    job = definition(run_at="2055-01-01T10:00:00+02:00")
    assert job.schedule == Once(at=parse_instant("2055-01-01T08:00:00Z"))


def test_a_key_is_the_same_however_its_letters_are_composed():
    assert definition(key="caf\u0065\u0301", interval="1m").key == "caf\u00e9"


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


BAD: list[tuple[dict[str, Any], str]] = [
    ({"key": None}, "key"),
    ({"key": ""}, "key"),
    ({"key": 7}, "key"),
    ({"key": "x" * 201}, "key"),
    ({"key": "a\x00b"}, "key"),
    ({"key": " padded "}, "key"),
    ({"key": "half \ud800"}, "key"),
    ({"name": "x" * 201}, "name"),
    ({"name": "two\nlines"}, "name"),
    ({"interval": None}, "cron"),
    ({"interval": ""}, "interval"),
    ({"cron": "0 9 * * *"}, "interval"),
    ({"run_at": "2055-01-01T00:00:00Z"}, "run_at"),
    ({"interval": "999ms"}, "interval"),
    ({"interval": "0s"}, "interval"),
    ({"interval": "often"}, "interval"),
    ({"interval": 90}, "interval"),
    ({"interval": "100000d"}, "interval"),
    ({"timezone": "Europe/Berlin"}, "timezone"),
    ({"dst_gap": "skip"}, "dst_gap"),
    ({"starts_at": "yesterday"}, "starts_at"),
    ({"starts_at": "1969-12-31T23:59:59Z"}, "starts_at"),
    ({"interval": None, "cron": "61 * * * *"}, "cron"),
    ({"interval": None, "cron": "0 0 30 2 *"}, "cron"),
    ({"interval": None, "cron": "* * * * * *"}, "cron"),
    ({"interval": None, "cron": "@every 10ms"}, "interval"),
    ({"interval": None, "cron": "@reboot"}, "cron"),
    ({"interval": None, "cron": "0 9 * * *", "timezone": "Mars/Olympus"}, "timezone"),
    ({"interval": None, "cron": "0 9 * * *", "dst_gap": "no"}, "dst_gap"),
    ({"interval": None, "cron": "0 9 * * *", "dst_fold": "no"}, "dst_fold"),
    ({"interval": None, "cron": "0 9 * * *", "seconds": "yes"}, "seconds"),
    ({"interval": None, "run_at": "2055-01-01"}, "run_at"),
    ({"interval": None, "run_at": "9999-01-01T00:00:00Z"}, "run_at"),
    ({"jitter_window": "31s"}, "jitter_window"),
    ({"jitter_window": 5}, "jitter_window"),
    ({"jitter_window": "soon"}, "jitter_window"),
    ({"interval": "1d", "jitter_window": "61m"}, "jitter_window"),
    ({"time_critical": True, "jitter_window": "1s"}, "jitter_window"),
    ({"time_critical": "yes"}, "time_critical"),
    ({"overlap_policy": "maybe"}, "overlap_policy"),
    ({"overlap_policy": "buffer_two"}, "overlap_policy"),
    ({"overlap_policy": "allow_all\x00"}, "overlap_policy"),
    ({"overlap_policy": ["skip"]}, "overlap_policy"),
    ({"queue": "Upper"}, "queue"),
    ({"queue": ""}, "queue"),
    ({"queue": "x" * 65}, "queue"),
    ({"priority": 1}, "priority"),
    ({"priority": "urgent"}, "priority"),
    ({"paused": "no"}, "paused"),
    ({"paused": 1}, "paused"),
    ({"retry_policy": {"max_attempts": 0}}, "retry_policy.max_attempts"),
    ({"retry_policy": {"backoff": {"jitter": "none"}}}, "retry_policy.backoff.jitter"),
    ({"retry_policy": {"retries": 3}}, "retry_policy.retries"),
    ({"retry_policy": None}, "retry_policy"),
    ({"payload": {"a": "\x00"}}, "payload"),
    ({"payload": {"\x00": 1}}, "payload"),
    ({"payload": "\udfff"}, "payload"),
    ({"payload": {"a": float("nan")}}, "payload"),
    ({"payload": [float("inf")]}, "payload"),
    ({"payload": {1: 2}}, "payload"),
    ({"payload": object()}, "payload"),
    ({"payload": deep(33)}, "payload"),
    ({"payload": deep(100_000)}, "payload"),
    ({"payload": "x" * (256 * 1024)}, "payload"),
    ({"payload": 10**200}, "payload"),
    ({"target": None}, "target"),
    ({"target": "https://example.org"}, "target"),
    ({"target": {}}, "target.kind"),
    ({"target": {"kind": "command"}}, "target.kind"),
    ({"target": {"kind": ["http"]}}, "target.kind"),
    ({"target": {"kind": "task"}}, "target.name"),
    ({"target": {"kind": "task", "name": "a b"}}, "target.name"),
    ({"target": {**TASK, "url": "https://example.org"}}, "target.url"),
    ({"target": {"kind": "http"}}, "target.url"),
    ({"target": {**HTTP, "url": "ftp://example.org"}}, "target.url"),
    ({"target": {**HTTP, "url": "https://"}}, "target.url"),
    ({"target": {**HTTP, "url": "https://u:p@example.org"}}, "target.url"),
    ({"target": {**HTTP, "url": "https://example.org:99999/"}}, "target.url"),
    ({"target": {**HTTP, "url": "https://example.org/a b"}}, "target.url"),
    ({"target": {**HTTP, "url": "https://example.org/#part"}}, "target.url"),
    ({"target": {**HTTP, "url": "https://[::1/"}}, "target.url"),
    ({"target": {**HTTP, "method": "BREW"}}, "target.method"),
    ({"target": {**HTTP, "headers": {"a": "b\r\nc: d"}}}, "target.headers"),
    ({"target": {**HTTP, "headers": {"a b": "c"}}}, "target.headers"),
    ({"target": {**HTTP, "headers": {"Chrono-Fence": "1"}}}, "target.headers"),
    ({"target": {**HTTP, "headers": {"idempotency-key": "1"}}}, "target.headers"),
    ({"target": {**HTTP, "headers": {"A": "1", "a": "2"}}}, "target.headers"),
    ({"target": {**HTTP, "timeout": "0s"}}, "target.timeout"),
    ({"target": {**HTTP, "timeout": 5}}, "target.timeout"),
    ({"target": {**HTTP, "timeout": "2h"}}, "target.timeout"),
    ({"target": {**HTTP, "progress_deadline": "2h"}}, "target.progress_deadline"),
    *(
        ({"target": {"kind": "task", "name": "a", limit: value}}, f"target.{limit}")
        for limit in ("timeout", "progress_deadline")
        for value in ("0s", "10ms", "31d", 5, "soon")
    ),
    ({"jiter_window": "5s"}, "jiter_window"),
    *(
        ({"tags": tags}, "tags")
        for tags in (
            *(None, "payroll", 7, {}, {"a": 1}, [7], [None], [["a"]], [True]),
            *([""], ["Payroll"], ["a b"], ["ä"], ["a,b"], ["a\x00"], ["\ud800"]),
            *(["x" * 51], ["a\n"], ["a", "b", "a"], [f"t{n}" for n in range(21)]),
        )
    ),
    ({"delivery": "exactly_once"}, "delivery"),
    ({"delivery": True}, "delivery"),
    ({"delivery": ["at_most_once"]}, "delivery"),
    ({"transactional": True}, "transactional"),
]

CRON = {"interval": None, "cron": "0 9 * * *"}
DELAY = {"interval": None, "fixed_delay": "5m"}
ONCE = {"interval": None, "run_at": "2058-01-01T00:00:00Z"}
SOON, LATER = "2057-01-01T00:00:00Z", "2058-01-01T00:00:00Z"
CONTRADICTIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"fixed_delay": "5m"}, "fixed_delay", "bad_schedule"),
    ({**CRON, "fixed_delay": "5m"}, "fixed_delay", "bad_schedule"),
    ({**DELAY, "run_at": LATER}, "run_at", "bad_schedule"),
    ({"starts_at": LATER, "ends_at": SOON}, "ends_at", "bad_schedule"),
    ({**CRON, "starts_at": LATER, "ends_at": SOON}, "ends_at", "bad_schedule"),
    ({**DELAY, "starts_at": LATER, "ends_at": SOON}, "ends_at", "bad_schedule"),
    ({**ONCE, "starts_at": SOON}, "starts_at", "bad_value"),
    ({**ONCE, "ends_at": LATER}, "ends_at", "bad_value"),
    ({**ONCE, "remaining_runs": 1}, "remaining_runs", "bad_value"),
    ({**DELAY, "catchup_policy": "run_all"}, "catchup_policy", "bad_value"),
    ({**DELAY, "max_delay": "1h"}, "max_delay", "bad_value"),
    (
        {**DELAY, "catchup_policy": "deadline", "max_delay": "1h"},
        "catchup_policy",
        "bad_value",
    ),
    ({**DELAY, "timezone": "UTC"}, "timezone", "bad_value"),
    ({**DELAY, "seconds": False}, "seconds", "bad_value"),
    ({**DELAY, "dst_gap": "skip"}, "dst_gap", "bad_value"),
    ({**DELAY, "dst_fold": "both"}, "dst_fold", "bad_value"),
    ({"catchup_policy": "deadline"}, "max_delay", "bad_value"),
    ({"concurrency_limit": 3}, "concurrency_limit", "bad_value"),
    ({"on_limit": "drop"}, "on_limit", "bad_value"),
    ({**ONCE, "catchup_policy": "deadline"}, "max_delay", "bad_value"),
]
DURATIONS = ("max_delay", "late_after", "max_runtime", "max_time_since_success")
NUMBERS = {"max_concurrent_runs": 1_000, "remaining_runs": 1_000_000}
NUMBERS["pause_on_failure"] = 100
NUMBERS["concurrency_limit"] = 1_000
BAD_INSTANTS = [
    *("soon", "2055-01-01", "2055-01-01T00:00:00", "2055-02-30T00:00:00Z"),
    *("1969-12-31T23:59:59Z", "9999-01-01T00:00:00Z", "10000-01-01T00:00:00Z"),
    *("2055-01-01T00:00:00Z\x00", "infinity", "2055-01-01T00:00:00.0001Z"),
]
WRONG: list[tuple[dict[str, Any], str, str]] = [
    *(
        ({"interval": None, "fixed_delay": value}, "fixed_delay", "bad_schedule")
        for value in (True, 0, 300, 1.5, [], {}, ["5m"], "0s", "999ms", "20000d")
    ),
    ({"interval": None, "fixed_delay": ""}, "fixed_delay", "bad_value"),
    *(
        ({"interval": None, "fixed_delay": value}, "fixed_delay", "bad_duration")
        for value in ("0", "-5m", "5m\x00", "5 m", "soon", "٥m", "9" * 400 + "s")
    ),
    *(
        ({**kind, name: value}, name, "bad_schedule")
        for kind in ({}, CRON, DELAY)
        for name in ("starts_at", "ends_at")
        for value in (True, 0, 1_900_000_000, [], {})
    ),
    *(
        ({**kind, name: value}, name, "bad_instant")
        for kind in ({}, CRON, DELAY)
        for name in ("starts_at", "ends_at")
        for value in BAD_INSTANTS
    ),
    *(
        ({"catchup_policy": value}, "catchup_policy", "bad_value")
        for value in (True, 0, "", "SKIP", "none", "skip\x00", [], {}, ["skip"])
    ),
    *(
        ({name: value}, name, "bad_value")
        for name in DURATIONS
        for value in (True, 0, 60, 1.5, [], {}, "0s", "999ms", "P0D")
    ),
    *(
        ({name: value}, name, "bad_duration")
        for name in DURATIONS
        for value in ("", "60", "-1s", "1h\x00", "1e3s", "36601d", "9" * 400 + "s")
    ),
    *(
        ({"concurrency_key": value}, "concurrency_key", "bad_value")
        for value in (True, 0, "", "a\nb", "x" * 201, [], {})
    ),
    *(
        ({"rate_limit": value}, "rate_limit", "bad_value")
        for value in (True, 0, "", "10", [], {}, {"limit": 1}, {"a": 1, "b": 2})
    ),
    *(
        ({"rate_limit": {"limit": value, "period": "1m"}}, field, "bad_value")
        for field in ("rate_limit.limit",)
        for value in (True, 0, -1, 1.0, "3", None, [], 1_001)
    ),
    ({"rate_limit": "x/1m"}, "rate_limit.limit", "bad_value"),
    ({"rate_limit": "1/0s"}, "rate_limit.period", "bad_value"),
    ({"rate_limit": "1/25h"}, "rate_limit.period", "bad_value"),
    ({"rate_limit": "1/soon"}, "rate_limit.period", "bad_duration"),
    *(
        ({"on_limit": value, "rate_limit": "1/1m"}, "on_limit", "bad_value")
        for value in (True, 0, "", "DROP", [], {})
    ),
    *(
        ({name: value}, name, "bad_value")
        for name, most in NUMBERS.items()
        for value in (True, 0, -1, 1.0, "3", "", [], {}, most + 1, 10**30, float("nan"))
    ),
]


@pytest.mark.parametrize(("fields", "field", "code"), CONTRADICTIONS)
def test_what_does_not_go_together_is_refused_by_the_name_of_one(fields, field, code):
    with pytest.raises(BadValue) as refused:
        parse_definition({"key": "nightly", "target": TASK, "interval": "1m", **fields})
    assert (refused.value.field, refused.value.code) == (field, code)
    assert refused.value.message.endswith(".")


def test_no_wrong_value_of_a_policy_or_a_bound_is_taken():
    base = {"key": "nightly", "target": TASK, "interval": "1m"}
    for fields, field, code in WRONG:
        with pytest.raises(BadValue) as refused:
            parse_definition({**base, **fields})
        told = refused.value
        assert (told.field, told.code) == (field, code), fields
        assert told.message.endswith("."), fields


def test_policies_are_taken_as_they_are_written():
    job = definition(
        cron="0 9 * * *",
        catchup_policy="deadline",
        max_delay="2h",
        max_concurrent_runs=3,
        remaining_runs=1_000_000,
        pause_on_failure=100,
        late_after="90s",
        max_runtime="PT1H30M",
        max_time_since_success="2d",
        concurrency_key="provider",
        concurrency_limit=3,
        rate_limit={"limit": 10, "period": "1m"},
        on_limit="drop",
    )
    assert job.policy == Policy(
        catchup_policy="deadline",
        max_delay=2 * HOUR,
        max_concurrent_runs=3,
        remaining_runs=1_000_000,
        pause_on_failure=100,
        late_after=90_000,
        max_runtime=HOUR + HOUR // 2,
        max_time_since_success=48 * HOUR,
        concurrency_key="provider",
        concurrency_limit=3,
        rate_limit=RateLimit(10, 60_000),
        on_limit="drop",
    )
    assert definition(interval="1m", rate_limit="5/2h").policy.rate_limit == RateLimit(
        5, 2 * HOUR
    )
    assert definition(interval="1m").policy == Policy()
    assert definition(fixed_delay="5m", catchup_policy="run_once").policy == Policy()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *((one, one) for one in OVERLAP_POLICIES),
        ("Forbid", "skip"),
        ("Allow", "allow_all"),
        ("Replace", "cancel_other"),
        ("queue", "buffer_all"),
        ("cancel_newest", "skip"),
        ("cancel_in_progress", "cancel_other"),
    ],
)
def test_an_overlap_policy_has_the_names_of_other_schedulers_too(written, meant):
    assert definition(interval="1m", overlap_policy=written).overlap_policy == meant


def test_each_kind_but_one_has_a_start_and_an_end():
    start, end = parse_instant(SOON), parse_instant(LATER)
    bounds = {"starts_at": SOON, "ends_at": LATER}
    assert definition(cron="0 9 * * *", **bounds).schedule == CronSchedule(
        expression="0 9 * * *", starts_at=start, ends_at=end
    )
    assert definition(interval="1m", **bounds).schedule == Interval(
        every=MINUTE, anchor=start, ends_at=end
    )
    assert definition(cron="@every 1m", **bounds).schedule == Interval(
        every=MINUTE, anchor=start, ends_at=end
    )
    assert definition(fixed_delay="1m", **bounds).schedule == FixedDelay(
        delay=MINUTE, anchor=start, ends_at=end
    )
    same = {"starts_at": SOON, "ends_at": SOON}
    assert definition(interval="1m", **same).schedule == Interval(
        every=MINUTE, anchor=start, ends_at=start
    )


@pytest.mark.parametrize("kind", ["interval", "fixed_delay"])
def test_what_ends_before_its_job_was_made_is_refused(kind):
    job = definition(**{kind: "1m"}, ends_at=SOON)
    with pytest.raises(BadSchedule) as refused:
        job.schedule_of(JOB, created_at=parse_instant(SOON) + 1)
    assert refused.value.field == "ends_at"
    own = job.schedule_of(JOB, created_at=parse_instant(SOON))
    assert own.anchor == own.ends_at


def test_a_cron_that_names_no_zone_takes_the_one_it_is_given():
    berlin = definition(cron="0 9 * * *").in_zone("Europe/Berlin")
    assert berlin.schedule == CronSchedule(
        expression="0 9 * * *", timezone="Europe/Berlin"
    )
    assert berlin.in_zone("Asia/Tokyo") == berlin
    for named in ({"cron": "0 9 * * *", "timezone": "UTC"}, {"interval": "1m"}):
        assert definition(**named).in_zone("Europe/Berlin") == definition(**named)
    with pytest.raises(UnknownTimezone):
        definition(cron="0 9 * * *").in_zone("Mars/Base")
    gap = {"cron": "30 2 14 3 *", "dst_gap": "skip"}
    assert definition(**gap).in_zone("America/New_York")


@pytest.mark.parametrize(
    ("fields", "field"), BAD, ids=[f"{field}-{n}" for n, (_, field) in enumerate(BAD)]
)
def test_what_is_wrong_is_refused_by_the_name_of_its_field(fields, field):
    data = {"key": "nightly", "target": TASK, "interval": "1m", **fields}
    with pytest.raises(BadValue) as refused:
        parse_definition(data)
    assert refused.value.field == field
    assert refused.value.message.endswith((".", "?"))


def test_an_unknown_field_is_answered_with_the_closest_known_one():
    with pytest.raises(UnknownField, match=r"is it jitter_window\?"):
        definition(interval="1m", jiter_window="5s")
    with pytest.raises(UnknownField, match=r"no field zzz\."):
        definition(interval="1m", zzz=1)


def test_a_field_of_later_says_so():
    with pytest.raises(NotSupportedYet, match="lease_ttl is not supported yet"):
        definition(interval="1m", lease_ttl="1m")


def test_what_belongs_to_the_task_is_said_to():
    with pytest.raises(UnknownField, match="belongs to the task"):
        definition(interval="1m", transactional=True)


def test_a_job_that_is_delivered_at_most_once_has_one_attempt():
    usual = definition(interval="1m")
    assert (usual.policy.delivery, usual.retry_policy["max_attempts"]) == (
        "at_least_once",
        6,
    )
    retries = {"max_attempts": 3, "retry_on": ["5xx"]}
    once = definition(interval="1m", delivery="at_most_once", retry_policy=retries)
    assert once.policy.delivery == "at_most_once"
    assert once.retry_policy["max_attempts"] == 1
    assert once.retry_policy["retry_on"] == ["5xx"]


def test_tags_are_kept_sorted():
    assert definition(interval="1m").tags == ()
    tags = ["region:eu", "payroll", "a/b", "v1.2", "x_y-z", "x" * 50]
    assert definition(interval="1m", tags=tags).tags == tuple(sorted(tags))
    assert len(definition(interval="1m", tags=[f"t{n}" for n in range(20)]).tags) == 20


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        (["ok", "PayRoll"], "A tag is lower case: payroll, not PayRoll."),
        (["b", "a", "b"], "The tag b is there twice."),
        (["two words"], "'two words' is no tag"),
        (["\ud800"], r"'\ud800' is no tag"),
        ([2026], "put a number in quotes"),
        (["a"] * 21, "at most 20 tags"),
    ],
)
def test_what_is_wrong_with_tags_is_said_with_the_right_form(tags, said):
    with pytest.raises(BadValue) as refused:
        definition(interval="1m", tags=tags)
    assert said in refused.value.message


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["* * * * *", "1m", "task", "http", "2055-01-01T00:00:00Z"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def parsed(fields: dict[str, Any]) -> Definition | BadValue:
    try:
        return parse_definition(fields)
    except BadValue as refused:
        return refused


@given(st.dictionaries(st.sampled_from(sorted(FIELDS)), anything))
def test_whatever_is_given_is_parsed_or_refused_with_a_message(fields):
    result = parsed(fields)
    assert result.message if isinstance(result, BadValue) else result.key


@given(
    cron=st.sampled_from(["*/5 * * * *", "0 9 * * 1-5", "H H * * *", "@hourly"]),
    seconds_of_jitter=st.integers(0, 100),
    payload=anything.filter(lambda value: value == value),
)
def test_a_valid_definition_survives_the_way_through_json(
    cron, seconds_of_jitter, payload
):
    job = parsed(
        {
            "key": "nightly",
            "target": TASK,
            "cron": cron,
            "jitter_window": f"{seconds_of_jitter}s",
            "payload": payload,
        }
    )
    if isinstance(job, BadValue):
        assert job.field == "payload"
        return
    own = job.schedule_of(JOB, created_at=0)
    assert schedule_from_json(job.schedule_json(JOB, created_at=0)) == own
    assert job.jitter_window == seconds_of_jitter * 1000
