"""The gates: at what rate, in which order and to whom they open, and to whom never."""

import uuid
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from apps.jobs.backfill import Range, backfill_job
from apps.jobs.commands import delete_job, pause_job, resume_job
from apps.jobs.manual import run_now
from apps.runs.cancel import cancel
from apps.runtime.sessions import Connection
from apps.scheduler import lane, store
from apps.scheduler.dispatcher import Dispatcher
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND
from chrono.rules.keys import run_id
from chrono.rules.partitions import PARTITIONS, partition_of
from chrono.rules.states import Priority, Reason, RunState
from tests.scheduler.conftest import NOON, Leader

LATER = NOON + HOUR + 20 * SECOND
STEP = lane.STEP


def miss(leader: Leader, key: str = "missed", **fields: Any) -> uuid.UUID:
    """Create a job that will have missed an hour of minutes."""
    fields = {"interval": "1m", "catchup_policy": "run_all", **fields}
    return leader.create(key, **fields)


def minutes(first: int, last: int) -> list[int]:
    return [NOON + n * MINUTE for n in range(first, last + 1)]


def catch_up(leader: Leader) -> None:
    """Come back an hour later; decide what was missed, and let nothing in."""
    leader.clock.moment = LATER
    leader.step()
    assert leader.count("chrono_blocked") > 0


def let_in(leader: Leader, steps: int) -> list[int]:
    """Return how many runs each of the next steps of the lane makes ready."""
    counts = []
    for _ in range(steps):
        leader.clock.moment += STEP
        counts.append(leader.step())
    return counts


def test_the_lane_lets_in_so_many_a_second(leader: Leader) -> None:
    # Every 77th second: none of them comes due beside the lane.
    jobs = [
        miss(leader, f"{n}", interval="77s", overlap_policy="allow_all")
        for n in range(3)
    ]
    leader.begin_anew(catchup_rate=8)
    catch_up(leader)
    waiting = leader.count("chrono_blocked")
    counts = let_in(leader, 24)
    assert all(sum(counts[: n + 1]) <= 2 * (n + 1) for n in range(24))
    assert sum(counts) >= 6 * 8 - 2
    assert leader.count("chrono_blocked") == waiting - sum(counts)
    assert all(len(leader.ready(job)) >= 14 for job in jobs)


def test_a_lane_that_was_idle_has_a_second_in_hand_and_no_more(leader: Leader) -> None:
    miss(leader, overlap_policy="allow_all")
    leader.begin_anew(catchup_rate=8)
    catch_up(leader)
    leader.clock.moment += 30 * SECOND
    # Of one job a quarter at a time.
    assert let_in(leader, 8) == [2] * 8
    assert leader.count("chrono_blocked") == 59 - 16


def test_a_high_rate_is_reached_by_jobs_with_one_run_each(leader: Leader) -> None:
    for n in range(120):
        leader.create(f"{n}", interval="50m", overlap_policy="allow_all")
    leader.begin_anew(catchup_rate=200)
    catch_up(leader)
    waiting = leader.count("chrono_blocked")
    assert waiting > 3 * lane.TURNS
    leader.clock.moment += SECOND
    assert leader.step() == waiting


