"""Processes come to an even share and leave nobody's partition alone."""

from hypothesis import given
from hypothesis import strategies as st

from chrono.rules.partitions import PARTITIONS
from chrono.rules.share import target_share, to_release, to_try

ALL = set(range(PARTITIONS))
held_sets = st.sets(st.integers(0, PARTITIONS - 1))
members = st.integers(1, 80)


@given(members)
def test_shares_add_up_to_every_partition(count):
    assert target_share(count) * count >= PARTITIONS
    assert (target_share(count) - 1) * count < PARTITIONS


@given(held_sets, members)
def test_only_what_is_above_the_share_is_released(held, count):
    released = to_release(held, count)
    assert set(released) <= held
    assert len(held) - len(released) == min(len(held), target_share(count))


@given(held_sets, held_sets, members, st.integers())
def test_only_free_partitions_are_tried_and_only_up_to_the_share(
    held, taken, count, seed
):
    tried = to_try(held, taken, count, seed)
    assert not set(tried) & (held | taken)
    assert len(set(tried)) == len(tried)
    room = max(0, target_share(count) - len(held))
    assert len(tried) == min(room, len(ALL - held - taken))
    assert to_try(held, taken, count, seed) == tried


@given(st.integers(1, 70), st.integers(1, 70))
def test_joining_and_leaving_ends_with_every_partition_held_once(before, after):
    holding = {seed: set() for seed in range(max(before, after))}
    for present in (before, after, before):
        for seed in holding:
            if seed >= present:
                holding[seed] = set()
        for _ in range(3):
            for seed in range(present):
                holding[seed] -= set(to_release(holding[seed], present))
                taken = set().union(*(h for s, h in holding.items() if s != seed))
                holding[seed] |= set(to_try(holding[seed], taken, present, seed))
        assert set().union(*holding.values()) == ALL
        assert sum(map(len, holding.values())) == PARTITIONS
        assert max(map(len, holding.values())) <= target_share(present)


def test_processes_that_start_together_want_different_partitions():
    first = to_try(set(), set(), 4, "host-1")
    second = to_try(set(), set(), 4, "host-2")
    assert len(set(first[:8]) & set(second[:8])) <= 4


def test_nobody_there_counts_as_one():
    assert target_share(0) == PARTITIONS
