"""A server with pinned settings, databases from one template, real processes."""

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg

from apps.runs import days
from apps.runtime.sessions import connect_upkeep
from apps.timers import buckets
from chrono.rules import jitter
from chrono.rules.instants import Millis, format_instant
from chrono.rules.partitions import PARTITIONS, partition_of
from dev.postgres import Server

ROOT = Path(__file__).resolve().parent.parent
SETTINGS: Mapping[str, str | int] = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "min_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "max_connections": 100,
    "autovacuum_naptime": "5s",
    "shared_preload_libraries": "pg_stat_statements",
}
TEMPLATE = "bench_template"
NOTHING: Mapping[str, Any] = {"kind": "task", "name": "benchmarks.nothing"}
"""The target of jobs that are to do nothing."""
SEED = (
    """
    INSERT INTO chrono_job (
        id, tenant, key, name, part, version, revision, epoch, activated_at, paused,
        pause_note, created_at, updated_at
    ) SELECT id, %(tenant)s, id::text, %(label)s, part, 1, 1, 0, now(), false, '',
        now(), now()
    FROM unnest(%(jobs)s::uuid[], %(parts)s::smallint[]) AS x (id, part)
    """,
    """
    INSERT INTO chrono_job_revision (
        job_id, revision, schedule, jitter_window, overlap_policy, queue, priority,
        target, payload, retry_policy, policy, created_at
    ) SELECT id, 1, schedule, %(window)s, %(overlap)s, 'default', 2, %(target)s,
        %(payload)s, '{}', %(policy)s, now()
    FROM unnest(%(jobs)s::uuid[], %(schedules)s::jsonb[]) AS x (id, schedule)
    """,
    """
    INSERT INTO chrono_timer (
        due_at, scheduled_for, ref, job_id, version, revision, part, kind
    ) SELECT to_timestamp(due / 1000.0), to_timestamp(first / 1000.0), id, id, 1, 1,
        part, 1
    FROM unnest(
        %(jobs)s::uuid[], %(parts)s::smallint[], %(firsts)s::bigint[],
        %(dues)s::bigint[]
    ) AS x (id, part, first, due)
    """,
)


@dataclass(slots=True)
class Rig:
    """The server of one run of benchmarks."""

    server: Server
    logs: Path
    _number: int = 0

    def prepare(self) -> None:
        """Migrate the template that every measured database is cloned from."""
        self._admin(f"CREATE DATABASE {TEMPLATE}")
        subprocess.run(
            [sys.executable, "manage.py", "migrate", "-v", "0"],
            cwd=ROOT,
            env=environment(self.server.url(TEMPLATE)),
            check=True,
        )
        with psycopg.connect(self.server.url(TEMPLATE), autocommit=True) as conn:
            conn.execute("CREATE EXTENSION pg_stat_statements")

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """Yield the address of a fresh database; it is dropped in the end."""
        self._number += 1
        name = f"bench_{self._number}"
        self._admin(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        self._admin("CHECKPOINT")
        try:
            yield self.server.url(name)
        finally:
            self._admin(f"DROP DATABASE {name} WITH (FORCE)")

    def _admin(self, text: str) -> None:
        with psycopg.connect(self.server.url(), autocommit=True) as conn:
            conn.execute(text.encode())


@contextlib.contextmanager
def rig() -> Iterator[Rig]:
    """Yield a rig on a server of its own, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="chrono-bench-") as folder:
        server = Server(Path(folder) / "postgres", settings=dict(SETTINGS))
        try:
            server.start()
            bench = Rig(server=server, logs=Path(folder))
            bench.prepare()
            yield bench
        finally:
            server.stop(mode="immediate")
            server.destroy()


def machine() -> dict[str, Any]:
    """Return what the figures are measured on."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def crowd() -> float:
    """Return how many processes want each core, and at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def environment(url: str) -> dict[str, str]:
    """Return the environment of a process of ours on this database."""
    return {
        **os.environ,
        "CHRONO_ENV_FILES": "",
        "DJANGO_SETTINGS_MODULE": "chrono.settings",
        "SECRET_KEY": "only-for-benchmarks",
        "DATABASE_URL": url,
        "CHRONO_DIRECT_DATABASE_URL": url,
        "CHRONO_TASK_MODULES": "benchmarks.tasks",
        "CHRONO_LOG_LEVEL": "WARNING",
    }


@dataclass(slots=True)
class Stack:
    """The processes under measurement."""

    schedulers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def client_cpu(self) -> float:
        """Return the CPU seconds that schedulers and workers used so far."""
        return sum(cpu_of(p.pid) for p in [*self.schedulers, *self.workers])

    def died(self) -> int:
        """Return how many of the processes have ended, which none should."""
        processes = [*self.schedulers, *self.workers]
        return sum(process.poll() is not None for process in processes)

    def worker_cpu(self) -> float:
        """Return the CPU seconds that the workers used so far."""
        return sum(cpu_of(p.pid) for p in self.workers)

    def backend_cpu(self, conn: psycopg.Connection[Any]) -> float:
        """Return the CPU seconds that the processes' sessions took of the server."""
        rows = conn.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND starts_with(application_name, 'chrono ')"
        ).fetchall()
        return sum(_single_cpu(pid) for (pid,) in rows)

    def memory_mb(self) -> dict[str, list[float]]:
        """Return the resident megabytes of each process."""
        return {
            "scheduler": [_rss(p.pid) for p in self.schedulers],
            "worker": [_rss(p.pid) for p in self.workers],
        }


