"""Many timers of one instant: one batch is aimed while the one before is fired."""

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from apps.jobs.commands import change_job
from apps.jobs.definition import parse_definition
from apps.runtime import notify
from apps.runtime.arrays import int8s
from apps.runtime.sessions import connect_voice
from apps.scheduler import fire, store
from tests.scheduler.conftest import NOON, Leader

SECOND = 1_000
HERD = 17


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let five timers be a batch."""
    monkeypatch.setattr(fire, "BATCH", 5)


def herd(leader: Leader, **fields: str) -> list[object]:
    return [
        leader.create(f"of the herd {n}", interval="10s", **fields) for n in range(HERD)
    ]


def test_every_one_of_a_herd_fires_once_and_is_planned_again(leader: Leader) -> None:
    jobs = herd(leader)
    leader.run_to(NOON + 10 * SECOND)
    assert leader.count("chrono_ready") == HERD
    assert leader.succeed() == HERD
    leader.run_to(NOON + 20 * SECOND)
    assert leader.count("chrono_ready") == HERD
    assert leader.count("chrono_occurrence") == 2 * HERD
    assert leader.count("chrono_timer") == len(jobs)


def test_another_thread_sends_all_that_is_more_than_a_batch(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    senders = watch(monkeypatch, threading.current_thread)
    herd(leader)
    leader.run_to(NOON + 10 * SECOND)
    assert len(senders) == 4
    assert threading.current_thread() not in senders


def test_one_that_is_closed_leaves_no_thread(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    senders = watch(monkeypatch, threading.current_thread)
    herd(leader)
    leader.run_to(NOON + 10 * SECOND)
    leader.dispatcher.close()
    assert not [thread for thread in senders if thread.is_alive()]


def test_workers_are_told_while_the_rest_is_fired(leader: Leader, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as other:

        def tell(queues: set[str]) -> None:
            [(ready,)] = other.execute("SELECT count(*) FROM chrono_ready").fetchall()
            told.append((queues, ready))

        told: list[tuple[set[str], int]] = []
        leader.begin_anew(tell=tell)
        herd(leader)
        leader.run_to(NOON + 9 * SECOND)
        leader.clock.moment = NOON + 10 * SECOND
        step = leader.dispatcher.step()
    assert [queues for queues, _ in told] == [{"default"}] * 3
    assert 5 <= told[0][1] < HERD
    # Of the last ones the step tells.
    assert (step.readied, step.queues) == (HERD, {"default"})


def test_a_voice_that_is_lost_in_mid_herd_keeps_nothing_from_firing(
    leader: Leader, dsn: str
) -> None:
    with connect_voice(dsn, name="test voice") as conn:

        def tell(queues: set[str]) -> None:
            told.append(queues)
            end(dsn, conn.info.backend_pid)
            voice.say(notify.READY, queues)

        told: list[set[str]] = []
        voice = notify.Voice(conn)
        leader.begin_anew(tell=tell)
        herd(leader)
        leader.run_to(NOON + 9 * SECOND)
        leader.clock.moment = NOON + 10 * SECOND
        step = leader.dispatcher.step()
    assert told == [{"default"}]
    assert leader.count("chrono_ready") == HERD
    # The step tells of all of them, and meets what is wrong.
    assert (step.readied, step.queues) == (HERD, {"default"})


def test_what_is_asked_for_a_batch_sees_what_was_sent_before(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ask = threading.Event(), store.list_live

    def told(*args: Any, **options: Any) -> Any:
        asked.set()
        return ask(*args, **options)

    def hesitate() -> None:
        # Whoever would ask too soon gets the chance.
        asked.clear()
        asked.wait(0.1)

    monkeypatch.setattr(store, "list_live", told)
    sent = watch(monkeypatch, hesitate)
    # An edit leaves twelve instants to be run, and two runs of the job may be live.
    fields = {
        "key": "bounded",
        "interval": "1s",
        "max_concurrent_runs": 2,
        "starts_at": "2055-03-01T12:00:01Z",
        "target": {"kind": "task", "name": "nothing"},
    }
    job = leader.create(**fields)
    leader.clock.moment = NOON + 12 * SECOND
    edited = parse_definition({**fields, "interval": "1h"})
    change_job(job, edited, now=leader.clock.moment)
    leader.step()
    assert leader.fired(job) == [NOON + SECOND, NOON + 2 * SECOND]
    assert len(sent) == 3


def test_a_batch_that_meets_a_lock_keeps_no_other_from_firing(
    leader: Leader, dsn: str
) -> None:
    jobs = herd(leader)
    leader.run_to(NOON + 9 * SECOND)
    [(part,)] = leader.conn.execute(
        "SELECT part FROM chrono_job WHERE id = %s", [jobs[0]]
    ).fetchall()
    leader.conn.execute("SET lock_timeout = '20ms'")
    with psycopg.connect(dsn) as other:
        other.execute("SELECT FROM chrono_partition WHERE id = %s FOR UPDATE", [part])
        leader.clock.moment = NOON + 10 * SECOND
        leader.dispatcher.step()
        [(theirs,)] = other.execute(
            "SELECT count(*) FROM chrono_job WHERE part = %s", [part]
        ).fetchall()
        assert leader.count("chrono_ready") == HERD - theirs
    leader.run_to(NOON + 12 * SECOND)
    assert leader.count("chrono_ready") == HERD


def test_a_session_that_ends_in_mid_herd_is_told_once_and_nothing_is_half_done(
    leader: Leader, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = leader.conn.info.backend_pid

    def end_session() -> None:
        if len(sent) == 2:
            end(dsn, pid)

    sent = watch(monkeypatch, end_session)
    herd(leader)
    leader.run_to(NOON + 9 * SECOND)
    leader.clock.moment = NOON + 10 * SECOND
    with pytest.raises(psycopg.OperationalError):
        leader.dispatcher.step()
    with psycopg.connect(dsn) as other:
        [(ready, decided)] = other.execute(
            "SELECT (SELECT count(*) FROM chrono_ready), "
            "(SELECT count(*) FROM chrono_occurrence)"
        ).fetchall()
    assert ready == decided == 10


def end(dsn: str, pid: int) -> None:
    """End somebody's session; return once it is over."""
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


def watch[T](monkeypatch: pytest.MonkeyPatch, look: Callable[[], T]) -> list[T]:
    """Return what ``look`` will have returned before each statement that fires."""
    seen: list[T] = []
    send = store.fire_undecided

    def watched(*args: Any, **options: Any) -> store.Firing:
        if options["batch"]["ns"] != int8s([]):  # A rehearsal fires nothing.
            seen.append(look())
        return send(*args, **options)

    monkeypatch.setattr(store, "fire_undecided", watched)
    return seen
