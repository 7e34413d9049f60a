"""A worker on a loop of its own, in a thread of the test's process."""

import asyncio
import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import psutil

from apps.worker.config import Config
from apps.worker.egress import parse_openings
from apps.worker.process import Worker
from chrono.tasks import Registry
from tests.support.pg import Connection

LOOPBACK = parse_openings(["127.0.0.0/8", "::1/128"])
FAST = {"max_attempts": 3, "backoff": {"base_ms": 0, "cap_ms": 0}}
"""A retry policy whose retries are due at once."""


class Running:
    """A worker at work; `result()` waits for its end."""

    def __init__(self, config: Config, registry: Registry) -> None:
        self._config = config
        self._registry = registry
        self._started = threading.Event()
        self._clean: bool | None = None
        self._error: BaseException | None = None
        self.thread = threading.Thread(target=self._main, daemon=True)
        self.thread.start()
        self._started.wait(5)

    def _main(self) -> None:
        try:
            self._clean = asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001  (told to the test's thread)
            self._error = error

    async def _run(self) -> bool:
        self.worker = Worker(self._config, registry=self._registry)
        self.loop = asyncio.get_running_loop()
        self._started.set()
        return await self.worker.run()

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.worker.stop)

    def result(self, timeout: float = 10) -> bool:
        """Return whether it ended clean; raise what it raised."""
        self.thread.join(timeout)
        assert not self.thread.is_alive(), "the worker is still at work"
        if self._error is not None:
            raise self._error
        assert self._clean is not None
        return self._clean


@contextlib.contextmanager
def running(
    url: str,
    tasks: Mapping[str, Callable[..., Any]] | None = None,
    *,
    transactional: Mapping[str, Callable[..., Any]] | None = None,
    **options: Any,
) -> Iterator[Running]:
    """Lend a worker that knows `tasks`; it is stopped in the end."""
    registry = Registry()
    for name, function in (transactional or {}).items():
        registry.add(name, function, transactional=True)
    for name, function in (tasks or {}).items():
        registry.add(name, function)
    settings = {"queues": ("default",), "concurrency": 20, "openings": LOOPBACK}
    config = Config(url=url, **{**settings, **options})
    lent = Running(config, registry)
    try:
        yield lent
    finally:
        lent.stop()
        lent.result()


def end_all(processes: Iterable[subprocess.Popen[str]]) -> None:
    """Kill those that still run; what they said is shown where the test failed."""
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        if process.stdout is not None and not process.stdout.closed:
            print(process.stdout.read())
            process.stdout.close()


def wait_for(check: Callable[[], Any], timeout: float = 10) -> Any:
    """Return the first truthy answer of `check`; fail after the timeout.

    For what only a look at the database can tell.
    """
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if answer := check():
            return answer
        time.sleep(0.005)
    raise AssertionError(f"not within {timeout} s")


def settled(
    conn: Connection, count: int = 1, *, timeout: float = 10
) -> list[tuple[Any, ...]]:
    """Wait for runs in the history; return (id, state, reason, attempt, result)."""

    def look() -> list[tuple[Any, ...]] | None:
        rows = conn.execute(
            "SELECT id, state, reason, attempt, result FROM chrono_run ORDER BY id"
        ).fetchall()
        return rows if len(rows) >= count else None

    rows: list[tuple[Any, ...]] = wait_for(look, timeout)
    assert len(rows) == count
    return rows


def count(conn: Connection, table: str) -> int:
    """Return how many rows a table has."""
    row = conn.execute(f"SELECT count(*) FROM chrono_{table}").fetchone()
    assert row is not None
    return int(row[0])


def waiting(conn: Connection, runs: int = 1) -> list[tuple[Any, ...]]:
    """Wait for runs that wait for their time; return (id, attempt, seconds to wait)."""

    def look() -> list[tuple[Any, ...]] | None:
        rows = conn.execute(
            """
            SELECT ref, attempt, extract(epoch FROM due_at - clock_timestamp())::float8
            FROM (SELECT * FROM chrono_timer UNION ALL SELECT * FROM chrono_timer_far) t
            ORDER BY ref
            """
        ).fetchall()
        return rows if len(rows) >= runs else None

    rows: list[tuple[Any, ...]] = wait_for(look)
    assert len(rows) == runs
    return rows


def offered_again(
    conn: Connection, run: Any, attempt: int, *, claim: bool = True
) -> None:
    """Wait until a run waits for this attempt; put it into ready as a leader would."""

    def look() -> bool:
        rows = conn.execute(
            """
            SELECT ref FROM chrono_timer WHERE ref = %(run)s AND attempt = %(attempt)s
            UNION ALL
            SELECT ref FROM chrono_timer_far
            WHERE ref = %(run)s AND attempt = %(attempt)s
            """,
            {"run": run, "attempt": attempt},
        ).fetchall()
        return bool(rows)

    wait_for(look)
    if claim:
        conn.execute(
            """
            WITH near AS (DELETE FROM chrono_timer WHERE ref = %(run)s RETURNING *),
            far AS (DELETE FROM chrono_timer_far WHERE ref = %(run)s RETURNING *),
            due AS (SELECT * FROM near UNION ALL SELECT * FROM far)
            INSERT INTO chrono_ready (due_at, dispatched_at, run_id, job_id, tag, fence,
                revision, tenant, part, priority, attempt, slice, queue)
            SELECT due_at, clock_timestamp(), ref, job_id, 0, 1, revision, 1, part, 2,
                attempt, 0, 'default' FROM due
            """,
            {"run": run},
        )


def heard(process: subprocess.Popen[str], words: str) -> str:
    """Wait for a line of the worker's output that holds these words; return it."""
    assert process.stdout is not None
    while words not in (line := process.stdout.readline()):
        assert process.poll() is None
    return line


def stopped(process: subprocess.Popen[str]) -> str:
    """Stop a worker that is to end clean; return what it had said."""
    process.send_signal(signal.SIGTERM)
    text, _ = process.communicate(timeout=20)
    assert process.returncode == 0, text
    return text


def gone(pid: int) -> bool:
    """Tell whether a process has ended, or waits for nothing but to be buried."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
