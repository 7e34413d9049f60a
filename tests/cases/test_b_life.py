"""Edits, pauses, restarts, outages: nothing runs at once by accident, or once more."""

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from apps.jobs import commands
from apps.runs import days, worker_store
from apps.runs import store as runs
from apps.runs.store import Lease, Settlement
from apps.runtime.sessions import connect_hot, connect_upkeep
from apps.scheduler import store
from apps.scheduler.dispatcher import Dispatcher
from chrono.rules import jitter
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND
from chrono.rules.partitions import partition_of
from chrono.rules.states import Outcome, Reason, RunState
from tests.cases.fires import at, shown
from tests.scheduler.conftest import NOON, Leader, lead
from tests.support.definitions import definition

ALL = range(64)


def change(leader: Leader, job: uuid.UUID, key: str, **fields: Any) -> None:
    """Give a job another definition now."""
    changed = definition(key=key, jitter_window="0s", **fields)
    commands.change_job(job, changed, now=leader.clock.moment)
    leader.step()


def restart(leader: Leader) -> None:
    """Have another process lead, which knows nothing but the tables."""
    leader.begin_anew()
    leader.step()


def fired(leader: Leader, job: uuid.UUID) -> list[str]:
    """Return the instants of a job that fired."""
    return [shown(moment) for moment in leader.fired(job)]


def timers(leader: Leader) -> dict[uuid.UUID, tuple[Any, ...]]:
    """Return the timer of each job, whole, with the transaction that wrote it."""
    rows = leader.conn.execute(
        "SELECT t.job_id, t.xmin::text, t.* FROM chrono_timer t "
        "UNION ALL SELECT t.job_id, t.xmin::text, t.* FROM chrono_timer_far t"
    ).fetchall()
    return {row[0]: tuple(row[1:]) for row in rows}


@pytest.fixture
def istanbul(dsn: str) -> Iterator[Leader]:
    """A leader on a Tuesday morning."""
    with lead(dsn, at("2023-10-03 09:00")) as leader:
        yield leader


def test_b01_a_new_time_later_today_is_waited_for(istanbul: Leader) -> None:
    job = istanbul.create("daily", cron="30 13 * * *", timezone="Europe/Istanbul")
    istanbul.jump_to(at("2023-10-03 09:20"))
    change(istanbul, job, "daily", cron="0 16 * * *", timezone="Europe/Istanbul")
    istanbul.jump_to(at("2023-10-03 12:59"))
    assert fired(istanbul, job) == []
    istanbul.jump_to(at("2023-10-03 13:00"))
    assert fired(istanbul, job) == ["2023-10-03 13:00"]


def test_b01_a_new_time_that_is_over_today_is_tomorrow_s(istanbul: Leader) -> None:
    zone = {"timezone": "Europe/Istanbul", "overlap_policy": "allow_all"}
    job = istanbul.create("daily", cron="30 13 * * *", **zone)
    istanbul.jump_to(at("2023-10-03 11:00"))
    change(istanbul, job, "daily", cron="45 13 * * *", **zone)
    istanbul.jump_to(at("2023-10-04 10:45"))
    assert fired(istanbul, job) == ["2023-10-03 10:30", "2023-10-04 10:45"]


def test_b02_a_weekly_job_made_daily_at_noon_runs_tomorrow_morning(
    leader: Leader,
) -> None:
    # Noon of a Monday: the last time was six hours ago by either definition.
    job = leader.create("report", cron="0 6 * * 1")
    change(leader, job, "report", cron="0 6 * * *")
    leader.jump_to(NOON + DAY)
    assert fired(leader, job) == ["2055-03-02 06:00"]


def test_b04_a_job_that_began_before_it_was_made_first_runs_at_its_next_time(
    leader: Leader,
) -> None:
    leader.clock.moment = at("2055-03-01 14:02")
    cron = leader.create("cron", cron="0 15 * * *")
    interval = leader.create(
        "interval", interval="1h", starts_at="2055-03-01T14:00:00Z"
    )
    leader.jump_to(at("2055-03-01 14:59"))
    assert fired(leader, cron) == fired(leader, interval) == []
    leader.jump_to(at("2055-03-01 15:00"))
    assert fired(leader, cron) == fired(leader, interval) == ["2055-03-01 15:00"]


