"""Where faults strike: a squad, a load for each fault, and the check after it."""

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tests.rigs import tables, takeovers
from tests.rigs.check import (
    Findings,
    check_decisions,
    check_fences,
    check_order,
    check_runs,
    percentile,
)
from tests.rigs.ledger import Effect
from tests.rigs.oracle import History, expected, iso
from tests.rigs.squad import Squad
from tests.rigs.stack import Process, RigError, Stack, wait_for

SCHEDULERS, WORKERS = "abc", "ab"
SECONDS, MINUTES, ONCE = 100, 30, 20
SECOND, MINUTE = "second-", "minute-"
# Half of the jobs come at the full second, the others between these parts of it.
SPREAD_S = (0.1, 0.9)
ONCE_AFTER_S, ONCE_WITHIN_S = 5.0, 10.0
REVIVED_AFTER_S = 1.0
CLOCKS_S = 1.0
GATED_S = 60.0
LEASE_ENDS_S = 40.0
"""Within this what a worker left behind is begun again, and over."""
AUDITED = re.compile(r"\bI\d+ +([a-z]+) +\d+ findings")

type Load = dict[str, dict[str, Any]]
"""Definitions of jobs by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """A process that ended by itself, or was ended."""

    name: str
    code: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the check of one fault went by."""

    occurrences: int
    runs: int
    skipped: Mapping[int | None, int]
    """Occurrences by the reason why they did not fire."""
    again: int
    """Attempts that ended with their worker."""
    late_ms: Sequence[float]
    """How long after its instant each occurrence was decided, sorted."""
    lag_ms: Sequence[float]
    """How long after its instant each run's only attempt began, sorted."""


class Field(Squad):
    """A squad under the load of one fault after the other."""

    def __init__(self, stack: Stack, chance: random.Random) -> None:
        super().__init__(stack)
        self.chance = chance
        self.findings = Findings()
        self.ends: list[End] = []
        self.history = History()
        self.jobs: Load = {}
        self.prefix = ""
        self.begun = 0.0
        self.skips = {tables.PAUSED}
        """Reasons for which an occurrence may be skipped in the end."""
        self.unaudited: set[str] = set()
        """Checks of the audit that may find something: they cannot know better."""
        self.shifts: list[tuple[float, float]] = []
        """From each moment on, how many seconds the server's clock is ahead."""

    def start(self) -> None:
        """Start schedulers and workers, and wait until they share the partitions."""
        takeovers.log_takeovers(self.conn)
        self.schedulers = [self.stack.scheduler(f"scheduler-{n}") for n in SCHEDULERS]
        self.workers = [self.stack.worker(f"worker-{n}") for n in WORKERS]
        self.wait_even()
        self.wait_workers()

    # The load

    def begin(self, prefix: str, load: Load) -> None:
        """Put this load in place of the last, and wait until it fires everywhere."""
        self.findings = Findings()
        self.prefix = prefix
        self.begun = self.since = time.time()
        self.history, self.ends, self.skips = History(), [], {tables.PAUSED}
        self.unaudited = set()
        over, self.jobs = self.jobs, {}
        self.add(load, over)
        self.wait_first_fires(prefix + SECOND)

    def add(self, load: Load, over: Iterable[str] = ()) -> None:
        """Make more jobs, and delete those that are over."""
        deleted = [{"key": key, "deleted": True} for key in over]
        self.stack.apply([*deleted, *load.values()])
        self.jobs |= load
        rows = tables.read_jobs(self.conn)
        for key, job in load.items():
            self.history.begin(job, rows[key])

    # What befalls processes

    def pick(self) -> Process:
        """Return a process that leads partitions with jobs, by chance."""

        def leaders() -> list[Process]:
            leading = {led.pid for led in self.led_all()}
            return [p for p in self.schedulers if p.alive and p.pid in leading]

        return self.chance.choice(wait_for(leaders, seconds=20, what="a leader"))

    def wait_a_moment(self) -> None:
        """Let a part of a second pass, so that faults strike anywhere in it."""
        time.sleep(self.chance.random())

    @contextmanager
    def supervised(self) -> Iterator[None]:
        """Start another scheduler in place of each that ends, as a supervisor does."""
        over = threading.Event()

        def supervise() -> None:
            gone: dict[str, float] = {}
            while not over.wait(0.05):
                for process in [p for p in self.schedulers if not p.alive]:
                    if process.name not in gone:
                        self.note_end(process)
                        gone[process.name] = time.monotonic()
                    elif time.monotonic() > gone[process.name] + REVIVED_AFTER_S:
                        self._revive(process)

        thread = threading.Thread(target=supervise)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        for process in [p for p in self.schedulers if not p.alive]:
            self._revive(process)

    def _revive(self, process: Process) -> None:
        self.schedulers.remove(process)
        self.schedulers.append(self.stack.scheduler(process.name + "'"))

    def note_end(self, process: Process) -> None:
        """Remember that a process ended, and how."""
        self.ends.append(End(name=process.name, code=process.wait(5), at=time.time()))

    # The check

    def check(self) -> Seen:
        """End the load, let the last runs end, and note whatever is wrong."""
        for process in [*self.schedulers, *self.workers]:
            self.findings.require(process.alive, f"{process.name} has ended")
        # What was missed waits behind the live runs, and a pause would hold it back.
        wait_for(
            lambda: not tables.count_gated(self.conn),
            seconds=GATED_S,
            what="what was missed to be let in",
            every=0.2,
        )
        self._pause()
        self.stack.drain(seconds=LEASE_ENDS_S)
        findings, conn, prefix = self.findings, self.conn, self.prefix
        decisions = tables.read_decisions(conn, prefix)
        runs = tables.read_runs(conn, prefix)
        lost = tables.read_lost(conn)
        due = {key: expected(eras) for key, eras in self.history.eras.items()}
        check_decisions(findings, decisions, due)
        check_runs(findings, decisions, runs, self._effects(), {}, lost)
        check_order(findings, decisions)
        # A clock that jumps takes the instants of commits along.
        since = 0.0 if self.shifts else self.begun - CLOCKS_S
        check_fences(findings, takeovers.read_taken(conn, since))
        for line in takeovers.read_stale(conn, since):
            findings.require(False, f"stale: {line}")
        skipped: Counter[int | None] = Counter()
        for decision in decisions:
            if not decision.fired:
                skipped[decision.reason] += decision.occurrences
        occurrences = sum(map(len, due.values()))
        findings.require(
            len(runs) == occurrences - skipped.total(),
            f"{len(runs)} runs of {occurrences} occurrences, skipped {skipped}",
        )
        findings.require(
            skipped.keys() <= self.skips, f"skipped for the wrong reasons: {skipped}"
        )
        self._audit()
        keys = {str(run.id) for run in runs}
        return Seen(
            occurrences=occurrences,
            runs=len(runs),
            skipped=skipped,
            again=sum(key in keys for key, _ in lost),
            late_ms=sorted(d.decided_at * 1000 - d.scheduled_for for d in decisions),
            lag_ms=sorted(
                run.started_at * 1000 - run.scheduled_for
                for run in runs
                if run.attempt == 1
            ),
        )

    def _pause(self) -> None:
        lasting = [job for job in self.jobs.values() if "run_at" not in job]
        self.stack.apply({**job, "paused": True} for job in lasting)
        rows = tables.read_jobs(self.conn)
        for job in lasting:
            self.history.end(rows[job["key"]])
        [(now,)] = self.conn.execute(
            "SELECT extract(epoch FROM clock_timestamp())"
        ).fetchall()
        self.history.end_all(int(now * 1000))

    def _effects(self) -> list[Effect]:
        """Return the ledgers with their instants as the server's clock had them."""
        return [
            replace(effect, at=effect.at + int(self._shift_at(effect.at / 1000) * 1000))
            for effect in self.stack.effects(self.prefix)
        ]

    def _shift_at(self, moment: float) -> float:
        shift = 0.0
        for since, ahead in self.shifts:
            if since <= moment:
                shift = ahead
        return shift

    def _audit(self) -> None:
        minutes = int(time.time() - self.begun) // 60 + 2
        minutes += int(max((abs(ahead) for _, ahead in self.shifts), default=0)) // 60
        try:
            self.stack.manage("chronoaudit", "--since", f"{minutes}m", "--pause", "0s")
        except RigError as error:
            found = set(AUDITED.findall(str(error)))
            if not found or found - self.unaudited:
                self.findings.require(False, str(error))


