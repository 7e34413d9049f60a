"""Catch-up: each missed occurrence is decided once, at a bounded cost."""

import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules import catchup
from chrono.rules.catchup import (
    GIVEN_UP_AT_ONCE,
    LATE,
    MOST_RUNS,
    Stretch,
    borders,
    catch_up,
    is_past_deadline,
    may_stand_for_others,
    missed_until,
)
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND, parse_instant
from chrono.rules.keys import run_id
from chrono.rules.policy import Policy
from chrono.rules.schedule import CronSchedule, Interval, Once, next_after, occurrences
from chrono.rules.states import Reason

NOW = parse_instant("2026-06-15T12:00:00Z")
BURSTS = CronSchedule("* 9 * * *", "Europe/Berlin")
SECONDS = CronSchedule("* * * * * *", seconds=True)
POLICIES = ("skip", "run_once", "run_all", "deadline")

delays = st.one_of(
    st.integers(1, 30 * 60).map(lambda n: n * SECOND),
    st.integers(1, 50 * 24).map(lambda n: n * HOUR),
)
# Each with an outage of some hundred to some thousand fires at most.
missed = st.one_of(
    st.tuples(
        st.builds(
            Interval,
            st.integers(1, 400).map(lambda n: n * SECOND),
            st.integers(0, HOUR),
            st.one_of(st.none(), st.integers(NOW - 2 * HOUR, NOW + HOUR)),
        ),
        st.integers(0, 3 * HOUR),
    ),
    st.tuples(
        st.builds(
            CronSchedule,
            st.sampled_from(
                ["*/5 * * * *", "30 2 * * *", "* 9 * * 1", "0 0 1 * *", "7,9 */3 * * *"]
            ),
            st.sampled_from(["UTC", "America/New_York"]),
            dst_fold=st.sampled_from(["first", "both"]),
            starts_at=st.one_of(st.none(), st.integers(NOW - 5 * DAY, NOW)),
            ends_at=st.one_of(st.none(), st.integers(NOW - 2 * DAY, NOW + DAY)),
        ),
        st.integers(0, 8 * DAY),
    ),
    st.tuples(st.builds(Once, st.integers(NOW - DAY, NOW)), st.just(DAY + 1)),
)
offsets = st.one_of(st.just(0), st.integers(0, 10 * MINUTE))


@st.composite
def policies(draw):
    kind = draw(st.sampled_from(POLICIES))
    delay = delays if kind == "deadline" else st.one_of(st.none(), delays)
    return Policy(catchup_policy=kind, max_delay=draw(delay))


def missed_by(schedule, ago, offset=0):
    """Return all occurrences that were missed, oldest first."""
    return list(occurrences(schedule, NOW - ago, missed_until(NOW, offset)))


def decide_all(schedule, first, policy, offset=0, now=NOW):
    """Call catch_up until nothing is missed any more; return what it said each time."""
    said, at = [], first
    while at is not None and at <= missed_until(now, offset):
        one = catch_up(schedule, at, policy=policy, offset=offset, now=now)
        assert one.following is None or one.following > at
        said.append(one)
        at = one.following
    return said


def pieces(said):
    """Return what was decided, in its order: stretches, then single runs."""
    return [piece for one in said for piece in (*one.given_up, *one.runs)]


@given(missed, policies(), offsets)
def test_each_missed_occurrence_is_decided_once_and_in_order(case, policy, offset):
    schedule, ago = case
    expected = missed_by(schedule, ago, offset)
    if not expected:
        return
    said = decide_all(schedule, expected[0], policy, offset)
    covered = []
    for piece in pieces(said):
        if isinstance(piece, Stretch):
            inside = [m for m in expected if piece.first <= m <= piece.last]
            assert len(inside) == piece.count <= GIVEN_UP_AT_ONCE
            assert (inside[0], inside[-1]) == (piece.first, piece.last)
            covered += inside
        else:
            covered.append(piece)
    assert covered == expected
    assert said[-1].following == next_after(schedule, expected[-1])