@contextlib.contextmanager
def stack(
    url: str,
    *,
    schedulers: int = 1,
    workers: int = 2,
    concurrency: int = 800,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Stack]:
    """Yield running processes on a database; they are ended in the end.

    ``settings`` are further variables of their environment.
    """
    running = Stack()
    variables = {**environment(url), **(settings or {})}

    def start(*words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "manage.py", *words], cwd=ROOT, env=variables
        )

    try:
        for _ in range(workers):
            running.workers.append(
                start("runworker", "--concurrency", str(concurrency))
            )
        for _ in range(schedulers):
            running.schedulers.append(start("runscheduler"))
        wait_until_led(url, running)
        yield running
    finally:
        processes = [*running.schedulers, *running.workers]
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until_led(url: str, running: Stack) -> None:
    """Return once the schedulers lead every partition and every worker beats."""
    pids = [str(process.pid) for process in running.schedulers]
    deadline = time.monotonic() + 30 * crowd()
    with psycopg.connect(url, autocommit=True) as conn:
        while time.monotonic() < deadline:
            [(led, beating)] = conn.execute(
                "SELECT (SELECT count(*) FROM chrono_partition "
                "WHERE split_part(owner, ':', -2) = ANY(%s)), "
                "(SELECT count(*) FROM chrono_worker)",
                [pids],
            ).fetchall()
            if led == PARTITIONS and beating >= len(running.workers):
                return
            time.sleep(0.05)
    raise SystemExit("the processes did not come up")


