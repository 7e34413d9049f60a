"""Tasks in the transaction that settles their run: effects once, or not at all."""

import contextlib
import logging
import threading
import time

import django.db
import psycopg
import pytest
from django.db import transaction

from apps.runs import store, sweep
from apps.runs.cancel import cancel
from apps.runtime import django_session
from apps.runtime.sessions import connect_hot
from apps.worker import beats
from apps.worker.handlers import transaction as handlers
from chrono.rules.states import Reason, RunState
from chrono.tasks import NotATask, Registry
from tests.support.pg import wait_until_blocked
from tests.support.seed import make_job, make_ready
from tests.worker.support import FAST, count, offered_again, running, settled, wait_for


@pytest.fixture
def conn(connect):
    conn = connect()
    conn.execute("CREATE TABLE effect (run text, attempt integer)")
    return conn


def write(ctx):
    """Write one effect, as SQL of Django's would."""
    with django.db.connection.cursor() as cursor:
        cursor.execute("INSERT INTO effect VALUES (%s, %s)", [ctx.run_id, ctx.attempt])


def effects(conn):
    return conn.execute("SELECT attempt FROM effect ORDER BY attempt").fetchall()


def one_run(conn, name="pay", **options):
    job = make_job(
        conn, target={"kind": "task", "name": name}, retry_policy=FAST, **options
    )
    [run] = make_ready(conn, job)
    return run


def last_error(conn):
    [(error,)] = conn.execute(
        "SELECT error FROM chrono_attempt ORDER BY attempt DESC LIMIT 1"
    ).fetchall()
    return error


def test_the_effect_and_the_success_are_one_transaction(dsn, conn):
    def pay(payload, ctx):
        write(ctx)
        ctx.connection.execute("INSERT INTO effect VALUES (%s, 9)", [ctx.run_id])
        return {"paid": payload}

    run = one_run(conn, payload=5)
    with running(dsn, transactional={"pay": pay}):
        rows = settled(conn)
    assert rows == [(run, RunState.SUCCESS, None, 1, {"paid": 5})]
    assert effects(conn) == [(1,), (9,)]
    [(same,)] = conn.execute(
        "SELECT r.xmin = e.xmin FROM chrono_run r, effect e LIMIT 1"
    ).fetchall()
    assert same
    assert count(conn, "lease") == 0


def test_what_it_logged_is_settled_with_it(dsn, conn, caplog):
    caplog.set_level(logging.INFO)
    one_run(conn)
    with running(dsn, transactional={"pay": lambda _, ctx: ctx.log("paid")}):
        settled(conn)
    [(kept,)] = conn.execute("SELECT log FROM chrono_run").fetchall()
    assert kept.endswith("INFO paid")


def test_what_a_failed_attempt_wrote_is_gone(dsn, conn):
    def pay(payload, ctx):
        write(ctx)
        if ctx.attempt == 1:
            raise ValueError("no")

    run = one_run(conn)
    with running(dsn, transactional={"pay": pay}):
        offered_again(conn, run, 2)
        settled(conn)
    assert effects(conn) == [(2,)]
    assert "ValueError: no" in last_error(conn)


def test_whoever_lost_the_lease_rolls_back(dsn, conn):
    begun, go_on = threading.Event(), threading.Event()

    def pay(payload, ctx):
        write(ctx)
        begun.set()
        assert go_on.wait(10)

    run = one_run(conn)
    with running(dsn, transactional={"pay": pay}):
        assert begun.wait(10)
        [(part,)] = conn.execute("SELECT part FROM chrono_lease").fetchall()
        assert store.end_lease(conn, run=run, part=part, reason=Reason.REPLACED)
        go_on.set()
        wait_for(lambda: not in_transaction(conn))
    assert effects(conn) == []
    assert settled(conn)[0][1] == RunState.CANCELLED


def in_transaction(conn):
    return conn.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
        "AND state = 'idle in transaction'"
    ).fetchall()


