"""What tasks do once: done, being done by somebody alive, or left by somebody dead."""

import asyncio
import threading
import uuid

import psycopg
import pytest

import chrono
from apps.runs import once_store, store, worker_store
from apps.runs.days import purge_kept
from apps.runtime.sessions import connect_hot
from apps.worker.onces import Once, Sessions, ttl_of
from chrono.rules.instants import DAY, MINUTE
from chrono.rules.states import RunState
from chrono.tasks import Context, Done, OnceBusy, RunCancelled
from tests.support.seed import make_job, make_ready
from tests.worker.support import FAST, count, offered_again, running, settled, wait_for

TARGET = {"kind": "task", "name": "pay"}
WEEK = {"per": "run", "ttl": "7d"}


@pytest.fixture
def conn(connect):
    return connect()


@pytest.fixture
def sessions(dsn):
    sessions = Sessions(dsn)
    yield sessions
    sessions.close()


class Attempts:
    """Executions of a run or more, each with a worker of its own."""

    def __init__(self, dsn, conn, sessions):
        self._dsn, self._conn, self._sessions = dsn, conn, sessions
        self.job = make_job(conn, target=TARGET)

    def begin(self):
        """Claim a new run; return what its execution does things once with."""
        make_ready(self._conn, self.job)
        return self._claim()

    def again(self, dead):
        """Have the worker of an execution die and another claim the run."""
        self._conn.execute("DELETE FROM chrono_lease WHERE token = %s", [dead.token])
        self._conn.execute(
            """
            INSERT INTO chrono_ready (due_at, dispatched_at, run_id, job_id, tag, fence,
                revision, tenant, part, priority, attempt, slice, queue)
            VALUES (now(), now(), %s, %s, 1, 1, 1, 1, %s, 2, 2, 0, 'default')
            """,
            [dead.run, self.job.id, self.job.part],
        )
        return self._claim()

    def _claim(self):
        worker = uuid.uuid4()
        with connect_hot(self._dsn, name="test") as hot:
            worker_store.register_worker(
                hot, worker=worker, host="t", pid=1, concurrency=9, queues=["default"]
            )
            [lease] = store.claim_ready(hot, queue="default", limit=1, worker=worker)
        once = Once(lease, self._sessions)
        once.token, once.run, once.worker = lease.token, lease.run_id, worker
        return once


@pytest.fixture
def attempts(dsn, conn, sessions):
    return Attempts(dsn, conn, sessions)


def test_the_first_does_it_and_all_others_get_the_answer(attempts):
    first = attempts.begin()
    assert first.take("charge", **WEEK) is None
    assert first.finish("charge", {"id": 7}, **WEEK) == {"id": 7}
    assert first.take("charge", **WEEK) == Done(result={"id": 7})
    second = attempts.again(first)
    assert second.take("charge", **WEEK) == Done(result={"id": 7})
    assert second.take("mail", **WEEK) is None
    other = attempts.begin()
    assert other.take("charge", **WEEK) is None, "the key is the run's own"


def test_while_somebody_alive_is_at_it_the_others_back_off(attempts):
    first, other = attempts.begin(), attempts.begin()
    shared = {"per": "job", "ttl": "7d"}
    assert first.take("month", **shared) is None
    with pytest.raises(OnceBusy, match="month"):
        other.take("month", **shared)
    with pytest.raises(OnceBusy):
        first.take("month", **shared)
    first.finish("month", 1, **shared)
    assert other.take("month", **shared) == Done(result=1)


@pytest.mark.parametrize("sign", ["its lease is gone", "its worker is dead"])
def test_what_a_dead_one_was_at_is_taken_over_by_one(attempts, conn, sign):
    shared = {"per": "job", "ttl": "7d"}
    dead, heir, late = attempts.begin(), attempts.begin(), attempts.begin()
    assert dead.take("month", **shared) is None
    if sign == "its lease is gone":
        conn.execute("DELETE FROM chrono_lease WHERE token = %s", [dead.token])
    else:
        conn.execute(
            "UPDATE chrono_worker SET dead = true WHERE id = %s", [dead.worker]
        )
    assert heir.take("month", **shared) is None
    with pytest.raises(OnceBusy):
        late.take("month", **shared)
    # The dead one was only slow: what it did counts for nothing here.
    with pytest.raises(RunCancelled):
        dead.finish("month", "late", **shared)
    dead.release("month", per="job")
    heir.finish("month", "mine", **shared)
    assert late.take("month", **shared) == Done(result="mine")


