"""Schedulers and workers at work on a stack: who leads what, and what a fault costs."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil
import psycopg

from tests.rigs import tables, takeovers
from tests.rigs.stack import (
    MANAGE,
    NOTHING,
    PARTITIONS,
    Environment,
    Process,
    RigError,
    Stack,
    sleep_until,
    wait_for,
)
from tests.rigs.tables import Session
from tests.rigs.takeovers import Led
from tests.support.pg import Connection

REFUSED = re.compile(r"(\d+) partitions refused to be fired")
FIRE, LEADER = "chrono fire", "chrono leader"
QUIET_S = 0.93
"""From this part of a second on nothing is due until the next begins."""
EVEN_S = 30.0
BLOCKED_S = 1.5
RECOVERED_S = 40.0


@dataclass(slots=True, kw_only=True)
class Case:
    """One leader's fault and what came of it."""

    name: str
    process: Process
    old: list[Led]
    """What the leader led, as far as there are jobs in it, with its fences."""
    at: float = 0.0
    said_before: int = 0
    """How long the leader's log was before the fault."""
    sends: bool = False
    """Whether a stale statement is certain to be sent."""
    first: float = 0.0
    """From the fault to the first fire of a successor."""
    seconds: float = 0.0
    """From the fault to the first fire in the last of the partitions."""
    refused: int = 0
    """How many partitions refused the leader's batches up to the end of the case."""
    note: str = ""

    def count_refused(self) -> None:
        """Count what was refused since the fault, by the leader's log."""
        said = self.process.said()[self.said_before :]
        self.refused = sum(int(count) for count in REFUSED.findall(said))


