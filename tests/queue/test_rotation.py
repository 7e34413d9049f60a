"""The ring turns when it should, loses nothing, and stands still when it is idle."""

import itertools
from collections.abc import Callable

import psycopg
import pytest

from apps.queue import rotation, store
from apps.queue.rotation import BACK_OFF, LEFTOVERS, OLD, Rotation, truncate_if_empty
from tests.queue.conftest import Ring
from tests.support import pg

NOW = 1_000_000


def test_the_next_slice_is_published_when_the_current_one_is_old(ring: Ring) -> None:
    keeper = Rotation(published_at=NOW)
    ring.fill(0, 3)
    assert keeper.step(ring.conn, current=0, now=NOW + OLD - 1) == 0
    assert ring.published() == 0
    assert keeper.step(ring.conn, current=0, now=NOW + OLD) == 1
    assert ring.published() == 1
    assert keeper.published_at == NOW + OLD


def test_or_when_it_is_large(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = Rotation(published_at=NOW)
    ring.fill(0, 3)
    size = store.measure_slices(ring.conn)[0]
    monkeypatch.setattr(rotation, "LARGE", size + 1)
    assert keeper.step(ring.conn, current=0, now=NOW) == 0
    monkeypatch.setattr(rotation, "LARGE", size)
    assert keeper.step(ring.conn, current=0, now=NOW) == 1


def test_a_slice_that_was_never_used_stays_the_current_one(ring: Ring) -> None:
    assert Rotation().step(ring.conn, current=0, now=NOW + OLD) == 0


def test_a_slice_with_a_backlog_is_passed_over(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "LEFTOVERS", 2)
    ring.fill(0, 1)
    backlog = ring.fill(1, 3)
    assert Rotation().step(ring.conn, current=0, now=NOW) == 2
    assert ring.published() == 2
    assert ring.runs()[1] == backlog


def test_with_no_slice_free_the_current_one_stays(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "LEFTOVERS", 0)
    before = {number: ring.fill(number, 1) for number in range(store.SLICES)}
    keeper = Rotation()
    assert keeper.step(ring.conn, current=3, now=NOW) == 3
    assert ring.published() == 0
    assert ring.runs() == before
    assert keeper.published_at == 0


def test_the_last_slice_is_followed_by_the_first(ring: Ring) -> None:
    ring.fill(7, 1)
    assert Rotation().step(ring.conn, current=7, now=NOW) == 0


def test_an_emptied_slice_is_truncated_and_free_again(ring: Ring) -> None:
    ring.fill(4, 10)
    ring.take(4)
    assert ring.used() == {4}
    Rotation().step(ring.conn, current=0, now=NOW)
    assert ring.used() == set()


def test_a_slice_that_was_current_is_left_to_leaders_that_have_not_looked(
    ring: Ring,
) -> None:
    """Else their fire waits for its lock, for as long as a slow network makes it."""
    ring.fill(0, 10)
    ring.take(0)
    keeper = Rotation(published_at=NOW)
    assert keeper.step(ring.conn, current=0, now=NOW + OLD) == 1
    assert ring.used() == {0}
    assert keeper.step(ring.conn, current=1, now=NOW + OLD) == 1
    assert ring.used() == set()


def test_the_current_slice_is_not_truncated_under_its_writers(ring: Ring) -> None:
    ring.fill(0, 10)
    ring.take(0)
    keeper = Rotation(published_at=NOW)
    keeper.step(ring.conn, current=0, now=NOW)
    assert ring.used() == {0}


def test_leftovers_move_into_the_current_slice_with_all_they_carry(ring: Ring) -> None:
    kept = ring.fill(2, 5, priority=4)
    columns = (
        "run_id, job_id, tag, fence, revision, tenant, part, priority, attempt, queue, "
        "due_at, dispatched_at"
    )
    look = f"SELECT {columns} FROM chrono_ready ORDER BY run_id"
    before = ring.conn.execute(look).fetchall()
    Rotation(published_at=NOW).step(ring.conn, current=0, now=NOW)
    assert ring.runs() == {0: kept}
    assert ring.conn.execute(look).fetchall() == before
    assert ring.used() == {0}


def test_more_leftovers_than_one_statement_moves_are_moved(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "MOVE", 2)
    kept = ring.fill(2, 5)
    Rotation(published_at=NOW).step(ring.conn, current=0, now=NOW)
    assert ring.runs() == {0: kept}


def test_a_backlog_is_left_where_it_lies(ring: Ring) -> None:
    kept = ring.fill(2, LEFTOVERS + 1)
    Rotation(published_at=NOW).step(ring.conn, current=0, now=NOW)
    assert ring.runs() == {2: kept}
    ring.conn.execute("DELETE FROM chrono_ready WHERE run_id = %s", [kept[0]])
    Rotation(published_at=NOW).step(ring.conn, current=0, now=NOW)
    assert ring.runs() == {0: kept[1:]}


def test_what_a_claim_holds_is_left_to_it(
    ring: Ring, second_connection: pg.Connection
) -> None:
    first, second = ring.fill(2, 2)
    with second_connection.transaction():
        second_connection.execute(
            "SELECT FROM chrono_ready_2 WHERE run_id = %s FOR UPDATE", [first]
        )
        Rotation(published_at=NOW).step(ring.conn, current=0, now=NOW)
        assert ring.runs() == {0: [second], 2: [first]}
    Rotation(published_at=NOW).step(ring.conn, current=0, now=NOW)
    assert ring.runs() == {0: [first, second]}


def test_an_idle_ring_comes_to_rest_and_writes_nothing(ring: Ring) -> None:
    keeper, current, now = Rotation(), 0, NOW
    ring.fill(0, 5)
    ring.take(0)
    for now in range(NOW, NOW + 4 * OLD, OLD):
        current = keeper.step(ring.conn, current=current, now=now)
    assert ring.used() == set()
    for later in itertools.islice(itertools.count(now, OLD), 10):
        # A transaction that wrote anything at all has an id.
        with ring.conn.transaction():
            assert keeper.step(ring.conn, current=current, now=later) == current
            assert ring.conn.execute(
                "SELECT pg_current_xact_id_if_assigned()"
            ).fetchone() == (None,)


def test_a_row_that_came_in_keeps_its_slice(ring: Ring) -> None:
    [run] = ring.fill(5, 1)
    assert truncate_if_empty(ring.conn, number=5) is False
    assert ring.runs() == {5: [run]}
    ring.take(5)
    assert truncate_if_empty(ring.conn, number=5) is True
    assert ring.used() == set()


def test_a_row_that_a_slow_writer_commits_keeps_its_slice(
    ring: Ring,
    connect: Callable[..., pg.Connection],
    background: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rotation, "LOCK_TIMEOUT", "30s")
    writer, observer = connect(), connect()
    ring.fill(5, 1)
    with writer.transaction():
        # Moves the row out and in again: empty for all that others can see.
        writer.execute(
            "WITH d AS (DELETE FROM chrono_ready_5 RETURNING *) "
            "INSERT INTO chrono_ready SELECT * FROM d"
        )
        done = background(truncate_if_empty, ring.conn, number=5)
        pg.wait_until_blocked(observer, ring.conn.info.backend_pid)
    assert done.result(timeout=10) is False  # type: ignore[attr-defined]
    assert len(ring.runs()[5]) == 1


def test_a_lock_that_is_not_to_be_had_is_left_alone_for_a_while(
    ring: Ring, second_connection: pg.Connection
) -> None:
    keeper = Rotation(published_at=NOW)
    ring.fill(5, 1)
    ring.take(5)
    with second_connection.transaction():
        second_connection.execute("SELECT FROM chrono_ready_5")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            truncate_if_empty(ring.conn, number=5)
        keeper.step(ring.conn, current=0, now=NOW)
        assert keeper.rest_until == {5: NOW + BACK_OFF}
    keeper.step(ring.conn, current=0, now=NOW + BACK_OFF - 1)
    assert ring.used() == {5}
    keeper.step(ring.conn, current=0, now=NOW + BACK_OFF)
    assert ring.used() == set()