def everyday(prefix: str) -> Load:
    """Return jobs of every second, of every minute, and for once."""
    return every_second(prefix, SECONDS) | every_minute(prefix) | once(prefix)


def every_second(prefix: str, count: int) -> Load:
    """Return so many jobs of every second."""
    now, (first, last) = int(time.time()), SPREAD_S
    spread = [first + number * (last - first) / count for number in range(count)]
    return as_load(
        {
            "key": f"{prefix}{SECOND}{number:03}",
            "interval": "1s",
            "starts_at": iso(now if number % 2 else now + offset),
        }
        for number, offset in enumerate(spread)
    )


def every_minute(prefix: str) -> Load:
    """Return jobs of every minute."""
    return as_load(
        {
            "key": f"{prefix}{MINUTE}{number:03}",
            "cron": "* * * * *",
            "jitter_window": "0s",
        }
        for number in range(MINUTES)
    )


def once(prefix: str) -> Load:
    """Return one-shots that come soon, one after the other."""
    first = time.time() + ONCE_AFTER_S
    return as_load(
        {
            "key": f"{prefix}once-{number:03}",
            "run_at": iso(first + number * ONCE_WITHIN_S / ONCE),
        }
        for number in range(ONCE)
    )


def as_load(jobs: Iterable[Mapping[str, Any]]) -> Load:
    """Return these jobs by key, each with a task that notes it, and every run wanted.

    A one-shot has no overlap to speak of.
    """
    load = {}
    for job in jobs:
        key = job["key"]
        policy = {} if "run_at" in job else {"overlap_policy": "allow_all"}
        load[key] = {
            **job,
            **policy,
            "target": {"kind": "task", "name": "rig.note"},
            "payload": {"job": key},
        }
    return load


def worst(seen: Seen) -> str:
    """Return how late occurrences were decided, in words."""
    p99, most = percentile(seen.late_ms, 0.99), percentile(seen.late_ms, 1.0)
    return f"late p99 {p99:.0f} ms, most {most:.0f} ms"
