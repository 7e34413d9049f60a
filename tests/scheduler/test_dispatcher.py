"""What a leader fires, skips and plans, step by step with a clock of our own."""

import uuid

import psycopg
import pytest

from apps.jobs.commands import change_job, pause_job, resume_job
from apps.jobs.definition import parse_definition
from apps.runs import store as runs
from apps.runs import worker_store
from apps.runs.store import Settlement
from apps.runtime.sessions import Connection
from apps.scheduler import store
from apps.scheduler.fire import Gun
from apps.scheduler.load import Loader
from chrono.rules import jitter
from chrono.rules.instants import parse_instant
from chrono.rules.keys import run_id
from chrono.rules.partitions import partition_of
from chrono.rules.states import Outcome, Reason
from tests.scheduler.conftest import NOON, Leader

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


def settle_all(leader: Leader) -> int:
    """Claim and succeed whatever is ready; return how many runs that was."""
    worker = uuid.uuid4()
    worker_store.register_worker(
        leader.conn, worker=worker, host="t", pid=1, concurrency=1, queues=["default"]
    )
    leases = runs.claim_ready(leader.conn, queue="default", limit=500, worker=worker)
    done = [Settlement(run_id=lease.run_id, token=lease.token) for lease in leases]
    return len(runs.settle_if_leased(leader.conn, done, horizon=NOON + 26 * HOUR))


def test_every_occurrence_fires_once_at_its_instant(leader: Leader) -> None:
    job = leader.create("tick", interval="1s", overlap_policy="allow_all")
    leader.run_to(NOON + 10 * SECOND, every=100)
    assert leader.fired(job) == [NOON + n * SECOND for n in range(1, 11)]
    assert leader.count("chrono_ready") == 10


def test_nothing_fires_before_its_jitter_is_over(leader: Leader) -> None:
    job = leader.create("spread", cron="*/5 * * * *", jitter_window="60s")
    offset = jitter.offset(job, MINUTE)
    assert 0 < offset < MINUTE
    leader.run_to(NOON + 5 * MINUTE + offset - 1, every=MINUTE)
    assert leader.fired(job) == []
    leader.run_to(NOON + 5 * MINUTE + offset)
    assert leader.fired(job) == [NOON + 5 * MINUTE]


def test_the_ids_of_runs_are_those_of_the_rule(leader: Leader) -> None:
    job = leader.create("ids", interval="10s")
    leader.run_to(NOON + 10 * SECOND)
    [(made,)] = leader.conn.execute("SELECT run_id FROM chrono_ready").fetchall()
    assert made == run_id(job, NOON + 10 * SECOND, 0, partition_of(job))


def test_a_run_that_lasts_makes_the_next_occurrences_skip(leader: Leader) -> None:
    job = leader.create("slow", interval="10s")
    leader.run_to(NOON + 30 * SECOND)
    assert [row[1:3] for row in leader.ledger(job)] == [
        (Outcome.FIRED, None),
        (Outcome.SKIPPED, Reason.OVERLAP),
        (Outcome.SKIPPED, Reason.OVERLAP),
    ]
    assert settle_all(leader) == 1
    leader.run_to(NOON + 40 * SECOND)
    assert leader.fired(job) == [NOON + 10 * SECOND, NOON + 40 * SECOND]


def test_one_shots_fire_once_and_leave_no_timer(leader: Leader) -> None:
    job = leader.create("once", run_at="2055-03-01T12:00:05Z")
    leader.run_to(NOON + MINUTE)
    assert leader.fired(job) == [NOON + 5 * SECOND]
    assert leader.count("chrono_timer") == 0


def test_late_occurrences_fire_oldest_first(leader: Leader) -> None:
    job = leader.create("late", interval="10s", overlap_policy="allow_all")
    leader.clock.moment = NOON + 55 * SECOND
    assert leader.step() == 5
    assert leader.fired(job) == [NOON + n * 10 * SECOND for n in range(1, 6)]


