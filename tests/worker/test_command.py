"""`manage.py runworker` as it is really started: processes, signals, exit codes."""

import os
import signal
import time

import pytest

from apps.runs.sweep import Sweep
from apps.runtime.clock import DatabaseClock
from tests.support.seed import make_job, make_ready
from tests.worker.support import count, settled, wait_for


def output(process):
    text, _ = process.communicate(timeout=30)
    return text


def living(conn, number):
    """Wait for so many living workers; return their process ids."""

    def look():
        rows = conn.execute(
            "SELECT pid FROM chrono_worker WHERE NOT dead ORDER BY started_at"
        ).fetchall()
        return [pid for (pid,) in rows] if len(rows) == number else None

    return wait_for(look, timeout=20)


def test_processes_share_the_work_and_end_together(start, connect):
    conn = connect()
    make_ready(
        conn, make_job(conn, target={"kind": "task", "name": "probe"}), count=100
    )
    process = start(
        "--processes",
        "2",
        "--concurrency",
        "5",
        CHRONO_TASK_MODULES="tests.worker.probe",
    )
    pids = living(conn, 2)
    assert process.pid not in pids
    settled(conn, 100)
    process.send_signal(signal.SIGTERM)
    lines = output(process).splitlines()
    assert process.returncode == 0
    assert [line.split("chrono.worker ")[1].split(" worker=")[0] for line in lines] == [
        "worker starts",
        "worker starts",
        "worker stopped",
        "worker stopped",
    ]
    assert conn.execute(
        "SELECT count(*) FROM chrono_worker WHERE stopped_at IS NOT NULL"
    ).fetchone() == (2,)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_worker_gives_way_to_what_is_not_one(start, connect, processes):
    start("--processes", str(processes))
    own = os.getpriority(os.PRIO_PROCESS, 0)
    niceness = {
        os.getpriority(os.PRIO_PROCESS, pid) for pid in living(connect(), processes)
    }
    assert niceness == {min(own + 5, 19)}


def test_a_process_that_dies_is_replaced(start, connect):
    conn = connect()
    process = start("--processes", "2")
    victim, survivor = living(conn, 2)
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: living(conn, 2)[0] == survivor)
    process.send_signal(signal.SIGINT)
    text = output(process)
    assert process.returncode == 0
    assert "a process ended; another starts in 1 s" in text


def test_a_parent_hands_back_what_its_dead_child_held_at_once(start, connect):
    conn = connect()
    process = start("--processes", "2", CHRONO_TASK_MODULES="tests.worker.probe")
    pids = living(conn, 2)
    job = make_job(conn, target={"kind": "task", "name": "hang"})
    make_ready(conn, job, count=60)
    wait_for(lambda: count(conn, "ready") == 0)
    [(held,)] = conn.execute(
        "SELECT count(*) FROM chrono_lease l JOIN chrono_worker w ON w.id = l.worker"
        " WHERE pid = %s",
        [pids[0]],
    ).fetchall()
    assert held
    os.kill(pids[0], signal.SIGKILL)
    begun = time.monotonic()
    wait_for(lambda: count(conn, "timer_far") + count(conn, "timer") == held)
    # A second, and what a busy machine adds.
    assert time.monotonic() - begun < 2
    assert count(conn, "lease") == 60 - held
    # Their tasks would hang for as long as they may.
    orphans = living(conn, 2)
    process.kill()
    for pid in orphans:
        os.kill(pid, signal.SIGKILL)


def test_the_process_of_a_killed_worker_is_found_by_its_sessions(
    start, connect, dsn, monkeypatch
):
    monkeypatch.setattr("apps.runs.sweep.GONE_AFTER", 100)
    monkeypatch.setattr("apps.runs.sweep.SESSIONS_BACK_AFTER", 0)
    conn = connect()
    process = start(CHRONO_TASK_MODULES="tests.worker.probe")
    living(conn, 1)
    make_ready(conn, make_job(conn, target={"kind": "task", "name": "hang"}), count=3)
    wait_for(lambda: count(conn, "lease") == 3)
    sweep, clock = Sweep(horizon=lambda: 0), DatabaseClock(conn)
    assert sweep.step(conn, clock=clock) == 0
    process.kill()
    wait_for(lambda: sweep.step(conn, clock=clock) == 3)
    assert conn.execute("SELECT dead FROM chrono_worker").fetchall() == [(True,)]