def test_a_rescue_and_the_commit_at_once_leave_one_of_them(dsn, conn, connect):
    """The rescue holds the lease's row: the settle waits, and finds it gone."""
    begun, go_on = threading.Event(), threading.Event()
    pids = []

    def pay(payload, ctx):
        write(ctx)
        pids.append(ctx.connection.info.backend_pid)
        begun.set()
        assert go_on.wait(10)

    one_run(conn)
    rescuer = connect(autocommit=False)
    with running(dsn, transactional={"pay": pay}):
        assert begun.wait(10)
        rescuer.execute("DELETE FROM chrono_lease")
        go_on.set()
        wait_until_blocked(conn, pids[0])
        rescuer.commit()
        wait_for(lambda: not in_transaction(conn))
    assert effects(conn) == []
    assert count(conn, "run") == 0


def test_a_run_that_is_called_off_before_it_returns_leaves_nothing(
    dsn, conn, monkeypatch
):
    monkeypatch.setattr(beats, "next_beat_in", lambda *_: 20)
    begun = threading.Event()

    def pay(payload, ctx):
        write(ctx)
        begun.set()
        while not ctx.cancelled:
            pass
        return "half of it"

    run = one_run(conn)
    with running(dsn, transactional={"pay": pay}):
        assert begun.wait(10)
        assert cancel(conn, run) is RunState.RUNNING
        assert settled(conn)[0][1] == RunState.CANCELLED
    assert effects(conn) == []


ONCE = {"delivery": "at_most_once"}


def rescue_all(dsn):
    """Have the sweeper find every worker dead."""
    with connect_hot(dsn, name="test") as hot:
        hot.execute("UPDATE chrono_worker SET dead = true")
        return sweep.rescue_all(hot, now=0, horizon=lambda: 0)


@pytest.mark.parametrize("policy", [ONCE, {}], ids=["once", "at least once"])
def test_it_is_known_before_that_one_that_may_be_begun_once_is_transactional(
    dsn, conn, policy
):
    def pay(payload, ctx):
        write(ctx)
        [(known,)] = conn.execute("SELECT transactional FROM chrono_lease").fetchall()
        return known

    one_run(conn, policy=policy)
    with running(dsn, transactional={"pay": pay}):
        assert settled(conn)[0][-1] is (policy == ONCE)


def lose(dsn, run, *, then=lambda: None):
    """Have a worker that nobody knows hold a run of such a task, and sweep."""
    with connect_hot(dsn, name="test") as hot:
        [lease] = store.claim_ready(hot, queue="default", limit=1, worker=run)
        store.mark_transactional(hot, run=run, part=lease.part, token=lease.token)
        then()
        assert sweep.rescue_all(hot, now=0, horizon=lambda: 0) == 1


def test_one_that_may_be_begun_once_failed_without_effect_when_its_worker_is_lost(
    dsn, conn
):
    run = one_run(conn, policy=ONCE)
    lose(dsn, run)
    assert settled(conn) == [(run, RunState.DEAD, Reason.WORKER_LOST, 1, None)]
    assert last_error(conn) == sweep.UNDONE
    assert count(conn, "dead_letter") == 1


def test_one_that_was_told_to_stop_is_cancelled_when_its_worker_is_lost(dsn, conn):
    run = one_run(conn, policy=ONCE)
    lose(dsn, run, then=lambda: cancel(conn, run))
    assert [state for _, state, *_ in settled(conn)] == [RunState.CANCELLED]


def test_one_that_may_be_begun_once_failed_without_effect_when_a_stop_interrupts_it(
    dsn, conn
):
    begun = threading.Event()

    def pay(payload, ctx):
        write(ctx)
        begun.set()
        while not ctx.cancelled:
            time.sleep(0.01)

    run = one_run(conn, policy=ONCE)
    with running(dsn, transactional={"pay": pay}, drain_s=4.1) as worker:
        assert begun.wait(10)
        worker.stop()
        assert worker.result() is True
    assert settled(conn) == [(run, RunState.DEAD, Reason.WORKER_LOST, 1, None)]
    assert "rolled back" in last_error(conn)
    assert effects(conn) == []


