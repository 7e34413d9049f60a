"""Group F: what Postgres does to a queue that lives in it."""

import functools
import re
import threading
import time
import uuid

import psycopg
import pytest
from django.core.management import call_command

from apps.jobs.commands import create_job
from apps.jobs.manual import run_now
from apps.queue.rotation import OLD, Rotation
from apps.runs import selectors, store, worker_store
from apps.runs.store import Settlement
from apps.runs.waits import why_waiting
from apps.runtime import sql
from apps.runtime.arrays import random_uuids
from apps.runtime.sessions import connect_hot
from apps.runtime.store import find_old_snapshot, read_clock
from chrono.rules.instants import SECOND
from chrono.rules.states import RunState
from tests.architecture.sources import within
from tests.architecture.test_sql import (
    PARAMETER,
    SLOTS,
    SLOTS_OF,
    STATEMENTS,
    UTILITY,
    body,
    numbered,
)
from tests.jobs.sessions import in_session
from tests.scheduler.conftest import NOON
from tests.support.definitions import definition
from tests.support.pg import wait_until_blocked
from tests.support.seed import make_job, make_ready
from tests.worker.support import count, running, settled, wait_for

TASK = {"kind": "task", "name": "it"}
BEYOND = 2**31 + 5
LONGEST_WAIT_S = 3.0
WHILE_EMPTY = {
    "queue.0002_blocked_order.up.sql",
    "queue.0003_backfill.up.sql",
    "runs.0007_deaths.up.sql",
}
"""Index tables that had no rows, or a few, in any database there was."""
REWRITES = re.compile(
    r"ALTER COLUMN \w+\s+(?:SET DATA )?TYPE\b"
    r"|ADD COLUMN [^,;]*?DEFAULT\s+(?:clock_timestamp|gen_random_uuid|random|nextval)\("
)


