"""Isolated tasks in real processes: what they do to themselves harms nobody else."""

import os
import signal
import threading
import time
from datetime import datetime

import psutil
import pytest

from apps.runs.cancel import cancel
from chrono.rules.keys import scheduled_for_of
from chrono.rules.states import Reason, RunState
from tests.support.seed import make_job, make_ready
from tests.worker.support import (
    count,
    gone,
    heard,
    offered_again,
    settled,
    stopped,
    wait_for,
    waiting,
)

ONCE = {"max_attempts": 1}
AT_ONCE = {"max_attempts": 4, "backoff": {"base_ms": 0, "cap_ms": 0}}


def task_job(conn, name, *, payload=None, retry_policy=ONCE, **limits):
    target = {"kind": "task", "name": name, **limits}
    return make_job(conn, target=target, payload=payload, retry_policy=retry_policy)


def attempts(conn):
    return conn.execute(
        "SELECT reason, error FROM chrono_attempt ORDER BY run_id, attempt"
    ).fetchall()


def test_isolated_runs_are_executed_and_leave_their_results(worker, connect):
    conn = connect()
    make_ready(conn, task_job(conn, "pid"), count=20)
    [run] = make_ready(conn, task_job(conn, "pid_async"))
    payload = {"text": "a\u2028\U0001f600", "list": [1, None, 2.5, True]}
    make_ready(conn, task_job(conn, "echo", payload=payload))
    make_ready(conn, task_job(conn, "object"))
    process = worker("--concurrency", "4")
    rows = settled(conn, 23, timeout=30)
    assert {row[1] for row in rows} == {RunState.SUCCESS}
    *plain, aware, echoed, note = [row[4] for row in rows]
    # Processes are taken again, and are none of the worker.
    assert 1 <= len(set(plain)) <= 8
    assert process.pid not in plain
    assert aware[1:3] == [str(run), 1]
    assert datetime.fromisoformat(aware[3]).timestamp() * 1000 == scheduled_for_of(run)
    assert echoed == payload
    assert note["note"] == "result not stored"
    stopped(process)
    wait_for(lambda: all(gone(pid) for pid in {*plain, aware[0]}))


@pytest.mark.parametrize(
    ("name", "reason", "said"),
    [
        ("raise", Reason.ATTEMPT_FAILED, ["ValueError: no\ufffdsuch ? thing", "fail"]),
        ("exit", Reason.PROCESS_CRASH, ["It ended its process: sys.exit(3)."]),
        ("os_exit", Reason.PROCESS_CRASH, ["exit code 137", "about to leave"]),
        ("segfault", Reason.PROCESS_CRASH, ["SIGSEGV", "isolated.py", "in crash"]),
        ("killed", Reason.PROCESS_CRASH, ["SIGKILL: out of memory, perhaps"]),
        ("hog", Reason.PROCESS_CRASH, ["It ran out of memory: more than 256 MiB."]),
        ("too_much", Reason.ATTEMPT_FAILED, ["NotStorable: A checkpoint is JSON of"]),
    ],
)
def test_a_task_that_ends_its_process_costs_its_own_run_an_attempt(
    worker, connect, name, reason, said
):
    conn = connect()
    bad = task_job(conn, name, payload=64, retry_policy=AT_ONCE)
    [run] = make_ready(conn, bad)
    make_ready(conn, task_job(conn, "neighbour"), count=50)
    make_ready(conn, task_job(conn, "pid"), count=10)
    process = worker("--concurrency", "20")
    rows = settled(conn, 60, timeout=30)
    assert {row[1] for row in rows} == {RunState.SUCCESS}
    assert [row[:2] for row in waiting(conn)] == [(run, 2)]
    [(found, error)] = attempts(conn)
    assert found == reason
    for words in said:
        assert words in error
    assert count(conn, "lease") == 0
    stopped(process)


