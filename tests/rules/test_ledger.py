"""A ledger that is as its plans ask is right; with one thing wrong it is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules import oracle
from chrono.rules.instants import DAY, SECOND, format_instant
from chrono.rules.ledger import Comparison, Decision, Plan, first_after

START = 1_767_225_600_000  # 2026-01-01T00:00:00Z


def every(seconds, *, starts=START):
    return {"interval": f"{seconds}s", "starts_at": format_instant(starts)}


def at(seconds):
    return START + int(seconds * SECOND)


def plan(version, begins, schedule, **more):
    begins = None if begins is None else at(begins)
    return Plan(version=version, begins=begins, schedule=schedule, **more)


def paused(version, begins):
    return plan(version, begins, every(1), stopped=True)


def row(
    first, last=None, *, count=None, version=1, exact=True, ahead=False, fired=True
):
    last = first if last is None else last
    return Decision(
        first=at(first),
        last=at(last),
        fired=fired,
        count=int(last - first) + 1 if count is None else count,
        exact=exact,
        ahead=ahead,
        version=version,
        revision=version,
    )


def faults(plans, rows, *, since=0.0):
    """Return what is told of a job whose revisions are numbered as its plans."""
    schedules = {p.version: p.schedule for p in plans}
    comparison = Comparison(
        plans,
        since=at(since),
        schedule_of=lambda revision: schedules.get(revision) or every(1),
    )
    heard = [fault for row in rows for fault in comparison.hear(row)]
    return [fault.detail for fault in [*heard, *comparison.finish()]]


SECONDLY = [plan(1, 0, every(1))]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], []),
        ([row(1), row(2), row(3)], []),
        ([row(1, 5), row(6)], []),
        ([row(2)], ["00:00:01Z undecided"]),
        ([row(1), row(4)], ["00:00:02Z undecided", "00:00:03Z undecided"]),
        ([row(1, 3), row(3)], ["00:00:03Z decided twice"]),
        ([row(1, 4), row(2), row(5)], ["00:00:02Z decided twice"]),
        ([row(1), row(1.5), row(2)], ["00:00:01.500Z decided, which is no occurrence"]),
        ([row(1, 4.5)], ["up to 2026-01-01T00:00:04.500Z, which is no occurrence"]),
        ([row(1, 4, count=3)], ["as 3 occurrences, where there are 4 or more"]),
        ([row(1, 4, count=5)], ["as 5 occurrences, where there are 4"]),
        ([row(1, 4, count=3, exact=False), row(5)], []),
        ([row(1, 4, count=5, exact=False)], ["as 5 occurrences, where there are 4"]),
    ],
)
def test_decisions_are_compared_with_the_schedule(rows, said):
    found = faults(SECONDLY, rows)
    assert len(found) == len(said)
    for detail, part in zip(found, said, strict=True):
        assert part in detail


def test_what_was_decided_before_the_look_is_not_asked_for():
    assert faults(SECONDLY, [row(6)], since=5) == []
    assert faults(SECONDLY, [row(7)], since=5) == ["has 2026-01-01T00:00:06Z undecided"]


CHANGED = [plan(1, 0, every(1)), plan(2, 4.5, every(3))]
"""Each second up to 4.5, then each third one: 6, 9 …"""


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row(1), row(2), row(3), row(4), row(6, version=2)], []),
        ([row(1), row(2), row(3)], ["00:00:04Z undecided"]),
        ([row(1), row(2), row(3), row(6, version=2)], ["00:00:04Z undecided"]),
        ([row(1), row(2), row(3), row(4), row(5)], ["05Z decided by plan 1 after its"]),
        (
            [*map(row, (1, 2, 3, 4)), row(6, version=2), row(9)],
            ["09Z decided by plan 1 in the time of plan 2"],
        ),
        ([*map(row, (1, 2, 3, 4)), row(9, version=2)], ["00:00:06Z undecided"]),
        ([], [f"00:00:0{n}Z undecided" for n in (1, 2, 3, 4)]),
    ],
)
def test_each_plan_decides_its_own_stretch(rows, said):
    found = faults(CHANGED, rows)
    assert len(found) == len(said)
    for detail, part in zip(found, said, strict=True):
        assert part in detail


def test_a_plan_that_left_no_row_is_asked_for_what_it_should_have_decided():
    plans = [plan(1, 0, every(10)), plan(2, 11, every(1)), plan(3, 14, every(10))]
    rows = [row(10), row(20, version=3)]
    assert faults(plans, rows) == [
        f"has 2026-01-01T00:00:{n}Z undecided" for n in (12, 13, 14)
    ]
    assert faults([plans[0], paused(2, 11), plans[2]], rows) == []


def test_a_paused_plan_fires_nothing():
    plans = [plan(1, 0, every(1)), paused(2, 2.5)]
    assert faults(plans, [row(1), row(2)]) == []
    [said] = faults(plans, [row(1), row(2), row(4, version=2)])
    assert "04Z fired by plan 2, which is paused or deleted" in said


def test_a_paused_plan_skips_all_or_nothing():
    plans = [plan(1, 0, every(1)), paused(2, 2.5), plan(3, 6.5, every(1))]
    fired = [row(1), row(2), row(7, version=3)]
    assert faults(plans, fired) == []
    whole = row(3, 6, version=2, fired=False)
    assert faults(plans, [*fired[:2], whole, fired[2]]) == []
    late = row(4, 6, version=2, fired=False)
    assert faults(plans, [*fired[:2], late, fired[2]]) == [
        "has 2026-01-01T00:00:03Z undecided"
    ]
    early = row(3, 5, version=2, fired=False)
    assert faults(plans, [*fired[:2], early, fired[2]]) == [
        "has 2026-01-01T00:00:06Z undecided"
    ]


def test_what_is_paused_may_have_a_schedule_that_nobody_can_read():
    plans = [plan(1, 0, {}, stopped=True), plan(2, 2.5, every(1))]
    assert faults(plans, [row(3, version=2)]) == []


def test_what_a_person_decided_ahead_begins_the_plan_that_was_made_with_it():
    # Plan 2 skipped 4 to 6 at 3.5, so its row says that it begins at 6.
    plans = [plan(1, 0, every(1)), plan(2, 6, every(1))]
    ahead = [row(n, version=2, ahead=True) for n in (4, 5, 6)]
    rows = [*map(row, (1, 2, 3)), *ahead, row(7, version=2)]
    assert faults(plans, rows) == []
    assert faults(plans, [*rows[:3], *ahead[1:], rows[-1]]) == [
        "has 2026-01-01T00:00:04Z undecided"
    ]
    assert faults(plans, [*rows[:4], *rows[5:]]) == [
        "has 2026-01-01T00:00:05Z undecided"
    ]
    assert faults(plans, [rows[0], *rows[2:]]) == ["has 2026-01-01T00:00:02Z undecided"]


def test_a_plan_that_nobody_knows_reaches_from_its_first_row_to_its_last():
    known = [plan(4, 20, every(5))]
    rows = [row(7, version=2), row(8, version=2), row(25, version=4)]
    assert faults(known, rows) == []
    assert faults(known, [rows[0], row(9, version=2), rows[-1]]) == [
        "has 2026-01-01T00:00:08Z undecided"
    ]
    assert faults(known, [*rows[:2], row(30, version=4)]) == [
        "has 2026-01-01T00:00:25Z undecided"
    ]


def test_a_plan_whose_runs_are_used_up_leaves_the_rest_undecided():
    plans = [plan(1, 0, every(1), may_end_early=True), plan(2, 9.5, every(10))]
    assert faults(plans, [row(1), row(2), row(10, version=2)]) == []
    assert faults(plans, [row(2), row(10, version=2)]) == [
        "has 2026-01-01T00:00:01Z undecided"
    ]


def test_what_decided_by_other_rules_of_its_zone_is_judged_by_its_order():
    plans = [plan(1, 0, every(10), other_rules=True), plan(2, 29, every(10))]
    assert faults(plans, [row(7), row(17), row(30, version=2)]) == []
    [said] = faults(plans, [row(7, 18, count=2), row(17)])
    assert "17Z decided twice" in said


def test_of_a_fixed_delay_only_the_order_is_known():
    plans = [plan(1, 0, {"fixed_delay": "5s", "starts_at": format_instant(START)})]
    assert faults(plans, [row(1), row(9.25), row(70)]) == []
    [said] = faults(plans, [row(1, 9, count=2), row(5)])
    assert "05Z decided twice" in said


def test_the_first_fire_after_an_instant():
    assert first_after(every(5), at(5)) == at(10)
    assert first_after({"run_at": format_instant(at(5))}, at(5)) is None


SCHEDULES = st.one_of(
    st.integers(1, 20).map(every),
    st.sampled_from(
        [
            {"cron": "*/20 * * * * *", "seconds": True},
            {"cron": "* * * * *", "timezone": "Europe/Berlin"},
            {"cron": "0 0 1 1 *"},
        ]
    ),
)


@st.composite
def histories(draw):
    """Return the plans of a job, and the decisions that they ask for."""
    begins = 0
    plans, rows = [], []
    count = draw(st.integers(1, 4))
    for version in range(1, count + 1):
        ends = begins + draw(st.integers(0, 200))
        schedule, stopped = draw(SCHEDULES), draw(st.booleans())
        plans.append(plan(version, begins, schedule, stopped=stopped))
        moments = []
        if not stopped:
            moments = list(oracle.fires(schedule, at(begins), at(ends)))
        if version == count:
            # Nobody knows yet how far the plan in force will have decided.
            moments = moments[: draw(st.integers(0, len(moments)))]
        while moments:
            span = draw(st.integers(1, min(4, len(moments))))
            rows.append(
                Decision(
                    first=moments[0],
                    last=moments[span - 1],
                    fired=True,
                    count=span,
                    exact=True,
                    ahead=False,
                    version=version,
                    revision=version,
                )
            )
            del moments[:span]
        begins = ends
    return plans, rows


@given(histories())
def test_a_history_that_is_as_it_should_be_has_no_fault(history):
    plans, rows = history
    assert faults(plans, rows) == []


@given(histories(), st.data())
def test_a_decision_that_is_missing_is_found_unless_it_was_the_last(history, data):
    plans, rows = history
    if not rows:
        return
    place = data.draw(st.integers(0, len(rows) - 1))
    row = rows.pop(place)
    last = place == len(rows) and row.version == plans[-1].version
    assert len(faults(plans, rows)) == (0 if last else row.count)


@given(histories(), st.integers(0, 800 * SECOND), st.data())
def test_a_decision_that_is_too_much_is_found(history, moment, data):
    plans, rows = history
    moment += START
    version = data.draw(st.integers(1, plans[-1].version))
    added = row((moment - START) / SECOND, version=version)
    of, decided = plans[version - 1], rows[-1].last if rows else START
    following = first_after(of.schedule, max(of.begins, decided))
    if version == len(plans) and not of.stopped and moment == following:
        return  # It is the next one, and right.
    rows = sorted([*rows, added], key=lambda r: (r.first, -r.last))
    assert faults(plans, rows)


def test_a_day_of_seconds_is_compared_in_a_moment_and_needs_no_memory():
    rows = (row(n) for n in range(1, DAY // SECOND))
    assert faults(SECONDLY, rows) == []
