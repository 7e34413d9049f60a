"""Notices: heard by whom they are for, spaced, merged, and never too long."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from apps.runtime import notify, store
from apps.runtime.notify import JOBS, LEADERSHIP, LONGEST, READY, Voice
from apps.runtime.sessions import VOICE, Connection, connect, connect_voice
from tests.support import pg


class Time:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> Time:
    """The clock by which notices are spaced."""
    clock = Time()
    monkeypatch.setattr(notify, "time", clock)
    return clock


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    """A session to speak on; on a busy machine a statement may take its time."""
    settings = {**VOICE, "statement_timeout": "10000"}
    with connect(dsn, name="test voice", settings=settings, direct=True) as conn:
        yield conn


@pytest.fixture
def heard(second_connection: pg.Connection) -> Callable[[], list[tuple[str, str]]]:
    """Gives what another session heard since it was asked last."""
    notify.listen(second_connection, READY, JOBS, LEADERSHIP)

    def hear() -> list[tuple[str, str]]:
        # A statement brings along what was committed before it.
        second_connection.execute("SELECT 1")
        return [(n.channel, n.payload) for n in second_connection.notifies(timeout=0)]

    return hear


Heard = Callable[[], list[tuple[str, str]]]


def test_the_first_goes_out_at_once(
    conn: Connection, heard: Heard, passing: Time
) -> None:
    voice = Voice(conn)
    voice.say(READY, ["b", "a"])
    assert heard() == [(READY, "a,b")]
    assert voice.flush_in() is None


def test_what_follows_within_ten_milliseconds_goes_out_in_one(
    conn: Connection, heard: Heard, passing: Time
) -> None:
    voice = Voice(conn)
    voice.say(READY, ["a"])
    assert heard() == [(READY, "a")]
    passing.seconds += 0.004
    voice.say(READY, ["c"])
    voice.say(READY, ["b", "c"])
    assert heard() == []
    assert voice.flush_in() == pytest.approx(0.006)
    voice.flush()
    assert heard() == []
    passing.seconds += 0.007
    assert voice.flush_in() == 0.0
    voice.flush()
    assert heard() == [(READY, "b,c")]
    assert voice.flush_in() is None
    voice.flush()
    assert heard() == []


def test_channels_do_not_wait_for_one_another(
    conn: Connection, heard: Heard, passing: Time
) -> None:
    voice = Voice(conn)
    voice.say(READY, ["a"])
    voice.say(JOBS, ["7"])
    assert heard() == [(READY, "a"), (JOBS, "7")]


def test_too_many_words_become_a_notice_to_all(
    conn: Connection, heard: Heard, passing: Time
) -> None:
    voice = Voice(conn)
    voice.say(READY, [f"queue-{n}" for n in range(LONGEST // 7)])
    assert heard() == [(READY, "")]
    passing.seconds += 1
    just = "ü" * (LONGEST // 2)
    voice.say(READY, [just])
    assert heard() == [(READY, just)]
    passing.seconds += 1
    voice.say(READY, [just + "ü"])
    assert heard() == [(READY, "")]


def test_a_notice_to_all_stays_one_when_more_is_said(
    conn: Connection, heard: Heard, passing: Time
) -> None:
    voice = Voice(conn)
    voice.say(READY, ())
    voice.say(READY, ["a"])
    voice.say(READY, ())
    passing.seconds += 1
    voice.flush()
    assert heard() == [(READY, ""), (READY, "")]


def test_hear_tells_the_channels_and_does_not_wait(
    conn: Connection, second_connection: pg.Connection
) -> None:
    notify.listen(second_connection, JOBS)
    assert notify.hear(second_connection) == []
    voice = Voice(conn)
    voice.say(JOBS, ["1"])
    voice.say(LEADERSHIP, ())  # Nobody listens to this one here.
    second_connection.execute("SELECT 1")
    assert notify.hear(second_connection) == [JOBS]
    assert notify.hear(second_connection) == []


def test_a_notice_that_came_with_an_own_statement_is_kept_until_heard(
    conn: Connection,
) -> None:
    # It leaves nothing to read on the socket: who waits for that must ask before.
    notify.listen(conn, JOBS)
    voice = Voice(conn)
    voice.say(JOBS, ["1"])
    voice.say(READY, ["a"])
    assert notify.hear(conn) == [JOBS]


def test_who_speaks_waits_for_no_lock_and_says_it_a_second_later(
    dsn: str,
    heard: Heard,
    second_connection: pg.Connection,
    passing: Time,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries, send = [], store.notify

    def behind_others(conn: Connection, **words: Any) -> None:
        # Commits of notices wait for one another by a lock that no statement takes.
        tries.append(words)
        conn.execute("SELECT pg_advisory_lock(7)")
        conn.execute("SELECT pg_advisory_unlock(7)")
        send(conn, **words)

    monkeypatch.setattr(store, "notify", behind_others)
    with connect_voice(dsn, name="test voice") as conn:
        voice = Voice(conn)
        second_connection.execute("SELECT pg_advisory_lock(7)")
        voice.say(READY, ["a"])
        second_connection.execute("SELECT pg_advisory_unlock(7)")
        passing.seconds += 0.5
        voice.say(READY, ["b"])
        assert (len(tries), heard()) == (1, [])
        assert voice.flush_in() == pytest.approx(0.5)
        passing.seconds += 0.5
        voice.flush()
        assert heard() == [(READY, "a,b")]


def test_a_full_queue_of_the_server_is_said_once_and_stops_nobody(
    conn: Connection,
    heard: Heard,
    passing: Time,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(conn: Connection, **_: str) -> None:
        raise psycopg.errors.ProgramLimitExceeded("the queue is full")

    voice = Voice(conn)
    for _ in range(2):
        with monkeypatch.context() as full:
            full.setattr(store, "notify", refuse)
            for _ in range(3):
                passing.seconds += 1
                voice.say(READY, ["a"])
        assert heard() == []
        passing.seconds += 1
        voice.say(READY, ["b"])
        assert heard() == [(READY, "a,b")]
    assert [record.message for record in caplog.records] == [
        "notices are not sent: the queue is full"
    ] * 2
