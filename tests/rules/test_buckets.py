"""Bucket and leaf names say the range they cover, and the range says the name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules import buckets
from chrono.rules.errors import BadValue
from chrono.rules.instants import DAY, HOUR, LATEST, parse_instant

instants = st.integers(0, LATEST - 1)


@given(instants)
def test_an_instant_lies_in_the_bucket_of_its_name(moment):
    start, end = buckets.bucket_range_from_name(buckets.bucket_name(moment))
    assert start <= moment < end
    assert start == buckets.bucket_start(moment)
    assert end - start == HOUR


@given(instants, st.sampled_from(["run", "attempt", "occurrence", "run_kept"]))
def test_an_instant_lies_in_the_leaf_of_its_name(moment, table):
    name = buckets.day_name(table, moment)
    found, start, end = buckets.day_range_from_name(name)
    assert found == table
    assert start <= moment < end
    assert start == buckets.day_start(moment)
    assert end - start == DAY


def test_names_are_the_time_in_utc():
    moment = parse_instant("2026-11-29T15:59:59.999Z")
    assert buckets.bucket_name(moment) == "chrono_timer_2026112915"
    assert buckets.bucket_name(moment + 1) == "chrono_timer_2026112916"
    assert buckets.day_name("run", moment) == "run_20261129"


@pytest.mark.parametrize(
    "name",
    [
        "chrono_timer",
        "chrono_timer_far",
        "chrono_timer_2026112924",
        "chrono_timer_20261129",
        "chrono_timer_2026112915x",
    ],
)
def test_another_name_is_no_bucket(name):
    with pytest.raises(BadValue):
        buckets.bucket_range_from_name(name)


@pytest.mark.parametrize(
    "name",
    ["run", "run_kept", "run_20260230", "run_2026112", "Run_20261129", "_20261129"],
)
def test_another_name_is_no_leaf(name):
    with pytest.raises(BadValue):
        buckets.day_range_from_name(name)
