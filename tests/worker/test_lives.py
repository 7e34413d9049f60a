"""What a worker does when it is told to stop, told that it is dead, or cut off."""

import asyncio
import contextlib
import itertools
import threading
import uuid

import pytest

from apps.runs import store
from apps.runs.cancel import cancel
from apps.runtime.clock import DatabaseClock
from apps.worker import beats, life, process
from apps.worker.claims import Claimer
from apps.worker.seats import Seats
from chrono.rules.states import Reason, RunState
from tests.support.pg import wait_until_blocked
from tests.support.seed import make_job, make_ready
from tests.worker.support import count, running, settled, wait_for, waiting


class Handler:
    """Handlers that say that they began and wait to be let go."""

    def __init__(self):
        self.begun = threading.Semaphore(0)
        self.ended = threading.Semaphore(0)
        self._free = threading.Event()
        self._waiting = []

    def let_go(self):
        self._free.set()
        for loop, gate in self._waiting:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(gate.set)

    async def wait(self, payload, ctx):
        gate = asyncio.Event()
        self._waiting.append((asyncio.get_running_loop(), gate))
        self.begun.release()
        try:
            if not self._free.is_set():
                await gate.wait()
        except asyncio.CancelledError:
            self.ended.release()
            raise
        return "done"

    def block(self, payload, ctx):
        self.begun.release()
        self._free.wait()
        return "done"

    @property
    def tasks(self):
        return {"wait": self.wait, "block": self.block}


@pytest.fixture
def handler():
    handler = Handler()
    yield handler
    handler.let_go()


@pytest.fixture
def quick_beats(monkeypatch):
    monkeypatch.setattr(beats, "next_beat_in", lambda *_: 20)


def job_of(conn, name, **options):
    return make_job(conn, target={"kind": "task", "name": name}, **options)


def workers(conn):
    return conn.execute(
        "SELECT id, dead, stopped_at IS NOT NULL FROM chrono_worker ORDER BY started_at"
    ).fetchall()


def living(conn):
    """Wait for a living worker and return its id."""
    return wait_for(lambda: [worker for worker, dead, _ in workers(conn) if not dead])[
        0
    ]


def end_sessions(conn, name):
    """End a worker's session of this name; it may be about to connect."""
    end = """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = %s AND datname = current_database()
    """
    named = [f"chrono worker {name}"]
    assert wait_for(lambda: conn.execute(end, named).fetchall()) == [(True,)]


@pytest.mark.parametrize("name", ["wait", "block"])
def test_stopping_lets_handlers_finish_and_claims_no_more(
    dsn, connect, handler, name, monkeypatch
):
    over, run_claims = threading.Event(), Claimer.run

    async def claim(claimer):
        await run_claims(claimer)
        over.set()

    monkeypatch.setattr(Claimer, "run", claim)
    conn = connect()
    job = job_of(conn, name)
    [run] = make_ready(conn, job)
    with running(dsn, handler.tasks) as worker:
        assert handler.begun.acquire(timeout=5)
        worker.stop()
        assert over.wait(5)  # What a claim that is open now brought is handed back.
        [later] = make_ready(conn, job)
        handler.let_go()
        assert worker.result() is True
    assert settled(conn) == [(run, RunState.SUCCESS, None, 1, "done")]
    assert conn.execute("SELECT run_id FROM chrono_ready").fetchall() == [(later,)]
    assert [row[1:] for row in workers(conn)] == [(True, True)]
    assert count(conn, "lease") == 0


@pytest.mark.parametrize("name", ["wait", "block"])
def test_what_does_not_finish_in_time_is_handed_back_unspent(
    dsn, connect, handler, name
):
    conn = connect()
    [run] = make_ready(conn, job_of(conn, name), attempt=2)
    with running(dsn, handler.tasks, drain_s=4.1) as worker:
        assert handler.begun.acquire(timeout=5)
        worker.stop()
        assert worker.result() is True
    [(ref, attempt, wait_s)] = waiting(conn)
    assert (ref, attempt) == (run, 2)
    assert wait_s <= 0
    assert count(conn, "attempt") == count(conn, "run") == count(conn, "lease") == 0


def test_a_second_signal_does_not_wait_for_handlers(dsn, connect, handler, monkeypatch):
    monkeypatch.setattr(process, "ECHO_S", 0.0)
    conn = connect()
    [run] = make_ready(conn, job_of(conn, "wait"))
    with running(dsn, handler.tasks, drain_s=3_600) as worker:
        assert handler.begun.acquire(timeout=5)
        worker.stop()
        worker.stop()
        assert worker.result() is True
    assert handler.ended.acquire(timeout=5)
    assert [row[:2] for row in waiting(conn)] == [(run, 1)]


