"""Who looks at the admin in these tests, and what there is to be seen."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import django.db
import pytest
from django.contrib.auth.models import User
from django.test import Client

from apps.jobs import commands
from apps.runs.days import ensure_days
from apps.runtime.django_session import raw_connection
from apps.runtime.sessions import connect_upkeep
from apps.tenants.actor import Actor
from apps.timers.buckets import ensure_buckets
from chrono.rules.instants import Millis
from chrono.rules.keys import run_id
from tests.support.definitions import definition
from tests.support.pg import Connection

ACTOR = Actor.command("tests")
BASE: Millis = 1_764_428_400_000
"""2025-11-29T15:00:00Z: the newest run that is laid into the tables."""


@dataclass(frozen=True)
class Seen:
    """One job and its history."""

    conn: Connection
    job: uuid.UUID
    part: int

    def runs(self, count: int, *, state: int = 1, reason: int | None = None) -> None:
        """Write runs that are over and their occurrences, a minute apart."""
        rows = [
            (run_id(self.job, at, 0, self.part), at)
            for at in (BASE - 60_000 * n for n in range(count))
        ]
        self.conn.execute(
            """
            INSERT INTO chrono_run (due_at, dispatched_at, started_at, finished_at, id,
                job_id, worker, fence, revision, tenant, part, state, reason, priority,
                attempt, queue, result)
            SELECT to_timestamp(at / 1000.0), to_timestamp(at / 1000.0 + 0.02),
                to_timestamp(at / 1000.0 + 0.05), to_timestamp(at / 1000.0 + 2), id,
                %(job)s, %(job)s, 7, 1, 1, %(part)s, %(state)s, %(reason)s, 2, 1,
                'default', '{"ok": true}'
            FROM unnest(%(ids)s::uuid[], %(at)s::bigint[]) AS r (id, at)
            """,
            {
                "job": self.job,
                "part": self.part,
                "state": state,
                "reason": reason,
                "ids": [run for run, _ in rows],
                "at": [at for _, at in rows],
            },
        )
        self.conn.execute(
            """
            INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence,
                version, revision, part, outcome, kind)
            SELECT to_timestamp(at / 1000.0), %s, id, 7, 1, 1, %s, 1, 1
            FROM unnest(%s::uuid[], %s::bigint[]) AS r (id, at)
            """,
            [self.job, self.part, [r for r, _ in rows], [at for _, at in rows]],
        )

    def run(self, n: int = 0) -> uuid.UUID:
        """Return the id of the nth run from the newest."""
        return run_id(self.job, BASE - 60_000 * n, 0, self.part)

    def failed(self, n: int, error: str) -> None:
        """Write a failed attempt and a dead letter of a run, with this error."""
        self.conn.execute(
            """
            INSERT INTO chrono_attempt (started_at, run_id, worker, fence, part,
                attempt, reason, error)
            VALUES (now(), %s, %s, 7, %s, 1, 17, %s)
            """,
            [self.run(n), self.job, self.part, error],
        )
        self.conn.execute(
            """
            INSERT INTO chrono_dead_letter (run_id, part, tenant, job_id, revision,
                queue, reason, attempt, payload, errors)
            VALUES (%s, %s, 1, %s, 1, 'default', 17, 1, %s,
                jsonb_build_array(jsonb_build_object(
                    'attempt', 1, 'reason', 17, 'error', %s::text)))
            """,
            [self.run(n), self.part, self.job, '{"note": "as sent"}', error],
        )


@pytest.fixture
def conn(connect: Any) -> Connection:
    return connect()


@pytest.fixture
def person(database: str) -> User:
    """Ada, who may do everything."""
    return User.objects.create_superuser("ada", "ada@example.org", "correct-horse")


@pytest.fixture
def client(person: User) -> Client:
    """Ada's browser."""
    client = Client(raise_request_exception=True)
    client.force_login(person)
    return client


@pytest.fixture
def make_job(database: str, conn: Connection) -> Any:
    """Return a function that makes a job and what can be laid beside it."""
    with connect_upkeep(database, name="tests") as upkeep:
        ensure_days(upkeep, now=BASE)
        ensure_buckets(upkeep, now=BASE)

    def make(**fields: Any) -> Seen:
        made = commands.create_job(
            definition(**{"cron": "30 2 * * *", **fields}), actor=ACTOR
        )
        job = made.job_id
        assert job is not None
        row = conn.execute("SELECT part FROM chrono_job WHERE id = %s", [job])
        return Seen(conn=conn, job=job, part=row.fetchone()[0])  # type: ignore[index]

    return make


@pytest.fixture
def statements(person: User) -> Iterator[list[str]]:
    """Every statement on Django's session, the rooms' own included."""
    conn = raw_connection()
    seen: list[str] = []
    before = conn.cursor_factory

    class Recorder(before):  # type: ignore[misc, valid-type]
        def execute(self, query: Any, *args: Any, **options: Any) -> Any:
            text = query if isinstance(query, str) else query.as_string(self)
            seen.append(text)
            return super().execute(query, *args, **options)

    conn.cursor_factory = Recorder
    yield seen
    if django.db.connection.connection is conn:
        conn.cursor_factory = before
