"""A sick target: left alone, probed, met again by a ramp; nobody else is touched."""

import os
import secrets
import threading
import time
import uuid
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from apps.jobs.commands import create_job
from apps.runs.days import ensure_days
from apps.runs.store import Settlement
from apps.runtime.sessions import connect_upkeep
from apps.runtime.store import read_clock
from apps.timers.buckets import ensure_buckets
from apps.worker.settles import put_off
from chrono.rules.keys import run_id
from chrono.rules.partitions import partition_of
from chrono.rules.retry import Failure, RetryAt, RetryPolicy, decide
from tests.scheduler.test_process import Start
from tests.support.definitions import definition
from tests.support.pg import Connection
from tests.worker.support import running, wait_for

RUNS = int(os.environ.get("STORM_RUNS", "250"))
"""How many runs there are for the dead target; a storm is some thousands."""
OPEN_S = 2


class Patient(ThreadingHTTPServer):
    """A target that is dead until it is revived; it notes when it was called."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.alive = threading.Event()
        self.calls: list[float] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Patient

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (its name)
        pass

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.calls.append(time.monotonic())
        self.send_response(200 if self.server.alive.is_set() else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()


def make_runs(conn: Connection, url: str, key: str, count: int) -> uuid.UUID:
    """Write a job for a target, and so many runs of it that are ready now."""
    policy = {
        "max_attempts": 6,
        "backoff": {"base_ms": 1_000, "cap_ms": 4_000},
        "circuit_breaker": {"open_duration_s": OPEN_S},
    }
    job = create_job(
        definition(
            key=key,
            interval="1d",
            overlap_policy="allow_all",
            target={"kind": "http", "url": url},
            retry_policy=policy,
        )
    ).job_id
    assert job is not None
    part = partition_of(job)
    now = int(read_clock(conn))
    instants = [now - count + n for n in range(count)]
    conn.execute(
        """
        INSERT INTO chrono_ready (due_at, dispatched_at, run_id, job_id, tag, fence,
            revision, tenant, part, priority, attempt, slice, queue)
        SELECT to_timestamp(instant / 1000.0::float8), clock_timestamp(), run, %s,
            instant * 1000, 1, 1, 1, %s, 2, 1, 0, 'default'
        FROM unnest(%s::bigint[], %s::uuid[]) AS r (instant, run)
        """,
        [job, part, instants, [run_id(job, at, 0, part) for at in instants]],
    )
    return job


def done(conn: Connection, job: uuid.UUID) -> int:
    row = conn.execute(
        "SELECT count(*) FROM chrono_run WHERE job_id = %s AND state = 1", [job]
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_e09_a_dead_target_is_left_alone_and_met_again_by_a_ramp(
    dsn: str, connect: Any, start: Start
) -> None:
    """Real processes in all but name: a scheduler, two workers, a thousand times less.

    While it is dead it gets the calls that open its circuit and one probe in each
    `open_duration_s`; once revived, one probe and the ramp. Another target meanwhile
    does not notice, and no attempt is spent on what was never called.
    """
    conn = connect()
    with connect_upkeep(dsn, name="tests") as upkeep:
        now = int(read_clock(upkeep))
        ensure_buckets(upkeep, now=now)
        ensure_days(upkeep, now=now)
    sick, well = Patient(), Patient()
    well.alive.set()
    parked = make_runs(conn, sick.url, "sick", RUNS)
    others = make_runs(conn, well.url, "well", 200)
    start()
    options = {"concurrency": 10}
    with running(dsn, **options), running(dsn, **options):
        began = time.monotonic()
        wait_for(lambda: len(sick.calls) >= 20, timeout=30)
        wait_for(lambda: done(conn, others) == 200, timeout=30)
        opened = time.monotonic()
        wait_for(lambda: time.monotonic() > opened + 3 * OPEN_S + 2, timeout=60)
        dead = len(sick.calls)
        lives = time.monotonic() - began
        sick.alive.set()
        revived = time.monotonic()
        wait_for(lambda: done(conn, parked) == RUNS, timeout=180)
    # Twenty in a row, and what two workers had under way when it opened.
    assert dead <= 20 + 2 * 10 + lives / OPEN_S + 1
    after = Counter(int(at - revived) for at in sick.calls if at >= revived)
    total = 0
    for second in range(max(after) + 1):
        total += after[second]
        # One probe, five at once, five a second, twice as many every five seconds.
        steps = (second + 1) / 5
        allowed = 1 + 5 + 25 * (2**steps * 1.07 - 1)
        assert total <= allowed + 1, (second, sorted(after.items()))
    spent = conn.execute("SELECT count(*) FROM chrono_attempt").fetchone()
    assert spent == (dead,)
    print(
        f"dead: {dead} calls in {lives:.1f} s; then by second {sorted(after.items())}"
    )


def distance_from_uniform(values: list[float]) -> float:
    """Return the greatest distance of a sample in [0, 1) from the even spread."""
    ordered, n = sorted(values), len(values)
    return max(
        max((i + 1) / n - value, value - i / n) for i, value in enumerate(ordered)
    )


def draws(count: int) -> list[float]:
    return [secrets.randbits(53) / (1 << 53) for _ in range(count)]


@pytest.mark.parametrize("attempt", [1, 3, 5])
def test_e09_the_retries_of_five_thousand_are_spread_evenly(attempt: int) -> None:
    """Kolmogorov and Smirnov: of a million even samples one is further off."""
    policy, count = RetryPolicy(), 5_000
    bound = policy.base_ms << (attempt - 1)
    waits = []
    for draw in draws(count):
        verdict = decide(
            Failure("5xx", "no"), policy=policy, attempt=attempt, now=0, draw=draw
        )
        assert isinstance(verdict, RetryAt)
        waits.append(verdict.at / bound)
    assert distance_from_uniform(waits) < 2.7 / count**0.5 + 1 / bound


def test_e09_what_the_budget_puts_off_is_spread_evenly_below_the_cap() -> None:
    policy, count = RetryPolicy(), 5_000
    half = policy.cap_ms // 2
    one = Settlement(run_id=uuid.uuid4(), token=uuid.uuid4(), state=0, due=500)
    waits = [put_off(one, policy, now=0, draw=draw).due for draw in draws(count)]
    assert all(half <= wait <= policy.cap_ms for wait in waits)
    spread = [(wait - half) / half for wait in waits]
    assert distance_from_uniform(spread) < 2.7 / count**0.5


def test_e04_a_wait_that_was_asked_for_is_never_cut_short() -> None:
    policy = RetryPolicy()
    for draw in (0.0, 0.5, 0.999):
        verdict = decide(
            Failure("throttled", "slow down", retry_after=60_000),
            policy=policy,
            attempt=1,
            now=0,
            draw=draw,
        )
        assert isinstance(verdict, RetryAt)
        assert 60_000 <= verdict.at <= 61_000
        late = put_off(
            Settlement(run_id=uuid.uuid4(), token=uuid.uuid4(), state=0, due=899_000),
            policy,
            now=0,
            draw=draw,
        )
        assert late.due >= verdict.at
        assert late.due >= 899_000
