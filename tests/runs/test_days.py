"""Day leaves: there before they are needed, gone when over, what failed kept."""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from apps.runs import days, store
from apps.runs.days import AHEAD, ATTEMPT, BEHIND, OCCURRENCE, OTHERS_KEPT, RUN, TABLES
from apps.runtime import partitions
from apps.runtime.sessions import Connection, connect_upkeep
from chrono.rules.buckets import DAY, day_name
from chrono.rules.instants import HOUR, MINUTE, Millis, from_millis, parse_instant
from chrono.rules.keys import run_id
from chrono.rules.states import Reason, RunState
from tests.support import pg

NOON: Millis = parse_instant("2055-03-10T12:00:00Z")
TODAY: Millis = parse_instant("2055-03-10T00:00:00Z")
PART = 11


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    """An upkeep session."""
    with connect_upkeep(dsn, name="test") as conn:
        yield conn


def leaves(conn: Connection, table: days.Table) -> list[str]:
    return [leaf.name for leaf in partitions.list_leaves(conn, parent=table.name)]


def put_run(
    conn: Connection,
    scheduled_for: Millis,
    *,
    state: int = RunState.SUCCESS,
    finished: Millis | None = None,
) -> uuid.UUID:
    """Write a settled run."""
    run = run_id(uuid.uuid4(), scheduled_for, 0, PART)
    done = from_millis(scheduled_for if finished is None else finished)
    conn.execute(
        "INSERT INTO chrono_run (due_at, finished_at, id, job_id, fence, revision, "
        "tenant, part, state, attempt) VALUES (%s, %s, %s, %s, 1, 1, 1, %s, %s, 1)",
        [from_millis(scheduled_for), done, run, uuid.uuid4(), PART, state],
    )
    return run


def put_attempt(conn: Connection, run: uuid.UUID, moment: Millis) -> None:
    """Write a failed attempt of a run."""
    at = from_millis(moment)
    conn.execute(
        "INSERT INTO chrono_attempt (started_at, finished_at, run_id, worker, fence, "
        "part, attempt, reason, error) VALUES (%s, %s, %s, %s, 1, %s, 1, %s, 'no')",
        [at, at, run, uuid.uuid4(), PART, Reason.ATTEMPT_FAILED],
    )


def put_occurrence(conn: Connection, moment: Millis) -> uuid.UUID:
    """Write a fired occurrence and return its job."""
    job = uuid.uuid4()
    conn.execute(
        "INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence, version, "
        "revision, part, outcome, kind) VALUES (%s, %s, %s, 1, 1, 1, %s, 1, 1)",
        [from_millis(moment), job, run_id(job, moment, 0, PART), PART],
    )
    return job


def ids(conn: Connection, table: str, column: str = "id") -> set[uuid.UUID]:
    return {row for (row,) in conn.execute(f"SELECT {column} FROM {table}").fetchall()}


def test_there_are_two_days_back_and_three_ahead(conn: Connection) -> None:
    assert days.ensure_days(conn, now=NOON) == 0
    span = range(TODAY - BEHIND, TODAY + AHEAD + 1, DAY)
    for table in TABLES:
        made = [day_name(table.name, day) for day in span]
        assert leaves(conn, table) == [*made, f"{table.name}_default"]


def test_rows_lie_in_the_leaf_of_their_day_from_its_first_to_its_last_millisecond(
    conn: Connection,
) -> None:
    days.ensure_days(conn, now=NOON)
    for day in range(TODAY - BEHIND, TODAY + AHEAD + 1, DAY):
        for moment in (day, day + DAY - 1):
            put_occurrence(conn, moment)
            put_attempt(conn, put_run(conn, moment), moment)
    for table in TABLES:
        for leaf in leaves(conn, table):
            [(count,)] = conn.execute(f"SELECT count(*) FROM {leaf}").fetchall()
            assert count == (0 if leaf.endswith("_default") else 2), leaf


def test_the_next_day_needs_one_more_of_each(conn: Connection) -> None:
    days.ensure_days(conn, now=NOON)
    before = {leaf for table in TABLES for leaf in leaves(conn, table)}
    assert days.ensure_days(conn, now=NOON) == 0
    assert {leaf for table in TABLES for leaf in leaves(conn, table)} == before
    days.ensure_days(conn, now=NOON + DAY)
    after = {leaf for table in TABLES for leaf in leaves(conn, table)}
    assert after - before == {
        day_name(table.name, TODAY + AHEAD + DAY) for table in TABLES
    }
    assert after > before


def test_an_outage_leaves_no_hole_between_the_days(conn: Connection) -> None:
    days.ensure_days(conn, now=NOON)
    days.ensure_days(conn, now=NOON + 20 * DAY)
    span = range(TODAY - BEHIND, TODAY + 20 * DAY + AHEAD + 1, DAY)
    made = [day_name(RUN.name, day) for day in span]
    assert leaves(conn, RUN) == [*made, "chrono_run_default"]


