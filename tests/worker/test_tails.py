"""What a handler logged last is kept with its attempt, whatever it logs."""

import asyncio
import logging
import threading

import pytest

from apps.worker import tails
from apps.worker.storable import storable_log
from apps.worker.tails import FAILED_LIMIT, SUCCESS_LIMIT, Tail
from chrono.tasks import Context
from tests.support.seed import make_job, make_ready
from tests.worker.support import FAST, offered_again, running, settled

log = logging.getLogger("shop.payroll")
ONCE = {"max_attempts": 1}


@pytest.fixture
def conn(connect):
    return connect()


def ran(dsn, conn, function, *, state, retry_policy=None):
    """Run a task to its end; return what was kept of its log, by attempt."""
    job = make_job(
        conn,
        target={"kind": "task", "name": "it"},
        retry_policy=ONCE if retry_policy is None else retry_policy,
    )
    make_ready(conn, job)
    with running(dsn, {"it": function}):
        [row] = settled(conn)
    assert row[1] == state
    failed = conn.execute("SELECT log FROM chrono_attempt ORDER BY attempt").fetchall()
    [(own,)] = conn.execute("SELECT log FROM chrono_run").fetchall()
    return [text for (text,) in failed], own


class Holder:
    tail = None


def fail_aloud(payload, ctx):
    log.info("looking at %s", "March")
    ctx.log("half of it is done")
    raise ValueError("no money")


async def fail_aloud_on_the_loop(payload, ctx):
    log.info("looking at %s", "March")
    await asyncio.sleep(0)
    ctx.log("half of it is done")
    raise ValueError("no money")


@pytest.mark.parametrize("function", [fail_aloud, fail_aloud_on_the_loop])
def test_a_failed_attempt_has_what_it_logged_by_either_way(dsn, conn, function, caplog):
    caplog.set_level(logging.INFO)
    [kept], own = ran(dsn, conn, function, state=3)
    first, second = kept.split("\n")
    assert first.endswith("INFO shop.payroll: looking at March")
    assert second.endswith("INFO half of it is done")
    assert own is None, "the attempt has it"
    [(errors,)] = conn.execute("SELECT errors FROM chrono_dead_letter").fetchall()
    assert errors[-1]["log"] == kept


def test_a_success_keeps_the_end_of_its_log(dsn, conn, caplog):
    caplog.set_level(logging.INFO)

    def talk(payload):
        for n in range(200):
            log.info("step %s", n)

    failed, own = ran(dsn, conn, talk, state=1)
    assert failed == []
    assert own.endswith("step 199")
    assert len(own.encode()) <= SUCCESS_LIMIT


def test_a_quiet_success_keeps_nothing(dsn, conn):
    assert ran(dsn, conn, lambda payload: None, state=1) == ([], None)


def test_two_at_once_do_not_mix(dsn, conn, caplog):
    caplog.set_level(logging.INFO)
    barrier = threading.Barrier(2)

    def talk(payload, ctx):
        barrier.wait(5)
        for _ in range(5):
            log.info("of %s", ctx.run_id)
        barrier.wait(5)

    job = make_job(conn, target={"kind": "task", "name": "it"})
    make_ready(conn, job, count=2)
    with running(dsn, {"it": talk}):
        rows = settled(conn, 2)
    for run, *_ in rows:
        [(kept,)] = conn.execute(
            "SELECT log FROM chrono_run WHERE id = %s", [run]
        ).fetchall()
        assert kept.count(str(run)) == 5
        assert kept.count("of ") == 5


def test_f09_what_postgres_refuses_is_cleaned_and_the_run_fails_once_not_lost(
    dsn, conn, caplog
):
    caplog.set_level(logging.INFO)

    def fail(payload):
        log.info("nul \x00, half a pair \ud800, %s", "x")
        raise Exception("a\x00b\ud800")

    [kept], _ = ran(dsn, conn, fail, state=3)
    assert "nul \ufffd, half a pair ?, x" in kept
    [(error, attempt)] = conn.execute(
        "SELECT error, attempt FROM chrono_attempt"
    ).fetchall()
    assert error.startswith("Exception: a\ufffdb?")
    assert attempt == 1


def test_a_handler_that_logs_without_end_costs_a_bounded_tail(dsn, conn, caplog):
    caplog.set_level(logging.INFO)

    def shout(payload):
        for n in range(50):
            log.info("%s %s", n, "x" * 1_000_000)
        log.info("ü" * 6_000)
        raise ValueError

    [kept], _ = ran(dsn, conn, shout, state=3)
    assert len(kept.encode()) <= FAILED_LIMIT
    assert kept.startswith("[…]\n")
    assert kept.endswith("ü")


def test_a_retry_keeps_the_log_of_each_attempt(dsn, conn, caplog):
    caplog.set_level(logging.INFO)
    tail = [f"try {n}" for n in (1, 2)]

    def fail(payload, ctx):
        ctx.log(tail[ctx.attempt - 1])
        raise ValueError

    job = make_job(
        conn,
        target={"kind": "task", "name": "it"},
        retry_policy={**FAST, "max_attempts": 2},
    )
    [run] = make_ready(conn, job)
    with running(dsn, {"it": fail}):
        offered_again(conn, run, 2)
        settled(conn)
    logs = conn.execute("SELECT log FROM chrono_attempt ORDER BY attempt").fetchall()
    assert [text.endswith(said) for (text,), said in zip(logs, tail, strict=True)] == [
        True,
        True,
    ]


def test_chrono_s_own_lines_and_those_of_no_run_stay_out():
    holder = Holder()
    keeper = tails.install()
    token = tails.current.set(holder)
    try:
        logging.getLogger("chrono.worker").error("a fault of ours")
        assert holder.tail is None
        try:
            raise KeyError("who")
        except KeyError:
            log.exception("it broke")
        assert "KeyError: 'who'" in holder.tail.text()
    finally:
        tails.current.reset(token)
        logging.getLogger().removeHandler(keeper)
    log.error("nobody's")
    assert "nobody" not in holder.tail.text()


class Hostile:
    def __str__(self):
        raise RuntimeError("no")


def test_a_record_that_cannot_be_shown_is_told_as_such():
    keeper, holder = tails.TailHandler(), Holder()
    token = tails.current.set(holder)
    try:
        for message, arguments in (("%s %s", ("x",)), ("%s", (Hostile(),))):
            keeper.handle(logging.LogRecord("it", 20, "f", 1, message, arguments, None))
    finally:
        tails.current.reset(token)
    assert holder.tail.text().count("a record that cannot be shown") == 2


def test_the_tail_has_a_bound_in_lines_and_bytes():
    tail = Tail()
    for n in range(10_000):
        tail.write(str(n))
    assert tail.text().endswith("\n9999")
    assert len(tail.text()) < 2 * FAILED_LIMIT
    assert storable_log("", most=10) is None
    assert storable_log("a" * 20, most=10) == "[…]\n" + "a" * 4


def test_a_context_of_a_test_logs_too(caplog):
    caplog.set_level(logging.INFO)
    Context(
        run_id="r", key="k", job_id="j", attempt=1, scheduled_for=None, fence=1
    ).log("100 % done")
    assert caplog.messages == ["100 % done"]
