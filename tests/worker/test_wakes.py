"""Notices wake a worker that rests; those for others do not."""

import asyncio

import pytest

from apps.worker.wakes import Listener, is_for
from tests.worker.support import wait_for


@pytest.mark.parametrize(
    ("payload", "wakes"),
    [
        ("", True),
        ("mail", True),
        ("other,mail", True),
        ("other", False),
        ("mailbox", False),
    ],
)
def test_a_notice_names_queues_or_all(payload, wakes):
    assert is_for(payload, ("default", "mail")) is wakes


def test_a_notice_arrives_over_a_session_that_broke(dsn, connect):
    conn = connect()

    def listeners():
        return conn.execute(
            """
            SELECT pid FROM pg_stat_activity
            WHERE application_name = 'chrono worker listen' AND state = 'idle'
                AND datname = current_database() AND query LIKE '%LISTEN%'
            """
        ).fetchall()

    async def main():
        heard = asyncio.Event()
        listener = Listener(url=dsn, queues=("mail",), wake=heard.set)
        task = asyncio.create_task(listener.run())
        try:
            [(pid,)] = await asyncio.to_thread(wait_for, listeners)
            conn.execute("SELECT pg_notify('chrono_ready', 'mail')")
            await asyncio.wait_for(heard.wait(), 5)
            heard.clear()
            conn.execute("SELECT pg_terminate_backend(%s)", [pid])
            await asyncio.to_thread(wait_for, lambda: listeners() not in ([], [(pid,)]))
            conn.execute("SELECT pg_notify('chrono_ready', 'other')")
            conn.execute("SELECT pg_notify('chrono_ready', '')")
            await asyncio.wait_for(heard.wait(), 5)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