def now_ms(conn: psycopg.Connection[Any]) -> int:
    """Return the database's time in epoch milliseconds."""
    [(now,)] = conn.execute(
        "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    ).fetchall()
    return int(now)


def statement_us(conn: psycopg.Connection[Any], *marks: str) -> float:
    """Return how many microseconds statements that have one of these words have run.

    On the server, in this database, since the last ``pg_stat_statements_reset()``.
    """
    [(milliseconds,)] = conn.execute(
        "SELECT sum(total_exec_time) FROM pg_stat_statements "
        "WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) "
        "AND query LIKE ANY(%s)",
        [[f"%{mark}%" for mark in marks]],
    ).fetchall()
    if milliseconds is None:
        raise SystemExit(f"no statement with {' or '.join(marks)} has run")
    return float(milliseconds) * 1000


def make_room(url: str, conn: psycopg.Connection[Any]) -> None:
    """Make buckets and days, as a scheduler does before it fires."""
    with connect_upkeep(url, name="bench") as upkeep:
        now = now_ms(conn)
        buckets.ensure_buckets(upkeep, now=now)
        days.ensure_days(upkeep, now=now)


def seed_intervals(
    conn: psycopg.Connection[Any],
    count: int,
    *,
    overlap: str,
    start: Millis,
    period: Millis = 1_000,
    label: str = "",
) -> list[uuid.UUID]:
    """Write interval jobs that begin at ``start``, spread evenly over their period.

    Returns their ids.
    """
    firsts = [start + number * period // count for number in range(count)]
    schedules = [
        {"interval": f"{period}ms", "starts_at": format_instant(first)}
        for first in firsts
    ]
    return seed(conn, firsts, schedules, overlap=overlap, label=label)


def seed_one_shots(conn: psycopg.Connection[Any], count: int, *, at: Millis) -> None:
    """Write one-shot jobs that are all due at one instant."""
    schedule = {"run_at": format_instant(at)}
    seed(conn, [at] * count, [schedule] * count, overlap="skip")


def seed(
    conn: psycopg.Connection[Any],
    firsts: Sequence[Millis],
    schedules: Sequence[Mapping[str, Any]],
    *,
    overlap: str,
    label: str = "",
    jitter_window: Millis = 0,
    policy: Mapping[str, Any] | None = None,
    tenant: int = 1,
    target: Mapping[str, Any] = NOTHING,
    payload: object = None,
) -> list[uuid.UUID]:
    """Write jobs with the timers of their next occurrences; return the jobs' ids.

    ``label`` is their name, by which figures tell groups of jobs apart.
    """
    jobs = [uuid.uuid4() for _ in firsts]
    parts = [partition_of(job) for job in jobs]
    dues = [
        first + jitter.offset(job, jitter_window)
        for job, first in zip(jobs, firsts, strict=True)
    ]
    values = {
        "jobs": jobs,
        "parts": parts,
        "firsts": list(firsts),
        "dues": dues,
        "schedules": [json.dumps(schedule) for schedule in schedules],
        "label": label,
        "window": jitter_window,
        "overlap": overlap,
        "tenant": tenant,
        "target": json.dumps(target),
        "payload": json.dumps(payload),
        "policy": json.dumps(policy or {}),
    }
    with conn.transaction():
        for statement in SEED:
            conn.execute(statement, values)
    conn.execute("ANALYZE chrono_job")
    conn.execute("ANALYZE chrono_job_revision")
    return jobs


@dataclass(slots=True)
class Meter:
    """What a measured stretch cost: WAL, CPU of the server, CPU of the clients."""

    conn: psycopg.Connection[Any]
    server: Server
    running: Stack
    _begin: tuple[int, float, float, float] = (0, 0.0, 0.0, 0.0)

    def start(self) -> None:
        """Begin the stretch."""
        self._begin = self._read()

    def stop(self) -> dict[str, float]:
        """Return seconds, WAL bytes and CPU seconds since :meth:`start`."""
        end = self._read()
        wal, server, client, wall = (
            e - b for e, b in zip(end, self._begin, strict=True)
        )
        return {"seconds": wall, "wal": wal, "server_cpu": server, "client_cpu": client}

    def _read(self) -> tuple[int, float, float, float]:
        [(lsn,)] = self.conn.execute(
            "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"
        ).fetchall()
        pid = self.server.pid
        return (
            int(lsn),
            tree_cpu(pid) if pid else 0.0,
            self.running.client_cpu(),
            time.monotonic(),
        )


def cpu_of(pid: int) -> float:
    """Return the CPU seconds that a process used so far; 0 where it is gone."""
    with contextlib.suppress(psutil.Error):
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)
    return 0.0


def _single_cpu(pid: int) -> float:
    """Return the CPU seconds of a process of one thread; on Linux to the nanosecond."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    return cpu_of(pid)


def tree_cpu(pid: int) -> float:
    """Return the CPU seconds of a process and its children, ended ones included."""
    with contextlib.suppress(psutil.Error):
        postmaster = psutil.Process(pid)
        times = postmaster.cpu_times()
        own = times.user + times.system + times.children_user + times.children_system
        return float(own) + sum(cpu_of(child.pid) for child in postmaster.children())
    return 0.0


def _rss(pid: int) -> float:
    with contextlib.suppress(psutil.Error):
        return round(psutil.Process(pid).memory_info().rss / 1e6, 1)
    return 0.0
