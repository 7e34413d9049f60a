"""What an edit does to occurrences: each of the past is decided once, none is early."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from apps.jobs.planning import (
    Plan,
    catch_up,
    last_decided,
    plan_next,
    skip_past,
    start_of_plan,
)
from chrono.rules.buckets import bucket_start
from chrono.rules.catchup import LATE
from chrono.rules.instants import DAY, HOUR, LATEST, MINUTE, SECOND, parse_instant
from chrono.rules.jitter import offset
from chrono.rules.keys import run_id
from chrono.rules.partitions import partition_of
from chrono.rules.schedule import CronSchedule, Interval, Once, occurrences
from chrono.rules.states import Reason, TimerKind

JOB = UUID("01234567-89ab-7def-8123-456789abcdef")
PART = partition_of(JOB)
NOW = parse_instant("2054-11-30T12:34:56.789Z")

schedules = st.one_of(
    st.builds(
        Interval,
        every=st.integers(1, 400).map(lambda s: s * SECOND),
        anchor=st.integers(NOW - 3 * HOUR, NOW + HOUR),
    ),
    st.sampled_from(["* * * * *", "*/7 * * * *", "0 * * * *", "34 12 * * *"]).map(
        lambda expression: CronSchedule(expression=expression)
    ),
    st.integers(NOW - 2 * HOUR, NOW + HOUR).map(lambda at: Once(at=at)),
)
plans = st.builds(
    lambda schedule, window: Plan(
        job_id=JOB,
        part=PART,
        version=3,
        revision=2,
        schedule=schedule,
        jitter_window=window,
    ),
    schedules,
    st.integers(0, HOUR),
)
outages = st.integers(0, 2 * HOUR).map(lambda back: NOW - back)


def covered(plan, skip):
    """Return the occurrences that a row of the ledger stands for."""
    last = skip.last_scheduled_for or skip.scheduled_for
    return list(occurrences(plan.schedule, skip.scheduled_for - 1, last))


@given(plans, outages)
def test_an_edit_decides_every_open_occurrence_exactly_once(plan, decided):
    timers, skips = catch_up(plan, decided=decided, now=NOW, limit=10_000)
    found = [timer.scheduled_for for timer in timers]
    for skip in skips:
        found += covered(plan, skip)
        assert skip.count == len(covered(plan, skip))
        assert skip.reason is Reason.COLLAPSED
    assert sorted(found) == list(occurrences(plan.schedule, decided, NOW))


@given(plans, outages)
def test_of_what_is_missed_only_the_newest_runs(plan, decided):
    timers, skips = catch_up(plan, decided=decided, now=NOW, limit=10_000)
    missed = [t for t in timers if plan.due(t.scheduled_for) < NOW - LATE]
    assert len(missed) <= 1
    assert not skips or missed
    for skip in skips:
        assert (skip.last_scheduled_for or skip.scheduled_for) < missed[0].scheduled_for


@given(plans, outages)
def test_a_late_timer_is_due_with_its_jitter_but_in_no_hour_that_is_over(plan, decided):
    timers, _ = catch_up(plan, decided=decided, now=NOW, limit=10_000)
    for timer in timers:
        assert timer.kind is TimerKind.LATE
        assert timer.ref == run_id(JOB, timer.scheduled_for, 0, PART)
        assert (timer.version, timer.revision, timer.prev) == (3, 2, None)
        nominal = timer.scheduled_for + offset(JOB, plan.jitter_window)
        assert timer.due_at == max(nominal, bucket_start(NOW))


def test_an_occurrence_that_jitter_keeps_waiting_belongs_to_the_old_plan():
    plan = Plan(
        job_id=JOB,
        part=PART,
        version=1,
        revision=1,
        schedule=Once(at=NOW),
        jitter_window=HOUR,
    )
    [timer], skips = catch_up(plan, decided=NOW - DAY, now=NOW, limit=10)
    assert timer.due_at == NOW + offset(JOB, HOUR) > NOW
    assert not skips


@given(plans, outages, st.sampled_from([Reason.PAUSED, Reason.ENDED]))
def test_a_pause_records_every_open_occurrence(plan, decided, reason):
    skips = skip_past(plan, decided=decided, now=NOW, reason=reason, limit=10_000)
    found = [moment for skip in skips for moment in covered(plan, skip)]
    assert found == list(occurrences(plan.schedule, decided, NOW))
    assert all(skip.reason is reason for skip in skips)
    assert len(skips) <= 1


def test_a_stretch_longer_than_what_is_counted_still_ends_where_it_ends():
    plan = Plan(
        job_id=JOB,
        part=PART,
        version=1,
        revision=1,
        schedule=CronSchedule(expression="* * * * * *", seconds=True),
        jitter_window=0,
    )
    [skip] = skip_past(
        plan, decided=NOW - DAY, now=NOW, reason=Reason.PAUSED, limit=100
    )
    assert skip.count == 100
    assert skip.last_scheduled_for == NOW - NOW % SECOND
    assert skip.scheduled_for == NOW - DAY - NOW % SECOND + SECOND


@given(plans)
def test_the_next_occurrence_is_later_than_what_was_decided(plan):
    timer = plan_next(plan, after=NOW, now=NOW, prev=None)
    expected = next(occurrences(plan.schedule, NOW, NOW + 400 * DAY), None)
    if timer is None:
        assert expected is None
        return
    assert timer.scheduled_for == expected
    assert timer.due_at == expected + offset(JOB, plan.jitter_window)
    assert timer.ref == JOB
    assert timer.kind is TimerKind.SCHEDULE


def test_nothing_is_planned_past_the_last_year():
    plan = Plan(
        job_id=JOB,
        part=PART,
        version=1,
        revision=1,
        schedule=Interval(every=DAY, anchor=NOW),
        jitter_window=0,
    )
    assert plan_next(plan, after=LATEST - 1, now=NOW, prev=None) is None


def test_decided_is_the_latest_of_ledger_start_and_what_the_ledger_keeps():
    assert last_decided(ledger=None, activated_at=5, now=DAY) == 5
    assert last_decided(ledger=9, activated_at=5, now=DAY) == 9
    assert last_decided(ledger=None, activated_at=5, now=40 * DAY) == 10 * DAY


def test_a_new_single_instant_may_lie_a_day_back():
    assert start_of_plan(Once(at=NOW + 1), now=NOW) == NOW
    assert start_of_plan(Once(at=NOW - DAY), now=NOW) == NOW - DAY - 1
    assert start_of_plan(Once(at=NOW - DAY - 1), now=NOW) is None
    assert start_of_plan(Interval(every=MINUTE, anchor=0), now=NOW) == NOW