def test_missed_occurrences_collapse_into_the_newest_missed_one(leader: Leader) -> None:
    job = leader.create("missed", interval="10m", overlap_policy="allow_all")
    leader.clock.moment = NOON + HOUR + 5 * MINUTE
    leader.step()
    assert leader.ledger(job) == [
        ("2055-03-01T12:10:00Z", Outcome.SKIPPED, Reason.COLLAPSED, 5),
        ("2055-03-01T13:00:00Z", Outcome.FIRED, None, None),
    ]
    leader.run_to(NOON + HOUR + 10 * MINUTE)
    assert leader.fired(job)[-1] == NOON + HOUR + 10 * MINUTE


def test_a_single_missed_occurrence_fires(leader: Leader) -> None:
    job = leader.create("one missed", cron="0 13 * * *")
    leader.clock.moment = NOON + 3 * HOUR
    leader.step()
    assert leader.fired(job) == [NOON + HOUR]


def test_a_long_outage_is_told_in_a_few_rows(leader: Leader) -> None:
    job = leader.create("seconds", interval="1s", overlap_policy="allow_all")
    leader.clock.moment = NOON + 2 * HOUR
    leader.run_to(NOON + 2 * HOUR + 100, every=1)
    rows = leader.ledger(job)
    decided = sum(row[3] or 1 for row in rows)
    assert decided == 2 * HOUR // SECOND
    assert len(rows) < 100
    assert len(leader.fired(job)) == 61  # the newest missed one and a minute of late


def test_far_timers_are_seen_and_fired(leader: Leader) -> None:
    job = leader.create("far", run_at="2055-03-03T12:00:00Z")
    assert leader.count("chrono_timer_far") == 1
    leader.clock.moment = parse_instant("2055-03-03T12:00:00Z")
    leader.step()
    assert leader.fired(job) == [leader.clock.moment]


def test_an_edit_bumps_the_epoch_and_the_leader_follows(leader: Leader) -> None:
    job = leader.create("edited", interval="10s", overlap_policy="allow_all")
    leader.run_to(NOON + 15 * SECOND)
    definition = parse_definition(
        {
            "key": "edited",
            "interval": "7s",
            "starts_at": "2055-03-01T12:00:00Z",
            "target": {"kind": "task", "name": "nothing"},
            "overlap_policy": "allow_all",
        }
    )
    change_job(job, definition, now=leader.clock.moment)
    leader.run_to(NOON + 30 * SECOND)
    assert leader.fired(job) == [
        NOON + 10 * SECOND,
        NOON + 21 * SECOND,
        NOON + 28 * SECOND,
    ]


def test_a_paused_job_fires_nothing_and_replays_nothing(leader: Leader) -> None:
    job = leader.create("paused", interval="10s", overlap_policy="allow_all")
    leader.run_to(NOON + 15 * SECOND)
    pause_job(job, now=leader.clock.moment)
    leader.run_to(NOON + 45 * SECOND)
    resume_job(job, now=leader.clock.moment)
    leader.run_to(NOON + MINUTE)
    assert leader.fired(job) == [NOON + 10 * SECOND, NOON + 50 * SECOND, NOON + MINUTE]
    assert leader.count("chrono_timer") == 1  # the stale ones are gone


def test_a_stale_timer_in_a_partition_that_somebody_holds_stops_nobody_else(
    leader: Leader, dsn: str
) -> None:
    ticks = [
        leader.create(f"tick-{n}", interval="1s", overlap_policy="allow_all")
        for n in range(3)
    ]
    paused = leader.create("paused", interval="10s")
    part = partition_of(paused)
    [tick, *_] = [job for job in ticks if partition_of(job) != part]
    leader.run_to(NOON + 5 * SECOND)
    pause_job(paused, now=leader.clock.moment)
    leader.conn.execute("SET lock_timeout = '20ms'")
    with psycopg.connect(dsn) as holder:
        holder.execute("SELECT FROM chrono_partition WHERE id = %s FOR UPDATE", [part])
        leader.run_to(NOON + 12 * SECOND)
        assert leader.fired(tick)[-1] == NOON + 12 * SECOND
        assert leader.planned(paused) == [(NOON + 10 * SECOND, None)]
    leader.run_to(NOON + 13 * SECOND)
    assert leader.planned(paused) == []


