"""Durations read two spellings and write the shortest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules.durations import LONGEST, format_duration, parse_duration
from chrono.rules.errors import BadDuration


@given(st.integers(0, LONGEST))
def test_what_is_written_is_read_back(duration):
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0s", 0),
        ("250ms", 250),
        ("90s", 90_000),
        ("15m", 900_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("PT1H30M", 5_400_000),
        ("PT90S", 90_000),
        ("PT0.5S", 500),
        ("P1DT12H", 129_600_000),
        ("P2W", 1_209_600_000),
    ],
)
def test_both_spellings_are_read(text, milliseconds):
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0s"), (1, "1ms"), (1500, "1500ms"), (90_000, "90s"), (3_600_000, "1h")],
)
def test_the_largest_unit_that_divides_is_written(milliseconds, text):
    assert format_duration(milliseconds) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "90",
        "90 s",
        "-1s",
        "1.5h",
        "1h30m",
        "P",
        "PT",
        "P1DT",
        "P1M",
        "1y",
        "9" * 20 + "s",
        "36601d",
        "٩s",
    ],
)
def test_anything_else_is_refused_and_the_field_named(text):
    with pytest.raises(BadDuration) as refused:
        parse_duration(text, field="interval")
    assert refused.value.field == "interval"


def test_a_negative_duration_is_not_written():
    with pytest.raises(BadDuration):
        format_duration(-1)
