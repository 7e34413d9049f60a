"""Group D: the server restarts again and again, and no person has to do anything."""

import os
import random
import time

import psycopg
import pytest
from django.db import connections

from apps.jobs.audit import audit
from apps.jobs.commands import create_job, pause_jobs
from chrono.rules.instants import SECOND, to_millis
from tests.support.definitions import definition
from tests.worker.support import count, running, wait_for

RESTARTS = int(os.environ.get("RESTARTS", "4"))
"""How often the server is restarted; by night it is more."""
JOBS = 10


def looked(url, look):
    """Return what a look at the database shows, in a session for that alone."""
    with psycopg.connect(url, autocommit=True) as conn:
        return look(conn)


@pytest.mark.slow
@pytest.mark.timeout(60 + 30 * RESTARTS)
def test_d17_after_restarts_of_postgres_at_any_moment_all_is_accounted_for(
    own_server, start
):
    lot, url = random.Random(17), own_server.url()
    jobs = [
        create_job(
            definition(
                key=f"job-{n}",
                interval="1s",
                jitter_window="0s",
                overlap_policy="allow_all",
            )
        ).job_id
        for n in range(JOBS)
    ]
    scheduler = start()
    tasks = {"tests.nothing": lambda payload: None}
    with running(url, tasks), running(url, tasks):
        for _ in range(RESTARTS):
            before = looked(url, lambda conn: count(conn, "run"))
            wait_for(
                lambda before=before: looked(url, lambda c: count(c, "run")) > before,
                timeout=30,
            )
            until = time.monotonic() + lot.random()
            wait_for(lambda until=until: time.monotonic() > until)
            own_server.stop(mode=lot.choice(["fast", "immediate"]))
            own_server.start()
        before = looked(url, lambda conn: count(conn, "run"))
        wait_for(lambda: looked(url, lambda c: count(c, "run")) > before, timeout=30)
        connections.close_all()  # As the web does with those that broke.
        pause_jobs(jobs)
        wait_for(lambda: looked(url, under_way) == 0, timeout=60)
        assert scheduler.poll() is None
    with psycopg.connect(url, autocommit=True) as conn:
        assert audit(conn) == []
        for job in jobs:
            fired = [
                to_millis(at)
                for (at,) in conn.execute(
                    "SELECT scheduled_for FROM chrono_occurrence WHERE job_id = %s"
                    " AND outcome = 1 ORDER BY 1",
                    [job],
                )
            ]
            assert fired == list(range(fired[0], fired[-1] + 1, SECOND))
            ended = "SELECT count(*) FROM chrono_run WHERE job_id = %s AND state = 1"
            assert conn.execute(ended, [job]).fetchone() == (len(fired),)


def under_way(conn):
    """Return how many runs are not over."""
    [(timers,)] = conn.execute("SELECT count(*) FROM chrono_timer WHERE kind <> 1")
    return timers + sum(count(conn, table) for table in ("ready", "lease", "blocked"))
