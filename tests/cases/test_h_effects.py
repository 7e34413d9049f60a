"""Incidents: mails that went out twice, and one bad row that stopped the others."""

from collections import Counter

from chrono.rules.states import RunState
from tests.support.seed import make_job, make_ready
from tests.worker.support import FAST, count, offered_again, running, settled, wait_for

PEOPLE = 300


def two_attempts(dsn, conn, task):
    """Run a task whose first attempt fails; return what became of its run."""
    target = {"kind": "task", "name": "mail"}
    [run] = make_ready(conn, make_job(conn, target=target, retry_policy=FAST))
    with running(dsn, {"mail": task}):
        offered_again(conn, run, 2)
        wait_for(lambda: count(conn, "run"), timeout=60)
        return settled(conn)[0]


def test_h01_h02_a_retry_sends_to_nobody_who_was_served(dsn, connect):
    sent = Counter()

    def mail(payload, ctx):
        for person in range(PEOPLE):
            if ctx.attempt == 1 and person == PEOPLE // 3:
                raise ValueError("an edge case")
            ctx.once(f"mail:{person}", sent.update, [person])
        return sum(sent.values())

    run = two_attempts(dsn, connect(), mail)
    assert (run[1], run[4]) == (RunState.SUCCESS, PEOPLE)
    assert set(sent.values()) == {1}
    assert len(sent) == PEOPLE


def test_h03_one_bad_row_stops_no_other_and_the_retry_touches_it_alone(dsn, connect):
    touched, bad = Counter(), 17

    def dun(invoice, attempt):
        touched.update([(attempt, invoice)])
        if invoice == bad and attempt == 1:
            raise ValueError(f"invoice {invoice}")

    def mail(payload, ctx):
        wrong = []
        for invoice in range(50):
            try:
                ctx.once(f"dun:{invoice}", dun, invoice, ctx.attempt)
            except ValueError as error:
                wrong.append(str(error))
        if wrong:
            raise ValueError("; ".join(wrong))
        return "all"

    conn = connect()
    run = two_attempts(dsn, conn, mail)
    assert (run[1], run[4]) == (RunState.SUCCESS, "all")
    assert [one for one in touched if one[0] == 2] == [(2, bad)]
    assert len(touched) == 51
    [(error,)] = conn.execute("SELECT error FROM chrono_attempt").fetchall()
    assert error.startswith("ValueError: invoice 17")
