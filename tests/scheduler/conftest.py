"""A leader on a fresh database, with a clock that stands still until it is moved."""

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from apps.jobs.commands import create_job
from apps.jobs.definition import parse_definition
from apps.runs import days, worker_store
from apps.runs import store as runs
from apps.runs.store import Lease, Settlement
from apps.runtime.clock import ManualClock
from apps.runtime.sessions import Connection, connect_hot, connect_upkeep
from apps.scheduler import store
from apps.scheduler.dispatcher import Dispatcher
from apps.timers import buckets
from chrono.rules.instants import Millis, format_instant, parse_instant, to_millis
from chrono.rules.keys import scheduled_for_of

NOON: Millis = parse_instant("2055-03-01T12:00:00Z")


@dataclass(slots=True, kw_only=True)
class Leader:
    """One leader of all partitions, and ways to look at what it did."""

    conn: Connection
    clock: ManualClock
    dispatcher: Dispatcher

    def create(self, key: str, **fields: Any) -> uuid.UUID:
        """Create a job now, by the clock; without jitter unless it is named."""
        definition = {
            "key": key,
            "target": {"kind": "task", "name": "nothing"},
            "jitter_window": "0s",
            **fields,
        }
        return create_job(parse_definition(definition), now=self.clock.moment).job_id

    def run_to(self, moment: Millis, *, every: Millis = 500) -> None:
        """Step through time; fires whatever comes due up to and at ``moment``."""
        while self.clock.moment < moment:
            self.clock.moment = min(moment, self.clock.moment + every)
            self.step()

    def jump_to(self, moment: Millis) -> None:
        """Move from one due time to the next, up to and at ``moment``."""
        while (due := self.next_due()) is not None and due <= moment:
            self.clock.moment = max(due, self.clock.moment)
            self.step()
        self.clock.moment = moment
        self.step()

    def next_due(self) -> Millis | None:
        """Return when the next timer is due, None where none waits."""
        [(due,)] = self.conn.execute(
            "SELECT min(due_at) FROM (SELECT due_at FROM chrono_timer "
            "UNION ALL SELECT due_at FROM chrono_timer_far) t"
        ).fetchall()
        return None if due is None else to_millis(due)

    def step(self) -> int:
        """Step until nothing more is due; return how many runs became ready."""
        readied = 0
        for _ in range(1_000):
            step = self.dispatcher.step()
            readied += step.readied
            if step.wait > 0:
                return readied
        raise AssertionError("the leader never comes to rest")

    def ledger(self, job: uuid.UUID) -> list[tuple[str, int, int | None, int | None]]:
        """Return (instant, outcome, reason, occurrences) of a job, oldest first."""
        rows = self.conn.execute(
            "SELECT scheduled_for, outcome, reason, occurrences FROM chrono_occurrence "
            "WHERE job_id = %s ORDER BY scheduled_for",
            [job],
        ).fetchall()
        return [(format_instant(to_millis(t)), o, r, n) for t, o, r, n in rows]

    def fired(self, job: uuid.UUID) -> list[Millis]:
        """Return the instants of a job that fired, oldest first."""
        rows = self.conn.execute(
            "SELECT scheduled_for FROM chrono_occurrence "
            "WHERE job_id = %s AND outcome = 1 ORDER BY 1",
            [job],
        ).fetchall()
        return [to_millis(moment) for (moment,) in rows]

    def ready(self, job: uuid.UUID) -> list[Millis]:
        """Return the instants of a job's ready runs, in the order they came there."""
        rows = self.conn.execute(
            "SELECT run_id FROM chrono_ready WHERE job_id = %s ORDER BY dispatched_at",
            [job],
        ).fetchall()
        return [scheduled_for_of(run) for (run,) in rows]

    def blocked(self, job: uuid.UUID) -> list[tuple[Millis, str]]:
        """Return (instant, gate) of a job's runs behind a gate, oldest first."""
        rows = self.conn.execute(
            "SELECT run_id, gate FROM chrono_blocked WHERE job_id = %s "
            "ORDER BY due_at, run_id",
            [job],
        ).fetchall()
        return [(scheduled_for_of(run), gate) for run, gate in rows]

    def planned(self, job: uuid.UUID) -> list[tuple[Millis, int | None]]:
        """Return (instant, runs left) of the timers of a job's schedule."""
        rows = self.conn.execute(
            "SELECT scheduled_for, remaining FROM chrono_timer "
            "WHERE ref = %(job)s AND kind = 1 UNION ALL "
            "SELECT scheduled_for, remaining FROM chrono_timer_far "
            "WHERE ref = %(job)s AND kind = 1",
            {"job": job},
        ).fetchall()
        return [(to_millis(moment), left) for moment, left in rows]

    def ended(self, job: uuid.UUID) -> list[tuple[Millis, int, int | None]]:
        """Return (instant, state, reason) of a job's runs in the history."""
        rows = self.conn.execute(
            "SELECT id, state, reason FROM chrono_run WHERE job_id = %s ORDER BY id",
            [job],
        ).fetchall()
        return [(scheduled_for_of(run), state, reason) for run, state, reason in rows]

    def claim(self, limit: int = 500) -> list[Lease]:
        """Claim what is ready, as a worker of its own; earliest instant first."""
        worker = uuid.uuid4()
        worker_store.register_worker(
            self.conn, worker=worker, host="t", pid=1, concurrency=1, queues=["default"]
        )
        leases = runs.claim_ready(
            self.conn, queue="default", limit=limit, worker=worker
        )
        return sorted(leases, key=lambda lease: lease.run_id)

    def settle(self, *leases: Lease, **outcome: Any) -> int:
        """Settle leases, as successes unless told, now; return how many still held."""
        done = [
            Settlement(run_id=lease.run_id, token=lease.token, **outcome)
            for lease in leases
        ]
        horizon = self.clock.moment + 24 * buckets.HOUR
        held = runs.settle_if_leased(self.conn, done, horizon=horizon)
        self.conn.execute(
            "UPDATE chrono_run SET finished_at = to_timestamp(%s / 1000.0) "
            "WHERE id = ANY(%s)",
            [self.clock.moment, list(held)],
        )
        return len(held)

    def succeed(self) -> int:
        """Claim and settle all that is ready; return how many runs that was."""
        return self.settle(*self.claim())

    def begin_anew(self, **options: Any) -> None:
        """Have another leader take over, which knows nothing of this one's memory."""
        self.dispatcher = Dispatcher(self.conn, self.clock, **options)
        self.dispatcher.adopt(
            store.take_over(self.conn, parts=range(64), owner="another")
        )

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        [(number,)] = self.conn.execute(f"SELECT count(*) FROM {table}").fetchall()
        return int(number)


def prepare(conn: Connection, now: Millis) -> None:
    """Make buckets and days around an instant of a test's own."""
    conn.execute(
        "UPDATE chrono_dispatch_state SET horizon = to_timestamp(%s / 1000.0)",
        [now - 2 * buckets.HOUR],
    )
    buckets.ensure_buckets(conn, now=now)
    days.ensure_days(conn, now=now)


@contextlib.contextmanager
def lead(dsn: str, now: Millis) -> Iterator[Leader]:
    """Lend a leader of all partitions at an instant, with its tables prepared."""
    with connect_upkeep(dsn, name="test upkeep") as upkeep:
        prepare(upkeep, now)
    with connect_hot(dsn, name="test leader") as conn:
        clock = ManualClock(now)
        dispatcher = Dispatcher(conn, clock)
        dispatcher.adopt(store.take_over(conn, parts=range(64), owner="test"))
        yield Leader(conn=conn, clock=clock, dispatcher=dispatcher)


@pytest.fixture
def leader(dsn: str) -> Iterator[Leader]:
    """A leader of all partitions at noon of a Monday, with its tables prepared."""
    with lead(dsn, NOON) as leader:
        yield leader
