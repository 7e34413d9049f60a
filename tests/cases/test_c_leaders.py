"""Several schedulers: one fires each occurrence, whatever the others believe."""

import contextlib
import random
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import batched
from pathlib import Path

import psycopg
import pytest

from apps.jobs.commands import create_job
from apps.runs import store as runs
from apps.runs import worker_store
from apps.runs.store import Settlement
from apps.runtime.clock import ManualClock
from apps.runtime.sessions import LEADER, Connection, connect_hot, connect_leader
from apps.runtime.store import read_clock
from apps.scheduler.dispatcher import Dispatcher
from apps.scheduler.leadership import ALONE_S, AMONG_OTHERS_S
from apps.scheduler.store import Term
from chrono.rules import lease
from chrono.rules.instants import (
    DAY,
    MINUTE,
    SECOND,
    from_millis,
    parse_instant,
    to_millis,
)
from chrono.rules.keys import run_id
from chrono.rules.partitions import partition_of
from chrono.rules.states import Outcome, Reason
from tests.api.conftest import ApiClient
from tests.architecture.sources import within
from tests.races.world import Leader as RacingLeader
from tests.races.world import World
from tests.scheduler.conftest import NOON, Leader, prepare
from tests.scheduler.test_leadership import Candidate
from tests.scheduler.test_process import Start, wait_for_shares
from tests.support import skewed
from tests.support.definitions import definition
from tests.worker.support import wait_for

ALL = range(64)
ROLLBACKS = """
    SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()
"""


class Node:
    """A scheduler whose threads a test steps: its leadership, and what fires."""

    def __init__(self, dsn: str, clock: ManualClock) -> None:
        self.conn = connect_hot(dsn, name="test node")
        self.candidate = Candidate(dsn)
        self.dispatcher = Dispatcher(self.conn, clock)

    def lead(self) -> set[int]:
        """Let leadership step once and firing follow; return what is held."""
        leadership = self.candidate.leadership
        leadership.step()
        while not leadership.changes.empty():
            change = leadership.changes.get_nowait()
            self.dispatcher.resign(change.lost)
            self.dispatcher.adopt(change.gained)
        return set(self.dispatcher.cache.held)

    def terms(self) -> list[Term]:
        """Return the terms in which it believes."""
        return [held.term for held in self.dispatcher.cache.held.values()]

    def fire(self) -> int:
        """Step until nothing more is due; return how many runs became ready."""
        readied = 0
        while True:
            step = self.dispatcher.step()
            readied += step.readied
            if step.wait > 0:
                return readied

    def kill(self) -> None:
        """End its sessions as a kill of the process does."""
        self.candidate.leadership._lose_session()
        self.conn.close()


@pytest.fixture
def node(leader: Leader, dsn: str) -> Iterator[Callable[[], Node]]:
    """Makes nodes that go by the leader's clock; all end with the test."""
    leader.dispatcher.resign(ALL)
    made: list[Node] = []

    def make() -> Node:
        made.append(Node(dsn, leader.clock))
        return made[-1]

    yield make
    for each in made:
        each.kill()


def test_c01_who_can_t_renew_fires_nothing_however_firmly_it_believes(
    leader: Leader, node: Callable[[], Node]
) -> None:
    job = leader.create("cron", cron="* * * * *", overlap_policy="allow_all")
    stale, new = node(), node()
    assert stale.lead() == set(ALL)
    leader.clock.moment = NOON + MINUTE
    assert stale.fire() == 1
    believed = stale.terms()
    # The server ends the session of its locks; it hears of nothing.
    session = stale.candidate.leadership._conn
    assert session is not None
    leader.conn.execute(
        "SELECT pg_terminate_backend(%s::int, 5000)", [session.info.backend_pid]
    )
    assert new.lead() == set(ALL)
    for minute in range(2, 62):
        leader.clock.moment = NOON + minute * MINUTE
        stale.dispatcher.adopt(believed)
        assert stale.fire() == 0
        assert new.fire() == 1
    assert leader.fired(job) == [NOON + minute * MINUTE for minute in range(1, 62)]
    fences = leader.conn.execute(
        "SELECT DISTINCT o.fence = p.fence FROM chrono_occurrence o "
        "JOIN chrono_partition p ON p.id = o.part WHERE scheduled_for > %s",
        [from_millis(NOON + MINUTE)],
    ).fetchall()
    assert fences == [(True,)]
    with pytest.raises(psycopg.OperationalError):
        stale.lead()