def test_after_a_very_long_outage_thirty_days_back_are_made(conn: Connection) -> None:
    days.ensure_days(conn, now=NOON)
    before = set(leaves(conn, RUN))
    days.ensure_days(conn, now=NOON + 400 * DAY)
    made = sorted(set(leaves(conn, RUN)) - before)
    assert made[0] == day_name(RUN.name, TODAY + 400 * DAY - BEHIND - 30 * DAY)
    assert len(made) == 36


def test_strays_in_a_default_leaf_are_moved_and_counted(conn: Connection) -> None:
    run = put_run(conn, NOON)
    put_attempt(conn, run, NOON)
    put_occurrence(conn, NOON)
    far = put_run(conn, NOON + 100 * DAY)
    assert days.ensure_days(conn, now=NOON) == 3
    assert ids(conn, day_name(RUN.name, NOON)) == {run}
    assert ids(conn, "chrono_run_default") == {far}
    assert ids(conn, "chrono_attempt_default", "run_id") == set()
    assert days.ensure_days(conn, now=NOON) == 0


def test_a_lock_that_is_not_to_be_had_leaves_the_rest_for_the_next_time(
    conn: Connection, second_connection: pg.Connection
) -> None:
    with second_connection.transaction():
        second_connection.execute("LOCK TABLE chrono_run_default IN SHARE MODE")
        assert days.ensure_days(conn, now=NOON) == 0
        assert leaves(conn, RUN) == ["chrono_run_default"]
    days.ensure_days(conn, now=NOON)
    assert len(leaves(conn, RUN)) == 7


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_day_goes_when_it_is_over(conn: Connection, table: days.Table) -> None:
    days.ensure_days(conn, now=NOON)
    first = leaves(conn, table)[0]
    over = TODAY - BEHIND + DAY + table.kept
    assert first not in days.drop_old_days(conn, now=over - 1)
    assert first in days.drop_old_days(conn, now=over)
    assert first not in leaves(conn, table)


def test_the_default_leaf_is_never_dropped(conn: Connection) -> None:
    days.ensure_days(conn, now=NOON)
    stray = put_run(conn, NOON - 10 * DAY)
    days.drop_old_days(conn, now=NOON + 1_000 * DAY)
    assert [leaf for table in TABLES for leaf in leaves(conn, table)] == [
        "chrono_occurrence_default",
        "chrono_run_default",
        "chrono_attempt_default",
    ]
    assert ids(conn, "chrono_run") == {stray}


def test_a_day_that_was_written_late_stays_from_its_last_write(
    conn: Connection,
) -> None:
    days.ensure_days(conn, now=NOON)
    late = NOON + 5 * DAY
    for offset in range(2_000):  # More than the pages that are looked at.
        put_run(conn, NOON + offset)
    put_run(conn, NOON, finished=late)
    name = day_name(RUN.name, NOON)
    assert name not in days.drop_old_days(conn, now=late + RUN.kept)
    assert name in days.drop_old_days(conn, now=late + RUN.kept + 1)


def test_successes_go_with_their_day_and_all_else_is_kept_with_its_attempts(
    conn: Connection,
) -> None:
    days.ensure_days(conn, now=NOON)
    fine = put_run(conn, NOON)
    odd = {put_run(conn, NOON, state=state) for state in range(2, 7)}
    for run in {fine, *odd}:
        put_attempt(conn, run, NOON)
    dropped = days.drop_old_days(conn, now=NOON + RUN.kept + DAY)
    assert {day_name(RUN.name, NOON), day_name(ATTEMPT.name, NOON)} <= set(dropped)
    assert ids(conn, "chrono_run") == set()
    assert ids(conn, "chrono_run_kept") == odd
    assert ids(conn, "chrono_attempt_kept", "run_id") == odd


def test_the_ledger_outlives_the_runs(conn: Connection) -> None:
    days.ensure_days(conn, now=NOON)
    job = put_occurrence(conn, NOON)
    days.drop_old_days(conn, now=NOON + 29 * DAY)
    assert ids(conn, "chrono_occurrence", "job_id") == {job}
    assert day_name(OCCURRENCE.name, NOON) in days.drop_old_days(
        conn, now=NOON + 31 * DAY
    )


def test_a_reader_puts_the_dropping_off_and_nothing_is_kept_twice(
    conn: Connection, second_connection: pg.Connection
) -> None:
    days.ensure_days(conn, now=NOON)
    dead = put_run(conn, NOON, state=RunState.DEAD)
    over = NOON + RUN.kept + DAY
    with second_connection.transaction():
        second_connection.execute("SELECT FROM chrono_run").fetchall()
        assert day_name(RUN.name, NOON) not in days.drop_old_days(conn, now=over)
        assert ids(conn, "chrono_run") == {dead}
        assert ids(conn, "chrono_run_kept") == set()
    assert day_name(RUN.name, NOON) in days.drop_old_days(conn, now=over)
    assert ids(conn, "chrono_run_kept") == {dead}