def test_e01_a_run_that_kills_its_process_ends_in_the_dead_letters(worker, connect):
    conn = connect()
    policy = {**AT_ONCE, "max_attempts": 3}
    [run] = make_ready(conn, task_job(conn, "os_exit", retry_policy=policy))
    make_ready(conn, task_job(conn, "neighbour"), count=20)
    process = worker()
    for attempt in (2, 3):
        offered_again(conn, run, attempt)
    rows = settled(conn, 21, timeout=30)
    assert rows[0] == (run, RunState.DEAD, Reason.ATTEMPTS_EXHAUSTED, 3, None)
    assert {row[1:4] for row in rows[1:]} == {(RunState.SUCCESS, None, 1)}
    [(errors,)] = conn.execute("SELECT errors FROM chrono_dead_letter").fetchall()
    assert [e["attempt"] for e in errors] == [1, 2, 3]
    assert all("exit code 137" in e["error"] for e in errors)
    stopped(process)


def test_what_an_isolated_run_logged_last_is_kept_with_it(worker, connect):
    conn = connect()
    make_ready(conn, task_job(conn, "speak"))
    make_ready(conn, task_job(conn, "speak", payload=True))
    process = worker()
    settled(conn, 2, timeout=30)
    [(kept,)] = conn.execute("SELECT log FROM chrono_run WHERE state = 1").fetchall()
    [(of_failed,)] = conn.execute("SELECT log FROM chrono_attempt").fetchall()
    for text in (kept, of_failed):
        assert "a line of the log" in text
        assert text.endswith("a printed line")
    stopped(process)


def test_memory_within_the_bound_is_had(worker, connect):
    conn = connect()
    # 8 times, since what one run took is no other's.
    make_ready(conn, task_job(conn, "hog", payload=8), count=8)
    process = worker("--concurrency", "2")
    assert [row[4] for row in settled(conn, 8, timeout=30)] == [8] * 8
    stopped(process)


@pytest.mark.parametrize("limit", ["timeout", "progress_deadline"])
def test_a_task_that_holds_the_gil_is_killed_at_its_deadline(worker, connect, limit):
    conn = connect()
    name = "hold_gil" if limit == "timeout" else "parent"
    [run] = make_ready(
        conn, task_job(conn, name, retry_policy=AT_ONCE, **{limit: "3s"})
    )
    process = worker()
    if name == "parent":
        grandchild = int(heard(process, "grandchild").split()[1])
    else:
        heard(process, "holding")
    began = time.monotonic()
    make_ready(conn, task_job(conn, "neighbour"), count=200)
    settled(conn, 200)
    took = time.monotonic() - began
    wait_for(lambda: count(conn, "attempt") == 1, timeout=25)
    assert waiting(conn)[0][:2] == (run, 2)
    [(reason, error)] = attempts(conn)
    assert reason == Reason.TIMED_OUT
    assert "3s" in error
    # The neighbours had not to wait for the deadline and its grace.
    assert took < 5
    if name == "parent":
        wait_for(lambda: gone(grandchild))
    stopped(process)


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_a_gigabyte_of_output_slows_only_who_prints_it(worker, connect):
    conn = connect()
    [run] = make_ready(conn, task_job(conn, "gigabyte"))
    process = worker()
    heard(process, "xxx")
    began = time.monotonic()
    for _ in range(10):
        make_ready(conn, task_job(conn, "neighbour"), count=20)
    text = []
    reader = threading.Thread(target=lambda: text.append(process.stdout.read()))
    reader.start()
    wait_for(lambda: count(conn, "run") >= 200, timeout=20)
    assert time.monotonic() - began < 10
    [memory] = [psutil.Process(process.pid).memory_info().rss]
    assert memory < 400 * 1024 * 1024
    wait_for(lambda: count(conn, "run") == 201, timeout=100)
    rows = conn.execute(
        "SELECT state, result FROM chrono_run WHERE id = %s", [run]
    ).fetchall()
    assert rows == [(RunState.SUCCESS, "printed")]
    process.send_signal(signal.SIGTERM)
    process.wait(20)
    reader.join(10)
    assert len(text[0]) < 3 * 1024 * 1024
    assert "[more was printed and is left out]" in text[0]


def test_a_process_with_a_thread_left_behind_is_not_taken_again(worker, connect):
    conn = connect()
    make_ready(conn, task_job(conn, "leave_thread"), count=3)
    process = worker("--concurrency", "1")
    pids = [row[4] for row in settled(conn, 3, timeout=30)]
    assert len(set(pids)) == 3
    wait_for(lambda: all(map(gone, pids)))
    stopped(process)


