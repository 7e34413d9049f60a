"""The tests' own tools: fresh databases, and the staging of races."""

from concurrent.futures import Future
from typing import Any

import django.db
import pytest

from tests.support import pg


def test_each_database_is_fresh_and_django_sees_the_same_one(database, connect):
    with django.db.connections["default"].cursor() as cursor:
        cursor.execute("CREATE TABLE trace (id int)")
        cursor.execute("SHOW timezone")
        assert cursor.fetchone() == ("UTC",)
    seen = connect().execute("SELECT to_regclass('trace') IS NOT NULL").fetchone()
    assert seen == (True,)


@pytest.mark.parametrize("turn", [1, 2])
def test_nothing_stays_of_an_earlier_test(dsn, connect, turn):
    conn = connect()
    assert conn.execute("SELECT to_regclass('trace')").fetchone() == (None,)
    conn.execute("CREATE TABLE trace (id int)")


def test_a_blocked_session_is_seen_waiting(connect, background):
    holder, waiter, observer = connect(), connect(), connect()
    holder.execute("SELECT pg_advisory_lock(1)")
    taken: Future[Any] = background(waiter.execute, "SELECT pg_advisory_lock(1)")
    pg.wait_until_blocked(observer, waiter.info.backend_pid)
    assert not taken.done()
    holder.execute("SELECT pg_advisory_unlock(1)")
    taken.result(timeout=5)


def test_an_idle_session_is_not_taken_for_a_blocked_one(connect, second_connection):
    idle = connect()
    with pytest.raises(TimeoutError, match="waits for no lock"):
        pg.wait_until_blocked(second_connection, idle.info.backend_pid, timeout=0.05)