def test_the_echo_of_a_signal_changes_nothing(dsn, connect, handler):
    conn = connect()
    make_ready(conn, job_of(conn, "wait"))
    with running(dsn, handler.tasks) as worker:
        assert handler.begun.acquire(timeout=5)
        worker.stop()
        worker.stop()
        handler.let_go()
        assert worker.result() is True
    assert [row[1] for row in settled(conn)] == [RunState.SUCCESS]


def test_an_idle_worker_stops_at_once(dsn, connect):
    conn = connect()
    with running(dsn) as worker:
        living(conn)
        worker.stop()
        assert worker.result(timeout=4) is True


def test_a_worker_marked_dead_drops_everything_and_begins_anew(
    dsn, connect, handler, quick_beats
):
    conn = connect()
    job = job_of(conn, "wait")
    [lost] = make_ready(conn, job)
    with running(dsn, handler.tasks):
        assert handler.begun.acquire(timeout=5)
        first = living(conn)
        conn.execute("UPDATE chrono_worker SET dead = true")
        assert handler.ended.acquire(timeout=5)
        second = living(conn)
        assert second != first
        handler.let_go()
        [run] = make_ready(conn, job)
        assert settled(conn) == [(run, RunState.SUCCESS, None, 1, "done")]
    # The lease is the dead worker's; whoever sweeps will find it.
    rows = conn.execute("SELECT run_id, worker FROM chrono_lease").fetchall()
    assert rows == [(lost, first)]


def test_a_worker_that_cannot_beat_stops_trusting_its_leases(
    dsn, connect, handler, quick_beats, monkeypatch
):
    for module in (beats, life):
        monkeypatch.setattr(module, "trusted_until", lambda sent: sent + 2_000)
    conn, holder = connect(), connect()
    make_ready(conn, job_of(conn, "wait"))
    with running(dsn, handler.tasks):
        assert handler.begun.acquire(timeout=5)
        first = living(conn)
        with holder.transaction():
            holder.execute("SELECT FROM chrono_worker FOR UPDATE")
            assert handler.ended.acquire(timeout=10)
        assert wait_for(lambda: living(conn) != first)
    assert count(conn, "run") == 0
    # The next life retires the row of the last one, so its runs are orphans at once.
    assert workers(conn)[0] == (first, True, True)


def test_a_cancelled_run_is_called_off_and_settled_as_such(
    dsn, connect, handler, quick_beats
):
    conn = connect()
    runs = [make_ready(conn, job_of(conn, name))[0] for name in ("wait", "block")]
    with running(dsn, handler.tasks):
        for _ in runs:
            assert handler.begun.acquire(timeout=5)
        for run in runs:
            assert cancel(conn, run) == RunState.RUNNING
        rows = settled(conn, 2)
    ended = (RunState.CANCELLED, Reason.OPERATOR, 1, None)
    assert rows == [(run, *ended) for run in runs]
    assert count(conn, "timer") == count(conn, "timer_far") == 0


def test_how_a_handler_takes_being_called_off_decides_what_it_was(
    dsn, connect, quick_beats
):
    conn = connect()
    begun = threading.Semaphore(0)

    async def finish(payload):
        begun.release()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done all the same"

    async def complain(payload):
        begun.release()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("not now") from None

    names = {"finish": finish, "complain": complain}
    runs = [make_ready(conn, job_of(conn, name))[0] for name in names]
    with running(dsn, names) as worker:
        for _ in runs:
            assert begun.acquire(timeout=5)
        worker.stop()
        wait_for(lambda: worker.worker._stop.is_set())
        worker.loop.call_soon_threadsafe(worker.worker._hurry.set)
        assert worker.result() is True
    assert settled(conn) == [(runs[0], RunState.SUCCESS, None, 1, "done all the same")]
    assert [row[:2] for row in waiting(conn)] == [(runs[1], 1)]
    assert count(conn, "attempt") == 0


def test_a_thread_sees_that_its_result_is_not_wanted(dsn, connect, quick_beats):
    conn = connect()
    begun, seen = threading.Event(), threading.Event()

    def look(payload, ctx):
        begun.set()
        while not ctx.cancelled:
            seen.wait(0.01)
        seen.set()

    [run] = make_ready(conn, job_of(conn, "look"))
    with running(dsn, {"look": look}):
        assert begun.wait(5)
        cancel(conn, run)
        assert seen.wait(5)
        assert [row[1] for row in settled(conn)] == [RunState.CANCELLED]


def test_a_claim_whose_answer_was_lost_is_handed_back(dsn, connect):
    conn = connect()
    job = job_of(conn, "nobody")
    [run] = make_ready(conn, job, attempt=2)
    with running(dsn, queues=("other",)):
        worker = living(conn)
        # As a claim does that commits and then loses its session before it answers.
        conn.execute(
            """
            WITH moved AS (DELETE FROM chrono_ready RETURNING *)
            INSERT INTO chrono_lease (due_at, dispatched_at, run_id, job_id, tag, fence,
                revision, tenant, part, priority, attempt, queue, token, worker)
            SELECT due_at, dispatched_at, run_id, job_id, tag, fence, revision, tenant,
                part, priority, attempt, queue, %s, %s FROM moved
            """,
            [uuid.uuid4(), worker],
        )
        end_sessions(conn, "claim")
        assert [row[:2] for row in waiting(conn)] == [(run, 2)]
    assert count(conn, "lease") == 0