class Squad:
    """Schedulers and workers of one stack."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self._conn = stack.connect()
        self.schedulers: list[Process] = []
        self.workers: list[Process] = []
        self.with_jobs: set[int] = set()
        self.since = 0.0
        """What was due before does not count, in seconds."""

    @property
    def conn(self) -> Connection:
        """A session to look with; another where the last was broken off."""
        if self._conn.closed:
            self._conn = self.stack.connect()
        return self._conn

    def reconnect(self) -> None:
        """Have another session to look with: the server has forgotten this one."""
        self._conn.close()

    def wait_even(self, *, seconds: float = EVEN_S) -> None:
        """Wait until every live scheduler has its even share of the partitions."""
        live = {str(process.pid) for process in self.schedulers}
        most = -(-PARTITIONS // len(live))

        def even() -> bool:
            shares = tables.read_shares(self.conn)
            pids = {owner.split(":")[-2] for owner in shares}
            return (
                pids == live
                and sum(shares.values()) == PARTITIONS
                and max(shares.values()) <= most
            )

        wait_for(even, seconds=seconds, what="an even share of the partitions")

    def wait_workers(self) -> None:
        """Wait until every worker is there."""
        wait_for(
            lambda: tables.count_workers(self.conn) == len(self.workers),
            seconds=20,
            what="the workers",
        )

    def wait_first_fires(self, prefix: str = "") -> None:
        """Wait until a job has fired in each partition with jobs whose key begins so.

        From now on those are the partitions that count.
        """
        self.with_jobs = takeovers.read_parts_with_jobs(self.conn, prefix)
        wait_for(
            lambda: len(self.first_fires(self.led_all(0))) == len(self.with_jobs),
            seconds=20,
            what="the first fires",
            every=0.1,
        )

    def case(self, name: str, process: Process) -> Case:
        """Return a case about this leader, which is told to nobody yet."""
        return Case(
            name=name,
            process=process,
            old=[led for led in self.led_all() if led.pid == process.pid],
            said_before=len(process.said()),
        )

    def led_all(self, fence: int | None = None) -> list[Led]:
        """Return the partitions with jobs as they are led now, or as with a fence."""
        return [
            led if fence is None else Led(part=led.part, fence=fence, owner=led.owner)
            for led in takeovers.read_led(self.conn)
            if led.part in self.with_jobs
        ]

    def leader_of(self, part: int) -> Process:
        """Return the process that leads a partition."""
        [led] = [led for led in takeovers.read_led(self.conn) if led.part == part]
        return next(p for p in self.schedulers if p.pid == led.pid)

    def first_fires(self, old: Sequence[Led]) -> dict[int, float]:
        """Return when a later leader first fired in each of these partitions."""
        return takeovers.read_first_fires(self.conn, old, self.since)

    def recover(self, case: Case, *, seconds: float = RECOVERED_S) -> None:
        """Wait until each partition of the case is fired by a successor; note when."""
        wait_for(
            lambda: len(self.first_fires(case.old)) == len(case.old),
            seconds=seconds,
            what=f"successors of the leader after {case.name}",
            every=0.1,
        )
        fires = self.first_fires(case.old)
        case.first = min(fires.values()) - case.at
        case.seconds = max(fires.values()) - case.at
        case.note = (
            f"{len(case.old)} partitions with jobs fired again after "
            f"{case.first:.2f} to {case.seconds:.2f} s"
        )

    def wait_fired(self, moment: float) -> float:
        """Wait until each partition with jobs has fired since then; return when the
        last of them did, in seconds after it."""

        def fires() -> dict[int, float] | None:
            seen = takeovers.read_fires_since(self.conn, moment, self.since)
            return seen if self.with_jobs <= seen.keys() else None

        fired = wait_for(fires, seconds=RECOVERED_S, what="fires everywhere", every=0.1)
        return max(at for part, at in fired.items() if part in self.with_jobs) - moment

    def replace(self, process: Process) -> None:
        """Start another scheduler in place of one that ended; wait for its share."""
        self.schedulers.remove(process)
        self.schedulers.append(self.stack.scheduler(process.name + "'"))
        self.wait_even()

    def swap_all(self, envs: Sequence[Environment] = ()) -> None:
        """Have others in place of all schedulers and workers, each in its environment.

        Returns once they are at work, the schedulers in front.
        """
        old = [*self.schedulers, *self.workers]
        self.stack.stop(*old)
        own = iter(envs or [NOTHING] * len(old))
        self.schedulers = [
            self.stack.scheduler(process.name + "'", env=next(own))
            for process in self.schedulers
        ]
        self.workers = [
            self.stack.worker(process.name + "'", env=next(own))
            for process in self.workers
        ]
        self.wait_even()
        self.wait_workers()

    def swap_worker(
        self,
        process: Process | None = None,
        *,
        by: Sequence[str] = MANAGE,
        env: Environment = NOTHING,
    ) -> Process:
        """Have another worker in place of this one, or of the first; return it."""
        process = process or self.workers[0]
        self.workers.remove(process)
        self.stack.stop(process)
        self.workers.append(self.stack.worker(process.name + "'", by=by, env=env))
        self.wait_workers()
        return self.workers[-1]

    def swap(
        self,
        process: Process,
        *,
        before: Sequence[str] = (),
        by: Sequence[str] = MANAGE,
        env: Environment = NOTHING,
    ) -> Process:
        """Have another scheduler, in an environment of its own, in place of this one.

        Returns it once it has its share.
        """
        self.schedulers.remove(process)
        self.stack.stop(process)
        self.schedulers.append(
            self.stack.scheduler(process.name + "'", before=before, by=by, env=env)
        )
        self.wait_even()
        return self.schedulers[-1]

    def wait_for_quiet(self) -> None:
        """Wait for the end of a second, when nothing is due until the next begins."""
        now = time.time()
        sleep_until(int(now) + QUIET_S + (now % 1 > QUIET_S))

    @contextmanager
    def holding(self, partitions: Sequence[Led]) -> Iterator[Connection]:
        """Lend a transaction that holds the rows of these partitions."""
        with psycopg.connect(self.stack.url) as holder:
            takeovers.hold(holder, partitions)
            yield holder

    def wait_until_blocked(self, process: Process) -> bool:
        """Wait until a batch of the leader is blocked; return whether one was."""
        with suppress(RigError):
            wait_for(
                lambda: self.is_blocked(process), seconds=BLOCKED_S, what="a batch"
            )
            return True
        return False

    def is_blocked(self, process: Process) -> bool:
        """Return whether the leader's firing session waits for a lock."""
        return any(
            session.name == FIRE and session.waits_by == "Lock"
            for session in self.sessions(process)
        )

    def sessions(self, process: Process) -> list[Session]:
        """Return the sessions of a process that reaches the server directly."""
        ports = [
            connection.laddr.port
            for connection in psutil.Process(process.pid).net_connections("tcp")
        ]
        return tables.read_sessions(self.conn, ports)
