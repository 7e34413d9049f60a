"""Runs `manage.py` with clocks that a file moves, as the clocks of a broken machine.

    python -m tests.support.skewed FILE runscheduler

The file is JSON: seconds by which the `wall` and the `monotonic` clock are ahead, and
by how many seconds a second both gain (`pace`). It is read anew all the time.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from manage import main

LOOK_EVERY_S = 0.01
STEADY = {"wall": 0.0, "monotonic": 0.0, "pace": 0.0}

Clock = Callable[[], float]


class Skew:
    """Clocks of this process, in place of those of the machine."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._shifts = dict(STEADY)
        self._wall: Clock = time.time
        self._monotonic: Clock = time.monotonic
        self._since = time.monotonic()
        self._gained_before = 0.0

    def install(self) -> None:
        """Have every later call of the two clocks show what the file says."""
        self._look()
        time.time = lambda: self._wall() + self._shifts["wall"] + self._gained()
        time.monotonic = lambda: (
            self._monotonic() + self._shifts["monotonic"] + self._gained()
        )
        threading.Thread(target=self._look_forever, daemon=True).start()

    def _gained(self) -> float:
        lately = (self._monotonic() - self._since) * self._shifts["pace"]
        return self._gained_before + lately

    def _look_forever(self) -> None:
        while True:
            time.sleep(LOOK_EVERY_S)
            self._look()

    def _look(self) -> None:
        shifts = STEADY | json.loads(self._file.read_text())
        if shifts["pace"] != self._shifts["pace"]:
            self._gained_before = self._gained()
            self._since = self._monotonic()
        self._shifts = shifts


def write(file: Path, **shifts: float) -> None:
    """Move the clocks of the processes that look at this file."""
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(shifts))
    fresh.replace(file)


if __name__ == "__main__":
    Skew(Path(sys.argv.pop(1))).install()
    main()
