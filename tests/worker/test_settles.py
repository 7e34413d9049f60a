"""Batches of settlements: what the database refuses must not hold up the others."""

import asyncio
import uuid

import pytest

from apps.runs import store
from apps.runs.store import Settlement
from apps.runtime.clock import ManualClock
from apps.runtime.sessions import connect_hot
from apps.worker.lines import Line
from apps.worker.settles import BATCH, Settler
from chrono.rules.states import Reason, RunState
from tests.support.seed import make_job, make_ready
from tests.worker.support import settled

WORKER = uuid.UUID(int=7)


@pytest.fixture
def leases(dsn, connect):
    """Claims ready runs as a worker would."""
    conn = connect()
    hot = connect_hot(dsn, name="test")
    job = make_job(conn, target={"kind": "task", "name": "x"})

    def claim(count):
        make_ready(conn, job, count=count)
        return store.claim_ready(hot, queue="default", limit=count, worker=WORKER)

    yield claim
    hot.close()


def settle(dsn, settlements, *, steps):
    """Put them all, take so many steps, return what each step answered."""
    answers = []

    async def main():
        line = Line("test", connect=lambda: connect_hot(dsn, name="test settle"))
        settler = Settler(
            line=line,
            clock=ManualClock(0),
            tell=lambda conn, told: set(),
            horizon=lambda: 0,
            answered=lambda batch, held: answers.append((len(batch), held)),
        )
        for settlement in settlements:
            settler.put(settlement)
        for _ in range(steps):
            await settler.step()
        await asyncio.wait_for(settler.wait_done(), 1)
        await line.close()

    asyncio.run(main())
    return answers


def test_what_waits_goes_in_batches(dsn, connect, leases):
    held = leases(BATCH + 3)
    done = [Settlement(run_id=lease.run_id, token=lease.token) for lease in held]
    answers = settle(dsn, done, steps=2)
    assert [size for size, _ in answers] == [BATCH, 3]
    assert answers[0][1] | answers[1][1] == {lease.run_id for lease in held}
    settled(connect(), BATCH + 3)


def test_one_refused_row_is_stored_with_a_note_and_the_others_as_they_are(
    dsn, connect, leases
):
    conn = connect()
    good, wide, nul, dead = leases(4)
    batch = [
        Settlement(run_id=good.run_id, token=good.token, result="kept"),
        Settlement(run_id=wide.run_id, token=wide.token, result=list(range(40_000))),
        Settlement(run_id=nul.run_id, token=nul.token, result="\x00"),
        Settlement(
            run_id=dead.run_id,
            token=dead.token,
            state=RunState.DEAD,
            reason=Reason.NON_RETRYABLE,
            error="a\x00b",
        ),
    ]
    [(_, held)] = settle(dsn, batch, steps=1)
    assert held == {lease.run_id for lease in (good, wide, nul, dead)}
    note = {"note": "result not storable"}
    assert [(row[1], row[4]) for row in settled(conn, 4)] == [
        (RunState.SUCCESS, "kept"),
        (RunState.SUCCESS, note),
        (RunState.SUCCESS, note),
        (RunState.DEAD, None),
    ]
    assert conn.execute("SELECT error FROM chrono_attempt").fetchall() == [
        ("error not storable",)
    ]


def test_a_result_whose_lease_is_lost_is_told_and_not_stored(dsn, connect, leases):
    [lease] = leases(1)
    stale = Settlement(run_id=lease.run_id, token=uuid.uuid4())
    assert settle(dsn, [stale], steps=1) == [(1, set())]
    assert connect().execute("SELECT count(*) FROM chrono_run").fetchone() == (0,)