def test_what_on_commit_raises_undoes_nothing(dsn, conn):
    called = threading.Event()

    def pay(payload, ctx):
        write(ctx)

        def mail():
            called.set()
            raise ValueError("no mail today")

        transaction.on_commit(mail)

    run = one_run(conn)
    with running(dsn, transactional={"pay": pay}) as worker:
        assert settled(conn)[0][:2] == (run, RunState.SUCCESS)
        assert called.wait(5)
        worker.stop()
        assert worker.result() is True
    assert effects(conn) == [(1,)]
    assert count(conn, "attempt") == 0


def commit_by_hand(payload, ctx):
    ctx.connection.commit()


def roll_back_by_hand(payload, ctx):
    ctx.connection.rollback()


def commit_by_django(payload, ctx):
    transaction.commit()


def go_on_after_an_error(payload, ctx):
    with contextlib.suppress(psycopg.errors.DivisionByZero):
        ctx.connection.execute("SELECT 1 / 0")


def give_up(payload, ctx):
    write(ctx)
    transaction.set_rollback(True)


def hang_up(payload, ctx):
    django.db.connection.close()


@pytest.mark.parametrize(
    ("task", "said", "state"),
    [
        (commit_by_hand, handlers.ENDED, RunState.DEAD),
        (roll_back_by_hand, handlers.ENDED, RunState.DEAD),
        (commit_by_django, "forbidden when an 'atomic' block is active", None),
        (go_on_after_an_error, handlers.BROKEN, None),
        (give_up, handlers.GIVEN_UP, None),
        (hang_up, "session with Postgres ended", None),
    ],
)
def test_misuse_is_a_failure_that_says_what_is_right(dsn, conn, task, said, state):
    one_run(conn, "odd")
    with running(dsn, transactional={"odd": task}):
        wait_for(lambda: count(conn, "attempt"))
        if state is not None:
            assert settled(conn)[0][1] == state
    assert said in last_error(conn)
    assert effects(conn) == []


def test_a_write_to_another_database_is_refused_and_a_read_is_not(dsn, conn):
    kept = django.db.connections.databases
    other = dict(kept["default"])

    def odd(payload, ctx):
        write(ctx)
        other = django.db.connections["other"]
        try:
            with other.cursor() as cursor:
                cursor.execute("SELECT 1 FOR UPDATE")
                cursor.execute("with a as (select 1) insert into effect select 'x', 1")
        finally:
            other.close()

    django.db.connections.databases["other"] = other
    try:
        one_run(conn, "odd")
        with running(dsn, transactional={"odd": odd}):
            wait_for(lambda: count(conn, "attempt"))
    finally:
        del django.db.connections.databases["other"]
    assert "WriteElsewhere" in last_error(conn)
    assert "the database other" in last_error(conn)
    assert effects(conn) == []


def test_a_default_database_that_is_not_chrono_s_is_told(
    dsn, conn, databases, monkeypatch
):
    real = store.begin_effects

    def elsewhere(conn, **facts):
        conn.execute("SET LOCAL search_path = pg_catalog")
        return real(conn, **facts)

    monkeypatch.setattr(store, "begin_effects", elsewhere)
    one_run(conn)
    with running(dsn, transactional={"pay": lambda payload: None}):
        wait_for(lambda: count(conn, "attempt"))
    assert handlers.ELSEWHERE in last_error(conn)


def test_no_database_for_the_transaction_spends_no_attempt(dsn, conn, monkeypatch):
    def refuse():
        raise django.db.OperationalError("away")

    monkeypatch.setattr(django_session, "renew", refuse)
    one_run(conn)
    with running(dsn, transactional={"pay": lambda payload: None}):
        [(attempt,)] = wait_for(
            lambda: conn.execute("SELECT attempt FROM chrono_timer_far").fetchall()
        )
    assert attempt == 1
    assert count(conn, "attempt") == 0


def test_only_a_plain_function_can_be_transactional():
    async def late(payload):
        """Wait."""

    for function, isolation in ((late, None), (lambda payload: None, "process")):
        with pytest.raises(NotATask, match="transactional task is a plain function"):
            Registry().add("x", function, isolation=isolation, transactional=True)
