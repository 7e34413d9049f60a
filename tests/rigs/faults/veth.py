"""A real link between a scheduler and the server, which can be taken down.

A relay answers for the kernel of whoever is cut off; here nobody does. It needs root.
"""

import os
import shutil
import subprocess
from types import TracebackType
from typing import Self

import psycopg

from dev import postgres
from tests.rigs.stack import Environment, Stack

BASE = f"10.231.{os.getpid() % 256}"  # Two rigs may run beside each other.
HERE, THERE, NET = f"{BASE}.1", f"{BASE}.2", f"{BASE}.0/30"


def lacks() -> str:
    """Return why there can be no such link here."""
    if os.geteuid() != 0:
        return "it needs root"
    if not shutil.which("ip"):
        return "there is no ip"
    return ""


def settings() -> dict[str, postgres.Setting]:
    """Return what a server needs so that it can be reached over such a link."""
    return {} if lacks() else {"listen_addresses": "*"}


class Link:
    """A link to a network of its own; a context manager."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._space = f"chrono-rig-{os.getpid()}"
        self._near, self._far = f"rig{os.getpid()}a", f"rig{os.getpid()}b"
        url = psycopg.conninfo.conninfo_to_dict(stack.url)
        self.inside = ("ip", "netns", "exec", self._space)
        """What is to stand before a command that runs at the far end."""
        self.env: Environment = {
            "DATABASE_URL": f"postgres://{url['user']}@{HERE}:{url['port']}"
            f"/{url['dbname']}"
        }

    def __enter__(self) -> Self:
        self._admit()
        near, far, space = self._near, self._far, self._space
        for command in (
            f"netns add {space}",
            f"link add {near} type veth peer name {far} netns {space}",
            f"address add {HERE}/30 dev {near}",
            f"link set {near} up",
            f"-n {space} address add {THERE}/30 dev {far}",
            f"-n {space} link set {far} up",
            f"-n {space} link set lo up",
        ):
            _ip(command)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        subprocess.run(["ip", "netns", "delete", self._space])

    def cut(self) -> None:
        """Take the link down: nothing passes, and nobody is told."""
        _ip(f"link set {self._near} down")

    def _admit(self) -> None:
        rules = self._stack.server.data / "pg_hba.conf"
        line = f"host all all {NET} trust\n"
        text = rules.read_text()
        if line not in text:
            rules.write_text(text + line)
        with psycopg.connect(self._stack.url, autocommit=True) as conn:
            conn.execute("SELECT pg_reload_conf()")


def _ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True)
