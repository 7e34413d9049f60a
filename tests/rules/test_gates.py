"""The gates of limits: what a job's policy makes of them, and what is read back."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules.fairness import Share
from chrono.rules.gates import Gate, Limit, limit_of, limits_of, parse_gate, written
from chrono.rules.policy import Policy, RateLimit
from chrono.rules.states import Reason
from chrono.rules.words import limiting

JOB = UUID(int=7)
keys = st.text(st.characters(blacklist_categories=("C", "Z")), min_size=1, max_size=50)


def gates(**fields):
    return limits_of(Policy(**fields), tenant=3, job=JOB)


def test_a_plain_job_passes_none():
    assert gates() == ()
    assert written(()) == ""
    assert limiting(Policy()) == "None besides."


@given(keys, st.none() | st.integers(1, 1_000))
def test_a_key_and_its_limit_are_read_back(key, most):
    [gate] = gates(concurrency_key=key, concurrency_limit=most)
    assert parse_gate(gate.key) == gate
    assert limit_of(gate) == Limit(most or 1, 0, False, f"key {key}")


@given(
    st.none() | keys,
    st.integers(1, 1_000),
    st.integers(1_000, 86_400_000),
    st.sampled_from(["wait", "drop"]),
)
def test_a_rate_is_read_back_and_comes_before_the_key(key, limit, period, on_limit):
    found = gates(
        concurrency_key=key, rate_limit=RateLimit(limit, period), on_limit=on_limit
    )
    of = f"job {JOB}" if key is None else f"key {key}"
    assert limit_of(found[0]) == Limit(limit, period, on_limit == "drop", of)
    assert [gate.reason for gate in found] == [Reason.RATE_LIMIT] + [
        Reason.CONCURRENCY_LIMIT
    ] * (key is not None)
    assert [parse_gate(one) for one in written(found).split("\n")] == list(found)


@given(st.none() | st.integers(1, 1_000), st.none() | st.integers(1, 1_000))
def test_quotas_of_the_tenant_come_after_the_jobs_own_limits(running, starts):
    share = Share(max_running=running, max_starts=starts)
    policy = Policy(concurrency_key="provider", rate_limit=RateLimit(5, 60_000))
    found = limits_of(policy, tenant=3, job=JOB, share=share)
    own = limits_of(policy, tenant=3, job=JOB)
    wanted = [Limit(5, 60_000, False, "key provider")]
    if starts is not None:
        wanted.append(Limit(starts, 1_000, False, "tenant"))
    wanted.append(Limit(1, 0, False, "key provider"))
    if running is not None:
        wanted.append(Limit(running, 0, False, "tenant"))
    assert [limit_of(gate) for gate in found] == wanted
    assert set(own) <= set(found)
    assert [parse_gate(one) for one in written(found).split("\n")] == list(found)


@pytest.mark.parametrize(
    "key",
    [
        "concurrency_limit/1/x",
        "concurrency_limit/1/x/y",
        "rate_limit/1/3/4/wait",
        "rate_limit/1/3/x/wait/job",
    ],
)
def test_what_says_no_limit_is_no_gate(key):
    assert parse_gate(key) is None


def test_another_gate_has_no_limit():
    with pytest.raises(ValueError):
        limit_of(Gate(Reason.CIRCUIT_OPEN, 1, "sick"))


def test_limits_are_told_in_words():
    told = limiting(
        Policy(
            concurrency_key="provider",
            concurrency_limit=3,
            rate_limit=RateLimit(1, 60_000),
            on_limit="drop",
        )
    )
    assert told == (
        "Of the key provider 3 runs may be under way at once. One run of the key may "
        "begin in any minute; what is above that is skipped."
    )