def test_c03_of_eight_who_claim_10_000_occurrences_each_is_fired_by_one(
    world: World, background: Callable[..., Future[int]]
) -> None:
    job = world.job(part=6)
    world.observer.execute(
        """
        INSERT INTO chrono_timer (due_at, scheduled_for, ref, job_id, version, revision,
            part, kind)
        SELECT at, at, %(job)s, %(job)s, 1, 1, 6, 1 FROM (
            SELECT to_timestamp((%(now)s - n) / 1000.0::float8) AS at
            FROM generate_series(1, 10000) AS n
        ) t
        """,
        {"job": job.id, "now": world.now()},
    )
    holder = world.leader("claimer 0", 6)
    claimers = [
        RacingLeader(f"claimer {n}", world.session(f"claimer {n}"), world, holder.terms)
        for n in range(1, 9)
    ]

    def claim(number: int) -> int:
        lot = random.Random(number)
        rows = claimers[number].load(6)
        chunks = list(batched(rows, 500))
        lot.shuffle(chunks)
        fired = 0
        for chunk in chunks:
            time.sleep(lot.uniform(0, 0.05))  # What somebody else may use.
            verdicts = claimers[number].fire(chunk).verdicts.values()
            fired += sum(verdict == 0 for verdict in verdicts)
        return fired

    claims = [background(claim, number) for number in range(8)]
    fired = [each.result(timeout=50) for each in claims]
    assert sum(fired) == 10_000
    assert sum(number > 0 for number in fired) > 1, "nobody had a rival"
    ready = world.rows("SELECT count(*), count(DISTINCT run_id) FROM chrono_ready")
    assert ready == [(10_000, 10_000)]
    assert world.value("SELECT count(*) FROM chrono_timer") == 0


@pytest.mark.usefixtures("dsn")
def test_c04_nodes_whose_clocks_are_hours_apart_fire_each_occurrence_once_and_on_time(
    start: Start, second_connection: Connection, tmp_path: Path
) -> None:
    conn = second_connection
    for name, hours in (("ahead", 2), ("behind", -2)):
        skewed.write(tmp_path / name, wall=hours * 3600.0)
        start("-m", "tests.support.skewed", str(tmp_path / name))
    wait_for_shares(conn, 32, 32)
    now = int(read_clock(conn))
    for n in range(20):
        create_job(
            definition(
                key=f"job {n}",
                interval="1s",
                jitter_window="0s",
                overlap_policy="allow_all",
            ),
            now=now,
        )
    rows = wait_for(
        lambda: (
            found
            if len(
                found := conn.execute(
                    "SELECT job_id, due_at, dispatched_at FROM chrono_ready"
                ).fetchall()
            )
            >= 60
            else None
        )
    )
    assert len({(job, due) for job, due, _ in rows}) == len(rows)
    assert all(due <= dispatched for _, due, dispatched in rows)
    fired = sorted(to_millis(due) for _, due, _ in rows)
    assert fired[0] < now + 2 * SECOND, "neither waited for a clock that is behind"


def test_c05_twenty_processes_at_one_tick_cause_no_error_on_the_server(
    leader: Leader, dsn: str, second_connection: Connection
) -> None:
    jobs = [leader.create(f"job {n}", interval="1m") for n in range(50)]
    terms = [held.term for held in leader.dispatcher.cache.held.values()]
    before = rollbacks(second_connection)
    leader.clock.moment = NOON + MINUTE
    with contextlib.ExitStack() as stack:
        others = []
        for n in range(20):
            conn = stack.enter_context(connect_hot(dsn, name=f"process {n}"))
            others.append(Dispatcher(conn, leader.clock))
            others[-1].adopt(terms)
            others[-1]._look(leader.clock.moment)
            others[-1]._loader.load_ahead(leader.clock.moment)
        readied = [other.step().readied for other in others]
    assert sum(readied) == 50
    assert all(leader.fired(job) == [NOON + MINUTE] for job in jobs)
    assert rollbacks(second_connection) == before


def rollbacks(conn: Connection) -> int:
    """Return how many transactions failed in this database; an error fails one."""
    conn.execute("SELECT pg_stat_clear_snapshot()")
    [(number,)] = conn.execute(ROLLBACKS).fetchall()
    return int(number)


def test_c05_leadership_is_tried_for_and_never_waited_for() -> None:
    [text] = [
        path.read_text()
        for path in within("apps/scheduler", ".sql")
        if path.stem == "try_partitions"
    ]
    assert "pg_try_advisory_lock(" in text
    assert "pg_advisory_lock(" not in text


def test_c07_a_leader_that_dies_does_not_restart_the_interval(
    leader: Leader, node: Callable[[], Node]
) -> None:
    job = leader.create("quarter", interval="15m", overlap_policy="allow_all")
    first, second = node(), node()
    first.lead()
    leader.clock.moment = NOON + 15 * MINUTE
    assert first.fire() == 1
    leader.clock.moment += 14 * MINUTE
    first.kill()
    assert second.lead() == set(ALL)
    assert second.fire() == 0
    leader.clock.moment += MINUTE - 1
    assert second.fire() == 0
    leader.clock.moment += 1
    assert second.fire() == 1
    assert leader.fired(job) == [NOON + 15 * MINUTE, NOON + 30 * MINUTE]