def test_without_their_parent_processes_end(start, connect):
    conn = connect()
    process = start("--processes", "2")
    living(conn, 2)
    process.kill()
    ended = "SELECT count(*) FROM chrono_worker WHERE stopped_at IS NOT NULL"
    wait_for(lambda: conn.execute(ended).fetchone() == (2,))


@pytest.mark.parametrize("name", ["hang", "hang_async"])
def test_a_single_process_ends_though_a_thread_hangs(start, connect, name):
    conn = connect()
    make_ready(conn, make_job(conn, target={"kind": "task", "name": name}))
    process = start(CHRONO_TASK_MODULES="tests.worker.probe")
    while process.stdout.readline() != "hanging\n":
        assert process.poll() is None

    def insist():
        process.send_signal(signal.SIGTERM)
        return count(conn, "lease") == 0

    wait_for(insist)
    output(process)
    assert process.returncode == 0
    assert count(conn, "timer") + count(conn, "timer_far") == 1


@pytest.mark.parametrize(
    ("arguments", "env", "line"),
    [
        (["--queues", " ,"], {}, "--queues names no queue"),
        (["--concurrency", "0"], {}, "--concurrency is a number from 1 to 100000"),
        (["--processes", "0"], {}, "--processes is a number from 1 to 256"),
        (
            [],
            {"CHRONO_EGRESS_ALLOW": "home"},
            "CHRONO_EGRESS_ALLOW: home is no network",
        ),
        ([], {"CHRONO_WEBHOOK_SECRET": "whsec_AAAA"}, "24 to 64 random bytes"),
    ],
)
def test_what_cannot_work_is_said_without_a_traceback(start, arguments, env, line):
    process = start(*arguments, **env)
    text = output(process)
    assert process.returncode != 0
    assert line in text
    assert "Traceback" not in text


def test_a_run_that_kills_its_processes_ends_alone_and_harms_nobody(
    start, connect, dsn, monkeypatch
):
    monkeypatch.setattr("apps.runs.sweep.GONE_AFTER", 100)
    monkeypatch.setattr("apps.runs.sweep.SESSIONS_BACK_AFTER", 0)
    conn = connect()
    once = {"max_attempts": 1}
    poison = make_job(conn, target={"kind": "task", "name": "die"}, retry_policy=once)
    good = make_job(conn, target={"kind": "task", "name": "nap"}, retry_policy=once)
    sweep, clock = Sweep(horizon=lambda: 0), DatabaseClock(conn)
    [guilty], innocent = make_ready(conn, poison), make_ready(conn, good, count=5)
    for _ in range(2):
        process = start("--processes", "1", CHRONO_TASK_MODULES="tests.worker.probe")
        assert process.wait(20) == -signal.SIGKILL
        wait_for(lambda: sweep.step(conn, clock=clock))
        make_ready_again(conn)
    # The beat of a worker starts a process for the six that were set aside.
    process = start(CHRONO_TASK_MODULES="tests.worker.probe")
    dead = "SELECT id FROM chrono_run WHERE state = 3 AND reason = 22"

    def swept_to_the_end():
        sweep.step(conn, clock=clock)
        return count(conn, "run") == 6

    wait_for(swept_to_the_end, timeout=40)
    assert conn.execute(dead).fetchall() == [(guilty,)]
    rows = conn.execute("SELECT id FROM chrono_run WHERE state = 1 ORDER BY id")
    assert [run for (run,) in rows.fetchall()] == innocent
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def make_ready_again(conn):
    conn.execute(
        """
        WITH moved AS (DELETE FROM chrono_timer_far RETURNING *)
        INSERT INTO chrono_ready (due_at, dispatched_at, run_id, job_id, tag, fence,
            revision, tenant, part, priority, attempt, slice, queue)
        SELECT due_at, now(), ref, job_id, 1, 1, 1, 1, part, 2, attempt, 0, 'default'
        FROM moved
        """
    )
