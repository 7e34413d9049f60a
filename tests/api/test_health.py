"""Alive, ready, and how the whole does."""

import uuid

import pytest

from apps.api import health
from apps.runtime.locks import MEMBER_LOCKS, PARTITION_LOCKS
from tests.support import pg
from tests.support.seed import make_job, make_ready


@pytest.fixture(autouse=True)
def not_looked_at_before(monkeypatch):
    monkeypatch.setattr(health, "_migrated", False)


def test_livez_needs_no_database(client):
    with pg.default_connection("postgres://chrono@127.0.0.1:1/none"):
        assert client.get("/livez").json() == {"status": "ok"}


def test_readyz_is_well_where_a_request_would_be_served(nobody):
    answer = nobody.get("/readyz")
    assert answer.status_code == 200
    assert answer.json()["checks"] == {"database": "ok", "migrations": "ok"}


def test_readyz_says_what_is_missing(nobody, connect):
    connect().execute("DELETE FROM django_migrations WHERE app = 'chrono_runs'")
    answer = nobody.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["migrations"] == "not applied"


def test_readyz_without_a_database_is_503(nobody):
    with pg.default_connection("postgres://chrono@127.0.0.1:1/none"):
        answer = nobody.get("/readyz")
        whole = nobody.get("/status")
        fires = nobody.get("/status/firing")
    assert answer.status_code == 503
    assert answer.json()["checks"]["database"] == "unreachable"
    assert whole.json()["problems"] == ["the database does not answer"]
    assert whole.json()["firing"] == "unknown"
    assert (fires.status_code, fires.json()["firing"]) == (503, "unknown")


def test_status_of_an_idle_system_without_processes(nobody):
    body = nobody.get("/status").json()
    assert body["status"] == "degraded"
    assert body["problems"] == ["64 partitions have no leader", "no worker beats"]
    assert body["firing"] == "stopped"
    assert (body["schedulers"], body["oldest_due_lag_ms"]) == (0, 0)
    assert abs(body["clock_skew_ms"]) < 1000


def test_status_counts_leaders_by_their_locks_and_workers_by_their_beat(
    nobody, connect
):
    conn = connect()
    conn.execute("SELECT pg_advisory_lock_shared(%s, 7)", [MEMBER_LOCKS])
    for part in range(64):
        conn.execute("SELECT pg_advisory_lock(%s, %s)", [PARTITION_LOCKS, part])
    worker = uuid.uuid4()
    conn.execute(
        "INSERT INTO chrono_worker (id, host, pid, concurrency, queues)"
        " VALUES (%s, 'internal-host', 1, 4, '{default,mail}')",
        [worker],
    )
    answer = nobody.get("/status")
    body = answer.json()
    assert (body["status"], body["schedulers"], body["partitions_led"]) == ("ok", 1, 64)
    assert body["firing"] == "ok"
    [shown] = body["workers"]
    assert (shown["id"], shown["queues"]) == (str(worker), ["default", "mail"])
    assert 0 <= shown["last_beat_age_ms"] < 10_000
    assert "internal-host" not in answer.content.decode()
    conn.execute("UPDATE chrono_worker SET beat_at = now() - interval '1 minute'")
    assert nobody.get("/status").json()["problems"] == ["no worker beats"]


def due(conn, table, seconds):
    """Write a timer that is due for so long."""
    conn.execute(
        f"""
        INSERT INTO {table} (due_at, scheduled_for, ref, job_id, version, revision,
            part, kind)
        SELECT at, at, gen_random_uuid(), gen_random_uuid(), 1, 1, 5, 1
        FROM date_trunc('ms', now() - %s * interval '1 second') AS at
        """,
        [seconds],
    )


def test_c12_status_says_in_one_word_whether_jobs_fire(nobody, connect):
    conn = connect()
    for part in range(64):
        conn.execute("SELECT pg_advisory_lock(%s, %s)", [PARTITION_LOCKS, part])
    due(conn, "chrono_timer_far", 1)
    assert nobody.get("/status").json()["firing"] == "ok"
    assert nobody.get("/status/firing").status_code == 200
    conn.execute("SELECT pg_advisory_unlock(%s, 9)", [PARTITION_LOCKS])
    assert nobody.get("/status").json()["firing"] == "partly"
    # With no bucket made for hours, what is planned comes due in the far table.
    due(conn, "chrono_timer_far", 8)
    body = nobody.get("/status").json()
    assert (body["firing"], body["status"]) == ("late", "degraded")
    assert 8_000 <= body["oldest_due_lag_ms"] < 60_000
    answer = nobody.get("/status/firing")
    assert (answer.status_code, answer.json()["firing"]) == (503, "late")
    assert answer.json()["says"].startswith("Firing has fallen behind.")
    conn.execute("SELECT pg_advisory_unlock_all()")
    assert nobody.get("/status").json()["firing"] == "stopped"


def test_status_finds_the_oldest_of_each_queue_and_the_latest_timer(nobody, connect):
    conn = connect()
    for queue, hours in (("a", 1), ("b", 3)):
        job = make_job(conn, target={}, queue=queue)
        make_ready(conn, job, count=3)
        conn.execute(
            "UPDATE chrono_ready SET dispatched_at = now() - %s * interval '1 hour'"
            " WHERE queue = %s",
            [hours, queue],
        )
    conn.execute(
        "CREATE TABLE chrono_timer_1 PARTITION OF chrono_timer"
        " FOR VALUES FROM ('2026-01-01Z') TO ('2026-01-02Z')"
    )
    conn.execute(
        """
        INSERT INTO chrono_timer (due_at, scheduled_for, ref, job_id, version, revision,
            part, kind)
        VALUES ('2026-01-01 12:00Z', '2026-01-01 12:00Z', %(job)s, %(job)s, 1, 1, 5, 1)
        """,
        {"job": job.id},
    )
    body = nobody.get("/status").json()
    ages = body["oldest_ready_age_ms"]
    assert set(ages) == {"a", "b"}
    assert 3_600_000 <= ages["a"] < 3_700_000
    assert 10_800_000 <= ages["b"] < 10_900_000
    assert body["oldest_due_lag_ms"] > 86_400_000
    assert any("the oldest timer is" in text for text in body["problems"])