def test_of_two_heirs_one_takes_over(attempts, conn, background):
    shared = {"per": "job", "ttl": "7d"}
    dead = attempts.begin()
    heirs = [attempts.begin() for _ in range(8)]
    dead.take("month", **shared)
    conn.execute("DELETE FROM chrono_lease WHERE token = %s", [dead.token])

    def take(heir):
        try:
            return heir.take("month", **shared) is None
        except OnceBusy:
            return False

    calls = [background(take, heir) for heir in heirs]
    assert sorted(call.result(timeout=10) for call in calls) == [False] * 7 + [True]


def test_who_waits_behind_another_that_begins_meanwhile_does_not_take_over(
    attempts, conn, connect, background
):
    """The holder's lease may be younger than the statement that waits for its row."""
    other, holder = attempts.begin(), attempts.begin()
    shared = {"per": "job", "ttl": "7d"}
    slow = connect(autocommit=False)
    holder.join(slow)
    assert holder.take("month", **shared) is None
    waiting = background(other.take, "month", **shared)
    wait_for(
        lambda: conn.execute(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        ).fetchall()
    )
    slow.commit()
    with pytest.raises(OnceBusy):
        waiting.result(timeout=10)


def test_who_lost_the_lease_takes_nothing(attempts, conn):
    late = attempts.begin()
    attempts.again(late)
    with pytest.raises(RunCancelled):
        late.take("charge", **WEEK)
    assert count(conn, "once") == 0


def test_what_was_not_done_is_given_back(attempts, conn):
    first = attempts.begin()
    first.take("charge", **WEEK)
    first.release("charge", per="run")
    assert count(conn, "once") == 0
    assert first.take("charge", **WEEK) is None


