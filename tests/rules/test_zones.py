"""A zone's segments are what zoneinfo says, instant by instant."""

import zoneinfo
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import _zoneinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules import zones

NAMES = ["UTC", "Europe/Berlin", "Africa/Casablanca", "Pacific/Apia", "Asia/Gaza"]
YEARS_90 = 90 * 366 * 86_400


@given(st.sampled_from(NAMES), st.integers(0, YEARS_90))
def test_a_segment_holds_its_second_with_the_offset_zoneinfo_gives(name, second):
    segment = zones.load(name).segment_at(second)
    assert segment.start <= second < segment.end
    local = datetime.fromtimestamp(second, UTC).astimezone(zoneinfo.ZoneInfo(name))
    assert segment.offset == local.utcoffset().total_seconds()


@pytest.mark.parametrize("name", NAMES)
def test_segments_adjoin_and_know_their_neighbours(name):
    zone = zones.load(name)
    segments = [zone.segment_at(0)]
    while segments[-1].end < YEARS_90:
        segments.append(zone.segment_at(segments[-1].end))
    for earlier, later in pairwise(segments):
        assert earlier.end == later.start
        assert earlier.after == later.offset
        assert later.before == earlier.offset


# Two changes within a week: the shortest there are.
CLOSE = ["America/Boa_Vista", "America/Cambridge_Bay", "Asia/Gaza"]


@pytest.mark.parametrize("name", CLOSE + sorted(zoneinfo.available_timezones())[::9])
def test_every_change_of_a_zone_is_found(name):
    # The pure-Python zoneinfo has a table of changes to look at, the fast one has not.
    zone = zones.load(name)
    for change in _zoneinfo.ZoneInfo(name)._trans_utc:
        if change >= 0 and zone.offset_at(change) != zone.offset_at(change - 1):
            assert zone.segment_at(change).start == change


def test_zone_data_comes_from_the_package_alone():
    assert zoneinfo.TZPATH == ()
