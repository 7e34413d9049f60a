"""The sweeper: finds dead workers and offers again what they held.

On a thread of its own beside the tables' keeper: a run whose worker was killed must not
wait until some partition is dropped.
"""

import logging
from collections.abc import Callable
from typing import override

from apps.runs.sweep import Sweep
from apps.runtime.clock import Clock
from apps.runtime.sessions import Connection
from apps.scheduler.keeper import Keeper
from apps.timers.store import read_dispatch_state
from chrono.rules.lease import SWEEP_EVERY

log = logging.getLogger("chrono.upkeep")


class Sweeper(Keeper):
    """Sweeps every second while ``leads()`` says that this process is the keeper."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        clock: Clock,
        *,
        leads: Callable[[], bool],
        lost: bool = False,
    ) -> None:
        """``lost`` says that sessions of this process were cut off just now."""
        super().__init__("sweep", connect, leads=leads, every_s=SWEEP_EVERY / 1000)
        self._clock = clock
        self._sweep = Sweep(horizon=lambda: read_dispatch_state(self.session()).horizon)
        if lost:
            self.cut_off()

    @override
    def step(self) -> None:
        """Look at the workers once."""
        if not self.keeps:
            # Nobody watched the beats grow old: the database may have been away.
            self._sweep.be_patient(self._clock.now())
        rescued = self._sweep.step(self.session(), clock=self._clock)
        if rescued:
            log.warning("%s runs of dead workers are offered again", rescued)

    @override
    def cut_off(self) -> None:
        """Expect that workers lost their sessions too."""
        self._sweep.distrust_sessions(self._clock.now())
