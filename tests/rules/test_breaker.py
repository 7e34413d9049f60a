"""A circuit as a value: what opens it, what probes it, how it closes."""

from itertools import pairwise, product
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules import breaker
from chrono.rules.breaker import RAMP_STEP, Breaker, BreakerPolicy, BreakerState
from chrono.rules.instants import SECOND

NOW = 1_795_962_600_000
POLICY = BreakerPolicy(failure_threshold=3, open_duration_s=30)
GOOD, BAD = (UUID(int=1), True), (UUID(int=2), False)
CLOSED = Breaker(changed_at=NOW)


def after(circuit, *calls, now=NOW, policy=POLICY):
    return breaker.report(circuit, calls, policy=policy, now=now)


OPEN = after(CLOSED, BAD, BAD, BAD)


def half_open(*probes):
    return Breaker(
        state=BreakerState.HALF_OPEN, probes=probes, policy=POLICY, changed_at=NOW
    )


def test_the_default_is_the_documented_one():
    assert BreakerPolicy() == BreakerPolicy(
        failure_threshold=20, open_duration_s=30, half_open_probes=1
    )


def test_it_opens_with_the_last_of_so_many_failures_in_a_row():
    assert after(CLOSED, BAD, BAD).state is BreakerState.CLOSED
    assert OPEN.state is BreakerState.OPEN
    assert OPEN.probe_at == NOW + 30 * SECOND
    assert not OPEN.manual


@pytest.mark.parametrize("reports", [1, 2, 3])
def test_failures_in_a_row_are_counted_over_reports(reports):
    circuit = CLOSED
    for _ in range(reports):
        circuit = after(circuit, BAD)
    assert (circuit.state is BreakerState.OPEN) == (reports == 3)
    assert circuit.failures == reports


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 30))
def test_it_opens_just_where_the_threshold_is_reached_in_a_row(calls, threshold):
    policy = BreakerPolicy(failure_threshold=threshold)
    told = [(uuid4(), good) for good in calls]
    circuit = after(CLOSED, *told, policy=policy)
    row = 0
    for good in calls:
        row = 0 if good else row + 1
    assert circuit.failures == row
    assert (circuit.state is BreakerState.OPEN) == (row >= threshold)


def test_what_had_begun_before_changes_an_open_circuit_in_nothing():
    assert after(OPEN, GOOD, BAD) == OPEN


def test_of_a_half_open_circuit_the_probe_alone_decides():
    probe = uuid4()
    circuit = half_open(probe)
    assert after(circuit, GOOD, BAD) == circuit
    closing = after(circuit, BAD, (probe, True), now=NOW + 5)
    assert closing.state is BreakerState.CLOSING
    assert (closing.changed_at, closing.failures, closing.probes) == (NOW + 5, 0, ())
    again = after(circuit, GOOD, (probe, False), now=NOW + 5)
    assert again.state is BreakerState.OPEN
    assert again.probe_at == NOW + 5 + 30 * SECOND


def test_of_several_probes_one_that_fails_outweighs_the_others():
    one, other = uuid4(), uuid4()
    circuit = after(half_open(one, other), (one, True), (other, False))
    assert circuit.state is BreakerState.OPEN


def test_a_quarter_of_the_threshold_opens_it_again_while_it_closes():
    closing = Breaker(state=BreakerState.CLOSING, changed_at=NOW)
    policy = BreakerPolicy(failure_threshold=20)
    assert after(closing, *[BAD] * 4, policy=policy).state is BreakerState.CLOSING
    assert after(closing, *[BAD] * 5, policy=policy).state is BreakerState.OPEN
    few = BreakerPolicy(failure_threshold=2)
    assert after(closing, BAD, policy=few).state is BreakerState.OPEN


def test_a_person_opens_it_for_good_and_closes_it_by_the_ramp():
    opened = breaker.open_by_hand(CLOSED, NOW)
    assert opened.state is BreakerState.OPEN
    assert opened.manual
    assert after(opened, GOOD, BAD, BAD, BAD) == opened
    closing = breaker.close_by_hand(opened, NOW + 7)
    assert closing.state is BreakerState.CLOSING
    assert closing.changed_at == NOW + 7
    assert breaker.close_by_hand(closing, NOW + 9) == closing
    assert breaker.close_by_hand(CLOSED, NOW + 9) == CLOSED


@given(st.lists(st.integers(1, 4_000), max_size=60))
def test_the_ramp_never_lets_in_more_than_its_curve_however_often_it_is_asked(waits):
    circuit = Breaker(state=BreakerState.CLOSING, changed_at=NOW)
    now, let_in = NOW, 0
    for wait in waits:
        now += wait
        circuit = Breaker(state=BreakerState.CLOSING, changed_at=NOW, let_in=let_in)
        let_in += breaker.ramp(circuit, now)
        seconds = (now - NOW) / 1000
        assert let_in <= 5 + 25 * (2 ** (seconds / 5) * 1.07 - 1) + 1


def test_the_ramp_begins_with_five_a_second_and_doubles_every_five():
    circuit = Breaker(state=BreakerState.CLOSING, changed_at=NOW)
    due = [breaker.ramp(circuit, NOW + n * SECOND) for n in range(12)]
    per_second = [b - a for a, b in pairwise(due)]
    assert due[0] == 5
    assert per_second == [5] * 5 + [10] * 5 + [20]
    years = NOW + 10**12
    assert breaker.ramp(circuit, years) > 10**6
    assert breaker.ramp(circuit, NOW - 5) == 5


def test_it_may_close_once_the_first_step_of_the_ramp_is_over():
    circuit = Breaker(state=BreakerState.CLOSING, changed_at=NOW)
    assert not breaker.may_close(circuit, NOW + RAMP_STEP - 1)
    assert breaker.may_close(circuit, NOW + RAMP_STEP)
    assert not breaker.may_close(CLOSED, NOW + RAMP_STEP)


def test_the_states_have_public_words():
    words = [state.label for state in BreakerState]
    assert words == ["closed", "open", "half_open", "closing"]


def test_no_order_of_two_workers_reports_lets_a_second_probe_through():
    """Every interleaving of two workers over six steps, each with a call of its own.

    A step is a call of worker A or B that comes to its end, good or bad, the probe's
    or another's, or the moment at which probes are due. While the circuit is half open
    a run may call only if it is named, and one at a time is.
    """
    states = set()
    steps = [(who, good) for who in ("a", "b", "probe") for good in (True, False)]
    for path in product([*steps, ("due", True)], repeat=4):
        circuit, now, probes = OPEN, NOW, 0
        for who, good in path:
            now += SECOND
            if who == "due":
                # The keeper's statement: guarded by the state that it finds.
                if circuit.state is BreakerState.OPEN:
                    probes += 1
                    circuit = half_open(UUID(int=100 + probes))
                continue
            run = (circuit.probes or (UUID(int=0),))[0] if who == "probe" else uuid4()
            before = circuit
            circuit = after(circuit, (run, good), now=now)
            if before.state is BreakerState.HALF_OPEN and who != "probe":
                assert circuit == before
            assert len(circuit.probes) <= 1
            assert bool(circuit.probes) == (circuit.state is BreakerState.HALF_OPEN)
            states.add((before.state.label, who, good, circuit.state.label))
    assert {s[3] for s in states} == {"open", "half_open", "closing"}
