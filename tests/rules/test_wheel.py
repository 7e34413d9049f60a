"""The wheel against a sorted list: never early, never lost, each once, in order."""

import random
import time

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from chrono.rules.wheel import SLOTS, TICK, Wheel

START = 1_795_962_600_000
TURN = SLOTS * TICK
SECOND_TURN = SLOTS * TURN
SPAN = SLOTS * SECOND_TURN

# Distances at which a wheel of this shape may go wrong, and a few milliseconds around.
BORDERS = [
    0,
    1,
    TICK,
    *(slots * TICK for slots in (511, 512, 513)),
    2 * TURN,
    *(slots * TURN for slots in (511, 512, 513)),
    *(slots * SECOND_TURN for slots in (511, 512, 513)),
    2 * SPAN,
]

near_borders = st.builds(
    lambda border, around: border + around,
    st.sampled_from(BORDERS),
    st.integers(-11, 11),
)
distances = st.one_of(
    near_borders,
    st.integers(-100, 200),
    st.integers(0, 60_000),
    st.integers(0, 3 * SPAN),
)
steps = st.one_of(
    st.just(0),  # the same tick twice
    st.integers(1, 30),
    st.just(TICK),
    near_borders,
    st.just(60_000),  # a stall
    st.just(3_600_000),
    st.integers(-5_000, -1),  # a clock that went back
)


def tickets_in(wheel):
    slots = [ticket for level in wheel._slots for slot in level for ticket in slot]
    return slots + wheel._front + wheel._beyond


class WheelAgainstList(RuleBasedStateMachine):
    """Whatever is added, taken back and turned, the wheel and a list agree."""

    tickets = Bundle("tickets")

    def __init__(self):
        super().__init__()
        self.now = START
        self.wheel = Wheel(START)
        self.pending = {}
        self.number = 0

    @rule(target=tickets, distance=distances)
    def add(self, distance):
        return self._add(self.now + distance)

    @rule(target=tickets, distance=distances, count=st.integers(2, 5))
    def add_several_for_one_instant(self, distance, count):
        return multiple(*(self._add(self.now + distance) for _ in range(count)))

    @rule(target=tickets, slots=st.sampled_from([511, 512, 513, 1024]))
    def add_on_a_border_of_the_wheel_itself(self, slots):
        turn = self.now // TURN * TURN
        return self._add(turn + slots * TICK)

    @rule(ticket=consumes(tickets))
    def cancel(self, ticket):
        number = ticket.item
        assert ticket.live is (number in self.pending)
        assert ticket.cancel() is (number in self.pending)
        assert not ticket.cancel()
        self.pending.pop(number, None)

    @rule(step=steps)
    def advance(self, step):
        self.now += step
        due = [number for number, due in self.pending.items() if due <= self.now]
        # Equal instants come in the order in which they were added.
        expected = sorted(due, key=lambda number: (self.pending[number], number))
        assert self.wheel.advance(self.now) == expected
        for number in due:
            del self.pending[number]

    @rule(distance=distances)
    def look_before(self, distance):
        moment = self.now + distance
        found = sorted(self.wheel.before(moment))
        assert found == sorted(n for n, due in self.pending.items() if due < moment)

    @invariant()
    def the_size_is_right(self):
        assert len(self.wheel) == len(self.pending)

    @invariant()
    def every_ticket_kept_is_counted(self):
        assert len(tickets_in(self.wheel)) == len(self.pending) + self.wheel._dead

    @invariant()
    def sleeping_until_next_due_misses_nothing(self):
        bound = self.wheel.next_due()
        if self.pending:
            assert bound <= min(self.pending.values())
        else:
            assert bound is None

    def _add(self, due):
        self.number += 1
        self.pending[self.number] = due
        return self.wheel.add(due, self.number)


TestWheelAgainstList = WheelAgainstList.TestCase
TestWheelAgainstList.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, derandomize=True
)


@pytest.mark.parametrize("offset", [0, 3, 9, TURN - 10, TURN - 1])
@pytest.mark.parametrize("border", BORDERS)
def test_each_millisecond_around_a_border_comes_out_at_its_own(offset, border):
    for around in range(-11, 12):
        due = START + offset + border + around
        wheel = Wheel(START + offset)
        wheel.add(due, "item")
        if due > START + offset:
            assert wheel.advance(due - 1) == []
        assert wheel.advance(max(due, START + offset)) == ["item"]
        assert len(wheel) == 0


def test_sleeping_until_next_due_reaches_the_item_in_a_few_steps():
    draw = random.Random(3)
    for _ in range(300):
        now = START + draw.randrange(SPAN)
        due = now + draw.choice([TICK, TURN, SECOND_TURN, SPAN]) + draw.randrange(SPAN)
        wheel = Wheel(now)
        wheel.add(due, "item")
        for _step in range(6):
            now = wheel.next_due()
            out = wheel.advance(now)
            if out:
                break
        assert (now, out) == (due, ["item"])


def test_an_item_past_due_comes_at_the_next_advance_of_the_same_tick():
    wheel = Wheel(START)
    wheel.advance(START + 5)
    wheel.add(START - 1000, "late")
    wheel.add(START + 5, "now")
    assert wheel.next_due() == START - 1000
    assert wheel.advance(START + 5) == ["late", "now"]


def test_a_cancelled_item_never_comes_and_its_memory_goes():
    wheel = Wheel(START)
    tickets = [wheel.add(START + number * 97, number) for number in range(5000)]
    for ticket in tickets[:-1]:
        assert ticket.cancel()
    assert len(wheel) == 1
    assert len(tickets_in(wheel)) == 1 + wheel._dead <= 1100
    assert wheel.advance(START + 5000 * 97) == [4999]


def test_a_ticket_that_was_handed_out_is_not_live():
    wheel = Wheel(START)
    ticket = wheel.add(START + 5, "item")
    assert ticket.live
    assert (ticket.item, ticket.due) == ("item", START + 5)
    wheel.advance(START + 5)
    assert not ticket.live
    assert not ticket.cancel()
    assert len(wheel) == 0


def test_a_long_stall_costs_what_is_due_and_no_more():
    wheel = Wheel(START)
    wheel.add(START + 3 * SPAN, "far")
    start = time.process_time()
    for hours in range(1000):
        wheel.advance(START + hours * 3_600_000)
    assert time.process_time() - start < 0.1


def test_looking_before_a_moment_does_not_look_behind_it():
    wheel = Wheel(START)
    wheel.add(START + 5, "soon")
    for number in range(50_000):
        wheel.add(START + TURN + number, number)
    start = time.process_time()
    for _ in range(1000):
        assert list(wheel.before(START + 10)) == ["soon"]
    assert time.process_time() - start < 0.1
