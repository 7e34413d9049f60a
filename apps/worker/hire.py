"""A process for what was set aside: runs at whose execution processes died.

It is a worker of its own with one seat. What dies in it dies alone, so it is known who
was guilty, and nobody else is harmed.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Sequence

log = logging.getLogger("chrono.worker")


class Hire:
    """At most one such process of this one; it ends when nothing is left to do."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = queues
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process unless it is at work."""
        if self._process is not None and self._process.poll() is None:
            return
        self.stop()
        # Its standard input is its lifeline: it ends when nobody holds the other end.
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "django", "runworker", "--alone"),
                *("--queues", ",".join(self._queues)),
            ],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        facts = {"pid": self._process.pid}
        log.warning("runs that were set aside are executed", extra={"facts": facts})

    def stop(self) -> None:
        """Let go of the process: it hands back what it holds, and ends."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
