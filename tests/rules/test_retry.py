"""What a failure leads to, and the policy as people write it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules.errors import BadValue
from chrono.rules.retry import (
    FAILURE_KINDS,
    SELECTABLE,
    Bury,
    Failure,
    RetryAt,
    RetryPolicy,
    decide,
    from_json,
    to_json,
)
from chrono.rules.states import Reason

NOW = 1_795_962_600_000
DEFAULT = RetryPolicy()
DRAWS = st.floats(0, 1, exclude_max=True)

policies = st.integers(0, 10**6).flatmap(
    lambda base: st.builds(
        RetryPolicy,
        max_attempts=st.integers(1, 1000),
        base_ms=st.just(base),
        cap_ms=st.integers(base, 10**9),
        retry_on=st.sets(st.sampled_from(SELECTABLE)).map(
            lambda kinds: tuple(kind for kind in SELECTABLE if kind in kinds)
        ),
    )
)


def verdict(kind, attempt=1, policy=DEFAULT, draw=0.5, **more):
    failure = Failure(kind, "it failed", **more)
    return decide(failure, policy=policy, attempt=attempt, now=NOW, draw=draw)


@given(
    st.sampled_from(sorted(FAILURE_KINDS)),
    policies,
    st.integers(1, 1001),
    DRAWS,
    st.none() | st.integers(0, 10**10),
)
def test_a_retry_is_never_in_the_past_nor_beyond_the_cap(
    kind, policy, attempt, draw, retry_after
):
    found = verdict(kind, attempt, policy, draw, retry_after=retry_after)
    match found:
        case RetryAt(at=at):
            assert NOW <= at <= NOW + policy.cap_ms
            assert attempt < policy.max_attempts
        case Bury(reason=reason):
            assert reason in (Reason.NON_RETRYABLE, Reason.ATTEMPTS_EXHAUSTED)


@pytest.mark.parametrize(
    "kind",
    [
        "timeout",
        "connect_failure",
        "5xx",
        "throttled",
        "exception",
        "worker_lost",
        "process_crash",
        "no_handler",
    ],
)
def test_what_may_pass_is_tried_again_until_the_attempts_are_used_up(kind):
    assert verdict(kind, attempt=5) == RetryAt(NOW + 8_000)
    assert verdict(kind, attempt=6) == Bury(Reason.ATTEMPTS_EXHAUSTED)


@pytest.mark.parametrize("kind", ["4xx", "bad_target", "non_retryable"])
def test_what_cannot_pass_is_buried_at_once(kind):
    assert verdict(kind) == Bury(Reason.NON_RETRYABLE)


@pytest.mark.parametrize("kind", SELECTABLE)
def test_a_policy_may_leave_a_kind_out(kind):
    policy = RetryPolicy(retry_on=tuple(k for k in SELECTABLE if k != kind))
    assert verdict(kind, policy=policy) == Bury(Reason.NON_RETRYABLE)


def test_the_first_retry_comes_within_the_base():
    assert verdict("5xx", draw=0.0) == RetryAt(NOW)
    assert verdict("5xx", draw=0.999) == RetryAt(NOW + 999)


def test_retry_after_is_honoured_up_to_the_cap():
    assert verdict("throttled", retry_after=60_000, status=429) == RetryAt(NOW + 60_000)
    assert verdict("throttled", retry_after=10**9) == RetryAt(NOW + 900_000)
    assert verdict("throttled", retry_after=10) == RetryAt(NOW + 500)


def test_an_unknown_kind_of_failure_is_refused():
    with pytest.raises(BadValue):
        Failure("bad_weather", "rain")


@given(policies)
def test_json_gives_the_policy_back(policy):
    assert from_json(to_json(policy)) == policy


def test_the_documented_default_is_the_default():
    documented = {
        "max_attempts": 6,
        "backoff": {"base_ms": 1000, "cap_ms": 900000, "jitter": "full"},
        "budget": {"ratio": 0.1, "min_concurrent": 5},
        "retry_on": ["timeout", "5xx", "connect_failure"],
        "circuit_breaker": {
            "failure_threshold": 20,
            "open_duration_s": 30,
            "half_open_probes": 1,
        },
    }
    assert from_json(documented) == from_json({}) == RetryPolicy()


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ([], "retry_policy"),
        ({"attempts": 3}, "retry_policy.attempts"),
        ({"max_attempts": 0}, "retry_policy.max_attempts"),
        ({"max_attempts": True}, "retry_policy.max_attempts"),
        ({"max_attempts": "6"}, "retry_policy.max_attempts"),
        ({"max_attempts": 1001}, "retry_policy.max_attempts"),
        ({"backoff": 5}, "retry_policy.backoff"),
        ({"backoff": {"factor": 2}}, "retry_policy.backoff.factor"),
        ({"backoff": {"jitter": "none"}}, "retry_policy.backoff.jitter"),
        ({"backoff": {"base_ms": -1}}, "retry_policy.backoff.base_ms"),
        ({"backoff": {"cap_ms": 10}}, "retry_policy.backoff.cap_ms"),
        ({"retry_on": "5xx"}, "retry_policy.retry_on"),
        ({"retry_on": ["4xx"]}, "retry_policy.retry_on"),
        ({"retry_on": [{}]}, "retry_policy.retry_on"),
        ({"budget": {"share": 1}}, "retry_policy.budget.share"),
        ({"circuit_breaker": []}, "retry_policy.circuit_breaker"),
    ],
)
def test_a_wrong_field_is_named(data, field):
    with pytest.raises(BadValue) as refused:
        from_json(data)
    assert refused.value.field == field