def test_checkpoints_outlive_the_process_that_kept_them(worker, connect):
    conn = connect()
    [run] = make_ready(conn, task_job(conn, "resume", retry_policy=AT_ONCE))
    process = worker()
    for attempt in (2, 3):
        offered_again(conn, run, attempt)
    [row] = settled(conn)
    # The crash lost what was told right behind its first words: of 1 and 2 the 2.
    assert row == (run, RunState.SUCCESS, None, 3, 3)
    wait_for(lambda: count(conn, "progress") == 0)
    stopped(process)


def test_a_cancel_travels_into_the_process(worker, connect):
    conn = connect()
    names = ("work", "wait_async", "hold_gil")
    runs = [make_ready(conn, task_job(conn, name))[0] for name in names]
    process = worker()
    wait_for(lambda: count(conn, "progress") == 1)
    wait_for(lambda: count(conn, "lease") == 3)
    for run in runs:
        assert cancel(conn, run) == RunState.RUNNING
    # At the next beat, and for who does not listen after a grace besides.
    wait_for(lambda: count(conn, "run") == 3, timeout=25)
    ended = (RunState.CANCELLED, Reason.OPERATOR, 1, None)
    assert settled(conn, 3, timeout=30) == [(run, *ended) for run in runs]
    wait_for(lambda: count(conn, "progress") == 0)
    stopped(process)


def test_stopping_hands_isolated_runs_back_with_their_last_checkpoint(worker, connect):
    conn = connect()
    runs = [make_ready(conn, task_job(conn, n))[0] for n in ("work", "hold_gil")]
    process = worker()
    heard(process, "working")
    children = psutil.Process(process.pid).children(recursive=True)
    wait_for(lambda: count(conn, "progress") == 1)

    def insist():
        process.send_signal(signal.SIGTERM)
        return count(conn, "lease") == 0

    wait_for(insist)
    process.communicate(timeout=20)
    assert process.returncode == 0
    assert [row[:2] for row in waiting(conn, 2)] == [(run, 1) for run in runs]
    [(checkpoint,)] = conn.execute("SELECT checkpoint FROM chrono_progress").fetchall()
    assert checkpoint > 0
    assert len(children) >= 3
    wait_for(lambda: all(gone(child.pid) for child in children))


def test_a_killed_worker_takes_its_processes_along(worker, connect):
    conn = connect()
    make_ready(conn, task_job(conn, "hold_gil"), count=2)
    make_ready(conn, task_job(conn, "parent"))
    process = worker()
    grandchild = int(heard(process, "grandchild").split()[1])
    wait_for(lambda: count(conn, "lease") == 3)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 4
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: all(gone(child.pid) for child in children))
    assert gone(grandchild)


def test_without_the_process_that_forks_a_worker_gives_up(worker, connect):
    conn = connect()
    process = worker()
    [nursery] = psutil.Process(process.pid).children()
    nursery.kill()
    text, _ = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "no process for tasks can be started any more" in text
    assert conn.execute(
        "SELECT count(*) FROM chrono_worker WHERE stopped_at IS NOT NULL"
    ).fetchone() == (1,)


def test_signals_to_the_whole_group_leave_isolated_runs_to_the_worker(worker, connect):
    conn = connect()
    make_ready(conn, task_job(conn, "work", retry_policy=AT_ONCE))
    process = worker()
    heard(process, "working")
    everybody = psutil.Process(process.pid).children(recursive=True)
    for child in everybody:
        child.send_signal(signal.SIGTERM)
        child.send_signal(signal.SIGINT)
    wait_for(lambda: count(conn, "progress") == 1)
    [(before,)] = conn.execute("SELECT checkpoint FROM chrono_progress").fetchall()

    def goes_on():
        rows = conn.execute("SELECT checkpoint FROM chrono_progress").fetchall()
        return rows[0][0] > before

    wait_for(goes_on)
    assert not any(gone(child.pid) for child in everybody)