def test_a_deposed_leader_fires_nothing_and_lets_go(leader: Leader) -> None:
    job = leader.create("fenced", interval="1s")
    leader.run_to(NOON + SECOND)
    store.take_over(leader.conn, parts=range(64), owner="another")
    leader.clock.moment = NOON + 2 * SECOND
    leader.step()
    assert leader.fired(job) == [NOON + SECOND]
    assert not leader.dispatcher.cache.held


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("schedule", "{}"),
        ("schedule", '{"interval": 1e5000}'),  # More digits than Python reads.
        ("policy", '{"max_concurrent_runs": 1e5000}'),
        ("policy", "7"),
    ],
)
def test_a_definition_that_cannot_be_read_stops_nobody_else_and_is_told(
    leader: Leader, caplog: pytest.LogCaptureFixture, column: str, value: str
) -> None:
    bad = leader.create("bad", interval="1s")
    good = leader.create("good", interval="1s")
    leader.conn.execute(
        f"UPDATE chrono_job_revision SET {column} = %s::jsonb WHERE job_id = %s",
        [value, bad],
    )
    with caplog.at_level("ERROR", logger="chrono.scheduler"):
        leader.run_to(NOON + 2 * SECOND)
    assert leader.fired(bad) == []
    assert NOON + SECOND in leader.fired(good)
    told = {record.getMessage() for record in caplog.records}
    assert told == {f"job {bad} revision 1 can't be read"}


def test_a_slice_that_is_being_emptied_holds_no_leader_up(
    leader: Leader, second_connection: Connection
) -> None:
    jobs = [
        leader.create("always", interval="1s", overlap_policy="allow_all"),
        leader.create("queued", interval="1s", overlap_policy="buffer_all"),
    ]
    leader.conn.execute("SET lock_timeout = '50ms'")
    with second_connection.transaction():
        # Runs go to the slice that is published, the first.
        second_connection.execute("LOCK chrono_ready_3 IN ACCESS EXCLUSIVE MODE")
        leader.run_to(NOON + 2 * SECOND)
    leader.run_to(NOON + 3 * SECOND)
    assert all(len(leader.fired(job)) == 3 for job in jobs)


def test_a_row_that_cannot_be_fired_stops_nobody_else(leader: Leader) -> None:
    bad = leader.create("bad", interval="1s", overlap_policy="allow_all")
    goods = [leader.create(f"good {n}", interval="1s") for n in range(5)]
    leader.conn.execute(
        f"ALTER TABLE chrono_occurrence ADD CONSTRAINT poison CHECK (job_id <> '{bad}')"
    )
    leader.run_to(NOON + 2 * SECOND)
    assert leader.fired(bad) == []
    assert all(leader.fired(good)[0] == NOON + SECOND for good in goods)


def test_a_run_older_than_the_history_counts_as_settled(leader: Leader) -> None:
    job = leader.create("monthly", interval="10s")
    leader.run_to(NOON + 10 * SECOND)
    assert settle_all(leader) == 1
    old = run_id(job, NOON - 30 * 24 * HOUR, 0, partition_of(job))
    leader.conn.execute("UPDATE chrono_timer SET prev = %s", [old])
    leader.dispatcher.cache.clear(partition_of(job))
    leader.run_to(NOON + 20 * SECOND)
    assert leader.fired(job)[-1] == NOON + 20 * SECOND


