"""Upkeep's session, and ready rows in the slices that a test names."""

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from apps.queue import store
from apps.runtime.sessions import Connection, connect_upkeep
from chrono.rules.keys import run_id
from tests.support.seed import DUE

PART = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """The slices of ready, and ways to fill and look."""

    conn: Connection
    instants: Iterator[int]

    def fill(self, number: int, count: int, *, priority: int = 2) -> list[uuid.UUID]:
        """Write ready rows into a slice; return their runs in order of their tags."""
        job = uuid.uuid4()
        rows = [
            (run_id(job, moment, 0, PART), moment)
            for moment in itertools.islice(self.instants, count)
        ]
        self.conn.execute(
            """
            INSERT INTO chrono_ready (due_at, dispatched_at, run_id, job_id, tag, fence,
                revision, tenant, part, priority, attempt, slice, queue)
            SELECT clock_timestamp(), clock_timestamp(), run, %s, tag, 1, 1, 1, %s, %s,
                1, %s, 'default'
            FROM unnest(%s::uuid[], %s::bigint[]) AS r (run, tag)
            """,
            [
                job,
                PART,
                priority,
                number,
                [run for run, _ in rows],
                [tag for _, tag in rows],
            ],
        )
        return [run for run, _ in rows]

    def take(self, number: int) -> None:
        """Delete what a slice has, as claims do."""
        self.conn.execute(f"DELETE FROM chrono_ready_{number}")

    def runs(self) -> dict[int, list[uuid.UUID]]:
        """Return the runs of each slice that has any, in order of their tags."""
        found: dict[int, list[uuid.UUID]] = {}
        for number, run in self.conn.execute(
            "SELECT slice, run_id FROM chrono_ready ORDER BY slice, tag"
        ).fetchall():
            found.setdefault(number, []).append(run)
        return found

    def published(self) -> int:
        """Return the slice that new rows go to."""
        [(number,)] = self.conn.execute(
            "SELECT slice FROM chrono_dispatch_state"
        ).fetchall()
        return int(number)

    def used(self) -> set[int]:
        """Return the slices that are not truncated."""
        return {n for n, size in store.measure_slices(self.conn).items() if size}


@pytest.fixture
def ring(dsn: str) -> Iterator[Ring]:
    """The ring on a fresh database, seen by an upkeep session."""
    with connect_upkeep(dsn, name="test") as conn:
        yield Ring(conn=conn, instants=itertools.count(DUE))
