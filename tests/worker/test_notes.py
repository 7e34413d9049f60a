"""Checkpoints and progress: told by handlers, kept for people and the next attempt."""

import asyncio
import threading
import time
import uuid

import pytest

from apps.runs import store
from apps.runs.cancel import cancel
from apps.runs.store import Note, Settlement
from apps.runtime.sessions import connect_hot
from apps.worker import beats, execute, notes
from apps.worker.notebook import progress_of
from chrono.rules.states import Reason, RunState
from chrono.tasks import NotStorable, RunCancelled
from tests.support.pg import wait_until_blocked
from tests.support.seed import make_job, make_ready
from tests.worker.support import (
    FAST,
    count,
    offered_again,
    running,
    settled,
    wait_for,
    waiting,
)


@pytest.fixture
def quick_beats(monkeypatch):
    monkeypatch.setattr(beats, "next_beat_in", lambda *_: 20)


def task_job(conn, name, **limits):
    return make_job(
        conn, target={"kind": "task", "name": name, **limits}, retry_policy=FAST
    )


def told(conn):
    """Return (run, attempt, share, text, checkpoint) of all that is kept."""
    return conn.execute(
        "SELECT run_id, attempt, share::float8, text, checkpoint FROM chrono_progress"
    ).fetchall()


@pytest.mark.parametrize("kind", ["loop", "thread"])
def test_the_next_attempt_goes_on_from_the_last_checkpoint(dsn, connect, kind):
    conn = connect()
    seen = []

    def step(payload, ctx):
        seen.append((ctx.attempt, ctx.last_checkpoint))
        done = ctx.last_checkpoint or {"page": 0}
        ctx.checkpoint({"page": done["page"] + 1})
        ctx.checkpoint({"page": done["page"] + 2})
        if ctx.attempt < 3:
            # At once: the settle must not overtake what was told.
            raise ValueError("not yet")
        return done

    async def step_on_the_loop(payload, ctx):
        return step(payload, ctx)

    function = step if kind == "thread" else step_on_the_loop
    [run] = make_ready(conn, task_job(conn, "step"))
    with running(dsn, {"step": function}):
        for attempt in (2, 3):
            offered_again(conn, run, attempt)
        rows = settled(conn)
        wait_for(lambda: told(conn) == [])
    assert rows == [(run, RunState.SUCCESS, None, 3, {"page": 4})]
    assert seen == [(1, None), (2, {"page": 2}), (3, {"page": 4})]


def test_what_a_run_tells_is_written_once_a_second(dsn, connect, monkeypatch):
    conn = connect()
    writes = []
    write = store.note_if_leased

    def counted(session, batch):
        writes.append([(note.share, note.checkpoint) for note in batch])
        return write(session, batch)

    monkeypatch.setattr(store, "note_if_leased", counted)
    free = threading.Event()

    def chatter(payload, ctx):
        number = 0
        while not free.is_set():
            number += 1
            ctx.progress(0.5, f"step {number}")
            ctx.checkpoint(number)
        return number

    [run] = make_ready(conn, task_job(conn, "chatter"))
    with running(dsn, {"chatter": chatter}):
        wait_for(lambda: len(writes) == 3)
        took = time.monotonic()
        wait_for(lambda: len(writes) == 5)
        assert time.monotonic() - took > 1.5
        [(ref, attempt, share, text, checkpoint)] = told(conn)
        free.set()
        [row] = settled(conn)
    assert (ref, attempt, share) == (run, 1, 0.5)
    assert text.startswith("step ")
    assert 0 < checkpoint <= row[4]


def test_all_runs_of_a_worker_share_one_statement(dsn, connect, monkeypatch):
    conn = connect()
    sizes = []
    write = store.note_if_leased

    def counted(session, batch):
        sizes.append(len(batch))
        return write(session, batch)

    monkeypatch.setattr(store, "note_if_leased", counted)
    free = threading.Event()

    async def tell(payload, ctx):
        while not free.is_set():
            ctx.progress(0.1)
            await asyncio.sleep(0.01)

    make_ready(conn, task_job(conn, "tell"), count=20)
    with running(dsn, {"tell": tell}):
        wait_for(lambda: 20 in sizes)
        wait_for(lambda: len(told(conn)) == 20)
        free.set()
        settled(conn, 20)
    assert sum(sizes) <= 20 * len(sizes)


