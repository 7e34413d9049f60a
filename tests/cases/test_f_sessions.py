"""Group F: poolers, dead listeners, and servers that turn read-only."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import psycopg
import pytest
from django.db import connection

from apps.jobs.audit import audit
from apps.jobs.commands import create_job, pause_job
from apps.jobs.manual import run_now
from apps.worker import claims
from tests.cases.test_d_restarts import looked
from tests.rigs.faults import pooler
from tests.scheduler.test_process import said
from tests.support import pg
from tests.support.definitions import definition
from tests.support.network import Network
from tests.support.seed import make_job, make_ready
from tests.worker.support import count, running, settled, wait_for

EVERY_SECOND = {
    "interval": "1s",
    "jitter_window": "0s",
    "overlap_policy": "allow_all",
}
TASKS = {"tests.nothing": lambda payload: None}


@pytest.mark.skipif(bool(pooler.lacks()), reason=pooler.lacks())
def test_f03_f04_behind_a_pooler_the_web_works_and_nobody_leads(own_server, start):
    direct = own_server.url()
    stack = SimpleNamespace(url=direct, server=own_server)
    with pooler.Pooler(stack) as pool, pg.in_use(pool.url):
        refused = start()
        [line] = said(refused)
        assert refused.returncode == 1
        assert "CHRONO_DIRECT_DATABASE_URL" in line
        process = start(CHRONO_DIRECT_DATABASE_URL=direct)

        def ask(number):
            made = definition(
                key=f"{number}", interval="1d", overlap_policy="allow_all"
            )
            job = create_job(made).job_id
            for again in range(20):
                run_now(job, request_key=f"{again}")
            connection.close()

        with ThreadPoolExecutor(8) as clients:
            # Statements that were prepared would exist already, or not any more.
            list(clients.map(ask, range(8)))
        with psycopg.connect(direct, autocommit=True) as conn, running(direct, TASKS):
            settled(conn, 160, timeout=30)
            assert audit(conn) == []
        assert process.poll() is None


def test_f07_with_a_listener_that_hears_nothing_more_work_goes_on(
    dsn, connect, monkeypatch
):
    # It rests as after a long time without a run: then each rest is the longest.
    monkeypatch.setattr(claims, "SHORTEST_REST", claims.LONGEST_REST)
    conn = connect()
    job = make_job(conn, target={"kind": "task", "name": "tests.nothing"})
    with Network(dsn) as network, running(network.url, TASKS):
        wait_for(lambda: network.links("chrono worker listen"))
        assert network.deafen("chrono worker listen") == 1
        for n in range(1, 4):
            make_ready(conn, job)
            conn.execute("NOTIFY chrono_ready")
            # It looks by itself every second; how late that is, F34 measures.
            settled(conn, n, timeout=30)
        assert len(network.links("chrono worker listen")) == 1


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_f13_a_server_that_was_read_only_is_used_again_within_10_s(own_server, start):
    url = own_server.url()
    job = create_job(definition(**EVERY_SECOND)).job_id
    process = start()

    def done():
        return looked(url, lambda conn: count(conn, "run"))

    def set_read_only(value):
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("SET default_transaction_read_only = off")
            conn.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
            conn.execute("SELECT pg_reload_conf()")

    def sessions(conn):
        [(number,)] = conn.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name IN "
            "('chrono fire', 'chrono leader', 'chrono worker claim',"
            " 'chrono worker beat')"
        ).fetchall()
        return number

    with running(url, TASKS):
        wait_for(lambda: done() > 0, timeout=60)
        set_read_only("on")
        # Who was refused a write looks for a server that takes it.
        wait_for(lambda: looked(url, sessions) == 0, timeout=30)
        before = done()
        set_read_only("off")
        wait_for(lambda: done() > before, timeout=10)
        assert process.poll() is None
        connection.close()
        pause_job(job)
        wait_for(lambda: looked(url, lambda conn: count(conn, "lease")) == 0)
    with psycopg.connect(url, autocommit=True) as conn:
        assert audit(conn) == []
