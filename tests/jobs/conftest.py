"""A database in which everything planned lies in the far table, and its observer."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from chrono.rules.instants import Millis
from chrono.rules.keys import run_id
from tests.scheduler.conftest import NOON, Leader, lead
from tests.support.pg import Connection


@dataclass(frozen=True)
class Ledger:
    """What the tables say, and occurrences laid straight into them."""

    conn: Connection

    def rows(self, text: str, *args: Any) -> list[tuple[Any, ...]]:
        return self.conn.execute(text, args).fetchall()

    def job(self, job_id: uuid.UUID) -> dict[str, Any]:
        names = ["version", "revision", "epoch", "paused", "pause_note", "part"]
        [row] = self.rows(
            f"SELECT {', '.join(names)}, deleted_at IS NOT NULL, "
            "(extract(epoch FROM activated_at) * 1000)::bigint "
            "FROM chrono_job WHERE id = %s",
            job_id,
        )
        return dict(zip([*names, "deleted", "activated_at"], row, strict=True))

    def timers(self, job_id: uuid.UUID, *, kind: int | None = None) -> list[Any]:
        """Return (kind, version, revision, scheduled_for, due_at, ref, prev)."""
        return self.rows(
            """
            SELECT kind, version, revision,
                (extract(epoch FROM scheduled_for) * 1000)::bigint,
                (extract(epoch FROM due_at) * 1000)::bigint, ref, prev
            FROM (SELECT * FROM chrono_timer UNION ALL SELECT * FROM chrono_timer_far) t
            WHERE job_id = %s AND coalesce(kind = %s, true)
            ORDER BY scheduled_for, version
            """,
            job_id,
            kind,
        )

    def live(self, job_id: uuid.UUID) -> list[Any]:
        """Return the schedule timers that a leader would not drop as stale."""
        version = self.job(job_id)["version"]
        return [t for t in self.timers(job_id, kind=1) if t[1] >= version]

    def skips(self, job_id: uuid.UUID) -> list[Any]:
        """Return (scheduled_for, reason, occurrences, last_scheduled_for)."""
        return self.rows(
            """
            SELECT (extract(epoch FROM scheduled_for) * 1000)::bigint, reason,
                occurrences, (extract(epoch FROM last_scheduled_for) * 1000)::bigint
            FROM chrono_occurrence WHERE job_id = %s AND outcome = 2
            ORDER BY scheduled_for
            """,
            job_id,
        )

    def fired(
        self,
        job_id: uuid.UUID,
        moment: Millis,
        *,
        group: int = 0,
        fence: int = 0,
        version: int = 1,
    ) -> uuid.UUID:
        """Write an occurrence as fired; return its run's id."""
        part = self.job(job_id)["part"]
        run = run_id(job_id, moment, group, part)
        self.conn.execute(
            """
            INSERT INTO chrono_occurrence (scheduled_for, decided_at, job_id, run_id,
                fence, version, revision, attempt_group, part, outcome, kind)
            VALUES (to_timestamp(%s / 1000.0), greatest(clock_timestamp(),
                to_timestamp(%s / 1000.0)), %s, %s, %s, %s, 1, %s, %s, 1, 1)
            """,
            [moment, moment, job_id, run, fence, version, group, part],
        )
        return run

    def epoch(self, part: int) -> int:
        [(epoch,)] = self.rows("SELECT epoch FROM chrono_partition WHERE id = %s", part)
        return int(epoch)


@pytest.fixture
def ledger(database: str, second_connection: Connection) -> Ledger:
    """The tables as another session sees them; nothing planned needs a bucket."""
    second_connection.execute("UPDATE chrono_dispatch_state SET horizon = 'epoch'")
    return Ledger(second_connection)


@pytest.fixture
def leader(dsn: str) -> Iterator[Leader]:
    """A leader of all partitions at noon of a Monday, with its tables prepared."""
    with lead(dsn, NOON) as leader:
        yield leader