def test_a_leader_has_the_share_of_its_partitions(leader: Leader) -> None:
    job = miss(leader, overlap_policy="allow_all")
    first = partition_of(job)
    half = [(first + n) % PARTITIONS for n in range(PARTITIONS // 2)]
    leader.dispatcher = Dispatcher(leader.conn, leader.clock, catchup_rate=8)
    leader.dispatcher.adopt(store.take_over(leader.conn, parts=half, owner="half"))
    catch_up(leader)
    assert sum(let_in(leader, 12)) == 3 * 4


def test_of_each_job_the_oldest_go_first(leader: Leader) -> None:
    job = miss(leader, overlap_policy="allow_all")
    catch_up(leader)
    let_in(leader, 4)
    found = leader.ready(job)[1:]  # 13:00 was merely late.
    assert found == minutes(1, len(found))
    assert leader.blocked(job)[0] == (minutes(1, 60)[len(found)], "catch_up")


def test_no_job_has_the_lane_to_itself(leader: Leader) -> None:
    jobs = [miss(leader, f"{n}", overlap_policy="allow_all") for n in range(12)]
    leader.begin_anew(catchup_rate=16)
    catch_up(leader)
    let_in(leader, 12)
    # Each of 12 jobs has its turn within three seconds of 16 runs.
    assert {len(leader.ready(job)) - 1 for job in jobs} <= {3, 4, 5}
    assert sum(len(leader.ready(job)) - 1 for job in jobs) == 48


def test_no_more_jobs_are_looked_at_than_may_have_a_turn(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    # To look at a job that has much to catch up costs some milliseconds.
    looked: list[int] = []
    live = store.list_live

    def count(
        conn: Connection, *, jobs: Sequence[tuple[int, uuid.UUID]], now: int
    ) -> Any:
        looked.append(len(jobs))
        return live(conn, jobs=jobs, now=now)

    for n in range(9):
        miss(leader, f"{n}", interval="10m")
    leader.begin_anew(catchup_rate=8)
    catch_up(leader)
    assert leader.succeed() == 9  # Those of 13:00 were merely late.
    monkeypatch.setattr(store, "list_live", count)
    counts = let_in(leader, 10)
    assert max(looked) <= 8
    # All have their turn, although those that are live take none.
    assert sum(counts) == 9


def test_a_long_walk_is_taken_in_pieces(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "MOST_JOBS", 2)
    jobs = [miss(leader, f"{n}", overlap_policy="allow_all") for n in range(5)]
    catch_up(leader)
    let_in(leader, 8)
    assert all(len(leader.ready(job)) > 1 for job in jobs)


def test_runs_of_the_lane_are_bulk(leader: Leader) -> None:
    job = miss(leader, overlap_policy="allow_all", priority="critical")
    catch_up(leader)
    let_in(leader, 1)
    rows = leader.conn.execute(
        "SELECT priority, count(*) > 0 FROM chrono_ready WHERE job_id = %s GROUP BY 1",
        [job],
    ).fetchall()
    assert sorted(rows) == [(Priority.CRITICAL, True), (Priority.BULK, True)]


def test_a_bounded_job_catches_up_one_run_after_the_other(leader: Leader) -> None:
    job = miss(leader, interval="10m")
    leader.clock.moment = NOON + HOUR + 5 * MINUTE
    leader.step()
    for n in range(6):
        let_in(leader, 4)
        assert leader.ready(job) == [NOON + (n + 1) * 10 * MINUTE]
        assert len(leader.blocked(job)) == 5 - n
        [lease] = leader.claim()
        let_in(leader, 4)
        assert leader.ready(job) == []
        leader.settle(lease)
    let_in(leader, 4)
    assert leader.ready(job) == []


def test_a_live_run_goes_before_what_catches_up(leader: Leader) -> None:
    job = miss(leader, interval="10m")
    leader.clock.moment = NOON + HOUR + 5 * MINUTE
    leader.step()
    assert len(leader.blocked(job)) == 6
    leader.clock.moment = NOON + HOUR + 10 * MINUTE
    leader.dispatcher.step()
    # It passed those that wait, and they wait for it.
    assert leader.ready(job) == [NOON + HOUR + 10 * MINUTE]
    let_in(leader, 4)
    assert len(leader.blocked(job)) == 6
    leader.succeed()
    let_in(leader, 1)
    assert leader.ready(job) == [NOON + 10 * MINUTE]


def test_a_run_that_catches_up_makes_a_live_one_skip(leader: Leader) -> None:
    job = miss(leader, interval="10m")
    leader.clock.moment = NOON + HOUR + 5 * MINUTE
    leader.step()
    let_in(leader, 2)
    leader.clock.moment = NOON + HOUR + 10 * MINUTE
    leader.step()
    assert leader.ledger(job)[-1][2] == Reason.OVERLAP
    assert leader.ready(job) == [NOON + 10 * MINUTE]


def test_what_waits_beyond_its_deadline_does_not_begin(leader: Leader) -> None:
    job = miss(leader, max_delay="70m", overlap_policy="allow_all")
    leader.begin_anew(catchup_rate=0.001)
    catch_up(leader)
    waiting = leader.count("chrono_blocked")
    # Twenty minutes later the first half hour of them is too late, the rest is not.
    leader.clock.moment += 20 * MINUTE + 5 * SECOND
    leader.begin_anew(catchup_rate=100_000)
    let_in(leader, 8)
    [(late,)] = leader.conn.execute(
        "SELECT count(*) FROM chrono_run "
        "WHERE job_id = %s AND state = 5 AND reason = 6",
        [job],
    ).fetchall()
    assert late == 10
    assert late + len(leader.ready(job)) >= waiting
    assert leader.count("chrono_blocked") == 0


def test_a_pause_holds_back_and_a_resume_lets_in(leader: Leader) -> None:
    job = miss(leader, overlap_policy="allow_all")
    catch_up(leader)
    pause_job(job, now=leader.clock.moment)
    assert sum(let_in(leader, 8)) == 0
    assert len(leader.blocked(job)) == 59
    resume_job(job, now=leader.clock.moment)
    leader.dispatcher.notice()
    assert sum(let_in(leader, 4)) > 0


def test_a_pause_that_comes_after_the_look_still_holds_back(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = miss(leader, overlap_policy="allow_all")
    catch_up(leader)
    admit = store.admit_if_held

    def pause_first(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(store, "admit_if_held", admit)
        pause_job(job, now=leader.clock.moment)
        return admit(*args, **options)

    monkeypatch.setattr(store, "admit_if_held", pause_first)
    assert sum(let_in(leader, 8)) == 0
    assert store.admit_if_held is admit
    assert len(leader.blocked(job)) == 59


def test_a_lost_notice_of_a_resume_costs_half_a_minute_at_most(leader: Leader) -> None:
    job = miss(leader, overlap_policy="allow_all")
    catch_up(leader)
    pause_job(job, now=leader.clock.moment)
    let_in(leader, 8)
    resume_job(job, now=leader.clock.moment)
    leader.run_to(leader.clock.moment + lane.LOOK_EVERY + STEP)
    assert len(leader.blocked(job)) < 59


def test_a_delete_cancels_what_waits(leader: Leader) -> None:
    job = miss(leader, interval="10m", overlap_policy="allow_all")
    catch_up(leader)
    delete_job(job, now=leader.clock.moment)
    assert leader.blocked(job) == []
    assert leader.ended(job) == [
        (NOON + n * 10 * MINUTE, RunState.CANCELLED, Reason.DELETED)
        for n in range(1, 6)
    ]
    assert sum(let_in(leader, 4)) == 0


def test_a_run_that_waits_is_cancelled_and_the_others_go_on(leader: Leader) -> None:
    job = miss(leader, interval="10m")
    leader.clock.moment = NOON + HOUR + 5 * MINUTE
    leader.step()
    first = run_id(job, NOON + 10 * MINUTE, 0, partition_of(job))
    assert cancel(leader.conn, first) is RunState.CANCELLED
    assert cancel(leader.conn, first) is RunState.CANCELLED
    let_in(leader, 4)
    assert leader.ready(job) == [NOON + 20 * MINUTE]
    assert leader.ended(job) == [
        (NOON + 10 * MINUTE, RunState.CANCELLED, Reason.OPERATOR)
    ]


def test_a_retry_of_a_paused_job_waits_and_goes_on_after_the_resume(
    leader: Leader,
) -> None:
    job = leader.create("fails", interval="1h")
    leader.clock.moment = NOON + HOUR
    leader.step()
    [lease] = leader.claim()
    leader.settle(
        lease,
        state=0,
        due=leader.clock.moment + MINUTE,
        error="no",
        reason=Reason.ATTEMPT_FAILED,
    )
    pause_job(job, now=leader.clock.moment)
    leader.run_to(leader.clock.moment + 2 * MINUTE, every=10 * SECOND)
    assert leader.blocked(job) == [(NOON + HOUR, "paused")]
    assert leader.ready(job) == []
    leader.run_to(leader.clock.moment + lane.LOOK_EVERY + SECOND, every=SECOND)
    assert leader.ready(job) == []
    resume_job(job, now=leader.clock.moment)
    leader.dispatcher.notice()
    let_in(leader, 2)
    assert leader.blocked(job) == []
    [again] = leader.claim()
    assert (again.run_id, again.attempt) == (lease.run_id, 2)


def test_a_retry_of_a_manual_run_goes_on_though_the_job_is_paused(
    leader: Leader,
) -> None:
    job, other = (leader.create(key, interval="1h") for key in ("fails", "other"))
    leader.clock.moment = NOON + HOUR
    leader.step()
    scheduled = leader.claim()
    for one in (job, other):
        pause_job(one, now=leader.clock.moment)
    asked = run_now(job, now=leader.clock.moment + SECOND).run_id
    leader.run_to(leader.clock.moment + 2 * SECOND)
    [manual] = leader.claim()
    assert manual.run_id == asked
    for lease in (*scheduled, manual):
        leader.settle(
            lease,
            state=0,
            due=leader.clock.moment + MINUTE,
            error="no",
            reason=Reason.ATTEMPT_FAILED,
        )
    leader.run_to(leader.clock.moment + 2 * MINUTE, every=10 * SECOND)
    assert leader.blocked(job) == leader.blocked(other) == [(NOON + HOUR, "paused")]
    [again] = leader.claim()
    assert (again.run_id, again.attempt) == (asked, 2)


def test_a_cancelled_retry_does_not_come_back_from_behind_its_gate(
    leader: Leader,
) -> None:
    job = leader.create("fails", interval="1h")
    leader.clock.moment = NOON + HOUR
    leader.step()
    [lease] = leader.claim()
    leader.settle(
        lease,
        state=0,
        due=leader.clock.moment + SECOND,
        error="no",
        reason=Reason.ATTEMPT_FAILED,
    )
    pause_job(job, now=leader.clock.moment)
    leader.run_to(leader.clock.moment + 2 * SECOND)
    assert leader.blocked(job) == [(NOON + HOUR, "paused")]
    assert cancel(leader.conn, lease.run_id) is RunState.CANCELLED
    resume_job(job, now=leader.clock.moment)
    leader.dispatcher.notice()
    let_in(leader, 2)
    assert leader.ready(job) == []
    assert leader.ended(job) == [(NOON + HOUR, RunState.CANCELLED, Reason.OPERATOR)]


def test_a_job_that_cannot_be_read_waits_and_stops_nobody_else(leader: Leader) -> None:
    bad, good = (miss(leader, key, overlap_policy="allow_all") for key in "ab")
    catch_up(leader)
    leader.conn.execute(
        "UPDATE chrono_job_revision SET schedule = '{}' WHERE job_id = %s", [bad]
    )
    leader.begin_anew()
    let_in(leader, 4)
    assert len(leader.blocked(bad)) == 59
    assert len(leader.blocked(good)) < 59


def test_a_run_that_cannot_be_let_in_stops_nobody_else(leader: Leader) -> None:
    jobs = [miss(leader, key, overlap_policy="allow_all") for key in "abcde"]
    bad, *goods = jobs
    catch_up(leader)
    leader.conn.execute(
        f"ALTER TABLE chrono_ready ADD CONSTRAINT poison CHECK (job_id <> '{bad}') "
        "NOT VALID"
    )
    let_in(leader, 8)
    assert len(leader.blocked(bad)) == 59
    assert all(len(leader.blocked(good)) < 59 for good in goods)
    leader.conn.execute("ALTER TABLE chrono_ready DROP CONSTRAINT poison")
    leader.clock.moment += MINUTE
    let_in(leader, 8)
    assert len(leader.blocked(bad)) < 59


def test_a_partition_that_somebody_holds_stops_nobody_else(
    leader: Leader, dsn: str
) -> None:
    jobs = [miss(leader, key, overlap_policy="allow_all") for key in "abcd"]
    part = partition_of(jobs[0])
    catch_up(leader)
    leader.conn.execute("SET lock_timeout = '20ms'")
    with psycopg.connect(dsn) as holder:
        holder.execute("SELECT FROM chrono_partition WHERE id = %s FOR UPDATE", [part])
        let_in(leader, 3)
        for job in jobs:
            held = partition_of(job) == part
            assert (len(leader.blocked(job)) == 59) is held
    leader.clock.moment += SECOND
    let_in(leader, 8)
    assert all(len(leader.blocked(job)) < 59 for job in jobs)


def test_a_partition_that_is_free_again_has_its_turn_within_seconds(
    leader: Leader, dsn: str
) -> None:
    # Nothing else waits that would keep the lane awake.
    job = miss(leader, overlap_policy="allow_all")
    catch_up(leader)
    leader.conn.execute("SET lock_timeout = '20ms'")
    with psycopg.connect(dsn) as holder:
        holder.execute(
            "SELECT FROM chrono_partition WHERE id = %s FOR UPDATE", [partition_of(job)]
        )
        let_in(leader, 3)
        assert len(leader.blocked(job)) == 59
    let_in(leader, 8)
    assert len(leader.blocked(job)) < 59


def test_a_deposed_leader_lets_nobody_in(leader: Leader) -> None:
    job = miss(leader, overlap_policy="allow_all")
    catch_up(leader)
    store.take_over(leader.conn, parts=range(PARTITIONS), owner="another")
    assert sum(let_in(leader, 8)) == 0
    assert len(leader.blocked(job)) == 59
    assert leader.dispatcher.cache.held == {}


def test_old_occurrences_run_again_are_looked_for_by_their_slots(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where else a run may be is asked of all that is ready.
    job = leader.create("daily", cron="0 12 * * *")
    leader.clock.moment = NOON + HOUR
    wanted = Range(start=NOON - 20 * DAY, end=NOON - 17 * DAY)
    backfill_job(job, wanted, now=leader.clock.moment)

    def ask(*args: object, **options: object) -> Any:
        raise AssertionError("it was asked for")

    monkeypatch.setattr(store, "list_unsettled", ask)
    for _ in range(3):
        leader.run_to(leader.clock.moment + 2 * SECOND)
        assert leader.succeed() == 1
    leader.run_to(leader.clock.moment + 2 * SECOND)
    assert leader.blocked(job) == leader.ready(job) == []
