"""A leader on a fresh database, with a clock that stands still until it is moved."""

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from apps.jobs.commands import create_job
from apps.jobs.definition import parse_definition
from apps.runs import days
from apps.runtime.clock import ManualClock
from apps.runtime.sessions import Connection, connect_hot, connect_upkeep
from apps.scheduler import store
from apps.scheduler.dispatcher import Dispatcher
from apps.timers import buckets
from chrono.rules.instants import Millis, format_instant, parse_instant, to_millis

NOON: Millis = parse_instant("2027-03-01T12:00:00Z")


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