def test_a_key_is_forgotten_after_its_time_to_live(attempts, conn, connect):
    first = attempts.begin()
    short = {"per": "run", "ttl": "1m"}
    first.take("a", **short)
    first.finish("a", 1, **short)
    first.take("b", **short)
    assert first.take("a", **short) == Done(result=1)
    [(now,)] = conn.execute(
        "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    ).fetchall()

    def left(at):
        purge_kept(connect(), now=at)
        rows = conn.execute("SELECT key FROM chrono_once ORDER BY key").fetchall()
        return "".join(key for (key,) in rows)

    assert left(now + MINUTE // 2) == "ab"
    conn.execute("UPDATE chrono_once SET expires_at = now() - interval '1 s'")
    assert first.take("a", **short) is None, "forgotten, purged or not"
    first.finish("a", 2, **short)
    assert left(now + 2 * MINUTE) == "b"
    assert left(now + 8 * DAY) == ""


@pytest.mark.parametrize(
    ("ttl", "said"),
    [
        ("59s", "from 1m to 90d"),
        ("91d", "from 1m to 90d"),
        ("", "a number with a unit"),
        ("soon", "a number with a unit"),
        ("7", "a number with a unit"),
    ],
)
def test_a_wrong_time_to_live_says_what_is_right(ttl, said):
    with pytest.raises(ValueError, match=said):
        ttl_of(ttl)
    assert ttl_of("90d") == 90 * DAY


def test_an_answer_waits_for_a_database_that_is_away(attempts, monkeypatch):
    first = attempts.begin()
    first.take("charge", **WEEK)
    real, away = once_store.finish_once, [2]

    def finish(*args, **kwargs):
        if away[0]:
            away[0] -= 1
            raise psycopg.OperationalError("away")
        return real(*args, **kwargs)

    monkeypatch.setattr(once_store, "finish_once", finish)
    assert first.finish("charge", 1, **WEEK) == 1
    assert first.take("charge", **WEEK) == Done(result=1)


def test_what_cannot_be_kept_is_a_note_the_first_time_too(attempts):
    first = attempts.begin()
    first.take("a", **WEEK)
    told = first.finish("a", {1, 2}, **WEEK)
    assert told["note"] == "result not stored"
    assert first.take("a", **WEEK) == Done(result=told)


# In a worker.


def plain(calls):
    def charge(amount):
        calls.append(amount)
        return {"charged": (amount,)}

    def pay(payload, ctx):
        told = [ctx.once("charge", charge, 5), ctx.once("charge", charge, 5)]
        if ctx.attempt == 1:
            raise ValueError("after the charge")
        return told

    return pay


def late(calls):
    async def charge(amount):
        await asyncio.sleep(0)
        calls.append(amount)
        return {"charged": (amount,)}

    async def pay(payload, ctx):
        told = [await ctx.once("charge", charge, 5) for _ in range(2)]
        if ctx.attempt == 1:
            raise ValueError("after the charge")
        return told

    return pay


@pytest.mark.parametrize("form", [plain, late])
def test_a_retry_finds_the_answer_of_the_first_attempt(dsn, conn, form):
    calls = []
    [run] = make_ready(conn, make_job(conn, target=TARGET, retry_policy=FAST))
    with running(dsn, {"pay": form(calls)}):
        offered_again(conn, run, 2)
        rows = settled(conn)
    assert rows[0][4] == [{"charged": [5]}] * 2
    assert calls == [5]


def test_who_comes_second_comes_again_without_an_attempt_spent(dsn, conn):
    begun, go_on = threading.Event(), threading.Event()
    calls = []

    def close(payload):
        calls.append(payload)
        begun.set()
        assert go_on.wait(10)
        return "closed"

    def pay(payload, ctx):
        return ctx.once("2026-05", close, payload, per="job")

    job = make_job(conn, target=TARGET, retry_policy=FAST)
    make_ready(conn, job)
    with running(dsn, {"pay": pay}):
        assert begun.wait(10)
        [second] = make_ready(conn, job)
        offered_again(conn, second, 1, claim=False)
        go_on.set()
        settled(conn)
        offered_again(conn, second, 1)
        rows = settled(conn, 2)
    assert [(row[1], row[4]) for row in rows] == [(RunState.SUCCESS, "closed")] * 2
    assert len(calls) == 1
    assert count(conn, "attempt") == 0


def test_in_a_transactional_task_it_is_undone_with_the_rest(dsn, conn):
    conn.execute("CREATE TABLE effect (attempt integer)")

    def pay(payload, ctx):
        def write():
            ctx.connection.execute("INSERT INTO effect VALUES (%s)", [ctx.attempt])
            return ctx.attempt

        told = ctx.once("write", write)
        assert ctx.once("write", write) == told
        if ctx.attempt == 1:
            raise ValueError("no")
        return told

    [run] = make_ready(conn, make_job(conn, target=TARGET, retry_policy=FAST))
    with running(dsn, transactional={"pay": pay}):
        offered_again(conn, run, 2, claim=False)
        assert count(conn, "once") == 0
        offered_again(conn, run, 2)
        assert settled(conn)[0][4] == 2
    assert conn.execute("SELECT attempt FROM effect").fetchall() == [(2,)]


def test_misuse_says_what_is_right(dsn, conn):
    said = []

    async def coroutine():
        """Do nothing."""

    async def pay(payload, ctx):
        for call in (
            lambda: ctx.once("a", lambda: 1),
            lambda: ctx.once("", coroutine),
            lambda: ctx.once("x" * 201, coroutine),
            lambda: ctx.once("a\n", coroutine),
            lambda: ctx.once("a", coroutine, per="tenant"),
        ):
            try:
                call()
            except (TypeError, ValueError) as error:
                said.append(str(error))

    make_ready(conn, make_job(conn, target=TARGET))
    with running(dsn, {"pay": pay}):
        settled(conn)
    assert len(said) == 5
    for text, part in zip(
        said,
        ("takes a coroutine function", "1 to 200", "1 to 200", "control", "run or job"),
        strict=True,
    ):
        assert part in text


def test_a_context_of_a_test_calls_each_time():
    facts = dict.fromkeys(("run_id", "key", "job_id", "scheduled_for"), "x")
    ctx = Context(**facts, attempt=1, fence=1)
    assert [ctx.once("a", lambda: 5), ctx.once("a", lambda: 6)] == [5, 6]
    assert chrono.OnceBusy is OnceBusy
