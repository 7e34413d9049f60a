"""Fair tags share by weight, and an idle tenant saves nothing up."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules.errors import BadValue
from chrono.rules.fairness import tag, tags

moments = st.integers(0, 10**13)
weights = st.floats(0.1, 10)


@given(moments, st.integers(0, 10**16), weights, st.floats(0, 100))
def test_a_tag_is_later_than_now_and_than_the_last(now, last, weight, cost):
    found = tag(now, last, weight, cost)
    assert isinstance(found, int)
    assert found > last
    assert found > now * 1000


def test_an_idle_tenant_begins_at_now():
    assert tag(1_000, 5, 1.0) == 1_001_000


def test_three_to_one_is_three_to_one():
    now, last, served = 0, Counter(), Counter()
    backlog = [
        (
            last.update({name: tag(now, last[name], weight) - last[name]})
            or last[name],
            name,
        )
        for name, weight in (("heavy", 3.0), ("light", 1.0))
        for _ in range(1000)
    ]
    for _, name in sorted(backlog)[:1000]:
        served[name] += 1
    assert served["heavy"] == pytest.approx(750, abs=2)


def test_a_tenant_with_one_run_is_not_behind_a_million():
    last = 0
    for _ in range(10_000):
        last = tag(0, last, 1.0)
    assert tag(1, 0, 1.0) < last


@given(moments, st.integers(0, 10**16), weights, st.integers(0, 10**16))
def test_who_comes_anew_begins_where_the_queue_stands(now, last, weight, head):
    found = tag(now, last, weight, head=head)
    assert found > last
    step = max(1, round(1000 / weight))
    assert found == max(min(now * 1000, head), last) + step


def test_one_run_goes_next_however_slow_the_queue_moves():
    """An hour after a million came at once, of which only a thousand are done."""
    backlog = [tag(0, n * 1_000, 1.0) for n in range(1_000_000)]
    hour = 3_600_000
    assert backlog[1_000] < tag(hour, 0, 1.0, head=backlog[1_000]) <= backlog[1_001]
    assert tag(hour, 0, 1.0) > backlog[-1]


@pytest.mark.parametrize("weight", [0, -1, float("nan")])
def test_a_weight_of_nothing_is_refused(weight):
    with pytest.raises(BadValue):
        tag(0, 0, weight)


@given(moments, st.integers(0, 10**16), weights, st.integers(1, 20))
def test_tags_drawn_together_are_those_drawn_one_by_one(now, last, weight, count):
    one_by_one = []
    for _ in range(count):
        one_by_one.append(tag(now, (one_by_one or [last])[-1], weight))
    assert list(tags(now, last, weight, count)) == one_by_one
