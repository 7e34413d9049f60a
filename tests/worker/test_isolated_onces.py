"""What isolated tasks do once, in real processes that are killed in between."""

import os
import signal

import pytest

from chrono.rules.states import Reason, RunState
from tests.support.seed import make_job, make_ready
from tests.worker.support import (
    FAST,
    count,
    gone,
    offered_again,
    settled,
    stopped,
    wait_for,
    waiting,
)


@pytest.fixture
def conn(connect):
    return connect()


class Effects:
    """The file that a task leaves its effects in, and what keeps it waiting."""

    def __init__(self, folder):
        self.file, self.wait = folder / "effects", folder / "wait"
        self.file.touch()
        os.mkfifo(self.wait)

    def lines(self):
        return self.file.read_text().splitlines()

    def attempts(self):
        """Return the attempts that charged."""
        return [int(line.split()[1]) for line in self.lines()]

    def pid(self):
        """Wait for the first charge; return the process that makes it."""
        return int(wait_for(self.lines, timeout=20)[0].split()[2])

    def go_on(self):
        """Let the one that waits go on."""
        wait_for(self.lines, timeout=20)
        self.wait.open("wb").close()


@pytest.fixture
def effects(tmp_path):
    return Effects(tmp_path)


def job(conn, name, effects, *, waits=False, timeout=None, **payload):
    payload |= {"file": str(effects.file)}
    if waits:
        payload["wait"] = str(effects.wait)
    target = {"kind": "task", "name": name}
    if timeout is not None:
        target["timeout"] = timeout
    return make_job(conn, target=target, payload=payload, retry_policy=FAST)


def is_held_up(conn):
    """Tell whether a statement on what is done once waits for a lock."""
    return conn.execute(
        """
        SELECT 1 FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND query LIKE '%chrono_once%'
        """
    ).fetchall()


@pytest.mark.parametrize("name", ["pay", "pay_async"])
@pytest.mark.parametrize(
    ("die", "reason", "charged", "kept"),
    [
        ("in it", Reason.PROCESS_CRASH, [1, 2], 2),
        ("behind it", Reason.PROCESS_CRASH, [1], 1),
        ("by raising", Reason.ATTEMPT_FAILED, [1], 1),
    ],
)
def test_the_next_attempt_does_only_what_was_not_finished(
    worker, conn, effects, name, die, reason, charged, kept
):
    [run] = make_ready(conn, job(conn, name, effects, die=die))
    process = worker()
    offered_again(conn, run, 2, claim=False)
    done = conn.execute("SELECT done_at IS NOT NULL FROM chrono_once").fetchall()
    assert done == [(die != "in it",)]
    assert count(conn, "lease") == 0
    offered_again(conn, run, 2)
    [row] = settled(conn)
    assert row == (run, RunState.SUCCESS, None, 2, [{"charged": [kept]}] * 2)
    assert effects.attempts() == charged
    rows = conn.execute("SELECT reason FROM chrono_attempt").fetchall()
    assert rows == [(reason,)]
    stopped(process)


def test_what_was_asked_before_a_process_is_killed_is_kept_before_its_run_is_settled(
    worker, conn, connect, effects
):
    """Or the next attempt would take over what is done, and do it again."""
    [run] = make_ready(conn, job(conn, "pay", effects, waits=True))
    process = worker()
    pid = effects.pid()
    slow = connect(autocommit=False)
    slow.execute("SELECT FROM chrono_once FOR UPDATE")
    effects.go_on()
    wait_for(lambda: is_held_up(conn))
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: gone(pid))
    # Another run goes all the way meanwhile.
    target = {"kind": "task", "name": "neighbour"}
    [other] = make_ready(conn, make_job(conn, target=target))
    assert settled(conn)[0][0] == other
    assert count(conn, "lease") == 1
    slow.commit()
    offered_again(conn, run, 2)
    rows = settled(conn, 2)
    assert [row[4] for row in rows if row[0] == run] == [[{"charged": [1]}] * 2]
    assert effects.attempts() == [1]
    stopped(process)


@pytest.mark.timeout(120)
def test_who_is_killed_at_its_deadline_is_settled_behind_what_it_asked_too(
    worker, conn, connect, effects
):
    [run] = make_ready(conn, job(conn, "pay", effects, waits=True, timeout="8s"))
    process = worker()
    pid = effects.pid()
    slow = connect(autocommit=False)
    slow.execute("SELECT FROM chrono_once FOR UPDATE")
    effects.go_on()
    wait_for(lambda: is_held_up(conn))
    # Nobody answers it, so it does not end when it is called off.
    wait_for(lambda: gone(pid), timeout=30)
    target = {"kind": "task", "name": "neighbour"}
    [other] = make_ready(conn, make_job(conn, target=target))
    assert settled(conn)[0][0] == other
    assert count(conn, "lease") == 1
    slow.commit()
    offered_again(conn, run, 2)
    rows = settled(conn, 2)
    assert [row[4] for row in rows if row[0] == run] == [[{"charged": [1]}] * 2]
    assert effects.attempts() == [1]
    rows = conn.execute("SELECT reason FROM chrono_attempt").fetchall()
    assert rows == [(Reason.TIMED_OUT,)]
    stopped(process)


def test_who_comes_second_in_a_process_comes_again_without_an_attempt_spent(
    worker, conn, effects
):
    shared = job(conn, "pay", effects, waits=True, per="job")
    make_ready(conn, shared)
    process = worker()
    effects.pid()
    [second] = make_ready(conn, shared)
    offered_again(conn, second, 1, claim=False)
    [(_, attempt, seconds)] = waiting(conn)
    assert (attempt, seconds > 2) == (1, True)
    effects.go_on()
    settled(conn)
    offered_again(conn, second, 1)
    rows = settled(conn, 2)
    assert [(row[1], row[4]) for row in rows] == [
        (RunState.SUCCESS, [{"charged": [1]}] * 2)
    ] * 2
    assert effects.attempts() == [1]
    assert count(conn, "attempt") == 0
    stopped(process)


def test_who_lost_the_lease_does_nothing_in_a_process_either(worker, conn, effects):
    make_ready(conn, job(conn, "late", effects, waits=True))
    process = worker()
    wait_for(effects.lines, timeout=20)
    conn.execute("DELETE FROM chrono_lease")
    effects.go_on()
    wait_for(lambda: len(effects.lines()) == 2)
    assert effects.lines() == ["begun", "called off"]
    assert count(conn, "once") == 0
    stopped(process)


def test_misuse_says_in_a_process_what_is_right(worker, conn, effects):
    make_ready(conn, job(conn, "misuse", effects))
    process = worker()
    [(*_, said)] = settled(conn)
    assert said[:3] == [
        "KeyError: 'not done'",
        "ValueError: ttl is from 1m to 90d.",
        "ValueError: A key of once() has no control characters.",
    ]
    assert said[3]["note"] == "result not stored"
    stopped(process)