def test_one_that_is_settled_during_the_look_at_the_leases_is_not_handed_back(
    dsn, connect, handler, monkeypatch, caplog
):
    conn = connect()
    left, looked = threading.Event(), threading.Event()
    list_leases, answered = store.list_leases, Seats.answered

    def settle_meanwhile(session, *, worker):
        held = list_leases(session, worker=worker)
        handler.let_go()
        assert left.wait(5)
        looked.set()
        return held

    def leave(self, batch, held):
        over = answered(self, batch, held)
        left.set()
        return over

    monkeypatch.setattr(store, "list_leases", settle_meanwhile)
    monkeypatch.setattr(Seats, "answered", leave)
    make_ready(conn, job_of(conn, "wait"))
    with running(dsn, handler.tasks):
        assert handler.begun.acquire(timeout=5)
        end_sessions(conn, "claim")
        assert looked.wait(10)
        # What is claimed next comes after the look.
        make_ready(conn, job_of(conn, "wait"))
        settled(conn, 2)
    assert "handing back" not in caplog.text


def test_what_an_open_claim_brings_after_the_signal_is_handed_back(
    dsn, connect, handler
):
    conn, holder, observer = connect(), connect(), connect()
    with running(dsn, handler.tasks) as worker:
        living(conn)
        with holder.transaction():
            holder.execute("LOCK TABLE chrono_lease IN ACCESS EXCLUSIVE MODE")
            [run] = make_ready(conn, job_of(conn, "wait"))
            [(claimer,)] = conn.execute(
                """
                SELECT pid FROM pg_stat_activity
                WHERE application_name = 'chrono worker claim'
                    AND datname = current_database()
                """
            ).fetchall()
            wait_until_blocked(observer, claimer)
            worker.stop()
            wait_for(lambda: worker.worker._stop.is_set())
        assert worker.result() is True
    assert [row[:2] for row in waiting(conn)] == [(run, 1)]
    assert not handler.begun.acquire(blocking=False)


@pytest.mark.parametrize("session", ["claim", "settle", "beat", "listen"])
def test_a_lost_session_loses_no_run(dsn, connect, handler, quick_beats, session):
    conn = connect()
    job = job_of(conn, "wait")
    runs = make_ready(conn, job)
    with running(dsn, handler.tasks):
        assert handler.begun.acquire(timeout=5)
        end_sessions(conn, session)
        handler.let_go()
        runs += make_ready(conn, job)
        rows = settled(conn, 2)
    assert rows == [(run, RunState.SUCCESS, None, 1, "done") for run in runs]
    assert [row[1:] for row in workers(conn)] == [(True, True)]


def test_the_identity_lock_says_that_the_process_lives(dsn, connect):
    conn = connect()
    locks = """
        SELECT count(*) FROM pg_locks l, chrono_worker w
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
            AND (l.classid::bigint << 32 | l.objid::bigint)
                = ('x' || right(replace(w.id::text, '-', ''), 16))::bit(64)::bigint
    """
    with running(dsn):
        living(conn)
        # The sessions that beat, claim and settle.
        wait_for(lambda: conn.execute(locks).fetchone() == (3,))
    wait_for(lambda: conn.execute(locks).fetchone() == (0,))


def test_seats_bound_the_leases_held(dsn, connect, handler):
    conn = connect()
    make_ready(conn, job_of(conn, "wait"), count=30)
    with running(dsn, handler.tasks, concurrency=7):
        for _ in range(7):
            assert handler.begun.acquire(timeout=5)
        assert count(conn, "lease") == 7
        assert count(conn, "ready") == 23
        handler.let_go()
        settled(conn, 30)


def test_a_worker_whose_clock_is_unfit_claims_nothing_until_it_is_fit(
    dsn, connect, handler, monkeypatch
):
    conn, fit, looks = connect(), threading.Event(), itertools.count()
    monkeypatch.setattr(
        DatabaseClock, "fit", property(lambda clock: next(looks) >= 0 and fit.is_set())
    )
    with running(dsn, handler.tasks):
        make_ready(conn, job_of(conn, "wait"))
        begun = next(looks)
        # Each notice makes it look; some more looks than one have passed it over.
        wait_for(
            lambda: conn.execute("NOTIFY chrono_ready") and next(looks) > begun + 100
        )
        assert count(conn, "ready") == 1
        fit.set()
        assert handler.begun.acquire(timeout=10)
        handler.let_go()
        [(_, state, *_)] = settled(conn)
        assert state == RunState.SUCCESS