def test_a_live_run_older_than_the_history_still_overlaps(leader: Leader) -> None:
    job = leader.create("stuck", interval="10s")
    part = partition_of(job)
    old = run_id(job, NOON - 30 * 24 * HOUR, 0, part)
    leader.conn.execute("UPDATE chrono_timer SET prev = %s", [old])
    leader.conn.execute(
        "INSERT INTO chrono_lease (due_at, dispatched_at, run_id, job_id, tag, fence, "
        "revision, tenant, part, priority, attempt, queue, token, worker) VALUES "
        "(now(), now(), %s, %s, 1, 1, 1, 1, %s, 2, 1, 'default', %s, %s)",
        [old, job, part, uuid.uuid4(), uuid.uuid4()],
    )
    leader.run_to(NOON + 10 * SECOND)
    assert [row[1:3] for row in leader.ledger(job)] == [
        (Outcome.SKIPPED, Reason.OVERLAP)
    ]


def test_a_run_that_lies_in_ready_for_a_week_still_overlaps(leader: Leader) -> None:
    job = leader.create("waiting", interval="10s")
    part = partition_of(job)
    old = run_id(job, NOON - 7 * 24 * HOUR, 0, part)
    leader.conn.execute("UPDATE chrono_timer SET prev = %s", [old])
    leader.conn.execute(
        "INSERT INTO chrono_ready (due_at, dispatched_at, run_id, job_id, tag, fence, "
        "revision, tenant, part, priority, attempt, slice, queue) VALUES "
        "(now(), now(), %s, %s, 1, 1, 1, 1, %s, 2, 1, 3, 'default')",
        [old, job, part],
    )
    leader.run_to(NOON + 10 * SECOND)
    assert [row[1:3] for row in leader.ledger(job)] == [
        (Outcome.SKIPPED, Reason.OVERLAP)
    ]


def test_the_first_fire_of_an_hour_finds_its_statement_prepared(leader: Leader) -> None:
    def prepared() -> list[tuple[int]]:
        return leader.conn.execute(
            "SELECT generic_plans FROM pg_prepared_statements "
            "WHERE starts_with(statement, '/* scheduler.fire_undecided') "
            "AND strpos(statement, 'chrono_timer_2055030113') > 0"
        ).fetchall()

    job = leader.create("each hour", cron="0 * * * *")
    one = NOON + HOUR
    leader.clock.moment = one - 2 * SECOND
    leader.step()
    assert prepared() == []
    leader.clock.moment = one - SECOND // 2
    leader.step()
    assert (prepared(), leader.fired(job)) == ([(1,)], [])
    leader.clock.moment = one
    leader.step()
    assert (prepared(), leader.fired(job)) == ([(2,)], [one])


def test_what_fires_all_the_time_is_not_rehearsed(leader: Leader) -> None:
    leader.create("each second", interval="1s")
    leader.run_to(NOON + 10 * SECOND)
    [(calls, fires)] = leader.conn.execute(
        "SELECT sum(generic_plans + custom_plans), "
        "(SELECT count(*) FROM chrono_occurrence) FROM pg_prepared_statements "
        "WHERE starts_with(statement, '/* scheduler.fire_undecided')"
    ).fetchall()
    assert (calls, fires) == (11, 10)


def test_what_came_due_during_a_rehearsal_waits_for_nothing_else(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = leader.create("each hour", cron="0 * * * *")
    one = NOON + HOUR
    leader.clock.moment = one - 2 * SECOND
    leader.step()

    def rehearse(*_: object) -> None:
        leader.clock.moment = one

    monkeypatch.setattr(Gun, "rehearse", rehearse)
    fired: list[list[int]] = []
    monkeypatch.setattr(Loader, "overdue_due", lambda _: 0)
    monkeypatch.setattr(
        Loader, "load_overdue", lambda *_: fired.append(leader.fired(job))
    )
    leader.clock.moment = one - SECOND // 2
    leader.dispatcher.step()
    assert fired == [[one]]
