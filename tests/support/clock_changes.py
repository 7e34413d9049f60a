"""When the clocks of a zone change, found by looking four times a day."""

import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

zoneinfo.reset_tzpath(())


def changes(zone_name: str, year: int) -> Iterator[datetime]:
    """Iterate over a year's clock changes, each up to six hours late."""
    zone = zoneinfo.ZoneInfo(zone_name)
    moment = datetime(year, 1, 1, tzinfo=UTC)
    while moment.year == year:
        later = moment + timedelta(hours=6)
        if moment.astimezone(zone).utcoffset() != later.astimezone(zone).utcoffset():
            yield later
        moment = later
