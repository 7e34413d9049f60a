"""A worker stops before its lease can be taken, and beats well before that."""

from hypothesis import given
from hypothesis import strategies as st

from chrono.rules.lease import (
    BEAT_EVERY,
    LEASE_TTL,
    SAFETY_MARGIN,
    expired,
    next_beat_in,
    trusted_until,
)

moments = st.integers(0, 10**13)


@given(moments, st.integers(0, 20_000))
def test_nobody_takes_a_lease_that_its_worker_still_trusts(sent_at, delay):
    # The database stamps the beat when it arrives: never before it was sent.
    beat_at = sent_at + delay
    assert not expired(beat_at, trusted_until(sent_at) + SAFETY_MARGIN - 1)


@given(moments)
def test_a_lease_expires_after_its_time_and_not_before(beat_at):
    assert not expired(beat_at, beat_at + LEASE_TTL - 1)
    assert expired(beat_at, beat_at + LEASE_TTL)


def test_two_beats_may_be_lost():
    assert trusted_until(0) > 2 * BEAT_EVERY


def test_the_next_beat_is_never_in_the_past():
    assert next_beat_in(1_000, 1_000) == BEAT_EVERY
    assert next_beat_in(1_000, 4_000) == BEAT_EVERY - 3_000
    assert next_beat_in(1_000, 99_000) == 0
