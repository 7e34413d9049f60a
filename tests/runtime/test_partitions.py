"""Leaves: made beside readers, filled from the default, detached and dropped."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import psycopg
import pytest

from apps.runtime import partitions
from apps.runtime.partitions import Leaf
from apps.runtime.sessions import Connection, connect_upkeep
from tests.support import pg

Background = Callable[..., Future[Any]]
PATIENT = "SET lock_timeout = '30s'"


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    """An upkeep session with two partitioned tables: one with a default leaf."""
    with connect_upkeep(dsn, name="test") as conn:
        for parent in ("chrono_open", "chrono_shut"):
            conn.execute(
                f"CREATE TABLE {parent} (id int PRIMARY KEY, word text, "
                "CHECK (id < 1000)) PARTITION BY RANGE (id)"
            )
        conn.execute(
            "CREATE TABLE chrono_shut_default PARTITION OF chrono_shut DEFAULT"
        )
        yield conn


def attach(conn: Connection, parent: str, number: int, **more: str) -> int:
    return partitions.attach_leaf(
        conn,
        parent=parent,
        leaf=f"{parent}_{number}",
        key="id",
        lower=str(10 * number),
        upper=str(10 * number + 10),
        **more,
    )


def names(conn: Connection, parent: str) -> list[str]:
    return [leaf.name for leaf in partitions.list_leaves(conn, parent=parent)]


def where(conn: Connection, parent: str) -> list[tuple[str, int]]:
    """Return the leaf and key of each row."""
    return conn.execute(  # type: ignore[return-value]
        f"SELECT tableoid::regclass::text, id FROM {parent} ORDER BY id"
    ).fetchall()


def test_a_leaf_takes_its_range_and_the_parent_s_shape(conn: Connection) -> None:
    assert attach(conn, "chrono_open", 1) == 0
    attach(conn, "chrono_open", 2)
    conn.execute("INSERT INTO chrono_open VALUES (10, 'a'), (19, 'b'), (20, 'c')")
    assert where(conn, "chrono_open") == [
        ("chrono_open_1", 10),
        ("chrono_open_1", 19),
        ("chrono_open_2", 20),
    ]
    with pytest.raises(psycopg.errors.UniqueViolation):
        conn.execute("INSERT INTO chrono_open VALUES (10, 'again')")
    with pytest.raises(psycopg.errors.CheckViolation):
        conn.execute("INSERT INTO chrono_open VALUES (30, 'no leaf')")


def test_a_leaf_is_stored_as_asked(conn: Connection) -> None:
    attach(conn, "chrono_open", 1, storage=partitions.HOT_STORAGE)
    [(options,)] = conn.execute(
        "SELECT reloptions FROM pg_class WHERE relname = 'chrono_open_1'"
    ).fetchall()
    assert "autovacuum_vacuum_threshold=5000" in options


def test_leaves_are_listed_by_name(conn: Connection) -> None:
    attach(conn, "chrono_shut", 3)
    attach(conn, "chrono_shut", 2)
    assert partitions.list_leaves(conn, parent="chrono_shut") == [
        Leaf(name="chrono_shut_2", detaching=False),
        Leaf(name="chrono_shut_3", detaching=False),
        Leaf(name="chrono_shut_default", detaching=False),
    ]


def test_the_default_leaf_s_rows_of_the_range_move(conn: Connection) -> None:
    conn.execute("INSERT INTO chrono_shut VALUES (9), (10), (19), (20)")
    assert attach(conn, "chrono_shut", 1) == 2
    assert where(conn, "chrono_shut") == [
        ("chrono_shut_default", 9),
        ("chrono_shut_1", 10),
        ("chrono_shut_1", 19),
        ("chrono_shut_default", 20),
    ]


def test_a_leaf_that_is_there_is_left_as_it_is(conn: Connection) -> None:
    attach(conn, "chrono_open", 1)
    conn.execute("INSERT INTO chrono_open VALUES (11)")
    assert attach(conn, "chrono_open", 1) == 0
    assert where(conn, "chrono_open") == [("chrono_open_1", 11)]


def test_a_table_left_by_an_attach_that_was_cut_off_is_taken(conn: Connection) -> None:
    conn.execute("CREATE TABLE chrono_open_1 (LIKE chrono_open INCLUDING ALL)")
    attach(conn, "chrono_open", 1)
    assert names(conn, "chrono_open") == ["chrono_open_1"]


def test_two_keepers_that_make_one_leaf_make_one(
    conn: Connection, dsn: str, connect: Callable[..., pg.Connection], background: Any
) -> None:
    observer = connect()
    with connect_upkeep(dsn, name="other") as other:
        other.execute(PATIENT)
        with conn.transaction():
            attach(conn, "chrono_open", 1)
            second: Future[int] = background(attach, other, "chrono_open", 1)
            pg.wait_until_blocked(observer, other.info.backend_pid)
        assert second.result(timeout=10) == 0
    assert names(conn, "chrono_open") == ["chrono_open_1"]


def test_a_reader_of_the_parent_does_not_hold_an_attach_up(
    conn: Connection, second_connection: pg.Connection
) -> None:
    attach(conn, "chrono_open", 1)
    with second_connection.transaction():
        second_connection.execute("SELECT FROM chrono_open").fetchall()
        attach(conn, "chrono_open", 2)
        second_connection.execute("INSERT INTO chrono_open VALUES (11)")
    assert names(conn, "chrono_open") == ["chrono_open_1", "chrono_open_2"]


def test_a_writer_in_the_default_leaf_makes_an_attach_give_up_whole(
    conn: Connection, second_connection: pg.Connection
) -> None:
    with second_connection.transaction():
        second_connection.execute("INSERT INTO chrono_shut VALUES (11)")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            attach(conn, "chrono_shut", 1)
    assert names(conn, "chrono_shut") == ["chrono_shut_default"]
    assert attach(conn, "chrono_shut", 1) == 1


def test_a_row_written_to_the_default_leaf_during_an_attach_moves_too(
    conn: Connection,
    connect: Callable[..., pg.Connection],
    background: Background,
) -> None:
    writer, observer = connect(), connect()
    conn.execute(PATIENT)
    conn.execute("INSERT INTO chrono_shut VALUES (11)")
    with writer.transaction():
        # Not seen by the attach when it looks what there is to move.
        writer.execute("INSERT INTO chrono_shut VALUES (12)")
        attached: Future[int] = background(attach, conn, "chrono_shut", 1)
        pg.wait_until_blocked(observer, conn.info.backend_pid)
    assert attached.result(timeout=10) == 2
    assert where(conn, "chrono_shut") == [("chrono_shut_1", 11), ("chrono_shut_1", 12)]


def test_a_detached_leaf_is_a_table_of_its_own_until_dropped(conn: Connection) -> None:
    attach(conn, "chrono_open", 1)
    conn.execute("INSERT INTO chrono_open VALUES (11)")
    [leaf] = partitions.list_leaves(conn, parent="chrono_open")
    partitions.detach_leaf(conn, parent="chrono_open", leaf=leaf)
    assert names(conn, "chrono_open") == []
    assert not partitions.is_empty(conn, table="chrono_open_1")
    partitions.drop_table(conn, table="chrono_open_1")
    partitions.drop_table(conn, table="chrono_open_1")
    assert conn.execute("SELECT to_regclass('chrono_open_1')").fetchone() == (None,)


def test_a_detach_that_a_timeout_left_pending_is_finished(
    conn: Connection, second_connection: pg.Connection
) -> None:
    attach(conn, "chrono_open", 1)
    [leaf] = partitions.list_leaves(conn, parent="chrono_open")
    with second_connection.transaction():
        second_connection.execute("SELECT FROM chrono_open").fetchall()
        with pytest.raises(psycopg.errors.LockNotAvailable):
            partitions.detach_leaf(conn, parent="chrono_open", leaf=leaf)
    [pending] = partitions.list_leaves(conn, parent="chrono_open")
    assert pending.detaching
    partitions.detach_leaf(conn, parent="chrono_open", leaf=pending)
    assert names(conn, "chrono_open") == []


def test_a_detach_lets_writers_of_the_parent_go_on(
    conn: Connection,
    connect: Callable[..., pg.Connection],
    background: Background,
) -> None:
    reader, writer, observer = connect(), connect(), connect()
    attach(conn, "chrono_open", 1)
    attach(conn, "chrono_open", 2)
    conn.execute(PATIENT)
    with reader.transaction():
        reader.execute("SELECT FROM chrono_open").fetchall()
        leaf = partitions.list_leaves(observer, parent="chrono_open")[0]
        detach = background(
            partitions.detach_leaf, conn, parent="chrono_open", leaf=leaf
        )
        pg.wait_until_blocked(observer, conn.info.backend_pid)
        writer.execute("SET lock_timeout = '2s'")
        writer.execute("INSERT INTO chrono_open VALUES (21)")
    detach.result(timeout=10)
    assert names(conn, "chrono_open") == ["chrono_open_2"]


def test_an_attached_leaf_beside_a_default_can_be_dropped(conn: Connection) -> None:
    attach(conn, "chrono_shut", 1)
    partitions.drop_table(conn, table="chrono_shut_1")
    assert names(conn, "chrono_shut") == ["chrono_shut_default"]