def test_plain_runs_ask_and_write_nothing(dsn, connect, monkeypatch):
    conn = connect()

    def never(*_, **__):
        raise AssertionError("a plain run does not pay for this")

    for name in ("note_if_leased", "load_checkpoints", "forget_progress"):
        monkeypatch.setattr(store, name, never)
    opened = set()

    def plain(payload):
        rows = conn.execute(
            "SELECT application_name FROM pg_stat_activity "
            "WHERE datname = current_database()"
        ).fetchall()
        opened.update(name for (name,) in rows)

    job = task_job(conn, "plain")
    # The first run of a revision that the worker has not seen is asked for.
    monkeypatch.setattr(store, "load_checkpoints", lambda *_, **__: {})
    make_ready(conn, job)
    with running(dsn, {"plain": plain}):
        settled(conn)
        monkeypatch.setattr(store, "load_checkpoints", never)
        make_ready(conn, job, count=5)
        settled(conn, 6)
    assert "chrono worker claim" in opened
    assert "chrono worker notes" not in opened


def test_what_no_checkpoint_can_be_is_refused_to_the_handler(dsn, connect):
    conn = connect()
    refused = []

    def keep(payload, ctx):
        cycle = []
        cycle.append(cycle)
        for value in ("x" * 65_537, [0] * 20_000, object(), float("nan"), cycle, "a\0"):
            with pytest.raises(NotStorable) as error:
                ctx.checkpoint(value)
            refused.append(str(error.value))
        ctx.checkpoint("x" * 60_000)
        raise ValueError

    [run] = make_ready(conn, task_job(conn, "keep"))
    with running(dsn, {"keep": keep}):
        offered_again(conn, run, 2, claim=False)
        [(_, _, _, _, checkpoint)] = told(conn)
    assert len(checkpoint) == 60_000
    assert refused[0] == (
        "A checkpoint is JSON of at most 65536 bytes: it is larger than 65536 bytes."
    )
    assert len(refused) == 6


@pytest.mark.parametrize("share", [-0.1, 1.1, 50, 10**400, float("nan"), "half", True])
def test_a_share_is_a_number_from_nothing_to_one(share):
    with pytest.raises(NotStorable, match="from 0 to 1"):
        progress_of(share, "")


def test_a_text_of_progress_is_made_fit():
    assert progress_of(1, "a\0b\ud800") == (1.0, "a\ufffdb?")
    share, text = progress_of(None, "x" * 500)
    assert (share, len(text), text[-2:]) == (None, 200, "x…")
    # Sums of floats go a little beyond.
    assert progress_of(1.0000000001, "") == (1.0, "")


@pytest.fixture
def leased(dsn, connect):
    """Two hot sessions, and a run that the first worker holds."""
    conn = connect()
    hot = [connect_hot(dsn, name="test") for _ in range(2)]
    [run] = make_ready(conn, task_job(conn, "x"))
    [lease] = store.claim_ready(
        hot[0], queue="default", limit=1, worker=uuid.UUID(int=1)
    )
    yield conn, hot, run, lease
    for session in hot:
        session.close()


def note(lease, checkpoint, token=None):
    return Note(
        run_id=lease.run_id,
        token=token or lease.token,
        checkpoint=checkpoint,
    )


def test_what_a_worker_tells_that_lost_the_lease_counts_for_nothing(leased):
    conn, [hot, _], run, lease = leased
    assert store.note_if_leased(hot, [note(lease, "1")]) == ({run}, set())
    stale = note(lease, "2", token=uuid.uuid4())
    assert store.note_if_leased(hot, [stale]) == (set(), {run})
    assert [row[4] for row in told(conn)] == [1]
    again = Settlement(run_id=run, token=lease.token, state=0, reason=30, error="again")
    store.settle_if_leased(hot, [again], horizon=0)
    assert store.note_if_leased(hot, [note(lease, "3")]) == (set(), {run})
    assert store.load_checkpoints(hot, runs=[run]) == {run: 1}


