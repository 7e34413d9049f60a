"""The whole product as processes on a server of its own, all of it ended at the end.

Nothing of the surroundings counts: no `.env`, no `DATABASE_URL`, no setting from
outside. The logs of all processes are shown where the rig fails.
"""

import base64
import contextlib
import itertools
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import psutil
import psycopg

from dev import postgres
from tests.rigs import tables
from tests.rigs.ledger import Effect, read_requests, read_tasks
from tests.support.pg import Connection

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 64
COMMAND_S = 60.0
DRAIN_S = 20.0
POLITE_S = 8.0
SHOWN_LINES, SHOWN_CHARACTERS = 40, 2_000
MANAGE = ("manage.py",)
NOTHING: Mapping[str, str] = MappingProxyType({})
SERVER: dict[str, postgres.Setting] = {
    "track_commit_timestamp": "on",
    "max_connections": 200,
}

type Environment = Mapping[str, str]


class RigError(Exception):
    """The rig could not go on; the text is one line."""


@dataclass(slots=True, kw_only=True)
class Process:
    """One process of the stack."""

    name: str
    log: Path
    popen: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended; a stopped one has not."""
        return self.popen.poll() is None

    def send(self, number: signal.Signals) -> float:
        """Send a signal; return when, in seconds of the machine's clock."""
        moment = time.time()
        # One that has ended hears nothing.
        self.popen.send_signal(number)
        return moment

    def wait(self, seconds: float) -> int:
        """Return its exit code; raises RigError when it takes longer."""
        try:
            return self.popen.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise RigError(f"{self.name} did not end within {seconds:g} s") from None

    def said(self) -> str:
        """Return its log so far."""
        return self.log.read_text(errors="replace")

    def destroy(self) -> None:
        """End it and its children, whatever state they are in."""
        family: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self.pid)
            family = [parent, *parent.children(recursive=True)]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.popen.wait()


