"""`manage.py runscheduler` as it is really started: signals, shares, exit codes."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from django.conf import settings

from apps.jobs.commands import create_job
from apps.jobs.definition import parse_definition
from apps.runtime.locks import PARTITION_LOCKS
from chrono.rules.instants import to_millis
from chrono.rules.zones import data_version
from tests.support import pg, skewed
from tests.support.relay import pooled
from tests.worker.support import end_all, wait_for

Process = subprocess.Popen[str]
Start = Callable[..., Process]

ALL = 64
LOCKED = """
    SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND classid = %s AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
OWNERS = """
    SELECT owner FROM chrono_partition WHERE owner <> '' ORDER BY id
"""


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts schedulers; none outlives the test."""
    started: list[Process] = []

    def run(*launcher: str, **environment: str) -> Process:
        started.append(
            subprocess.Popen(
                [sys.executable, *(launcher or ["manage.py"]), "runscheduler"],
                cwd=settings.BASE_DIR,
                env=os.environ | environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        return started[-1]

    yield run
    end_all(started)


def said(process: Process) -> list[str]:
    """Wait for the end of a process and return the lines it wrote."""
    text, _ = process.communicate(timeout=20)
    return text.splitlines()


def wait_for_shares(conn: pg.Connection, *shares: int) -> Counter[str]:
    """Wait until partitions are held in shares of these sizes; return who holds them.

    Owners are those of the last takeover.
    """

    def look() -> Counter[str] | None:
        owners = Counter(owner for (owner,) in conn.execute(OWNERS).fetchall())
        [(locked,)] = conn.execute(LOCKED, [PARTITION_LOCKS]).fetchall()
        fits = sorted(owners.values()) == sorted(shares) and locked == sum(shares)
        return owners if fits else None

    found: Counter[str] = wait_for(look, timeout=20)
    return found


def holder(owners: Counter[str], process: Process) -> str:
    """Return the name under which a process leads."""
    [owner] = [owner for owner in owners if owner.split(":")[1] == str(process.pid)]
    return owner


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.usefixtures("dsn")
def test_one_that_is_told_to_stop_hands_over_at_once(
    start: Start, connect: Callable[..., pg.Connection], number: int
) -> None:
    conn = connect()
    process = start()
    wait_for_shares(conn, ALL)
    conn.execute("LISTEN chrono_leadership")
    conn.execute("SET lock_timeout = '10s'")
    told = time.monotonic()
    process.send_signal(number)
    # Waits until the last lock is free.
    locks = "SELECT pg_advisory_lock(%s, n) FROM generate_series(0, %s) AS n"
    conn.execute(locks, [PARTITION_LOCKS, ALL - 1])
    # On a busy machine; silent sessions would be ended after four.
    assert time.monotonic() - told < 3.5
    lines = said(process)
    assert process.returncode == 0, lines
    assert any(f"time zones of {data_version()}" in line for line in lines)
    assert not [line for line in lines if "Traceback" in line or "ERROR" in line]
    assert [n.channel for n in conn.notifies(timeout=5, stop_after=1)] == [
        "chrono_leadership"
    ]


@pytest.mark.usefixtures("dsn")
def test_a_second_one_gets_an_even_share_and_inherits_the_rest(
    start: Start, connect: Callable[..., pg.Connection]
) -> None:
    conn = connect()
    first = start()
    wait_for_shares(conn, ALL)
    second = start()
    owners = wait_for_shares(conn, ALL // 2, ALL // 2)
    assert {holder(owners, first), holder(owners, second)} == set(owners)
    first.kill()
    owners = wait_for_shares(conn, ALL)
    assert set(owners) == {holder(owners, second)}


@pytest.mark.usefixtures("dsn")
def test_it_fires_what_was_applied_while_it_runs(
    start: Start, connect: Callable[..., pg.Connection]
) -> None:
    conn = connect()
    start()
    wait_for_shares(conn, ALL)
    [(moment,)] = conn.execute("SELECT clock_timestamp()").fetchall()
    definition = {
        "key": "tick",
        "target": {"kind": "task", "name": "nothing"},
        "interval": "1s",
        "overlap_policy": "allow_all",
    }
    job = create_job(parse_definition(definition), now=to_millis(moment)).job_id
    conn.execute("LISTEN chrono_ready")
    [notice] = conn.notifies(timeout=10, stop_after=1)
    assert notice.payload == "default"
    [(early,)] = conn.execute(
        "SELECT count(*) FROM chrono_ready WHERE dispatched_at < due_at"
    ).fetchall()
    assert early == 0
    [(owned,)] = conn.execute(
        "SELECT count(*) FROM chrono_ready r JOIN chrono_partition p ON p.id = r.part "
        "WHERE r.job_id = %s AND r.fence = p.fence",
        [job],
    ).fetchall()
    assert owned >= 1


@pytest.mark.usefixtures("dsn")
def test_c11_one_whose_sessions_are_ended_leads_again_by_itself(
    start: Start, connect: Callable[..., pg.Connection]
) -> None:
    conn = connect()
    process = start()
    before = wait_for_shares(conn, ALL)
    fences = "SELECT min(fence) FROM chrono_partition"
    [(old,)] = conn.execute(fences).fetchall()
    conn.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE application_name LIKE 'chrono%%' AND datname = current_database() "
        "AND pid <> pg_backend_pid()"
    )
    # Four seconds until a silent session ends, and five to lead again.
    wait_for(lambda: conn.execute(fences).fetchall()[0][0] > old, timeout=20)
    after = wait_for_shares(conn, ALL)
    assert process.poll() is None
    assert holder(after, process)
    assert holder(before, process)


@pytest.mark.usefixtures("dsn")
def test_one_whose_clock_jumps_gives_all_up_and_leads_again_when_it_is_steady(
    start: Start, connect: Callable[..., pg.Connection], tmp_path: Path
) -> None:
    conn = connect()
    clocks = tmp_path / "clocks"
    skewed.write(clocks)
    process = start("-m", "tests.support.skewed", str(clocks))
    before = wait_for_shares(conn, ALL)
    jumped = time.monotonic()
    skewed.write(clocks, monotonic=3_600, wall=3_600)

    def locked() -> int:
        [(count,)] = conn.execute(LOCKED, [PARTITION_LOCKS]).fetchall()
        return int(count)

    wait_for(lambda: locked() == 0, timeout=10)
    # It leads under another name from then on.
    wait_for(
        lambda: {owner for (owner,) in conn.execute(OWNERS).fetchall()} - set(before),
        timeout=10,
    )
    assert holder(wait_for_shares(conn, ALL), process)
    # Three probes, a second apart, have agreed.
    assert time.monotonic() - jumped > 2
    process.terminate()
    assert any("the clock jumped" in line for line in said(process))
    assert process.returncode == 0


def test_nobody_at_the_address_is_one_line(start: Start) -> None:
    process = start(DATABASE_URL="postgres://chrono:hush@127.0.0.1:1/none")
    [line] = said(process)
    assert process.returncode == 1
    assert "the database does not answer" in line
    assert "hush" not in line


def test_an_address_of_something_else_is_one_line(start: Start) -> None:
    process = start(DATABASE_URL="mysql://chrono:hush@127.0.0.1:1/none")
    [line] = said(process)
    assert process.returncode == 1
    assert "is not a PostgreSQL address" in line
    assert "hush" not in line


@pytest.mark.parametrize(
    "url",
    [
        "postgres://chrono:hush@127.0.0.1:99999/none",
        "postgres://chrono:hush@127.0.0.1:1/none?sslmode=perhaps",
        "postgres://chrono:hush@127.0.0.1:1/none?no_such_option=1",
    ],
)
def test_an_address_that_makes_no_sense_is_one_line(start: Start, url: str) -> None:
    process = start(DATABASE_URL=url)
    [line] = said(process)
    assert process.returncode == 1
    assert "hush" not in line


def test_a_pooler_is_refused_in_one_line(start: Start, dsn: str) -> None:
    parts = psycopg.conninfo.conninfo_to_dict
    with pooled(dsn) as url:
        at = parts(url)
        relay = (
            f"postgres://{at['user']}:{at.get('password', '')}@127.0.0.1:{at['port']}"
            f"/{at['dbname']}?sslmode=disable&gssencmode=disable"
        )
        process = start(CHRONO_DIRECT_DATABASE_URL=relay)
        [line] = said(process)
    assert process.returncode == 1
    assert "CHRONO_DIRECT_DATABASE_URL" in line


def test_a_database_without_tables_is_one_line(
    start: Start, databases: pg.Databases
) -> None:
    url = databases.create("bare")
    try:
        process = start(DATABASE_URL=url)
        [line] = said(process)
    finally:
        databases.drop("bare")
    assert process.returncode == 1
    assert 'relation "chrono_' in line
    assert "manage.py migrate" in line