def test_a_run_that_ends_while_its_day_is_dropped_keeps_the_day(
    conn: Connection,
    connect: Callable[..., pg.Connection],
    background: Callable[..., Future[list[str]]],
) -> None:
    writer, observer = connect(), connect()
    days.ensure_days(conn, now=NOON)
    conn.execute("SET lock_timeout = '30s'")
    over = NOON + RUN.kept + DAY
    days.drop_old_days(conn, now=over - DAY)  # Those of the days before.
    with writer.transaction():
        late = put_run(writer, NOON, finished=over)
        dropping = background(days.drop_old_days, conn, now=over)
        pg.wait_until_blocked(observer, conn.info.backend_pid)
    assert day_name(RUN.name, NOON) not in dropping.result(timeout=10)
    assert ids(conn, "chrono_run") == {late}


def test_what_is_kept_goes_after_its_own_time_a_bounded_number_a_call(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(days, "PURGE", 2)
    days.ensure_days(conn, now=NOON)
    for number in range(5):
        run = put_run(conn, NOON + number * HOUR, state=RunState.DEAD)
        put_attempt(conn, run, NOON + number * HOUR)
    days.drop_old_days(conn, now=NOON + RUN.kept + 2 * DAY)
    assert len(ids(conn, "chrono_run_kept")) == 5
    assert days.purge_kept(conn, now=NOON + OTHERS_KEPT) == 0
    now = NOON + OTHERS_KEPT + 3 * HOUR + 1
    assert [days.purge_kept(conn, now=now) for _ in range(3)] == [4, 4, 0]
    assert len(ids(conn, "chrono_run_kept")) == 1


def test_dead_letters_go_after_ninety_days(conn: Connection) -> None:
    conn.execute(
        "INSERT INTO chrono_dead_letter (run_id, part, tenant, job_id, revision, "
        "queue, reason, attempt, died_at, errors) VALUES (gen_random_uuid(), 1, 1, "
        "gen_random_uuid(), 1, 'default', 16, 3, %s, '[]')",
        [from_millis(NOON)],
    )
    assert days.purge_kept(conn, now=NOON + 90 * DAY) == 0
    assert days.purge_kept(conn, now=NOON + 90 * DAY + 1) == 1


def test_inputs_go_with_their_runs_unless_they_wait(conn: Connection) -> None:
    days.ensure_days(conn, now=NOON)
    old, waiting, fresh = (
        run_id(uuid.uuid4(), moment, 1, PART)
        for moment in (NOON - 40 * DAY, NOON - 40 * DAY, NOON - DAY)
    )
    for run in (old, waiting, fresh):
        store.insert_run_input(conn, run=run, part=PART, payload="1", priority=None)
    conn.execute(
        "INSERT INTO chrono_timer_far (due_at, scheduled_for, ref, job_id, version, "
        "revision, part, kind) VALUES ('2058-01-01Z', '2058-01-01Z', %s, %s, 0, 1, %s, "
        "4)",
        [waiting, uuid.uuid4(), PART],
    )
    assert days.purge_kept(conn, now=NOON) == 1
    assert ids(conn, "chrono_run_input", "run_id") == {waiting, fresh}


def test_what_runs_told_goes_with_them_unless_they_wait(conn: Connection) -> None:
    days.ensure_days(conn, now=NOON)
    long_ago = NOON - 40 * DAY
    old, waiting, resumed, fresh = (
        run_id(uuid.uuid4(), moment, 1, PART)
        for moment in (long_ago, long_ago, long_ago, NOON - DAY)
    )
    for run, noted_at in (
        (old, long_ago),
        (waiting, long_ago),
        (resumed, NOON),
        (fresh, NOON - DAY),
    ):
        conn.execute(
            "INSERT INTO chrono_progress (run_id, part, attempt, noted_at) "
            "VALUES (%s, %s, 1, %s)",
            [run, PART, from_millis(noted_at)],
        )
    conn.execute(
        "INSERT INTO chrono_timer_far (due_at, scheduled_for, ref, job_id, version, "
        "revision, part, kind) VALUES ('2058-01-01Z', '2058-01-01Z', %s, %s, 0, 1, %s, "
        "4)",
        [waiting, uuid.uuid4(), PART],
    )
    assert days.purge_kept(conn, now=NOON) == 1
    assert ids(conn, "chrono_progress", "run_id") == {waiting, resumed, fresh}


def test_ends_of_executions_are_kept_for_an_hour(conn: Connection) -> None:
    for minutes in (59, 61):
        conn.execute(
            "INSERT INTO chrono_lease_end (worker, run_id, ended_at) "
            "VALUES (gen_random_uuid(), gen_random_uuid(), %s)",
            [from_millis(NOON - minutes * MINUTE)],
        )
    assert days.purge_kept(conn, now=NOON) == 1
    assert days.purge_kept(conn, now=NOON) == 0