def test_b05_an_edit_of_one_of_1000_jobs_touches_no_other(leader: Leader) -> None:
    jobs = thousand(leader)
    before = timers(leader)
    change(leader, jobs[500], "job 500", cron="7 7 * * *")
    after = timers(leader)
    changed = {job for job in jobs if before[job] != after[job]}
    assert changed == {jobs[500]}
    assert leader.count("chrono_occurrence") == leader.count("chrono_ready") == 0


def test_b17_a_new_job_beside_1000_that_have_just_run_runs_none_of_them(
    leader: Leader,
) -> None:
    thousand(leader)
    leader.jump_to(NOON + HOUR)
    assert leader.count("chrono_occurrence") == 1_000
    leader.clock.moment += 10 * SECOND
    leader.create("one more", cron="0 13 * * *")
    leader.step()
    leader.jump_to(NOON + HOUR + 10 * MINUTE)
    assert leader.count("chrono_occurrence") == 1_000


def thousand(leader: Leader) -> list[uuid.UUID]:
    """Create 1,000 jobs that are due at one o'clock."""
    made = commands.create_jobs(
        [
            definition(key=f"job {n}", cron="0 13 * * *", jitter_window="0s")
            for n in range(1_000)
        ],
        now=leader.clock.moment,
    )
    leader.step()
    return [outcome.job_id for outcome in made if outcome.job_id is not None]


def test_b06_nothing_runs_before_its_instant_and_jitter_on_a_morning_of_summer_time(
    dsn: str,
) -> None:
    # Two schedules are changed on the evening before the clocks are.
    with lead(dsn, at("2024-03-30 18:00")) as leader:
        jobs = {
            leader.create(
                f"job {n}",
                cron=f"0 {5 + n % 3} * * *",
                timezone="Europe/Berlin",
                jitter_window="10m",
            ): 5 + n % 3
            for n in range(50)
        }
        leader.jump_to(at("2024-03-30 20:00"))
        for job in list(jobs)[:2]:
            commands.patch_job(job, {"cron": "0 4 * * *"}, now=leader.clock.moment)
            jobs[job] = 4
        leader.step()
        assert leader.count("chrono_ready") == 0
        due = {
            job: at(f"2024-03-31 0{hour - 2}:00") + jitter.offset(job, 10 * MINUTE)
            for job, hour in jobs.items()
        }
        for moment in sorted({*due.values()}):
            leader.jump_to(moment - 1)
            assert leader.count("chrono_ready") == sum(d < moment for d in due.values())
            leader.jump_to(moment)
        rows = leader.conn.execute("SELECT job_id, due_at FROM chrono_ready").fetchall()
    assert {job: int(moment.timestamp() * 1000) for job, moment in rows} == due


def test_b08_two_releases_side_by_side_leave_every_schedule_as_it_is(
    leader: Leader, dsn: str
) -> None:
    jobs = [
        leader.create(f"job {n}", interval="1m", overlap_policy="allow_all")
        for n in range(40)
    ]
    text = "SELECT j.*, j.xmin::text FROM chrono_job j ORDER BY id"
    before = leader.conn.execute(text).fetchall()
    with connect_hot(dsn, name="new release") as conn:
        new = Leader(conn=conn, clock=leader.clock, dispatcher=leader.dispatcher)
        for minute in range(1, 11):
            # Each of them is started anew every minute, and leads a half.
            for side, parts in ((leader, ALL[::2]), (new, ALL[1::2])):
                side.dispatcher = Dispatcher(side.conn, side.clock)
                side.dispatcher.adopt(
                    store.take_over(side.conn, parts=parts, owner="release")
                )
            leader.clock.moment = NOON + minute * MINUTE
            leader.step()
            new.step()
    assert leader.conn.execute(text).fetchall() == before
    expected = [NOON + minute * MINUTE for minute in range(1, 11)]
    assert all(leader.fired(job) == expected for job in jobs)


