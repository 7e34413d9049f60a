"""What cancelled runs leave in ready goes; they are remembered while they lie about."""

import uuid
from collections.abc import Callable

import pytest

from apps.queue import withdrawals
from tests.queue.conftest import PART, Ring
from tests.support import pg

LEASE = """
    INSERT INTO chrono_lease (due_at, dispatched_at, run_id, job_id, tag, fence,
        revision, tenant, part, priority, attempt, queue, token, worker)
    VALUES (now(), now(), %(run)s, gen_random_uuid(), 1, 1, 1, 1, %(part)s, 2, 1,
        'default', gen_random_uuid(), gen_random_uuid())
"""
FAR = """
    INSERT INTO chrono_timer_far (due_at, scheduled_for, ref, job_id, version, revision,
        part, kind)
    VALUES (timestamptz '2058-01-01Z', timestamptz '2058-01-01Z', %(run)s,
        gen_random_uuid(), 1, 1, %(part)s, 4)
"""
BUCKET = """
    CREATE TABLE chrono_timer_2058010100 PARTITION OF chrono_timer
    FOR VALUES FROM ('2058-01-01T00:00Z') TO ('2058-01-01T01:00Z')
"""
SET_ASIDE = """
    INSERT INTO chrono_{table} (due_at, dispatched_at, run_id, job_id, tag, fence,
        revision, tenant, part, priority, attempt, queue, {by}, reason)
    VALUES (now(), now(), %(run)s, gen_random_uuid(), 1, 1, 1, 1, %(part)s, 2, 1,
        'default', 'x', 11)
"""
PLACES = {
    "lease": LEASE,
    "timer_far": FAR,
    "timer": FAR.replace("timer_far", "timer"),
    "parked": SET_ASIDE.format(table="parked", by="target"),
    "blocked": SET_ASIDE.format(table="blocked", by="gate"),
}


def withdraw(ring: Ring, *runs: uuid.UUID) -> None:
    ring.conn.execute(
        "INSERT INTO chrono_withdrawn (run_id, part) SELECT unnest(%s::uuid[]), %s",
        [list(runs), PART],
    )


def withdrawn(ring: Ring) -> set[uuid.UUID]:
    rows = ring.conn.execute("SELECT run_id FROM chrono_withdrawn").fetchall()
    return {run for (run,) in rows}


def test_without_any_there_is_nothing_to_do(ring: Ring) -> None:
    kept = ring.fill(0, 2)
    assert withdrawals.clear(ring.conn) == 0
    assert ring.runs() == {0: kept}


def test_they_leave_every_slice_and_are_forgotten(ring: Ring) -> None:
    first, second, third = ring.fill(0, 3)
    [fourth] = ring.fill(6, 1)
    withdraw(ring, first, third, fourth)
    assert withdrawals.clear(ring.conn) == 3
    assert ring.runs() == {0: [second]}
    assert withdrawn(ring) == set()


@pytest.mark.parametrize("place", PLACES)
def test_one_that_lies_somewhere_is_remembered(ring: Ring, place: str) -> None:
    run = ring.fill(0, 1)[0]
    ring.take(0)
    ring.conn.execute(BUCKET)
    ring.conn.execute(PLACES[place], {"run": run, "part": PART})
    withdraw(ring, run)
    assert withdrawals.clear(ring.conn) == 0
    assert withdrawn(ring) == {run}
    ring.conn.execute(f"DELETE FROM chrono_{place}")
    assert withdrawals.clear(ring.conn) == 1
    assert withdrawn(ring) == set()


def test_one_that_a_claim_is_looking_at_is_left_and_remembered(
    ring: Ring, connect: Callable[..., pg.Connection]
) -> None:
    claim = connect()
    [run] = ring.fill(0, 1)
    withdraw(ring, run)
    with claim.transaction():
        claim.execute("SELECT FROM chrono_ready FOR UPDATE")
        assert withdrawals.clear(ring.conn) == 0
        assert ring.runs() == {0: [run]}
    assert withdrawals.clear(ring.conn) == 1
    assert ring.runs() == {}
