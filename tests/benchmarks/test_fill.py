"""What is written in bulk is what the product would have written."""

from apps.runtime.clock import ManualClock
from apps.runtime.sessions import connect_hot, connect_leader
from apps.scheduler import store
from apps.scheduler.dispatcher import Dispatcher
from benchmarks.fill import fill, fill_history, plan_due
from benchmarks.ready import fill_ready
from benchmarks.rig import make_room, now_ms, seed
from chrono.rules import jitter
from chrono.rules.instants import DAY, MINUTE, SECOND, format_instant, to_millis
from chrono.rules.keys import is_extra, partition_of_run, scheduled_for_of
from chrono.rules.partitions import partition_of

PENDING, DUE, TOGETHER = 1_000, 100, 50


def test_filled_jobs_fire_again_and_again_and_the_others_wait(database, connect):
    conn = connect()
    filled = fill(database, pending=PENDING, due=DUE)
    for round_ in range(2):
        at = now_ms(conn) + round_ * MINUTE
        plan_due(conn, filled, at=at, together=TOGETHER, gap=SECOND)
        assert count_timers(conn) == PENDING
        assert fired_by(database, at=at, steps=DUE // TOGETHER) == [TOGETHER] * 2
        assert count_timers(conn) == PENDING
        [(first, last)] = conn.execute(
            "SELECT min(t.due_at), max(t.due_at) FROM chrono_timer t "
            "JOIN bench_due d ON d.id = t.ref"
        ).fetchall()
        assert filled.following <= to_millis(first) <= to_millis(last)
        assert to_millis(last) < filled.following + 60 * MINUTE


def test_filled_timers_lie_where_leaders_look_for_them(database, connect):
    conn = connect()
    fill(database, pending=PENDING, due=DUE)
    for table, later in (("chrono_timer", False), ("chrono_timer_far", True)):
        rows = conn.execute(
            f"SELECT ref, part, due_at >= horizon FROM {table}, chrono_dispatch_state"
        ).fetchall()
        assert len(rows) > PENDING / 3
        assert all(part == partition_of(ref) for ref, part, _ in rows)
        # Rounded to a millisecond, one may lie on the near side.
        assert sum(beyond is not later for _, _, beyond in rows) <= 1


def test_history_lies_where_the_product_looks_for_it(database, connect):
    conn = connect()
    filled = fill(database, pending=PENDING, due=DUE)
    fill_history(database, filled, runs=2_000, jobs=100)
    rows = conn.execute(
        "SELECT r.id, r.job_id, r.part, o.scheduled_for FROM chrono_run r "
        "JOIN chrono_occurrence o ON o.run_id = r.id AND o.job_id = r.job_id "
        "AND o.part = r.part JOIN chrono_job j ON j.id = r.job_id ORDER BY r.id"
    ).fetchall()
    assert len(rows) == 2_000
    assert len({job for _, job, _, _ in rows}) == 100
    assert all(part == partition_of(job) for _, job, part, _ in rows)
    assert all(part == partition_of_run(run) for run, _, part, _ in rows)
    assert all(scheduled_for_of(run) == to_millis(at) for run, _, _, at in rows)
    assert not any(is_extra(run) for run, _, _, _ in rows)
    first, last = scheduled_for_of(rows[0][0]), scheduled_for_of(rows[-1][0])
    assert DAY * 0.99 < last - first < DAY
    for leaf in ("chrono_run_default", "chrono_occurrence_default"):
        assert conn.execute(f"SELECT count(*) FROM {leaf}").fetchone() == (0,)


def test_seeded_timers_are_due_by_their_jitter(database, connect):
    conn = connect()
    filled = fill(database, pending=PENDING, due=DUE)  # For the hours' tables.
    at = filled.following
    schedule = {"interval": "1m", "starts_at": format_instant(at)}
    jobs = seed(
        conn, [at] * 20, [schedule] * 20, overlap="skip", jitter_window=30 * SECOND
    )
    rows = conn.execute(
        "SELECT ref, due_at, scheduled_for FROM chrono_timer WHERE ref = ANY(%s)",
        [jobs],
    ).fetchall()
    assert {ref: to_millis(due) for ref, due, _ in rows} == {
        job: at + jitter.offset(job, 30 * SECOND) for job in jobs
    }
    assert {to_millis(scheduled) for _, _, scheduled in rows} == {at}


def count_timers(conn) -> int:
    [(count,)] = conn.execute(
        "SELECT (SELECT count(*) FROM chrono_timer) "
        "+ (SELECT count(*) FROM chrono_timer_far)"
    ).fetchall()
    return count


def fired_by(url: str, *, at: int, steps: int) -> list[int]:
    """Return how many runs a new leader makes ready at each second from ``at`` on."""
    clock = ManualClock(at - SECOND)
    with connect_hot(url, name="test") as hot, connect_leader(url, name="l") as leader:
        dispatcher = Dispatcher(hot, clock)
        dispatcher.adopt(store.take_over(leader, parts=range(64), owner="test"))
        assert dispatcher.step().readied == 0
        readied = []
        for _ in range(steps):
            clock.moment += SECOND
            readied.append(dispatcher.step().readied)
        return readied


def test_filled_ready_runs_have_the_ids_and_partitions_of_fired_ones(database, connect):
    conn = connect()
    make_room(database, conn)
    fill_ready(conn, 50)
    rows = conn.execute(
        "SELECT run_id, job_id, part FROM chrono_ready ORDER BY tag"
    ).fetchall()
    assert len({run for run, _, _ in rows}) == 50
    for run, job, part in rows:
        assert partition_of(job) == partition_of_run(run) == part
        assert run.version == 8
        assert not is_extra(run)
    assert conn.execute("SELECT count(*) FROM chrono_timer").fetchone() == (0,)