class Stack:
    """A server, its schema, and the processes started on it; a context manager.

    After so many ``seconds``, or on SIGTERM, its block is left by a RigError.
    """

    def __init__(
        self,
        *,
        seconds: int,
        settings: Mapping[str, postgres.Setting] | None = None,
        prepare: str = "",
    ) -> None:
        """``settings`` are the server's, besides the rigs' own; ``prepare`` is run in
        the database before it is migrated."""
        self._seconds = seconds
        self._prepare = prepare
        self.folder = Path(tempfile.mkdtemp(prefix="chrono-rig-"))
        self.server = postgres.Server(
            tempfile.mkdtemp(prefix="chrono-rig-pg-"),
            binaries_folder=postgres.binaries(os.environ.get("PG") or "18"),
            settings={**SERVER, **(settings or {})},
        )
        self._files = itertools.count(1)
        self._processes: list[Process] = []
        self._connections: list[Connection] = []
        self.secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
        self.url = ""
        self.receiver_url = ""
        self.web_url = ""

    def __enter__(self) -> Self:
        for number in (signal.SIGALRM, signal.SIGTERM):
            signal.signal(number, _on_signal)
        signal.alarm(self._seconds)
        try:
            self.server.start()
            with psycopg.connect(self.server.url(), autocommit=True) as conn:
                conn.execute("CREATE DATABASE chrono")
            self.url = self.server.url("chrono")
            if self._prepare:
                with psycopg.connect(self.url, autocommit=True) as conn:
                    conn.execute(self._prepare)
            self.manage("migrate", "--verbosity", "0")
        except BaseException:
            self._destroy()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is not None:
                self.show_logs()
        finally:
            self._destroy()

    def connect(self) -> Connection:
        """Return an autocommit session in UTC, closed with the stack."""
        conn = psycopg.connect(self.url, autocommit=True, options="-c TimeZone=UTC")
        self._connections.append(conn)
        return conn

    def manage(self, *args: str) -> str:
        """Run a command of manage.py to its end; return what it printed.

        Raises RigError, with its last line, when it fails.
        """
        done = subprocess.run(
            [sys.executable, "manage.py", *args],
            cwd=ROOT,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S,
        )
        if done.returncode != 0:
            raise RigError(f"manage.py {args[0]} failed: {done.stdout.strip()}")
        return done.stdout

    def apply(self, jobs: Iterable[Mapping[str, Any]]) -> None:
        """Apply a file of these jobs by `chronoapply`."""
        file = self.folder / f"jobs-{next(self._files)}.json"
        file.write_text(json.dumps(list(jobs)))
        self.manage("chronoapply", str(file))

    def drain(self, *, seconds: float = DRAIN_S) -> None:
        """Wait until no run is live any more."""
        conn = self.connect()
        wait_for(
            lambda: tables.count_live(conn) == 0,
            seconds=seconds,
            what="all runs to settle",
        )

    def scheduler(
        self,
        name: str,
        *,
        before: Sequence[str] = (),
        by: Sequence[str] = MANAGE,
        env: Environment = NOTHING,
    ) -> Process:
        """Start a scheduler, in an environment that differs by ``env``.

        ``before`` is what stands before the interpreter, ``by`` what it is given
        before the command.
        """
        return self.start(name, *by, "runscheduler", before=before, env=env)

    def worker(
        self,
        name: str,
        *,
        concurrency: int = 50,
        processes: int = 1,
        by: Sequence[str] = MANAGE,
        env: Environment = NOTHING,
    ) -> Process:
        """Start a worker of the default queue, as :meth:`scheduler` does."""
        return self.start(
            name,
            *(*by, "runworker", "--concurrency", str(concurrency)),
            *("--processes", str(processes)),
            env=env,
        )

    def web(
        self,
        name: str = "web",
        *,
        port: int | None = None,
        processes: int = 2,
        env: Environment = NOTHING,
    ) -> Process:
        """Start the web, on a free port unless one is given; wait until it serves."""
        port = port or postgres.free_port()
        self.web_url = f"http://127.0.0.1:{port}"
        process = self.start(
            name,
            *("-m", "gunicorn", "chrono.wsgi", "--bind", f"127.0.0.1:{port}"),
            *("--workers", str(processes)),
            env=env,
        )
        wait_for(lambda: self._serves(process), seconds=30, what="the web")
        return process

    def _serves(self, process: Process) -> bool:
        if not process.alive:
            raise RigError(f"{process.name} ended by itself")
        try:
            with urllib.request.urlopen(f"{self.web_url}/livez", timeout=5) as answer:
                return bool(answer.status == HTTPStatus.OK)
        except OSError:
            return False

    def key(self, *scopes: str) -> str:
        """Return the text of a new API key of the default tenant."""
        made = self.manage("chronokey", "issue", "rig", "--scopes", ",".join(scopes))
        found = re.search(r"chr_live_\w+", made)
        if found is None:
            raise RigError("chronokey printed no key")
        return found[0]

    def receiver(self) -> Process:
        """Start the receiver and wait until it listens."""
        ledger = self.folder / "requests.jsonl"
        process = self.start(
            "receiver",
            *("-m", "examples.receiver", "--port", "0", "--ledger", str(ledger)),
        )
        heard = wait_for(
            lambda: re.search(r"listening on (http://[0-9.:]+)", process.said()),
            seconds=20,
            what="the receiver",
        )
        self.receiver_url = heard[1]
        return process

    def effects(self, prefix: str = "") -> list[Effect]:
        """Return what the receiver and the tasks noted, earliest first.

        Of the tasks of those jobs alone whose key begins so, where one is given.
        """
        noted = [] if prefix else read_requests(self.folder / "requests.jsonl")
        noted += read_tasks(self.folder, prefix)
        return sorted(noted, key=lambda effect: effect.at)

    def stop(self, *processes: Process) -> dict[str, int]:
        """Ask these to end and wait; return their exit codes by name."""
        for process in processes:
            if process.alive:
                process.send(signal.SIGTERM)
        return {process.name: process.wait(30) for process in processes}

    def show_logs(self) -> None:
        """Print the last lines of every process's log."""
        for process in self._processes:
            lines = process.said().splitlines()[-SHOWN_LINES:]
            print(f"--- the last lines of {process.name} (pid {process.pid})")
            for line in lines:
                print(f"    {line[:SHOWN_CHARACTERS]}")

    def start(
        self,
        name: str,
        *args: str,
        before: Sequence[str] = (),
        env: Environment = NOTHING,
    ) -> Process:
        """Start the interpreter with these arguments; its output is its log."""
        log = self.folder / f"{name}.{len(self._processes)}.log"
        with log.open("wb") as said:
            popen = subprocess.Popen(
                [*before, sys.executable, *args],
                cwd=ROOT,
                env={**self._environment(), **env},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
        process = Process(name=name, log=log, popen=popen)
        self._processes.append(process)
        return process

    def _environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("CHRONO_", "DJANGO_", "PG", "DATABASE_"))
        }
        return kept | {
            "DATABASE_URL": self.url,
            "SECRET_KEY": "only-for-rigs",
            "DJANGO_SETTINGS_MODULE": "chrono.settings",
            "CHRONO_ENV_FILES": "",
            "CHRONO_EGRESS_ALLOW": "127.0.0.0/8",
            "CHRONO_WEBHOOK_SECRET": self.secret,
            "CHRONO_TASK_MODULES": "tests.rigs.tasks",
            "CHRONO_RIG_FOLDER": str(self.folder),
            "PYTHONUNBUFFERED": "1",
            "CHRONO_HTTPS": "0",
            "ALLOWED_HOSTS": "127.0.0.1",
        }

    def _destroy(self) -> None:
        """End all processes, the server, and remove both folders; nothing stops it."""
        signal.alarm(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for conn in self._connections:
            conn.close()
        left = [process for process in self._processes if process.alive]
        for process in left:
            # A stopped one hears nothing until it is continued.
            process.send(signal.SIGTERM)
            process.send(signal.SIGCONT)
        deadline = time.monotonic() + POLITE_S
        for process in left:
            with contextlib.suppress(RigError):
                process.wait(max(0.0, deadline - time.monotonic()))
            process.destroy()
        self.server.destroy()
        shutil.rmtree(self.folder, ignore_errors=True)


def _on_signal(number: int, _frame: object) -> None:
    said = "was told to stop" if number == signal.SIGTERM else "took too long"
    raise RigError(f"the rig {said}")


def wait_for[T](
    look: Callable[[], T | None], *, seconds: float, what: str, every: float = 0.02
) -> T:
    """Return the first true answer of ``look``; raise RigError when none comes."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = look()
        if answer:
            return answer
        time.sleep(every)
    raise RigError(f"waited {seconds:g} s in vain for {what}")


def sleep_until(moment: float) -> None:
    """Wait until the machine's clock shows ``moment``, in seconds."""
    time.sleep(max(0.0, moment - time.time()))
