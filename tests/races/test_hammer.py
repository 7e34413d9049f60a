"""A short hammering with a fixed seed; the module run by itself goes on for longer."""

from collections import Counter

import pytest

from tests.races.hammer import hammer

# What it is there for.
WANTED = (
    "auditor: snapshots",
    "leader: takeovers",
    "leader: full batches sent by another thread",
    "worker: deaths",
    "canceller: cancelled",
    "upkeep: far moved",
    "upkeep: turns of the ring",
    "ledger: missed_skip",
    "ledger: past_deadline",
    "ledger: overlap",
    "ledger: replaced",
)


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_nothing_is_lost_doubled_or_stale_under_a_hammer(database: str) -> None:
    wrong, counts = hammer(database, seed=1, seconds=10, wanted=WANTED)
    assert not wrong, Counter(wrong).most_common(10)
    for what in (*WANTED, "oracle: occurrences"):
        assert counts[what], what
