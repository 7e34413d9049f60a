"""Run ids are a pure function of what they name, sort by time, find their partition."""

import time
from hashlib import sha256
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules import keys
from chrono.rules.instants import DAY
from chrono.rules.partitions import partition_of

instants = st.integers(0, 2**47)
groups = st.integers(0, 2**31)


@given(st.uuids(), instants, groups)
def test_every_bit_is_where_the_layout_says(job_id, moment, group):
    part = partition_of(job_id)
    made = keys.run_id(job_id, moment, group, part)
    digest = sha256(
        job_id.bytes + moment.to_bytes(8, "big") + group.to_bytes(4, "big")
    ).digest()
    hashed = int.from_bytes(digest) >> (256 - 68)
    low = f"{hashed & (2**62 - 1):062b}"[:-1] + ("1" if group else "0")
    bits = f"{moment:048b}1000{part:06b}{hashed >> 62:06b}10{low}"
    assert f"{made.int:0128b}" == bits
    assert keys.is_extra(made) == (group > 0)
    assert made.version == 8
    assert made.variant == RFC_4122


@given(st.uuids(), instants, groups)
def test_the_id_gives_back_its_instant_and_partition(job_id, moment, group):
    made = keys.run_id(job_id, moment, group, partition_of(job_id))
    assert keys.scheduled_for_of(made) == moment
    assert keys.partition_of_run(made) == partition_of(job_id)
    assert UUID(str(made)) == made
    assert hash(UUID(str(made))) == hash(made)


@given(st.uuids(), st.lists(instants, min_size=2, unique=True))
def test_ids_sort_by_time(job_id, moments):
    part = partition_of(job_id)
    made = [keys.run_id(job_id, moment, 0, part) for moment in sorted(moments)]
    assert made == sorted(made)
    assert [str(one) for one in made] == sorted(str(one) for one in made)


@given(st.uuids(), instants)
def test_a_day_holds_its_ids_and_no_others(job_id, moment):
    made = keys.run_id(job_id, moment, 0, 7)
    lower, upper = keys.day_bounds(moment - moment % DAY)
    assert lower <= made < upper
    assert keys.day_bounds(moment - moment % DAY + DAY)[0] == upper


def test_an_id_never_changes():
    job_id = UUID("01940000-0000-7000-8000-000000000001")
    made = keys.run_id(job_id, 1_795_962_600_000, 0, partition_of(job_id))
    assert str(made) == "01a227b6-7a40-8804-8e54-4eb04811b3f0"


def test_each_part_of_the_key_matters():
    one, other = UUID(int=1), UUID(int=2)
    made = {
        keys.run_id(job, moment, group, 5)
        for job in (one, other)
        for moment in (1000, 1001)
        for group in (0, 1)
    }
    assert len(made) == 8


@given(instants, st.binary(min_size=10, max_size=16))
def test_job_ids_are_of_version_7_and_sort_by_time(moment, randomness):
    made = keys.uuid7(moment, randomness)
    assert made.version == 7
    assert made.variant == RFC_4122
    assert made.int >> 80 == moment
    assert made < keys.uuid7(moment + 1, bytes(10))
    assert keys.uuid7(moment, randomness) == made


def test_too_little_randomness_is_refused():
    with pytest.raises(ValueError, match="10 bytes"):
        keys.uuid7(0, bytes(9))


def test_a_run_id_costs_a_few_microseconds():
    job_id = UUID(int=77)
    spent = []
    for _ in range(5):
        start = time.process_time()
        for moment in range(20_000):
            keys.run_id(job_id, moment, 0, 3)
        spent.append((time.process_time() - start) / 20_000)
    print(f"\nrun_id: {min(spent) * 1e6:.2f} us")
    # Twice the aim, so that a slow machine does not fail and a slow change does.
    assert min(spent) < 5e-6
