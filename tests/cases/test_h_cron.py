"""The rules of Debian's cron for changes of the clock, as its readers describe them."""

from tests.cases.fires import fires

BERLIN = "Europe/Berlin"


def test_h07_a_fixed_time_is_made_up_after_the_gap_and_not_repeated_in_the_fold():
    assert fires("30 2 * * *", BERLIN, "2026-03-28 12:00", 2) == [
        "2026-03-29 01:00",
        "2026-03-30 00:30",
    ]
    assert fires("30 2 * * *", BERLIN, "2026-10-24 12:00", 2) == [
        "2026-10-25 00:30",
        "2026-10-26 01:30",
    ]


def test_h07_a_wildcard_follows_real_time():
    for night in ("2026-03-28", "2026-10-24"):
        found = fires("30 * * * *", BERLIN, f"{night} 22:45", 5)
        hours = [(int(text[11:13]) - 23) % 24 for text in found]
        assert hours == [1, 2, 3, 4, 5] or hours == [0, 1, 2, 3, 4]


def test_h07_a_change_of_three_hours_or_more_is_no_gap_to_make_up_for():
    assert fires("30 2 * * *", "Pacific/Apia", "2011-12-29 00:00", 2) == [
        "2011-12-29 12:30",
        "2011-12-30 12:30",
    ]
