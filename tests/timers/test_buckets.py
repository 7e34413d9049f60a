"""Hourly buckets: a day ahead, filled from far, dropped when over and empty."""

import uuid
from collections.abc import Iterator

import pytest

from apps.runtime import partitions
from apps.runtime.sessions import Connection, connect_upkeep
from apps.timers import buckets, store
from apps.timers.buckets import AHEAD, KEPT, PARENT
from chrono.rules.buckets import HOUR, bucket_name
from chrono.rules.instants import MINUTE, Millis, from_millis, parse_instant
from tests.support import pg

NOON: Millis = parse_instant("2055-03-01T12:20:00Z")
HOUR_OF_NOON: Millis = parse_instant("2055-03-01T12:00:00Z")


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    """An upkeep session on a database that last saw upkeep two hours before noon."""
    with connect_upkeep(dsn, name="test") as conn:
        conn.execute(
            "UPDATE chrono_dispatch_state SET horizon = to_timestamp(%s / 1000.0)",
            [HOUR_OF_NOON - 2 * HOUR],
        )
        yield conn


def leaves(conn: Connection) -> list[str]:
    return [leaf.name for leaf in partitions.list_leaves(conn, parent=PARENT)]


def put(
    conn: Connection, due: Millis, *, table: str = "chrono_timer_far", part: int = 5
) -> uuid.UUID:
    """Write a timer and return what it is for."""
    ref = uuid.uuid4()
    at = from_millis(due)
    conn.execute(
        f"INSERT INTO {table} (due_at, scheduled_for, ref, job_id, version, revision, "
        "part, kind) VALUES (%s, %s, %s, %s, 1, 1, %s, 1)",
        [at, at, ref, ref, part],
    )
    return ref


def places(conn: Connection) -> dict[uuid.UUID, str]:
    """Return the table of each timer."""
    rows = conn.execute(
        "SELECT ref, tableoid::regclass::text FROM chrono_timer "
        "UNION ALL SELECT ref, 'far' FROM chrono_timer_far"
    ).fetchall()
    return dict(rows)


def test_every_hour_up_to_a_day_ahead_has_a_bucket(conn: Connection) -> None:
    horizon = buckets.ensure_buckets(conn, now=NOON)
    assert horizon >= NOON + AHEAD
    assert horizon < NOON + AHEAD + HOUR
    assert store.read_dispatch_state(conn).horizon == horizon
    assert leaves(conn) == [
        bucket_name(start) for start in range(HOUR_OF_NOON - HOUR, horizon, HOUR)
    ]
    for due in range(HOUR_OF_NOON - HOUR, horizon, 20 * MINUTE):
        put(conn, due, table="chrono_timer")
    assert set(places(conn).values()) == set(leaves(conn))


def test_a_second_time_makes_nothing_and_an_hour_later_one(conn: Connection) -> None:
    horizon = buckets.ensure_buckets(conn, now=NOON)
    before = leaves(conn)
    assert buckets.ensure_buckets(conn, now=NOON) == horizon
    assert leaves(conn) == before
    assert buckets.ensure_buckets(conn, now=NOON + HOUR) == horizon + HOUR
    assert leaves(conn) == [*before, bucket_name(horizon)]


def test_a_long_stop_makes_no_buckets_of_hours_that_are_over(conn: Connection) -> None:
    buckets.ensure_buckets(conn, now=NOON)
    week = 7 * 24 * HOUR
    buckets.ensure_buckets(conn, now=NOON + week)
    late = [name for name in leaves(conn) if name >= bucket_name(NOON + AHEAD + HOUR)]
    assert late[0] == bucket_name(NOON + week - HOUR)
    put(conn, HOUR_OF_NOON + week, table="chrono_timer")


def test_a_keeper_that_died_before_it_published_is_followed_by_another(
    conn: Connection,
) -> None:
    horizon = buckets.ensure_buckets(conn, now=NOON)
    conn.execute(
        "UPDATE chrono_dispatch_state SET horizon = horizon - interval '1 hour'"
    )
    assert buckets.ensure_buckets(conn, now=NOON) == horizon
    assert store.read_dispatch_state(conn).horizon == horizon


def test_a_lock_that_is_not_to_be_had_leaves_the_rest_for_the_next_time(
    conn: Connection, second_connection: pg.Connection
) -> None:
    with second_connection.transaction():
        second_connection.execute("LOCK TABLE chrono_timer IN SHARE MODE")
        before = store.read_dispatch_state(conn).horizon
        assert buckets.ensure_buckets(conn, now=NOON) == before
    assert buckets.ensure_buckets(conn, now=NOON) > NOON + AHEAD