@given(missed, policies(), offsets)
def test_what_runs_is_what_the_policy_says(case, policy, offset):
    schedule, ago = case
    expected = missed_by(schedule, ago, offset)
    if not expected:
        return
    runs = [
        m for one in decide_all(schedule, expected[0], policy, offset) for m in one.runs
    ]
    in_time = [
        moment
        for moment in expected
        if policy.max_delay is None or NOW - moment - offset <= policy.max_delay
    ]
    assert (
        runs
        == {
            "skip": [],
            "run_once": in_time[-1:],
            "run_all": in_time[-MOST_RUNS:],
            "deadline": in_time[-MOST_RUNS:],
        }[policy.catchup_policy]
    )


@given(missed, policies(), offsets)
def test_what_does_not_run_has_its_reason(case, policy, offset):
    schedule, ago = case
    expected = missed_by(schedule, ago, offset)
    if not expected:
        return
    said = decide_all(schedule, expected[0], policy, offset)
    for stretch in (s for one in said for s in one.given_up):
        late = is_past_deadline(policy, stretch.last, offset=offset, now=NOW)
        assert (stretch.reason is Reason.PAST_DEADLINE) is late
        assert late is is_past_deadline(policy, stretch.first, offset=offset, now=NOW)
        if not late:
            collapses = policy.catchup_policy == "run_once"
            assert stretch.reason is (
                Reason.COLLAPSED if collapses else Reason.MISSED_SKIP
            )


def test_late_is_up_to_a_minute_and_missed_is_later():
    assert missed_until(NOW, 0) == NOW - LATE - 1
    assert missed_until(NOW, 5_000) == NOW - LATE - 5_001


def test_the_deadline_itself_is_in_time():
    policy = Policy(max_delay=HOUR)
    assert not is_past_deadline(policy, NOW - HOUR, offset=0, now=NOW)
    assert is_past_deadline(policy, NOW - HOUR - 1, offset=0, now=NOW)
    assert not is_past_deadline(policy, NOW - HOUR - 1, offset=1, now=NOW)
    assert not is_past_deadline(Policy(), 0, offset=0, now=NOW)


def test_a_deadline_shorter_than_a_minute_leaves_nothing_missed_to_run():
    schedule = Interval(10 * SECOND, 0)
    for kind in ("run_once", "run_all", "deadline"):
        policy = Policy(catchup_policy=kind, max_delay=30 * SECOND)
        [said] = decide_all(schedule, NOW - 10 * MINUTE, policy)
        assert said.runs == ()
        [stretch] = said.given_up
        assert stretch.reason is Reason.PAST_DEADLINE
        # The minute that is merely late follows, and is decided as it fires.
        assert said.following == NOW - MINUTE


@pytest.mark.parametrize(
    ("schedule", "ago"),
    [
        (Interval(SECOND, 0), HOUR),
        (SECONDS, HOUR),
        (BURSTS, 20 * DAY),
        (BURSTS, 90 * DAY),
        (CronSchedule("*/10 * * * * 1", seconds=True), 8 * DAY),
    ],
)
def test_of_very_many_the_newest_thousand_run(schedule, ago):
    policy = Policy(catchup_policy="run_all")
    expected = missed_by(schedule, ago)
    assert len(expected) > MOST_RUNS
    runs = [m for one in decide_all(schedule, expected[0], policy) for m in one.runs]
    assert runs == expected[-MOST_RUNS:]


def test_fires_in_bursts_are_not_given_up_for_their_short_distances():
    # 15 hours full of minutes: all fit, though they lie in 15 days.
    expected = missed_by(BURSTS, 15 * DAY)
    [said] = decide_all(BURSTS, expected[0], Policy(catchup_policy="run_all"))
    assert said.runs == tuple(expected)
    assert said.given_up == ()


