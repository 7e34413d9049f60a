"""Runs that break off and go on: nothing done twice or left out, nobody charged."""

from chrono.rules.states import RunState
from tests.support.seed import make_job, make_ready
from tests.worker.support import FAST, count, offered_again, running, settled, wait_for


def task_job(conn, name):
    target = {"kind": "task", "name": name}
    return make_job(conn, target=target, retry_policy=FAST)


def test_h01_a_retry_goes_on_behind_the_last_mail_that_was_sent(dsn, connect):
    conn = connect()
    users, breaks_at = 210_847, 60_000
    sent = []

    def send_all(payload, ctx):
        for user in range(ctx.last_checkpoint or 0, users):
            if user == breaks_at and ctx.attempt == 1:
                raise ConnectionError("the mail server is gone")
            sent.append(f"{ctx.key}:{user}")
            if user % 1_000 == 999:
                ctx.checkpoint(user + 1)
        return len(sent)

    [run] = make_ready(conn, task_job(conn, "send"))
    with running(dsn, {"send": send_all}):
        offered_again(conn, run, 2)
        rows = settled(conn, timeout=30)
    assert rows == [(run, RunState.SUCCESS, None, 2, users)]
    assert len(sent) == len(set(sent)) == users


def test_d15_a_deploy_costs_no_attempt_and_another_worker_goes_on(dsn, connect):
    conn = connect()
    done = []

    def work(payload, ctx):
        for step in range(ctx.last_checkpoint or 0, 200):
            done.append((ctx.attempt, step))
            if len(done) == 50:
                first.stop()
            wait_for(lambda: ctx.cancelled or len(done) != 50)
            ctx.checkpoint(step + 1)
        return "done"

    [run] = make_ready(conn, task_job(conn, "work"))
    with running(dsn, {"work": work}, drain_s=4.1) as first:
        assert first.result() is True
    # Handed back at once, not after a lease, and with its attempt unspent.
    assert count(conn, "lease") == count(conn, "attempt") == 0
    offered_again(conn, run, 1)
    with running(dsn, {"work": work}):
        rows = settled(conn)
    assert rows == [(run, RunState.SUCCESS, None, 1, "done")]
    assert [step for _, step in done] == list(range(200))
    assert {attempt for attempt, _ in done} == {1}
