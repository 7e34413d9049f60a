"""PgBouncer in transaction mode in front of the rig's server."""

import os
import shutil
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from dev import postgres
from tests.rigs.stack import Stack, wait_for

PROGRAM = "pgbouncer"


def lacks() -> str:
    """Return why there is no pooler here."""
    return "" if _program() else "pgbouncer is not installed"


def _program() -> str | None:
    # Debian keeps it where only root looks.
    return shutil.which(PROGRAM) or shutil.which(PROGRAM, path="/usr/sbin")


class Pooler:
    """A pooler that runs; a context manager."""

    def __init__(self, stack: Stack) -> None:
        parts = psycopg.conninfo.conninfo_to_dict(stack.url)
        self._account = stack.server.account
        self._folder = stack.server.folder / PROGRAM
        self._port = postgres.free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = (
            f"postgres://{parts['user']}@127.0.0.1:{self._port}/{parts['dbname']}"
            "?sslmode=disable&gssencmode=disable"
        )
        self._folder.mkdir()
        (self._folder / "users").write_text(f'"{parts["user"]}" ""\n')
        (self._folder / "ini").write_text(
            f"""
[databases]
{parts["dbname"]} = host=127.0.0.1 port={parts["port"]}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self._port}
unix_socket_dir =
auth_type = trust
auth_file = {self._folder / "users"}
pool_mode = transaction
default_pool_size = 10
max_client_conn = 200
"""
        )
        self._own(self._folder, *self._folder.iterdir())

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def restart(self) -> None:
        """Break every connection off, and serve again."""
        self._stop()
        self._start()

    def _start(self) -> None:
        account = self._account
        self._process = subprocess.Popen(
            [str(_program()), "-q", str(self._folder / "ini")],
            cwd="/",
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for(self._serves, seconds=10, what="the pooler")

    def _serves(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(3)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _own(self, *paths: Path) -> None:
        if self._account:
            for path in paths:
                os.chown(path, self._account.uid, self._account.gid)
