"""Disks of the server on which no room is left: its tables', and its write-ahead log's.

A small file system is mounted over the folder in question. It needs root.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path

import psycopg

from tests.rigs.client import Client
from tests.rigs.faults.fault import Fault
from tests.rigs.faults.field import Field
from tests.rigs.faults.servers import HUNG_EXIT, WORST_S, Clients, asking
from tests.rigs.stack import wait_for
from tests.rigs.web_kill import definition

ROOM, GROWN = 64 << 20, 512 << 20
"""Bytes beyond what lies in a folder: what its disk has, and what it grows by."""
FULL_S = 12.0
BEFORE_S = 3.0
FELT_S, READY_S = 30.0, 60.0
NO_ROOM, PANIC = "No space left on device", "PANIC:"
PADDING = "SELECT pg_logical_emit_message(false, 'rig', repeat('x', 200000))"
PADDED_S = 0.02
"""A pause: nobody is to wait for the log before it is full."""
BALLAST, PIECE = "ballast", bytes(1 << 20)


def lacks() -> str:
    """Return why there can be no small disk here."""
    if not sys.platform.startswith("linux"):
        return "it needs Linux"
    if os.geteuid() != 0:
        return "it needs root"
    return ""


class Disk:
    """A file system of its own for one folder of the server's; it can be filled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._aside = folder.with_name(f"{folder.name}.aside")
        self._size = ROOM + sum(
            file.stat().st_size for file in folder.rglob("*") if file.is_file()
        )

    def mount(self) -> None:
        """Have the folder on it, with all that it holds; the server must be down."""
        owner = self.folder.stat()
        self.folder.rename(self._aside)
        self.folder.mkdir()
        options = f"size={self._size},mode=0700,uid={owner.st_uid},gid={owner.st_gid}"
        _run("mount", "-t", "tmpfs", "-o", options, "chrono-rig", str(self.folder))
        self._copy(self._aside, self.folder)
        shutil.rmtree(self._aside)

    def unmount(self) -> None:
        """Have the folder where it was before; the server must be down."""
        (self.folder / BALLAST).unlink(missing_ok=True)
        self._copy(self.folder, self._aside)
        _run("umount", str(self.folder))
        self.folder.rmdir()
        self._aside.rename(self.folder)

    def fill(self) -> None:
        """Leave no room on it."""
        with (
            suppress(OSError),
            (self.folder / BALLAST).open("wb", buffering=0) as ballast,
        ):
            while True:
                ballast.write(PIECE)

    def grow(self) -> float:
        """Make room; return when."""
        options = f"remount,size={self._size + GROWN}"
        _run("mount", "-o", options, str(self.folder))
        return time.time()

    def _copy(self, source: Path, target: Path) -> None:
        _run("cp", "--archive", "--no-target-directory", str(source), str(target))


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


@contextmanager
def small(field: Field, folder: Path) -> Iterator[Disk]:
    """Lend a small disk for a folder of the server's; everybody is at work on it."""
    server = field.stack.server
    disk = Disk(folder)
    server.stop()
    disk.mount()
    try:
        begin_again(field)
        yield disk
    finally:
        server.stop(mode="immediate")
        disk.unmount()
    begin_again(field)


def begin_again(field: Field) -> float:
    """Start the server where it is down; return how long after it was ready all fired.

    It may be about to end: it is started once it has.
    """
    server = field.stack.server

    def ready() -> bool:
        server.start()
        with suppress(psycopg.OperationalError), psycopg.connect(field.stack.url):
            return True
        return False

    wait_for(ready, seconds=READY_S, what="the server", every=0.1)
    at = time.time()
    field.reconnect()
    return field.wait_fired(at)


def wait_said(field: Field, words: str, before: int, *, seconds: float) -> None:
    """Wait until the server's log says so, behind what it had said before."""
    log = field.stack.server.log
    wait_for(
        lambda: words in log.read_text(errors="replace")[before:],
        seconds=seconds,
        what=f"the server to say {words!r}",
        every=0.1,
    )


def judge(field: Field, took: float, clients: Clients) -> str:
    """Note what broke a bar; return what it was, in words."""
    field.findings.require(took < WORST_S, f"fired everywhere after {took:.1f} s")
    answered = sum(client.answered for client in clients.askers)
    again = sum(client.asked_again for client in clients.askers)
    field.findings.require(again > 0, "no client met the full disk")
    return (
        f"fired everywhere again within {took:.2f} s; {answered} requests "
        f"acknowledged, {clients.lost} lost, {again} told to come again"
    )


def fill_tables(field: Field) -> str:
    """F24: no room is left for the tables; then there is again."""
    server = field.stack.server
    with small(field, tables_of(field)) as disk:
        with asking(field) as clients:
            time.sleep(BEFORE_S)
            field.wait_a_moment()
            with Client(field.stack.web_url, clients.key) as client:
                key = f"ack-{field.prefix}paused"
                body = definition(key, number=0)
                path = f"/jobs/{client.done('POST', '/jobs', body).body['id']}"
                before = server.log.stat().st_size
                disk.fill()
                wait_said(field, NO_ROOM, before, seconds=FELT_S)
                time.sleep(FULL_S)
                read = client.ask("GET", path).status
                paused = client.ask("POST", f"{path}/pause", {}).status
                took = field.wait_fired(disk.grow())
                client.done("POST", f"{path}/pause", {})
            time.sleep(BEFORE_S)
        field.findings.require(read == HTTPStatus.OK, f"a read was answered {read}")
        field.findings.require(
            paused in {HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE},
            f"a pause was answered {paused}",
        )
        said = judge(field, took, clients)
    return f"{said}; meanwhile a read was answered {read}, a pause {paused}"


def tables_of(field: Field) -> Path:
    """Return the folder in which the server keeps the tables."""
    [(number,)] = field.conn.execute(
        "SELECT oid FROM pg_database WHERE datname = current_database()"
    ).fetchall()
    return field.stack.server.data / "base" / str(number)


def fill_log(field: Field) -> str:
    """F25: no room is left for the write-ahead log; the server ends; then there is."""
    server = field.stack.server
    with small(field, server.data / "pg_wal") as disk:
        # A server that comes to a stop may end a leader's patience before itself.
        with asking(field) as clients, field.supervised():
            time.sleep(BEFORE_S)
            field.wait_a_moment()
            before = server.log.stat().st_size
            disk.fill()
            with suppress(psycopg.OperationalError):
                while True:
                    field.conn.execute(PADDING)
                    time.sleep(PADDED_S)
            wait_said(field, PANIC, before, seconds=FELT_S)
            time.sleep(FULL_S)
            down = server.pid is None
            disk.grow()
            took = begin_again(field)
            time.sleep(BEFORE_S)
        said = judge(field, took, clients)
    codes = [end.code for end in field.ends]
    field.findings.require(set(codes) <= {HUNG_EXIT}, f"schedulers ended with {codes}")
    return (
        f"the server {'stayed down' if down else 'came back by itself'}, {len(codes)} "
        f"schedulers by their watchdog; {said}"
    )


FAULTS = [
    Fault(
        name="F24",
        title="no room is left for the tables",
        bar=f"{WORST_S:g} s, none lost, no process ended, reads go on",
        strike=fill_tables,
        lacks=lacks,
    ),
    Fault(
        name="F25",
        title="no room is left for the write-ahead log",
        bar=f"{WORST_S:g} s, none lost, no worker ended",
        strike=fill_log,
        lacks=lacks,
    ),
]
