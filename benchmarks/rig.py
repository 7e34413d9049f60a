"""A server with pinned settings, databases from one template, real processes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg

from chrono.rules.partitions import partition_of
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
        return sum(_cpu(p.pid) for p in [*self.schedulers, *self.workers])

    def memory_mb(self) -> dict[str, list[float]]:
        """Return the resident megabytes of each process."""
        return {
            "scheduler": [_rss(p.pid) for p in self.schedulers],
            "worker": [_rss(p.pid) for p in self.workers],
        }


@contextlib.contextmanager
def stack(
    url: str, *, schedulers: int = 1, workers: int = 2, concurrency: int = 400
) -> Iterator[Stack]:
    """Yield running processes on a database; they are ended in the end."""
    running = Stack()

    def start(*words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "manage.py", *words], cwd=ROOT, env=environment(url)
        )

    try:
        for _ in range(workers):
            running.workers.append(
                start("runworker", "--concurrency", str(concurrency))
            )
        for _ in range(schedulers):
            running.schedulers.append(start("runscheduler"))
        wait_until_led(url, workers=workers)
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


def wait_until_led(url: str, *, workers: int) -> None:
    """Return once every partition has a leader and every worker beats."""
    deadline = time.monotonic() + 30
    with psycopg.connect(url, autocommit=True) as conn:
        while time.monotonic() < deadline:
            [(led, beating)] = conn.execute(
                "SELECT (SELECT count(*) FROM chrono_partition WHERE fence > 0), "
                "(SELECT count(*) FROM chrono_worker)"
            ).fetchall()
            if led == 64 and beating >= workers:
                return
            time.sleep(0.05)
    raise SystemExit("the processes did not come up")


def now_ms(conn: psycopg.Connection[Any]) -> int:
    """Return the database's time in epoch milliseconds."""
    [(now,)] = conn.execute(
        "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    ).fetchall()
    return int(now)


def seed_intervals(
    conn: psycopg.Connection[Any],
    count: int,
    *,
    overlap: str,
    start: int,
    period: int = 1_000,
) -> None:
    """Write interval jobs that begin at ``start``, spread evenly over their period."""
    jobs = [uuid.uuid4() for _ in range(count)]
    firsts = [start + number * period // count for number in range(count)]
    schedules = [
        {"interval": f"{period}ms", "starts_at": _iso(first)} for first in firsts
    ]
    _seed(conn, jobs, firsts, schedules, overlap=overlap)


def seed_one_shots(conn: psycopg.Connection[Any], count: int, *, at: int) -> None:
    """Write one-shot jobs that are all due at one instant."""
    jobs = [uuid.uuid4() for _ in range(count)]
    _seed(conn, jobs, [at] * count, [{"run_at": _iso(at)}] * count, overlap="skip")


def _seed(
    conn: psycopg.Connection[Any],
    jobs: list[uuid.UUID],
    firsts: list[int],
    schedules: list[dict[str, str]],
    *,
    overlap: str,
) -> None:
    with conn.transaction(), conn.cursor() as cursor:
        with cursor.copy(
            "COPY chrono_job (id, tenant, key, name, part, version, revision, epoch, "
            "activated_at, paused, pause_note, created_at, updated_at) FROM STDIN"
        ) as copy:
            for job in jobs:
                part = partition_of(job)
                row = (job, 1, str(job), "", part, 1, 1, 0, "now", False, "")
                copy.write_row((*row, "now", "now"))
        with cursor.copy(
            "COPY chrono_job_revision (job_id, revision, schedule, jitter_window, "
            "overlap_policy, queue, priority, target, payload, retry_policy, "
            "created_at) FROM STDIN"
        ) as copy:
            target = json.dumps({"kind": "task", "name": "benchmarks.nothing"})
            for job, schedule in zip(jobs, schedules, strict=True):
                row2 = (job, 1, json.dumps(schedule), 0, overlap, "default", 2, target)
                copy.write_row((*row2, "null", "{}", "now"))
        cursor.execute(
            "INSERT INTO chrono_timer (due_at, scheduled_for, ref, job_id, version, "
            "revision, part, kind) SELECT to_timestamp(f / 1000.0), "
            "to_timestamp(f / 1000.0), j, j, 1, 1, p, 1 "
            "FROM unnest(%s::uuid[], %s::bigint[], %s::smallint[]) AS x (j, f, p)",
            [jobs, firsts, [partition_of(job) for job in jobs]],
        )
    conn.execute("ANALYZE chrono_job")
    conn.execute("ANALYZE chrono_job_revision")


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
            _tree_cpu(pid) if pid else 0.0,
            self.running.client_cpu(),
            time.monotonic(),
        )


def _iso(moment: int) -> str:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment // 1000))
    return f"{stamp}.{moment % 1000:03d}Z"


def _cpu(pid: int) -> float:
    with contextlib.suppress(psutil.Error):
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)
    return 0.0


def _tree_cpu(pid: int) -> float:
    """Return the CPU seconds of a postmaster and its children, ended ones included."""
    with contextlib.suppress(psutil.Error):
        postmaster = psutil.Process(pid)
        times = postmaster.cpu_times()
        own = times.user + times.system + times.children_user + times.children_system
        return float(own) + sum(_cpu(child.pid) for child in postmaster.children())
    return 0.0


def _rss(pid: int) -> float:
    with contextlib.suppress(psutil.Error):
        return round(psutil.Process(pid).memory_info().rss / 1e6, 1)
    return 0.0