def blocks_of_a_claim(conn):
    """Return how many blocks a claim reads, which is undone."""
    text = sql.load("runs", "claim_ready").text
    values = {
        "queue": "default",
        "limit": 20,
        "worker": uuid.uuid4(),
        "least": store.FRONT[0],
        "after": store.FRONT[1],
        "tokens": random_uuids(20),
    }
    with conn.transaction(force_rollback=True):
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}"
        [([found],)] = conn.execute(explain, values).fetchall()
    plan = found["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


def test_f01_claims_stay_fast_while_somebody_holds_an_old_snapshot(ring, connect, dsn):
    reader = connect(autocommit=False)
    reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT count(*) FROM chrono_job")
    keeper, now, current = Rotation(), 0, 0
    with connect_hot(dsn, name="test") as hot:
        ring.fill(current, 20)
        fresh = blocks_of_a_claim(hot)
        for _ in range(16):
            ring.fill(current, 1_000)
            while leases := store.claim_ready(
                hot, queue="default", limit=200, worker=uuid.uuid4()
            ):
                done = [Settlement(run_id=x.run_id, token=x.token) for x in leases]
                store.settle_if_leased(hot, done, horizon=0)
            now += OLD
            current = keeper.step(ring.conn, current=current, now=now)
        ring.fill(current, 20)
        assert blocks_of_a_claim(hot) <= 1.5 * fresh
    assert find_old_snapshot(ring.conn) is None
    told = find_old_snapshot(ring.conn, older=0)
    assert told.pid == reader.info.backend_pid
    assert told.query == "SELECT count(*) FROM chrono_job"


def test_f05_a_large_payload_travels_in_no_notice(dsn, connect, start):
    conn, ear = connect(), connect()
    for channel in ("ready", "jobs", "gates", "leadership"):
        ear.execute(f"LISTEN chrono_{channel}")
    text, got = "x" * 200_000, []
    now = int(read_clock(conn))
    job = create_job(
        definition(interval="1d", target=TASK, payload={"text": text}), now=now
    ).job_id
    start()
    run_now(job, payload={"text": text, "own": True})
    with running(dsn, {"it": got.append}):
        settled(conn, timeout=20)
    assert got == [{"text": text, "own": True}]
    notices = list(ear.notifies(timeout=0))
    assert {notice.channel for notice in notices} >= {"chrono_jobs", "chrono_ready"}
    assert max(len(notice.payload) for notice in notices) < 100


def test_f08_ids_beyond_four_bytes_go_all_the_way(leader):
    conn = leader.conn
    sequences = conn.execute(
        "SELECT sequencename, data_type::text FROM pg_sequences "
        "WHERE sequencename LIKE 'chrono%' AND sequencename <> 'chrono_tenant_id_seq'"
    ).fetchall()
    assert sequences
    assert {kind for _, kind in sequences} == {"bigint"}
    for name, _ in sequences:
        conn.execute(f"ALTER SEQUENCE {name} RESTART WITH {BEYOND}")
    leader.begin_anew()
    job = leader.create("job", interval="1m", retry_policy={"max_attempts": 1})
    leader.run_to(NOON + 60 * SECOND)
    [lease] = leader.claim()
    assert lease.fence >= BEYOND
    leader.settle(lease, state=RunState.DEAD, reason=16, error="no")
    assert leader.ended(job) == [(NOON + 60 * SECOND, RunState.DEAD, 16)]
    letters = conn.execute("SELECT run_id FROM chrono_dead_letter").fetchall()
    assert letters == [(lease.run_id,)]


def test_f08_no_statement_makes_such_a_number_narrower():
    narrow = re.compile(r"(?:fence|epoch|gates)\w*\)?s?::(?:integer|int4?)\b")
    paths = [path for path in within("apps", ".sql") if path.parent.name == "sql"]
    assert [path.stem for path in paths if narrow.search(path.read_text())] == []


def test_f11_a_migration_that_waits_holds_nobody_up_for_long(dsn, connect, background):
    conn, reader, beating = connect(), connect(), connect()
    worker = uuid.uuid4()
    worker_store.register_worker(
        conn, worker=worker, host="t", pid=1, concurrency=1, queues=["default"]
    )
    call_command("migrate", "chrono_runs", "0014", verbosity=0)
    with reader.transaction():
        reader.execute("SELECT FROM chrono_worker")
        migrating = background(
            in_session, call_command, "migrate", "chrono_runs", "0015", verbosity=0
        )
        [(pid,)] = wait_for(
            lambda: conn.execute(
                "SELECT pid FROM pg_locks WHERE NOT granted AND relation = "
                "'chrono_worker'::regclass AND mode = 'AccessExclusiveLock'"
            ).fetchall()
        )
        began = time.monotonic()
        beat = background(worker_store.beat_if_alive, beating, worker=worker)
        wait_until_blocked(conn, beating.info.backend_pid)
        assert beat.result(timeout=10).cancelled == []
        assert time.monotonic() - began < LONGEST_WAIT_S
        with pytest.raises(Exception, match="lock timeout"):
            migrating.result(timeout=10)
    # And another try goes through.
    again = background(in_session, call_command, "migrate", "chrono_runs", verbosity=0)
    again.result(timeout=30)
    assert conn.execute("SELECT tasks FROM chrono_worker").fetchall() == [(None,)]
    assert pid


def test_f11_what_changes_a_table_in_use_gives_up_soon():
    wrong = []
    for path in (*within("apps", ".up.sql"), *within("apps", ".py")):
        name = f"{path.parent.parent.name}.{path.name}"
        if path.parent.name != "migrations" or path.stem.startswith("0001"):
            continue
        text = re.sub(r"--[^\n]*", "", path.read_text())
        made = set(re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", text))
        # To validate holds nobody up.
        changed = set(re.findall(r"ALTER TABLE (\w+)\s+(?!VALIDATE)", text)) - made
        soon = "SET LOCAL lock_timeout = '2s'" in text
        if (changed or "migrations.AddField" in text) and not soon:
            wrong.append(f"{name}: waits for a lock as long as it takes")
        indexed = re.findall(r"CREATE (?:UNIQUE )?INDEX \w+\s+ON (?:ONLY )?(\w+)", text)
        if set(indexed) - made and name not in WHILE_EMPTY:
            wrong.append(f"{name}: makes an index under a lock")
        if REWRITES.search(text):
            wrong.append(f"{name}: writes a table anew under a lock")
    assert wrong == []


def test_f12_no_row_ever_moves_from_one_partition_to_another(connect):
    """Who may change all columns but those of the keys may run every statement."""
    conn = connect()
    with conn.transaction(force_rollback=True):
        try:
            conn.execute("CREATE ROLE f12")
        except psycopg.errors.InsufficientPrivilege:
            pytest.skip("the tests may make no roles on this server")
        conn.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO f12")
        conn.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO f12")
        tables = conn.execute(
            """
            SELECT c.relname, string_agg(a.attname, ', ')
            FROM pg_partitioned_table p JOIN pg_class c ON c.oid = p.partrelid
            JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
                AND NOT a.attisdropped AND a.attnum <> ALL(p.partattrs)
            GROUP BY c.relname
            """
        ).fetchall()
        assert {"chrono_timer", "chrono_ready", "chrono_run"} <= dict(tables).keys()
        for table, columns in tables:
            conn.execute(f"REVOKE UPDATE ON {table} FROM f12")
            conn.execute(f"GRANT UPDATE ({columns}) ON {table} TO f12")
        conn.execute("SET LOCAL ROLE f12")
        conn.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        moving = [path.stem for path in STATEMENTS if moves_a_row(conn, path)]
    assert moving == []


def moves_a_row(conn, path):
    """Tell whether a role may not run a statement, for want of a column to change."""
    if body(path).split()[0] in UTILITY:
        return False
    statement = sql.load(path.parent.parent.name, path.stem)
    names = SLOTS | {"timers": "chrono_timer", "bucket": "chrono_timer"}
    names |= SLOTS_OF.get(path.stem, {})
    slots = {slot: names[slot] for slot in sql.SLOT.findall(statement.text)}
    text = statement.named(**slots)
    values = ", ".join(["NULL"] * len(set(PARAMETER.findall(text))))
    name = f"{path.parent.parent.name}_{path.stem}"
    conn.execute(f"PREPARE {name} AS {numbered(text)}")
    try:
        with conn.transaction():
            # To explain asks for the rights as to execute does.
            conn.execute(f"EXPLAIN EXECUTE {name}{f' ({values})' if values else ''}")
    except psycopg.errors.InsufficientPrivilege:
        return True
    return False


def test_f16_what_waits_for_a_seat_is_seen_waiting_and_is_never_lost(dsn, connect):
    conn, free = connect(), threading.Event()
    now = int(read_clock(conn))
    runs = make_ready(conn, make_job(conn, target=TASK), count=50)
    with running(dsn, {"it": lambda payload: free.wait(30)}, concurrency=5):
        wait_for(lambda: count(conn, "lease") == 5)
        waiting = []
        for run in runs:
            row, _ = selectors.get_run(conn, run, tenant=1)
            if selectors.state_of(row) is RunState.READY:
                waiting.append(why_waiting(conn, row, now))
        assert waiting == ["It waits for a free worker."] * 45
        free.set()
        rows = settled(conn, 50)
    assert rows == [(run, RunState.SUCCESS, None, 1, True) for run in runs]


@pytest.mark.usefixtures("dsn")
def test_f17_who_leads_for_days_is_in_no_transaction(connect, start):
    conn: psycopg.Connection = connect()
    start()
    sessions = wait_for(
        lambda: (
            found
            if len(
                found := conn.execute(
                    "SELECT a.pid, a.xact_start FROM pg_locks l "
                    "JOIN pg_stat_activity a ON a.pid = l.pid "
                    "WHERE l.locktype = 'advisory' AND l.classid = 1128792065 "
                    "AND a.application_name = 'chrono leader' "
                    "AND a.datname = current_database()"
                ).fetchall()
            )
            == 64
            else None
        ),
        timeout=45,
    )
    assert len({pid for pid, _ in sessions}) == 1
    for _ in range(200):
        open_for = conn.execute(
            "SELECT max(clock_timestamp() - xact_start) < interval '1 s' "
            "FROM pg_stat_activity WHERE application_name LIKE 'chrono %' "
            "AND datname = current_database() AND xact_start IS NOT NULL"
        ).fetchone()
        assert open_for in ((True,), (None,))


def test_f17_names_of_sessions_and_numbers_of_locks_are_documented():
    [told] = [p.read_text() for p in within("docs", ".md") if p.name == "sessions.md"]
    code = "\n".join(path.read_text() for path in within("apps", ".py"))
    names = set(re.findall(r'"(chrono [a-z ]+)"', code))
    lines = re.findall(r'_line\("(\w+)"\)', code)
    names |= {f"chrono worker {name}" for name in lines}
    assert len(names) >= 12
    assert [name for name in sorted(names) if f"`{name}`" not in told] == []
    numbers = re.findall(r"_LOCKS = (0x[0-9a-fA-F_]+)", code)
    assert [n for n in numbers if str(int(n, 16)) not in told] == []


def test_f01_who_holds_an_old_snapshot_is_named(client, connect, monkeypatch):
    reader = connect(autocommit=False)
    reader.execute("SELECT count(*) FROM chrono_run")
    reader.execute("DECLARE slow CURSOR FOR SELECT * FROM chrono_run")
    soon = functools.partial(find_old_snapshot, older=0)
    monkeypatch.setattr("apps.api.health.find_old_snapshot", soon)
    problems = client.get("/status").json()["problems"]
    told = f"process {reader.info.backend_pid} of the database's server has held a"
    assert [one for one in problems if one.startswith(told)]
