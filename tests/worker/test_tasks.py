"""Task targets, from the ready row to the history."""

import asyncio
import threading
from datetime import UTC, datetime

from chrono.tasks import Context
from tests.support.seed import DUE, make_job, make_ready
from tests.worker.support import FAST, count, running, settled, wait_for


def test_runs_are_executed_and_leave_their_results(dsn, connect):
    conn = connect()

    async def double(payload):
        return payload["n"] * 2

    job = make_job(conn, target={"kind": "task", "name": "double"}, payload={"n": 21})
    runs = make_ready(conn, job, count=300)
    with running(dsn, {"double": double}):
        rows = settled(conn, 300)
    assert rows == [(run, 1, None, 1, 42) for run in runs]
    assert count(conn, "ready") == count(conn, "lease") == count(conn, "attempt") == 0
