"""Instants keep their millisecond through text and datetime."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules.errors import BadInstant
from chrono.rules.instants import (
    LATEST,
    checked,
    format_instant,
    from_millis,
    parse_instant,
    to_millis,
    to_millis_if_any,
)

instants = st.integers(0, LATEST - 1)


@given(instants)
def test_text_and_datetime_give_the_instant_back(moment):
    assert to_millis(from_millis(moment)) == moment
    assert to_millis_if_any(from_millis(moment)) == moment
    assert to_millis_if_any(None) is None
    assert parse_instant(format_instant(moment)) == moment


@given(instants, st.integers(-14 * 60, 14 * 60))
def test_an_offset_changes_the_text_and_not_the_instant(moment, minutes):
    local = from_millis(moment).replace(tzinfo=None) + timedelta(minutes=minutes)
    if not 1970 <= local.year < 9999:
        return
    sign, (hours, rest) = "-+"[minutes >= 0], divmod(abs(minutes), 60)
    text = f"{local.isoformat(timespec='milliseconds')}{sign}{hours:02}:{rest:02}"
    assert parse_instant(text) == moment


def test_milliseconds_are_written_only_where_there_are_some():
    assert format_instant(1_795_962_600_000) == "2026-11-29T14:30:00Z"
    assert format_instant(1_795_962_600_007) == "2026-11-29T14:30:00.007Z"


def test_microseconds_are_cut_off():
    moment = datetime(2026, 11, 29, 14, 30, 0, 7999, tzinfo=UTC)
    assert to_millis(moment) == 1_795_962_600_007


def test_the_two_passes_of_a_repeated_hour_are_an_hour_apart():
    zone = ZoneInfo("America/New_York")
    first = datetime(2026, 11, 1, 1, 30, tzinfo=zone)
    second = first.replace(fold=1)
    assert first == second
    assert to_millis(second) - to_millis(first) == 3_600_000


def test_a_naive_datetime_is_refused():
    with pytest.raises(BadInstant, match="naive"):
        to_millis(datetime(2026, 11, 29))  # noqa: DTZ001


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-11-29",
        "2026-11-29T15:00:00",
        "2026-11-29T15:00:00.0001Z",
        "2026-02-30T15:00:00Z",
        "1969-12-31T23:59:59Z",
        "9999-01-01T00:00:00Z",
        "0001-01-01T00:00:00+10:00",
        "9999-12-31T23:59:59-10:00",
        "infinity",
        "2026-11-29T15:00:00Z extra",
        "2026-11-29T15:00:00Z\x00",
        "٢٠٢٦-11-29T15:00:00Z",
    ],
)
def test_other_text_is_refused_and_the_field_named(text):
    with pytest.raises(BadInstant) as refused:
        parse_instant(text, field="run_at")
    assert refused.value.field == "run_at"


@pytest.mark.parametrize("moment", [-1, LATEST])
def test_an_instant_outside_the_years_is_refused(moment):
    with pytest.raises(BadInstant):
        checked(moment)