def test_a_thousand_and_one_leave_one_out():
    schedule = Interval(SECOND, 0)
    until = missed_until(NOW, 0)
    newest = until - until % SECOND
    for count in (MOST_RUNS, MOST_RUNS + 1):
        first = newest - (count - 1) * SECOND
        [said] = decide_all(schedule, first, Policy(catchup_policy="run_all"))
        assert len(said.runs) == MOST_RUNS
        assert sum(stretch.count for stretch in said.given_up) == count - MOST_RUNS


@pytest.mark.parametrize("count", [999, 1_000, 1_001, 1_002, 2_000, 2_001])
def test_the_newest_stands_for_all_others_however_many(count):
    schedule = Interval(SECOND, 0)
    until = missed_until(NOW, 0)
    newest = until - until % SECOND
    said = decide_all(schedule, newest - (count - 1) * SECOND, Policy())
    assert [m for one in said for m in one.runs] == [newest]
    assert sum(s.count for one in said for s in one.given_up) == count - 1


def test_the_borders_are_the_same_wherever_one_asks_from():
    policy = Policy(catchup_policy="run_all", max_delay=100 * DAY)
    for schedule in (BURSTS, SECONDS, Interval(SECOND, 7)):
        edges = [
            borders(schedule, policy, after=NOW - ago, offset=0, now=NOW)
            for ago in (50 * DAY, 99 * DAY)
        ]
        assert len({next_after(schedule, edge.left_out) for edge in edges}) == 1
        assert len({edge.past_deadline for edge in edges}) == 1


def count_steps(monkeypatch):
    """Count the fires that the rule walks along."""
    walked = [0]

    def counting(schedule, after, until):
        for moment in occurrences(schedule, after, until):
            walked[0] += 1
            yield moment

    monkeypatch.setattr(catchup, "occurrences", counting)
    return walked


@pytest.mark.parametrize("kind", POLICIES)
@pytest.mark.parametrize(
    "schedule", [SECONDS, Interval(SECOND, 0)], ids=["cron", "int"]
)
def test_thirty_days_of_seconds_cost_the_same_as_an_hour(monkeypatch, kind, schedule):
    walked = count_steps(monkeypatch)
    policy = Policy(catchup_policy=kind, max_delay=40 * DAY)
    costs = []
    for ago in (HOUR, 30 * DAY):
        walked[0] = 0
        said = catch_up(schedule, NOW - ago, policy=policy, offset=0, now=NOW)
        assert sum(s.count for s in said.given_up) == GIVEN_UP_AT_ONCE
        assert said.runs == ()
        costs.append(walked[0])
    assert costs[0] == costs[1] <= 3 * (MOST_RUNS + 1)


def test_the_worst_of_all_schedules_costs_less_than_a_step_may(monkeypatch):
    # A second apart in one month of the year, and the year is over: every guess fails.
    walked = count_steps(monkeypatch)
    schedule = CronSchedule("* * * * 1 *", seconds=True)
    begun = time.perf_counter()
    policy = Policy(catchup_policy="run_all")
    first = parse_instant("2026-01-01T00:00:00Z")
    said = catch_up(schedule, first, policy=policy, offset=0, now=NOW)
    assert said.given_up[0].count == GIVEN_UP_AT_ONCE
    assert walked[0] < 50 * MOST_RUNS
    assert time.perf_counter() - begun < 5


def test_only_a_late_run_of_the_schedule_may_stand_for_others():
    own, manual = (run_id(uuid.UUID(int=7), NOW, group, 5) for group in (0, 1))
    assert not may_stand_for_others(own, begun=NOW + LATE)
    assert may_stand_for_others(own, begun=NOW + LATE + 1)
    assert may_stand_for_others(own, begun=None)
    assert not may_stand_for_others(manual, begun=NOW + DAY)
    assert not may_stand_for_others(manual, begun=None)
