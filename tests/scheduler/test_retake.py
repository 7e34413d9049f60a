"""A fence moved by another hand than a leader's: step down, and lead anew."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from apps.runtime.process import Pulse
from apps.runtime.sessions import connect_leader
from apps.scheduler.leadership import Leadership
from apps.scheduler.store import Term
from chrono.rules.instants import parse_instant
from tests.scheduler.conftest import NOON, Leader

BUMP = """
    UPDATE chrono_partition
    SET fence = nextval('chrono_fence'), term = gen_random_uuid()
    WHERE id = ANY(%s)
"""


@pytest.fixture
def leadership(dsn: str) -> Iterator[Leadership]:
    """A leadership of all partitions, stepped by the test."""
    made = Leadership(
        lambda: connect_leader(dsn, name="test leadership"),
        wake=lambda: None,
        pulse=Pulse("test"),
        firing=0,
        excuse=lambda: None,
    )
    made.step()
    yield made
    made._lose_session()


def gained(leadership: Leadership) -> dict[int, Term]:
    """Return the terms that it began and told of last."""
    terms = leadership.changes.get_nowait().gained
    return {term.part: term for term in terms}


def test_a_refused_batch_loses_the_partition_and_says_so_once(leader: Leader) -> None:
    job = leader.create("tick", interval="1s", overlap_policy="allow_all")
    leader.run_to(NOON + 2_000)
    term = next(h.term for h in leader.dispatcher.cache.held.values())
    leader.conn.execute(BUMP, [list(range(64))])
    leader.clock.moment = NOON + 3_000
    leader.dispatcher.step()
    assert leader.fired(job) == [NOON + 1_000, NOON + 2_000]
    assert leader.dispatcher.cache.held == {}
    lost = leader.dispatcher.take_lost()
    assert sorted(each.part for each in lost) == list(range(64))
    assert term in lost
    assert leader.dispatcher.take_lost() == []


def test_what_is_led_anew_fires_what_was_refused(leader: Leader) -> None:
    job = leader.create("once", run_at="2055-03-01T12:00:01Z")
    leader.clock.moment = parse_instant("2055-03-01T12:00:00.900Z")
    leader.step()
    leader.conn.execute(BUMP, [list(range(64))])
    leader.clock.moment = NOON + 1_000  # Between two looks: the batch is sent.
    leader.step()
    assert leader.fired(job) == []
    lost = leader.dispatcher.take_lost()
    rows = leader.conn.execute("SELECT id, fence, term FROM chrono_partition")
    now = {part: (fence, term) for part, fence, term in rows.fetchall()}
    leader.dispatcher.adopt(
        replace(term, fence=now[term.part][0], term=now[term.part][1]) for term in lost
    )
    leader.step()
    assert leader.fired(job) == [NOON + 1_000]


def test_a_lock_held_begins_a_new_term_where_the_old_one_is_over(
    leader: Leader, leadership: Leadership
) -> None:
    before = gained(leadership)
    leader.conn.execute(BUMP, [[3, 4]])
    leadership.retake([before[3], before[4]])
    leadership.step()
    after = gained(leadership)
    assert sorted(after) == [3, 4]
    assert all(after[part].fence > before[part].fence + 1 for part in after)


def test_a_term_that_was_replaced_already_is_not_replaced_again(
    leadership: Leadership,
) -> None:
    [over, *_] = gained(leadership).values()
    leadership.retake([over, over])
    leadership.step()
    assert list(gained(leadership)) == [over.part]
    leadership.retake([over])
    leadership.step()
    assert leadership.changes.empty()
