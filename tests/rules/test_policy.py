"""Policies: what is default stays unwritten, what is wrong names its field."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules.errors import BadValue
from chrono.rules.instants import HOUR, MINUTE, SECOND
from chrono.rules.policy import (
    CATCHUP_POLICIES,
    DEFAULT,
    MOST_CONCURRENT,
    MOST_FAILURES,
    MOST_REMAINING,
    OVERLAP_POLICIES,
    POLICY_FIELDS,
    Policy,
    all_fields,
    from_json,
    overlap_from_name,
    to_json,
)

durations = st.one_of(st.none(), st.integers(1, 10**6).map(lambda n: n * SECOND))


def numbers(most):
    return st.one_of(st.none(), st.integers(1, most))


policies = st.builds(
    Policy,
    catchup_policy=st.sampled_from(CATCHUP_POLICIES),
    max_delay=durations,
    max_concurrent_runs=numbers(MOST_CONCURRENT),
    remaining_runs=numbers(MOST_REMAINING),
    pause_on_failure=numbers(MOST_FAILURES),
    late_after=durations,
    max_runtime=durations,
    max_time_since_success=durations,
).filter(lambda policy: policy.catchup_policy != "deadline" or policy.max_delay)


@given(policies)
def test_json_gives_the_policies_back(policy):
    assert from_json(to_json(policy)) == policy
    assert from_json(all_fields(policy)) == policy


@given(policies)
def test_only_what_is_not_default_is_written(policy):
    changed = {n for n in POLICY_FIELDS if getattr(policy, n) != getattr(DEFAULT, n)}
    assert to_json(policy).keys() == changed


def test_nothing_written_is_the_default():
    assert from_json({}) == from_json(dict.fromkeys(POLICY_FIELDS)) == DEFAULT
    assert to_json(DEFAULT) == {}
    assert all_fields(DEFAULT) == {
        "catchup_policy": "run_once",
        "concurrency_key": None,
        "concurrency_limit": None,
        "delivery": "at_least_once",
        "late_after": None,
        "max_concurrent_runs": None,
        "max_delay": None,
        "max_runtime": None,
        "max_time_since_success": None,
        "on_limit": "wait",
        "pause_on_failure": None,
        "rate_limit": None,
        "remaining_runs": None,
    }


def test_other_fields_of_a_job_are_not_looked_at():
    assert from_json({"cron": 5, "max_delay": "90m"}) == Policy(max_delay=90 * MINUTE)


def test_durations_are_written_as_people_do():
    policy = Policy(catchup_policy="deadline", max_delay=2 * HOUR, late_after=SECOND)
    assert to_json(policy) == {
        "catchup_policy": "deadline",
        "max_delay": "2h",
        "late_after": "1s",
    }


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"catchup_policy": "none"}, "catchup_policy"),
        ({"catchup_policy": 1}, "catchup_policy"),
        ({"catchup_policy": ["skip"]}, "catchup_policy"),
        ({"catchup_policy": "deadline"}, "max_delay"),
        ({"max_delay": 60}, "max_delay"),
        ({"max_delay": "soon"}, "max_delay"),
        ({"max_delay": "999ms"}, "max_delay"),
        ({"max_delay": ""}, "max_delay"),
        ({"late_after": True}, "late_after"),
        ({"max_runtime": "0s"}, "max_runtime"),
        ({"max_time_since_success": []}, "max_time_since_success"),
        ({"max_concurrent_runs": 0}, "max_concurrent_runs"),
        ({"max_concurrent_runs": 1_001}, "max_concurrent_runs"),
        ({"max_concurrent_runs": True}, "max_concurrent_runs"),
        ({"max_concurrent_runs": 2.0}, "max_concurrent_runs"),
        ({"max_concurrent_runs": "2"}, "max_concurrent_runs"),
        ({"remaining_runs": 0}, "remaining_runs"),
        ({"remaining_runs": 1_000_001}, "remaining_runs"),
        ({"pause_on_failure": 101}, "pause_on_failure"),
        ({"pause_on_failure": -1}, "pause_on_failure"),
    ],
)
def test_a_wrong_field_is_named(data, field):
    with pytest.raises(BadValue) as refused:
        from_json(data)
    assert refused.value.field == field


@pytest.mark.parametrize("name", OVERLAP_POLICIES)
def test_an_overlap_policy_is_called_by_its_name(name):
    assert overlap_from_name(name) == name


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("Forbid", "skip"),
        ("Replace", "cancel_other"),
        ("Allow", "allow_all"),
        ("QUEUE", "buffer_all"),
        ("CANCEL_NEWEST", "skip"),
        ("CANCEL_IN_PROGRESS", "cancel_other"),
    ],
)
def test_names_of_other_schedulers_are_understood(alias, name):
    assert overlap_from_name(alias) == name


@pytest.mark.parametrize("value", ["", "Skip", "never", None, 1, ["skip"], {}])
def test_any_other_name_is_refused(value):
    with pytest.raises(BadValue) as refused:
        overlap_from_name(value)
    assert refused.value.field == "overlap_policy"