def test_a_note_waits_for_nobody_and_is_told_again(leased):
    conn, [hot, _], run, lease = leased
    with conn.transaction():
        conn.execute("SELECT FROM chrono_lease FOR UPDATE")
        assert store.note_if_leased(hot, [note(lease, "1")]) == (set(), set())
    assert store.note_if_leased(hot, [note(lease, "1")]) == ({run}, set())


def test_a_lease_is_not_ended_under_an_open_note(leased, background, connect):
    conn, [hot, other], run, lease = leased
    with hot.transaction():
        store.note_if_leased(hot, [note(lease, '"late"')])
        again = Settlement(
            run_id=run, token=lease.token, state=0, reason=30, error="again"
        )
        settle = background(store.settle_if_leased, other, [again], horizon=0)
        wait_until_blocked(conn, other.info.backend_pid)
        # Whoever claims the run next reads what was told, not what was before.
        assert not settle.done()
    assert settle.result(timeout=5) == {run}
    assert store.load_checkpoints(other, runs=[run]) == {run: "late"}


def test_progress_of_another_attempt_is_not_shown_as_this_one_s(leased):
    conn, [hot, _], run, lease = leased
    first = Note(run_id=run, token=lease.token, share=0.9, text="nearly there")
    store.note_if_leased(hot, [first])
    store.note_if_leased(hot, [note(lease, "1")])
    assert told(conn) == [(run, 1, pytest.approx(0.9), "nearly there", 1)]
    conn.execute("UPDATE chrono_lease SET attempt = 2")
    store.note_if_leased(hot, [note(lease, "2")])
    assert told(conn) == [(run, 2, None, None, 2)]


def test_one_note_that_is_refused_does_not_hold_up_the_others(leased):
    conn, [hot, _], run, lease = leased
    bad = Note(run_id=run, token=lease.token, checkpoint="not json")
    assert notes._write_notes(hot, [bad, note(lease, "1")]) == ({run}, set())
    assert [row[4] for row in told(conn)] == [1]


def test_a_run_that_was_ended_from_outside_is_stopped(
    dsn, connect, quick_beats, monkeypatch
):
    conn = connect()
    begun, ended = threading.Semaphore(0), threading.Semaphore(0)

    async def wait(payload):
        begun.release()
        try:
            await asyncio.Event().wait()
        finally:
            ended.release()

    [run] = make_ready(conn, task_job(conn, "wait"))
    with running(dsn, {"wait": wait}):
        assert begun.acquire(timeout=5)
        part = conn.execute("SELECT part FROM chrono_lease").fetchone()[0]
        assert store.end_lease(conn, run=run, part=part, reason=Reason.REPLACED)
        assert ended.acquire(timeout=5)
    assert settled(conn) == [(run, RunState.CANCELLED, Reason.REPLACED, 1, None)]


def test_a_handler_that_tells_something_learns_that_its_lease_is_gone(dsn, connect):
    conn = connect()
    begun, stopped = threading.Event(), threading.Event()

    def tell(payload, ctx):
        try:
            while True:
                ctx.checkpoint(1)
                begun.set()
                stopped.wait(0.01)
        except RunCancelled:
            stopped.set()
            raise

    make_ready(conn, task_job(conn, "tell"))
    with running(dsn, {"tell": tell}):
        assert begun.wait(5)
        wait_for(lambda: told(conn))
        # As a sweep does that took its worker for dead.
        conn.execute("DELETE FROM chrono_lease")
        conn.execute("DELETE FROM chrono_progress")
        assert stopped.wait(5)
    assert count(conn, "progress") == count(conn, "run") == count(conn, "timer") == 0


