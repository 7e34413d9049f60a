"""Bad schedules, far dates, clocks that jump: the others fire, and no loop spins."""

import os
import signal
import subprocess
import time
from datetime import UTC, datetime
from typing import Any

import psutil
import psycopg
import pytest

from apps.jobs.commands import create_jobs
from apps.runtime.locks import PARTITION_LOCKS
from chrono.rules import cron
from chrono.rules.errors import BadInstant
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND, Millis
from chrono.rules.states import Outcome, Reason
from tests.cases.fires import at
from tests.scheduler.conftest import NOON, Leader
from tests.scheduler.test_process import ALL, LOCKED, Start, said, wait_for_shares
from tests.support.definitions import definition
from tests.support.pg import Connection
from tests.worker.support import wait_for

POISON = "0 13 * * 1"
"""Monday, at one o'clock: an hour after noon."""


@pytest.fixture
def poisoned(leader: Leader) -> Leader:
    """A leader of 1,000 jobs, all due at one o'clock, one of them the poisonous one."""
    others = [
        definition(key=f"good {n}", cron="0 13 * * *", jitter_window="0s")
        for n in range(999)
    ]
    create_jobs(others, now=NOON)
    leader.create("bad", cron=POISON)
    return leader


def come_to_one(leader: Leader) -> None:
    """Let it be one o'clock; the poisonous timer stays due, whatever time it is."""
    leader.clock.moment = NOON + HOUR
    leader.step()


def fired(leader: Leader) -> int:
    """Return how many occurrences of one o'clock were fired."""
    [(number,)] = leader.conn.execute(
        "SELECT count(*) FROM chrono_occurrence WHERE outcome = 1"
    ).fetchall()
    return int(number)


def test_a27_a_schedule_that_stands_still_stops_neither_the_others_nor_the_tick(
    poisoned: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, lambda moment: moment)
    began = time.monotonic()
    come_to_one(poisoned)
    assert time.monotonic() - began < 20
    assert fired(poisoned) == 999


def test_a29_a_schedule_that_can_t_be_computed_stops_none_of_the_others(
    poisoned: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(moment: Millis) -> Millis:
        raise ArithmeticError(moment)

    poison(monkeypatch, fail)
    come_to_one(poisoned)
    assert fired(poisoned) == 999


def poison(monkeypatch: pytest.MonkeyPatch, next_fire: Any) -> None:
    """Have the search for the next fire of the poisonous job answer this."""
    ours = cron.next_fire
    monkeypatch.setattr(
        cron,
        "next_fire",
        lambda expression, moment, **options: (
            next_fire(moment)
            if expression == POISON
            else ours(expression, moment, **options)
        ),
    )


def test_a67_what_is_due_in_a_month_or_a_century_fires_in_no_year_before(
    leader: Leader,
) -> None:
    month = leader.create("month", run_at="2055-03-31T12:00:00Z")
    century = leader.create("century", run_at="2100-01-01T00:00:00Z")
    end = leader.create("end", run_at="9998-12-31T23:59:59Z")
    leader.step()
    assert len(leader.dispatcher.cache) == 0, "only what is due soon is in memory"
    for week in range(1, 53):
        leader.jump_to(NOON + week * 7 * DAY)
    assert leader.fired(month) == [at("2055-03-31 12:00")]
    assert leader.fired(century) == leader.fired(end) == []
    assert leader.count("chrono_timer_far") == 2


@pytest.mark.parametrize(
    "run_at", ["9999-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "infinity"]
)
def test_a68_an_instant_that_no_reader_could_read_is_refused_by_its_field(
    run_at: str,
) -> None:
    with pytest.raises(BadInstant) as error:
        definition(run_at=run_at)
    assert error.value.field == "run_at"


def test_a68_a_bad_row_is_kept_out_by_the_tables_or_breaks_its_job_alone(
    leader: Leader,
) -> None:
    bad = leader.create("bad", interval="1s")
    good = leader.create("good", interval="1s", overlap_policy="allow_all")
    leader.create("far", run_at="2100-01-01T00:00:00Z")
    for column in ("due_at", "scheduled_for"):
        for moment in ("infinity", "10000-01-01Z"):
            with pytest.raises(psycopg.errors.CheckViolation):
                leader.conn.execute(
                    f"UPDATE chrono_timer_far SET {column} = '{moment}'"
                )
    leader.conn.execute(
        "UPDATE chrono_job_revision SET schedule = "
        """'{"run_at": "10000-01-01T00:00:00Z"}' WHERE job_id = %s""",
        [bad],
    )
    leader.run_to(NOON + 3 * SECOND)
    assert leader.fired(bad) == []
    assert leader.fired(good) == [NOON + n * SECOND for n in (1, 2, 3)]


def test_a69_a_clock_set_forward_and_back_runs_nothing_twice_and_stops_nothing(
    leader: Leader,
) -> None:
    leader.clock.moment = at("2055-03-01 15:00")
    old = leader.create("old", cron="* * * * *", overlap_policy="allow_all")
    leader.jump_to(at("2055-03-01 17:00"))
    decided = leader.ledger(old)
    # Whoever sees its clock jump gives up everything and leads anew.
    leader.clock.moment = at("2055-03-01 15:01")
    leader.begin_anew()
    new = leader.create("new", cron="* * * * *", overlap_policy="allow_all")
    leader.jump_to(at("2055-03-01 15:03"))
    assert leader.fired(new) == [at("2055-03-01 15:02"), at("2055-03-01 15:03")]
    leader.jump_to(at("2055-03-01 17:01"))
    # What was decided stays so; the plan goes on after it.
    assert leader.ledger(old)[: len(decided)] == decided
    assert leader.fired(old)[-1] == at("2055-03-01 17:01")
    assert len(leader.fired(old)) == len({*leader.fired(old)}) == 121


def test_a71_a_sleep_of_84_minutes_is_caught_up_once_and_in_a_few_steps(
    leader: Leader,
) -> None:
    job = leader.create("minutes", cron="* * * * *", overlap_policy="allow_all")
    leader.clock.moment += 84 * MINUTE
    steps = 0
    while leader.dispatcher.step().wait == 0:
        steps += 1
    assert steps < 10
    rows = leader.ledger(job)
    assert rows[0] == ("2055-03-01T12:01:00Z", Outcome.SKIPPED, Reason.COLLAPSED, 81)
    # The newest that was missed, and what is a minute late at most.
    assert leader.fired(job) == [NOON + n * MINUTE for n in (82, 83, 84)]
    leader.jump_to(NOON + 85 * MINUTE)
    assert len(leader.fired(job)) == 4


@pytest.mark.usefixtures("dsn")
def test_a71_a_process_that_slept_says_little_and_idles_again(
    start: Start, second_connection: Connection
) -> None:
    def locked() -> int:
        [(count,)] = second_connection.execute(LOCKED, [PARTITION_LOCKS]).fetchall()
        return int(count)

    process = start()
    wait_for_shares(second_connection, ALL)
    os.kill(process.pid, signal.SIGSTOP)
    wait_for(lambda: locked() == 0)  # The server ended its silent session.
    woken = datetime.now(UTC).isoformat(timespec="milliseconds")[:23]
    os.kill(process.pid, signal.SIGCONT)
    wait_for_shares(second_connection, ALL)
    used = psutil.Process(process.pid)
    before = sum(used.cpu_times()[:2])
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2)
    assert sum(used.cpu_times()[:2]) - before < 1
    process.send_signal(signal.SIGTERM)
    lines = [line for line in said(process) if line[:23] >= woken]
    assert len(lines) <= 10, lines