def test_c08_leases_are_renewed_three_times_before_they_end(dsn: str) -> None:
    ends = int(LEADER["idle_session_timeout"])
    assert ends >= 3 * SECOND
    assert max(ALONE_S, AMONG_OTHERS_S) * SECOND <= ends / 3
    assert lease.BEAT_EVERY <= lease.LEASE_TTL / 3
    with connect_leader(dsn, name="test leader") as conn:
        # Read back from the server: what did not take would be an error.
        [(effective,)] = conn.execute(
            "SELECT setting FROM pg_settings WHERE name = 'idle_session_timeout'"
        ).fetchall()
    assert int(effective) == ends


def test_c09_after_each_of_50_changes_of_leader_the_next_occurrence_fires(
    leader: Leader, node: Callable[[], Node]
) -> None:
    job = leader.create("minute", cron="* * * * *", overlap_policy="allow_all")
    leads = node()
    leads.lead()
    for change in range(1, 51):
        if change % 3 == 0:
            leads.candidate.leadership.stop()
        elif change % 3 == 1:
            leads.kill()
        else:
            session = leads.candidate.leadership._conn
            assert session is not None
            leader.conn.execute(
                "SELECT pg_terminate_backend(%s::int, 5000)",
                [session.info.backend_pid],
            )
        leads = node()
        assert leads.lead() == set(ALL)
        leader.clock.moment = NOON + change * MINUTE
        assert leads.fire() == 1, f"after {change} changes"
    assert leader.fired(job) == [NOON + n * MINUTE for n in range(1, 51)]


def test_c12_a_leader_that_leads_and_does_not_fire_is_seen_by_who_does_not_lead(
    client: ApiClient, connect: Callable[..., Connection], dsn: str
) -> None:
    conn = connect()
    now = int(read_clock(conn))
    prepare(conn, now - MINUTE)
    idle = Candidate(dsn)
    idle.step()
    create_job(definition(interval="1s", jitter_window="0s"), now=now - 30 * SECOND)
    body = client.get("/status").json()
    idle.leadership.stop()
    assert body["partitions_led"] == 64
    assert (body["status"], body["firing"]) == ("degraded", "late")
    assert any("the oldest timer is" in problem for problem in body["problems"])


def test_c13_a_run_that_lives_keeps_the_next_back_whoever_leads_by_then(
    leader: Leader, node: Callable[[], Node]
) -> None:
    job = leader.create("forbids overlap", interval="1m")
    first = node()
    first.lead()
    leader.clock.moment = NOON + MINUTE
    assert first.fire() == 1
    worker = uuid.uuid4()
    worker_store.register_worker(
        leader.conn, worker=worker, host="t", pid=1, concurrency=1, queues=["default"]
    )
    [lease_] = runs.claim_ready(leader.conn, queue="default", limit=9, worker=worker)
    first.kill()
    second = node()
    second.lead()
    leader.clock.moment = NOON + 2 * MINUTE
    assert second.fire() == 0
    assert leader.ledger(job)[1][1:3] == (Outcome.SKIPPED, Reason.OVERLAP)
    done = Settlement(run_id=lease_.run_id, token=lease_.token)
    runs.settle_if_leased(leader.conn, [done], horizon=NOON + DAY)
    leader.clock.moment = NOON + 3 * MINUTE
    assert second.fire() == 1


def test_c15_one_instant_is_one_key_however_it_is_written_and_retried(
    leader: Leader,
) -> None:
    spellings = [
        "2054-11-01T06:00:00+00:00",
        "2054-11-01T01:00:00-05:00",
        "2054-11-01T07:00:00+01:00",
        "2054-11-01T11:30:00+05:30",
        "2054-11-01T20:00:00+14:00",
    ]
    job = leader.create("payroll", interval="1m", retry_policy={"max_attempts": 3})
    part = partition_of(job)
    keys = {run_id(job, parse_instant(text), 0, part) for text in spellings}
    assert len(keys) == 1
    leader.jump_to(NOON + MINUTE)
    for attempt in (1, 2, 3):
        [lease_] = leader.claim()
        assert lease_.run_id == run_id(job, NOON + MINUTE, 0, part)
        assert lease_.attempt == attempt
        failed = {"state": 0, "error": "no", "reason": Reason.ATTEMPT_FAILED}
        leader.settle(lease_, **failed, due=leader.clock.moment)
        leader.run_to(leader.clock.moment + SECOND)
    groups = leader.conn.execute("SELECT attempt_group FROM chrono_occurrence")
    assert groups.fetchall() == [(0,)]