@pytest.mark.parametrize("way", ["cancel", "drain"])
def test_a_thread_that_is_called_off_keeps_its_last_checkpoint(
    dsn, connect, quick_beats, way
):
    conn = connect()
    begun = threading.Event()
    pages = []

    def work(payload, ctx):
        while True:
            pages.append(len(pages))
            begun.set()
            time.sleep(0.002)
            ctx.checkpoint(len(pages))

    [run] = make_ready(conn, task_job(conn, "work"))
    with running(dsn, {"work": work}, drain_s=4.1) as worker:
        assert begun.wait(5)
        if way == "cancel":
            cancel(conn, run)
            assert [row[1] for row in settled(conn)] == [RunState.CANCELLED]
            wait_for(lambda: told(conn) == [])
            return
        worker.stop()
        assert worker.result() is True
    # Handed back unspent, and nothing that was done is done again.
    assert [row[:2] for row in waiting(conn)] == [(run, 1)]
    assert [row[4] for row in told(conn)] == [len(pages)]


@pytest.mark.parametrize("limit", ["timeout", "progress_deadline"])
@pytest.mark.parametrize("kind", ["loop", "thread", "stubborn", "hung"])
def test_a_run_beyond_its_deadline_failed_as_timed_out(
    dsn, connect, monkeypatch, kind, limit
):
    monkeypatch.setattr(execute, "GRACE_S", 0.3)
    conn = connect()
    free = threading.Event()

    async def loop(payload, ctx):
        await asyncio.Event().wait()

    def thread(payload, ctx):
        while not ctx.cancelled:
            free.wait(0.01)

    async def stubborn(payload, ctx):
        while not free.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    def hung(payload, ctx):
        free.wait()

    functions = {f.__name__: f for f in (loop, thread, stubborn, hung)}

    async def noop(payload):
        return None

    [run] = make_ready(conn, task_job(conn, kind, **{limit: "200ms"}))
    with running(dsn, {kind: functions[kind], "noop": noop}) as worker:
        offered_again(conn, run, 2, claim=False)
        [(number, reason, error)] = conn.execute(
            "SELECT attempt, reason, error FROM chrono_attempt"
        ).fetchall()
        assert (number, reason) == (1, Reason.TIMED_OUT)
        said = {
            "timeout": "It ran for longer than 200ms.",
            "progress_deadline": "It told nothing for 200ms.",
        }
        assert error == said[limit]
        # A handler that does not stop keeps its seat and nothing else.
        make_ready(conn, task_job(conn, "noop"), count=30)
        settled(conn, 30)
        free.set()
        worker.stop()
        assert worker.result() is True


def test_whoever_tells_something_in_time_is_not_over_the_deadline(dsn, connect):
    conn = connect()

    async def tell(payload, ctx):
        for number in range(30):
            await asyncio.sleep(0.05)
            ctx.progress(number / 30)
        return "done"

    [run] = make_ready(conn, task_job(conn, "tell", progress_deadline="1s"))
    with running(dsn, {"tell": tell}):
        assert settled(conn) == [(run, RunState.SUCCESS, None, 1, "done")]


def test_a_success_within_the_grace_is_one(dsn, connect):
    conn = connect()

    def slow(payload):
        time.sleep(0.4)
        return "done"

    [run] = make_ready(conn, task_job(conn, "slow", timeout="100ms"))
    with running(dsn, {"slow": slow}):
        assert settled(conn) == [(run, RunState.SUCCESS, None, 1, "done")]


def test_a_worker_whose_every_seat_hangs_ends_itself(dsn, connect, monkeypatch):
    monkeypatch.setattr(execute, "GRACE_S", 0.1)
    conn = connect()
    free = threading.Event()
    make_ready(conn, task_job(conn, "hung", timeout="100ms"), count=2)
    with running(dsn, {"hung": lambda payload: free.wait()}, concurrency=2) as worker:
        assert worker.result() is False
        free.set()
    assert count(conn, "lease") == 0
    assert conn.execute(
        "SELECT count(*) FROM chrono_worker WHERE stopped_at IS NOT NULL"
    ).fetchone() == (1,)
