"""A job's partition is stable and the partitions fill evenly."""

from collections import Counter
from hashlib import sha256
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from chrono.rules.partitions import PARTITIONS, partition_of


@given(st.uuids())
def test_it_is_the_first_byte_of_the_hash(job_id):
    assert partition_of(job_id) == sha256(job_id.bytes).digest()[0] & 63


def test_it_never_changes():
    assert PARTITIONS == 64
    found = [partition_of(UUID(int=number)) for number in range(4)]
    assert found == [55, 60, 41, 11]


def test_partitions_fill_evenly():
    counts = Counter(partition_of(UUID(int=number)) for number in range(64_000))
    assert len(counts) == 64
    assert max(counts.values()) < 1.3 * min(counts.values())
