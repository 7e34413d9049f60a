"""`make run`: the whole stack on this machine, stopped by Ctrl-C.

Writes `.env` once, starts PostgreSQL in `.local/postgres` (or takes `DATABASE_URL` as
it is), migrates, loads the demo, and runs the processes of `examples/Procfile`.
"""

import base64
import contextlib
import fcntl
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import environ
import honcho.manager
import psycopg
from honcho.environ import parse_procfile

from dev import postgres

ROOT = Path(__file__).resolve().parent.parent
LOCAL = ROOT / ".local"
RECEIVER_PORT = 8799
WEB_PORT = 8000
# A worker takes 25 s to finish or hand back what it runs.
STOP_SECONDS = 30
OLDEST, NEWEST = 15, 18


class CannotRun(Exception):
    """The stack cannot be started; the text is one line."""


def write_env_file(path: Path) -> None:
    """Write `.env` with secrets of its own, unless there is one."""
    if path.exists():
        return
    webhook = base64.b64encode(secrets.token_bytes(32)).decode()
    lines = [
        "# Written once by `make run`; yours to change, never to commit.",
        f"SECRET_KEY={secrets.token_urlsafe(48)}",
        f"CHRONO_WEBHOOK_SECRET=whsec_{webhook}",
        "# Private networks that webhooks may reach: here this machine alone.",
        "CHRONO_EGRESS_ALLOW=127.0.0.0/8",
        "CHRONO_DEMO=1",
    ]
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(opened, "w") as file:
        file.write("\n".join(lines) + "\n")


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Hold the lock of this checkout's `make run`."""
    with (LOCAL / "run.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotRun("`make run` already runs in this folder") from None
        yield


@contextlib.contextmanager
def database() -> Iterator[str]:
    """Lend the address of a database: the given one, or one of our own server's."""
    given = os.environ.get("DATABASE_URL", "").strip()
    if given:
        check_server(given, "the server of DATABASE_URL")
        yield given
        return
    server = postgres.Server(LOCAL / "postgres")
    try:
        server.start()
        with psycopg.connect(server.url(), autocommit=True) as conn:
            there = "SELECT FROM pg_database WHERE datname = 'chrono'"
            if conn.execute(there).fetchone() is None:
                conn.execute("CREATE DATABASE chrono")
        found = LOCAL / "run.env"
        found.write_text(f"DATABASE_URL={server.url('chrono')}\n")
        yield server.url("chrono")
        found.unlink(missing_ok=True)
    finally:
        server.stop()


def check_server(url: str, name: str) -> None:
    """Raise CannotRun unless a server of a supported version answers."""
    if not url.startswith(("postgres://", "postgresql://")):
        # psycopg would quote the whole text, with the password in it.
        raise CannotRun(
            f"{name}: not a PostgreSQL address, "
            "write postgres://user:password@host:5432/database"
        )
    try:
        with psycopg.connect(url, connect_timeout=5) as conn:
            version = conn.info.server_version // 10000
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        raise CannotRun(f"{name} does not answer: {reason}") from None
    if not OLDEST <= version <= NEWEST:
        raise CannotRun(
            f"{name} is PostgreSQL {version}: Chrono needs {OLDEST} to {NEWEST}"
        )


def manage(*args: str) -> None:
    """Run a command of manage.py; its own words tell why it failed."""
    done = subprocess.run([sys.executable, "manage.py", *args], cwd=ROOT)
    if done.returncode != 0:
        raise CannotRun(f"manage.py {args[0]} failed")


def demo_for(port: int) -> Path:
    """Return the demo's file, rewritten where the receiver has another port."""
    original = ROOT / "examples" / "demo.yaml"
    if port == RECEIVER_PORT:
        return original
    moved = LOCAL / "demo.yaml"
    moved.write_text(
        original.read_text().replace(f"127.0.0.1:{RECEIVER_PORT}", f"127.0.0.1:{port}")
    )
    return moved


def port_for(name: str, wanted: int) -> int:
    """Return the wanted port, or a free one where somebody has it."""
    if postgres.is_free(wanted):
        return wanted
    port = postgres.free_port()
    print(f"port {wanted} is taken: the {name} takes {port}")
    return port


def welcome(url: str, demo: Path, web: str) -> str:
    """Return where to look."""
    psql = shutil.which("psql") or os.path.relpath(postgres.binaries() / "psql", ROOT)
    command = f"{os.path.relpath(sys.executable, ROOT)} manage.py"
    preview = shlex.join(["30 1 * * *", "--timezone", "America/New_York"])
    where = os.path.relpath(demo, ROOT)
    return f"""
Chrono runs; Ctrl-C stops everything and keeps the data.

  admin      {web}/admin/
  api        {web}/api/v1/docs
  health     {web}/status
  logs       below, each line with its process: web, scheduler, worker, receiver
  received   tail -f .local/receiver.jsonl
  database   {psql} {url}
  jobs       {where}; after a change: {command} chronoapply {where}
  preview    {command} preview {preview} --count 5
  audit      {command} chronoaudit
"""


def set_up() -> str | None:
    """Make what a new installation lacks and say so; return the key, if one is new."""
    command = [sys.executable, "manage.py", "chronosetup"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise CannotRun("manage.py chronosetup failed")
    print(done.stdout, end="")
    found = re.search(r"chr_live_\w+", done.stdout)
    return None if found is None else found[0]


def exports_for(web: str, receiver: str, key: str | None) -> str:
    """Return the line for a shell that the README's first ten minutes begin with.

    Without a new key it makes one: none can be shown a second time.
    """
    python = os.path.relpath(sys.executable, ROOT)
    issue = f"{python} manage.py chronokey issue first-look --scopes operate,write"
    shown = key or f'"$({issue} 2>/dev/null)"'
    return f"export CHRONO_URL={web} RECEIVER_URL={receiver} CHRONO_KEY={shown}"


def run_processes() -> int:
    """Run the Procfile until one process ends or a signal comes; return the code."""
    # Its own five seconds would kill a worker in the middle of its drain.
    honcho.manager.KILL_WAIT = STOP_SECONDS
    manager = honcho.manager.Manager()
    procfile = parse_procfile((ROOT / "examples" / "Procfile").read_text())
    for name, command in procfile.processes.items():
        manager.add_process(name, command, env=dict(os.environ), cwd=str(ROOT))
    signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    manager.loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # What is left to stop is stopped.
    if manager.returncode in {130, 143}:
        return 0
    print("error: a process ended by itself, see its last lines above", file=sys.stderr)
    return 1


def run() -> int:
    """Run the stack; return the exit code."""
    LOCAL.mkdir(exist_ok=True)
    write_env_file(ROOT / ".env")
    environ.Env.read_env(ROOT / ".env")
    with only_one(), database() as url:
        port = port_for("receiver", RECEIVER_PORT)
        web_port = port_for("web", WEB_PORT)
        os.environ.update(
            DATABASE_URL=url,
            CHRONO_RECEIVER_PORT=str(port),
            CHRONO_WEB_PORT=str(web_port),
            # The web listens on this machine alone, where there is no TLS.
            CHRONO_HTTPS="0",
            ALLOWED_HOSTS="localhost,127.0.0.1",
            WEB_CONCURRENCY="1",
            PYTHONUNBUFFERED="1",
            PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        )
        manage("migrate", "--verbosity", "0")
        manage("collectstatic", "--noinput", "--verbosity", "0")
        demo = demo_for(port)
        print("the demo's jobs: ", end="", flush=True)
        manage("chronoapply", str(demo))
        web = f"http://127.0.0.1:{web_port}"
        print(welcome(url, demo, web), flush=True)
        exports = exports_for(web, f"http://127.0.0.1:{port}", set_up())
        print(f"\nFor the README's first ten minutes:\n\n  {exports}\n", flush=True)
        return run_processes()


def main() -> int:
    """Run the stack; every expected trouble is one line."""
    try:
        return run()
    except (CannotRun, postgres.PostgresError) as error:
        print(f"error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"error: {error.filename or ''}: {error.strerror}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main())