def test_b09_an_interval_counts_from_its_anchor_whoever_restarts(
    leader: Leader,
) -> None:
    leader.clock.moment = at("2055-03-01 15:00")
    anchored = leader.create(
        "anchored",
        interval="1h",
        starts_at="2055-03-01T15:20:00Z",
        overlap_policy="allow_all",
    )
    leader.jump_to(at("2055-03-01 15:15"))
    restart(leader)
    leader.jump_to(at("2055-03-01 15:20"))
    made = leader.create("made", interval="1h", overlap_policy="allow_all")
    for moment in ("2055-03-01 15:50", "2055-03-01 16:19"):
        leader.jump_to(at(moment))
        restart(leader)
    leader.jump_to(at("2055-03-01 17:20"))
    assert fired(leader, made) == ["2055-03-01 16:20", "2055-03-01 17:20"]
    assert fired(leader, anchored) == ["2055-03-01 15:20", *fired(leader, made)]


def test_b12_a_job_resumed_after_a_week_end_runs_at_the_next_minute(
    leader: Leader,
) -> None:
    job = leader.create("minute", cron="* * * * *")
    commands.pause_job(job, now=leader.clock.moment)
    leader.clock.moment += 60 * HOUR + 20 * SECOND
    leader.step()
    commands.resume_job(job, now=leader.clock.moment)
    leader.step()
    assert leader.fired(job) == []
    leader.jump_to(NOON + 60 * HOUR + MINUTE)
    assert leader.fired(job) == [NOON + 60 * HOUR + MINUTE]


def test_b16_five_seconds_late_is_late_and_not_lost(leader: Leader) -> None:
    jobs = thousand(leader)
    leader.clock.moment = NOON + HOUR + 5 * SECOND
    leader.step()
    assert all(leader.fired(job) == [NOON + HOUR] for job in jobs[::100])
    [(shown_late,)] = leader.conn.execute(
        "SELECT count(*) FROM chrono_ready WHERE due_at = to_timestamp(%s / 1000.0)",
        [NOON + HOUR],
    ).fetchall()
    assert shown_late == 1_000


def claim(leader: Leader) -> tuple[uuid.UUID, list[Lease]]:
    """Claim whatever is ready for a new worker."""
    worker = uuid.uuid4()
    worker_store.register_worker(
        leader.conn, worker=worker, host="t", pid=1, concurrency=1, queues=["default"]
    )
    leases = runs.claim_ready(leader.conn, queue="default", limit=500, worker=worker)
    return worker, leases


@pytest.mark.parametrize("end", [commands.pause_job, commands.delete_job])
def test_b22_what_runs_when_its_job_is_paused_or_deleted_runs_to_its_end(
    leader: Leader, end: Any
) -> None:
    job = leader.create("long", interval="1m")
    leader.jump_to(NOON + MINUTE)
    worker, [lease] = claim(leader)
    end(job, now=leader.clock.moment)
    leader.jump_to(NOON + 10 * MINUTE)
    flagged = worker_store.beat_if_alive(leader.conn, worker=worker)
    assert flagged.cancelled == [], "nobody asked for it to stop"
    done = Settlement(run_id=lease.run_id, token=lease.token)
    settled = runs.settle_if_leased(leader.conn, [done], horizon=NOON + DAY)
    assert settled == {lease.run_id}
    [(state,)] = leader.conn.execute("SELECT state FROM chrono_run").fetchall()
    assert state == RunState.SUCCESS
    assert leader.fired(job) == [NOON + MINUTE]


def test_b24_a_leader_killed_between_fire_and_commit_leaves_neither_run_nor_plan(
    leader: Leader, dsn: str
) -> None:
    job = leader.create("hourly", cron="0 * * * *", overlap_policy="allow_all")
    leader.step()
    before = timers(leader)
    with connect_hot(dsn, name="victim") as conn:
        victim = Dispatcher(conn, leader.clock)
        victim.adopt(store.take_over(conn, parts=ALL, owner="victim"))
        leader.clock.moment = NOON + HOUR
        conn.execute("BEGIN")
        assert victim.step().readied == 1
        leader.conn.execute(
            "SELECT pg_terminate_backend(%s::int, 5000)", [conn.info.backend_pid]
        )
        with pytest.raises(psycopg.OperationalError):
            conn.execute("COMMIT")
    assert timers(leader) == before
    assert leader.fired(job) == []
    restart(leader)
    assert leader.fired(job) == [NOON + HOUR]


