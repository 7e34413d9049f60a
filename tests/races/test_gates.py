"""Races about the circuit of a target: one probe, one opening, exact budgets."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from apps.runs import target_store, targets
from apps.runs.targets import Told
from apps.runtime.sessions import connect_hot
from apps.scheduler import store
from chrono.rules.budget import BudgetPolicy
from chrono.rules.gates import Gate
from chrono.rules.retry import RetryPolicy
from chrono.rules.states import Reason

KEY = (1, "https://sick.example:443")
GATE = Gate(Reason.CIRCUIT_OPEN, *KEY)


@pytest.fixture
def hot(dsn):
    """A factory of hot sessions, closed after the test."""
    opened = []

    def connect():
        opened.append(connect_hot(dsn, name="test gates"))
        return opened[-1]

    yield connect
    for conn in opened:
        conn.close()


def shut(conn, *, runs):
    """Open the circuit, its probe due, with so many runs behind it."""
    target_store.insert_targets(conn, keys=[KEY])
    conn.execute(
        "UPDATE chrono_target SET state = 2, probe_at = now() - interval '1 second'"
    )
    conn.execute(
        "INSERT INTO chrono_worker (id, host, pid, concurrency, queues) "
        "VALUES (gen_random_uuid(), 't', 1, 1, '{default}')"
    )
    conn.execute(
        """
        INSERT INTO chrono_blocked (due_at, dispatched_at, run_id, job_id, tag, fence,
            revision, tenant, part, priority, attempt, queue, gate, reason)
        SELECT now() - n * interval '1 s', now(), gen_random_uuid(), gen_random_uuid(),
            0, 1, 1, 1, n %% 64, 2, 1, 'default', %s, 11 FROM generate_series(1, %s) n
        """,
        [GATE.key, runs],
    )


def probe(conn):
    return store.admit_probes(conn, gate=GATE, ttl=30_000, into=0, now=None)


def test_of_two_keepers_at_the_same_moment_one_lets_a_probe_in(hot, background):
    """The second one comes while the first has the row, and after it."""
    first, second, third = hot(), hot(), hot()
    shut(first, runs=10)
    with first.transaction():
        assert probe(first) == ["default"]
        # It finds the row locked and goes by.
        assert background(probe, second).result(timeout=5) == []
    assert probe(second) == []
    assert probe(third) == []
    assert first.execute("SELECT count(*) FROM chrono_ready").fetchone() == (1,)
    [(ready,)] = first.execute("SELECT run_id FROM chrono_ready").fetchall()
    [(named,)] = first.execute("SELECT probes FROM chrono_target").fetchall()
    assert named == [ready]


def test_many_keepers_at_once_let_one_probe_in(hot):
    sessions = [hot() for _ in range(8)]
    shut(sessions[0], runs=100)
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(lambda conn: sum(len(probe(conn)) for _ in range(5)), sessions)
        )
    assert sorted(found) == [0] * 7 + [1]


def told(*, good=False, retry=False):
    return Told(
        key=KEY,
        run=uuid.uuid4(),
        token=uuid.uuid4(),
        good=good,
        retry=retry,
        policy=RetryPolicy(),
    )


def test_failures_that_many_workers_tell_at_once_are_all_counted(hot):
    sessions = [hot() for _ in range(8)]

    def tell(conn):
        targets.report(conn, [told()], firsts={})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda conn: [tell(conn), tell(conn)], sessions))
    for _ in range(3):
        tell(sessions[0])
    [(state, failures)] = (
        sessions[0].execute("SELECT state, failures FROM chrono_target").fetchall()
    )
    assert (state, failures) == (1, 19)
    tell(sessions[0])
    [(state, gates)] = (
        sessions[0]
        .execute("SELECT state, gates FROM chrono_target, chrono_dispatch_state")
        .fetchall()
    )
    assert (state, gates) == (2, 1)


def test_the_budget_is_exact_however_many_ask_at_once(hot):
    """Some two hundred first attempts, told once: twenty retries, none besides."""
    sessions = [hot() for _ in range(8)]
    policy = replace(RetryPolicy(), budget=BudgetPolicy(ratio=0.1, min_concurrent=0))
    targets.report(
        sessions[0], [replace(told(good=True), policy=policy)], firsts={KEY: 209}
    )

    def ask(conn):
        asked = [replace(told(good=True, retry=True), policy=policy) for _ in range(3)]
        refused, _ = targets.report(conn, asked, firsts={})
        return len(asked) - len(refused)

    with ThreadPoolExecutor(8) as pool:
        granted = list(pool.map(lambda conn: sum(ask(conn) for _ in "abc"), sessions))
    assert sum(granted) == 20
    [counted] = sessions[0].execute("SELECT granted, refused FROM chrono_target")
    assert counted == (20, 52)


def test_workers_that_tell_of_the_same_targets_in_any_order_do_not_deadlock(hot):
    sessions = [hot() for _ in range(6)]
    keys = [(1, f"task-{n}") for n in range(8)]

    def tell(number):
        mine = keys[number % 8 :] + keys[: number % 8]
        calls = [replace(told(), key=key) for key in mine]
        targets.report(sessions[number % 6], calls, firsts={})

    with ThreadPoolExecutor(6) as pool:
        # Each session is one thread's: round robin in steps.
        for start in range(0, 18, 6):
            list(pool.map(tell, range(start, start + 6)))
    rows = sessions[0].execute("SELECT failures FROM chrono_target").fetchall()
    assert rows == [(18,)] * 8