def test_far_timers_move_once_they_have_a_bucket(conn: Connection) -> None:
    horizon = buckets.ensure_buckets(conn, now=NOON)
    near = put(conn, HOUR_OF_NOON)
    last = put(conn, horizon - 1, part=63)
    beyond = put(conn, horizon)
    overdue = put(conn, HOUR_OF_NOON - 1)
    assert buckets.move_far(conn, now=NOON, horizon=horizon) == 2
    assert places(conn) == {
        near: bucket_name(HOUR_OF_NOON),
        last: bucket_name(horizon - 1),
        beyond: "far",
        overdue: "far",
    }
    assert buckets.move_far(conn, now=NOON, horizon=horizon) == 0


def test_many_far_timers_move_a_bounded_number_a_statement(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "MOVE", 3)
    monkeypatch.setattr(buckets, "MOVES_A_STEP", 2)
    horizon = buckets.ensure_buckets(conn, now=NOON)
    for number in range(8):
        put(conn, HOUR_OF_NOON + number, part=number % 3)
    moved = [buckets.move_far(conn, now=NOON, horizon=horizon) for _ in range(3)]
    assert moved == [6, 2, 0]
    assert "far" not in places(conn).values()


def test_a_far_timer_that_somebody_holds_stays_for_the_next_time(
    conn: Connection, second_connection: pg.Connection
) -> None:
    horizon = buckets.ensure_buckets(conn, now=NOON)
    held, free = put(conn, HOUR_OF_NOON), put(conn, HOUR_OF_NOON)
    with second_connection.transaction():
        second_connection.execute(
            "SELECT FROM chrono_timer_far WHERE ref = %s FOR UPDATE", [held]
        )
        assert buckets.move_far(conn, now=NOON, horizon=horizon) == 1
        assert places(conn)[held] == "far"
        assert places(conn)[free] != "far"
    assert buckets.move_far(conn, now=NOON, horizon=horizon) == 1


def test_a_bucket_goes_two_hours_after_its_hour(conn: Connection) -> None:
    buckets.ensure_buckets(conn, now=NOON)
    first = leaves(conn)[0]
    end = HOUR_OF_NOON
    assert first == bucket_name(end - HOUR)
    assert buckets.drop_old_buckets(conn, now=end + KEPT - 1) == []
    assert buckets.drop_old_buckets(conn, now=end + KEPT) == [first]
    assert first not in leaves(conn)
    assert conn.execute("SELECT to_regclass(%s)", [first]).fetchone() == (None,)


def test_a_bucket_with_overdue_timers_stays_until_they_are_fired(
    conn: Connection,
) -> None:
    buckets.ensure_buckets(conn, now=NOON)
    overdue = put(conn, HOUR_OF_NOON + 1, table="chrono_timer")
    later = NOON + 20 * HOUR
    dropped = buckets.drop_old_buckets(conn, now=later)
    assert len(dropped) >= 15
    assert places(conn) == {overdue: bucket_name(HOUR_OF_NOON)}
    conn.execute("DELETE FROM chrono_timer")
    assert buckets.drop_old_buckets(conn, now=later) == [bucket_name(HOUR_OF_NOON)]


def test_a_reader_puts_the_dropping_off_and_the_next_time_finishes_it(
    conn: Connection, second_connection: pg.Connection
) -> None:
    buckets.ensure_buckets(conn, now=NOON)
    first = leaves(conn)[0]
    with second_connection.transaction():
        second_connection.execute("SELECT FROM chrono_timer").fetchall()
        assert buckets.drop_old_buckets(conn, now=HOUR_OF_NOON + KEPT) == []
    assert [
        leaf.name
        for leaf in partitions.list_leaves(conn, parent=PARENT)
        if leaf.detaching
    ] == [first]
    assert buckets.drop_old_buckets(conn, now=HOUR_OF_NOON + KEPT) == [first]


def test_what_a_keeper_detached_before_it_died_is_found_and_nothing_lost(
    conn: Connection,
) -> None:
    buckets.ensure_buckets(conn, now=NOON)
    first, *_ = partitions.list_leaves(conn, parent=PARENT)
    timer = put(conn, HOUR_OF_NOON - 1, table="chrono_timer")
    partitions.detach_leaf(conn, parent=PARENT, leaf=first)
    assert places(conn) == {}
    assert store.list_detached(conn) == [first.name]
    assert buckets.drop_old_buckets(conn, now=NOON) == [first.name]
    assert places(conn) == {timer: "far"}
    assert store.list_detached(conn) == []


def test_the_far_table_is_not_taken_for_a_detached_bucket(conn: Connection) -> None:
    kept = put(conn, NOON)
    assert store.list_detached(conn) == []
    assert buckets.drop_old_buckets(conn, now=NOON + 100 * HOUR) == []
    assert places(conn) == {kept: "far"}


def test_a_horizon_is_published_upwards_only(conn: Connection) -> None:
    store.publish_horizon(conn, horizon=NOON)
    store.publish_horizon(conn, horizon=NOON - HOUR)
    assert store.read_dispatch_state(conn).horizon == NOON