def test_b24_a_leader_killed_after_its_commit_leaves_both_run_and_plan(
    leader: Leader, dsn: str
) -> None:
    job = leader.create("hourly", cron="0 * * * *", overlap_policy="allow_all")
    leader.step()
    with connect_hot(dsn, name="victim") as conn:
        victim = Dispatcher(conn, leader.clock)
        victim.adopt(store.take_over(conn, parts=ALL, owner="victim"))
        leader.clock.moment = NOON + HOUR
        victim.step()  # Its answer is never used.
    assert leader.fired(job) == [NOON + HOUR]
    restart(leader)
    leader.jump_to(NOON + 2 * HOUR)
    assert leader.fired(job) == [NOON + HOUR, NOON + 2 * HOUR]


def test_b24_a_history_that_is_dropped_changes_no_schedule(
    leader: Leader, dsn: str
) -> None:
    job = leader.create("daily", cron="0 13 * * *", overlap_policy="allow_all")
    with connect_upkeep(dsn, name="keeper") as keeper:
        for day in range(4, 41, 4):
            leader.jump_to(NOON + day * DAY)
            days.ensure_days(keeper, now=leader.clock.moment)
            days.drop_old_days(keeper, now=leader.clock.moment)
    kept = leader.fired(job)
    assert 30 <= len(kept) < 40
    restart(leader)
    change(leader, job, "daily", cron="0 14 * * *", overlap_policy="allow_all")
    assert leader.fired(job) == kept
    leader.jump_to(NOON + 41 * DAY)
    assert leader.fired(job)[len(kept) :] == [NOON + 40 * DAY + 2 * HOUR]


def test_b25_a_pause_just_before_its_time_is_exact_and_outlives_a_restart(
    leader: Leader,
) -> None:
    job = leader.create("hourly", cron="0 * * * *")
    leader.jump_to(NOON + HOUR - 400)  # It is in the wheel.
    commands.pause_job(job, now=leader.clock.moment)
    leader.jump_to(NOON + HOUR)
    leader.jump_to(NOON + 2 * HOUR)
    assert leader.ledger(job) == []
    restart(leader)
    leader.jump_to(NOON + 5 * HOUR)
    assert leader.ledger(job) == []
    assert leader.count("chrono_ready") == 0


def test_b26_what_a_sleep_missed_is_missed_and_an_edit_of_a_payload_loses_none_of_it(
    leader: Leader,
) -> None:
    job = leader.create("often", interval="10m")
    leader.clock.moment = NOON + 84 * MINUTE
    change(leader, job, "often", interval="10m", payload={"new": True})
    assert leader.ledger(job) == [
        ("2055-03-01T12:10:00Z", Outcome.SKIPPED, Reason.COLLAPSED, 7),
        ("2055-03-01T13:20:00Z", Outcome.FIRED, None, None),
    ]


def test_b26_what_waits_to_be_caught_up_survives_another_edit(leader: Leader) -> None:
    job = leader.create("often", interval="10m", overlap_policy="allow_all")
    leader.clock.moment = NOON + 84 * MINUTE
    now = leader.clock.moment
    # While nobody leads: another schedule, then a new payload.
    commands.patch_job(job, {"interval": "1h"}, now=now)
    commands.patch_job(job, {"payload": {"new": True}}, now=now)
    restart(leader)
    assert leader.fired(job) == [at("2055-03-01 13:20")]


def test_b29_whoever_leads_a_partition_fires_jobs_whose_code_it_does_not_have(
    leader: Leader, dsn: str
) -> None:
    jobs = [
        leader.create(
            f"job {n}",
            interval="1m",
            target={"kind": "task", "name": "of.another.service"},
        )
        for n in range(100)
    ]
    assert len({partition_of(job) for job in jobs}) > 40
    with connect_hot(dsn, name="another") as conn:
        another = Dispatcher(conn, leader.clock)
        another.adopt(store.take_over(conn, parts=ALL[:32], owner="another"))
        leader.clock.moment = NOON + MINUTE
        leader.step()
        another.step()
    assert all(leader.fired(job) == [NOON + MINUTE] for job in jobs)
