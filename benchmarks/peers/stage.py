"""The stage of one run: a fresh database, the peer's processes, what they write."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import psycopg

from benchmarks.peers.contenders import CONTENDERS, Program
from benchmarks.peers.install import NODE, PYTHON
from benchmarks.peers.peer import RECORD
from benchmarks.rig import ROOT, environment
from dev.postgres import Server

SETTINGS: Mapping[str, str | int] = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "max_connections": 300,
}
"""The same for every peer; all else is as PostgreSQL has it."""
HERE = Path(__file__).parent
COMMAND_SECONDS = 120

type Event = tuple[int, float]
"""A job's number, and the Unix time at which its handler started."""


@contextlib.contextmanager
def database(server: Server, name: str) -> Iterator[str]:
    """Yield the address of a fresh database; it is dropped in the end."""
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}".encode())
        # So that no peer pays for what the one before it wrote.
        conn.execute("CHECKPOINT")
        try:
            # The one spelling of the scheme that all drivers take.
            yield server.url(name).replace("postgres://", "postgresql://")
        finally:
            conn.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@dataclass(slots=True, kw_only=True)
class Stage:
    """The processes of a peer in one mode on a database; all write to one log."""

    peer: str
    mode: str
    url: str
    folder: Path
    _log: IO[str] = field(init=False)
    _number: int = 0
    _beside: list[subprocess.Popen[str]] = field(default_factory=list)
    _workers: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log = (self.folder / "log").open("w")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Make the schema; in the end kill all that runs."""
        try:
            self.tell("setup")
            if CONTENDERS[self.peer].program is Program.OURS:
                command = [sys.executable, "manage.py", "runscheduler"]
                self._beside.append(self._start(command))
            yield
        finally:
            self.kill_workers()
            _kill(self._beside)
            self._log.close()

    def tell(self, *words: object) -> Any:
        """Have the peer carry out a command; return what it says."""
        return self.finish(self.background(*words), timeout=COMMAND_SECONDS)

    def background(self, *words: object) -> subprocess.Popen[str]:
        """Have the peer carry out a command beside what follows."""
        process = self._start(self._command(*words), stdout=subprocess.PIPE)
        self._beside.append(process)
        return process

    def finish(self, process: subprocess.Popen[str], *, timeout: float) -> Any:
        """Wait for a command in the background; return what it says.

        Raises RuntimeError, with the last line of the log, where it failed.
        """
        said, _ = process.communicate(timeout=timeout)
        self._beside.remove(process)
        if process.returncode:
            raise RuntimeError(f"exit {process.returncode}: {self._last_line()}")
        return json.loads(said.splitlines()[-1])

    def start_workers(self, count: int = 1, *, cron: int = 0) -> None:
        """Start worker processes, each with so many entries of cron."""
        for _ in range(count):
            # Who comes after one that was killed has a name of its own, too.
            self._number += 1
            variables = {"PEERS_WORKER": str(self._number), "PEERS_CRON": str(cron)}
            self._workers.append(
                self._start(self._command("work"), variables=variables)
            )

    def kill_workers(self) -> None:
        """End each worker and what it started by SIGKILL."""
        _kill(self._workers)

    def events(self) -> list[Event]:
        """Return what handlers wrote so far, in the order of writing."""
        with contextlib.suppress(FileNotFoundError):
            return list(RECORD.iter_unpack(self._events.read_bytes()))
        return []

    def count(self) -> int:
        """Return how many events there are."""
        with contextlib.suppress(FileNotFoundError):
            return self._events.stat().st_size // RECORD.size
        return 0

    def wait(self, count: int, *, limit: float) -> bool:
        """Tell whether so many events come within ``limit`` seconds."""
        end = time.monotonic() + limit
        while self.count() < count:
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def wait_until_finished(self, *, limit: float) -> float | None:
        """Return when the peer's own tables show every job as finished, if they do."""
        end = time.monotonic() + limit
        with psycopg.connect(self.url, autocommit=True) as conn:
            while time.monotonic() < end:
                row = conn.execute(CONTENDERS[self.peer].unfinished.encode()).fetchone()
                if row == (0,):
                    return time.time()
                time.sleep(0.005)
        return None

    @property
    def _events(self) -> Path:
        return self.folder / "events"

    def _command(self, *words: object) -> list[str]:
        kind = CONTENDERS[self.peer].program
        if kind is Program.NODE:
            program = [str(NODE), str(HERE / f"peer_{self.peer}.mjs")]
        else:
            python = sys.executable if kind is Program.OURS else str(PYTHON)
            program = [python, "-m", "benchmarks.peers.run", self.peer]
        return program + [str(word) for word in words]

    def _start(
        self,
        command: list[str],
        *,
        stdout: int | None = None,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> subprocess.Popen[str]:
        ours = CONTENDERS[self.peer].program is Program.OURS
        given = environment(self.url) if ours else os.environ
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={
                **given,
                "CHRONO_TASK_MODULES": "benchmarks.peers.chrono_tasks",
                "PYTHONWARNINGS": "ignore",
                "PEERS_DSN": self.url,
                "PEERS_MODE": self.mode,
                "PEERS_EVENTS": str(self._events),
                **variables,
            },
            stdout=self._log if stdout is None else stdout,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )

    def _last_line(self) -> str:
        lines = (self.folder / "log").read_text().strip().splitlines()
        return lines[-1] if lines else "no word in the log"


def _kill(processes: list[subprocess.Popen[str]]) -> None:
    """End processes with all of their sessions, and forget them."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    processes.clear()
