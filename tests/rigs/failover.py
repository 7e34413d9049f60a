"""`make failover`: leaders killed, stopped, told to go and deposed, under load.

Three schedulers share 200 jobs of every second. Each fault is timed from itself to the
first fires that a successor commits; in the end every occurrence has one decision,
every effect is there once, and nothing was written under a fence that was over.
"""

import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psutil
import psycopg

from dev.postgres import PostgresError
from tests.rigs import tables, takeovers
from tests.rigs.check import (
    Findings,
    check_decisions,
    check_order,
    check_runs,
    percentile,
)
from tests.rigs.oracle import History, expected, iso
from tests.rigs.stack import (
    PARTITIONS,
    Process,
    RigError,
    Stack,
    sleep_until,
    wait_for,
)
from tests.rigs.takeovers import Led
from tests.support.pg import Connection

LIMIT_S = 175
SCHEDULERS, WORKERS, JOBS = 3, 2, 200
CALM_S = 3.0
STOPPED_S = 12.0
WORST_S = 10.0
PLANNED_S = 2.0
EXIT_S = 10.0
# Half of the jobs come at the full second, the others between these milliseconds of it.
SPREAD_MS = (100, 900)
QUIET_S = 0.93

REFUSED = re.compile(r"(\d+) partitions refused to be fired")


@dataclass(slots=True, kw_only=True)
class Case:
    """One fault and what came of it."""

    name: str
    process: Process
    old: list[Led]
    """What the leader led, as far as there are jobs in it, with its fences."""
    at: float = 0.0
    said_before: int = 0
    """How long the leader's log was before the fault."""
    sends: bool = False
    """Whether a stale statement is certain to be sent."""
    seconds: float = 0.0
    """From the fault to the first fire in the last of the partitions."""
    refused: int = 0
    """How many partitions refused the leader's batches up to the end of the case."""
    note: str = ""

    def end(self) -> None:
        """Count what was refused, and print a line."""
        said = self.process.said()[self.said_before :]
        self.refused = sum(int(count) for count in REFUSED.findall(said))
        sure = "a stale batch was on the way, " if self.sends else ""
        print(f"{self.name}: {self.note}; {sure}{self.refused} partitions refused")


class Rig:
    """Schedulers and workers that are up, and the faults."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.conn = stack.connect()
        self.schedulers = [stack.scheduler(f"scheduler-{n}") for n in "abc"]
        self.workers = [stack.worker(f"worker-{n}") for n in "ab"]
        self.codes: dict[str, int] = {}
        self.history = History()
        self.with_jobs: set[int] = set()

    # The load

    def prepare(self) -> None:
        """Wait until all are up, then create the jobs."""
        takeovers.log_takeovers(self.conn)
        self.wait_even()
        wait_for(
            lambda: tables.count_workers(self.conn) == WORKERS,
            seconds=20,
            what="the workers",
        )
        self.jobs = definitions(float(int(time.time()) + 3))
        self.stack.apply(self.jobs.values())
        for row in tables.read_jobs(self.conn).values():
            self.history.begin(self.jobs[row.key], row)
        self.with_jobs = takeovers.read_parts_with_jobs(self.conn)
        wait_for(
            lambda: len(self.first_fires(self.led_all(0))) == len(self.with_jobs),
            seconds=20,
            what="the first fires",
        )

    def finish(self) -> None:
        """Pause all jobs and let the last runs end, then stop everything."""
        self.stack.apply({**job, "paused": True} for job in self.jobs.values())
        for row in tables.read_jobs(self.conn).values():
            self.history.end(row)
        self.stack.drain()
        self.codes |= self.stack.stop(*self.workers, *self.schedulers)

    def wait_even(self) -> None:
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

        wait_for(even, seconds=20, what="an even share of the partitions")

    # The faults

    def kill(self) -> Case:
        """SIGKILL the leader of partition 0, which keeps the tables too."""
        case = self.case("kill", self.leader_of(0))
        case.at = case.process.send(signal.SIGKILL)
        self.recover(case)
        case.process.wait(5)
        self.replace(case.process)
        return case

    def stop(self) -> Case:
        """SIGSTOP a leader in the middle of a fire, and let it go on 12 s later.

        Its partitions' rows are held for a moment, so that it has a batch on the way
        when it is stopped; it learns after the pause that the batch timed out, and
        sends it again, for each partition apart, long after its successor began.
        """
        case = self.case("stop", self.leader_of(0))
        self.wait_for_quiet()
        with self.holding(case.old):
            case.sends = self.wait_until_blocked(case.process)
            case.at = case.process.send(signal.SIGSTOP)
            wait_for(
                lambda: not self.is_blocked(case.process),
                seconds=5,
                what="the statement of the stopped leader to time out",
            )
        self.recover(case)
        sleep_until(case.at + STOPPED_S)
        case.process.send(signal.SIGCONT)
        self.wait_even()
        return case

    def term(self) -> Case:
        """SIGTERM a leader: it hands over and ends with 0."""
        case = self.case("term", self.leader_of(0))
        case.at = case.process.send(signal.SIGTERM)
        code = case.process.wait(EXIT_S)
        gone = time.time() - case.at
        self.codes[case.process.name] = code
        self.recover(case)
        case.note += f", exit code {code} after {gone:.2f} s"
        if case.seconds > PLANNED_S:
            case.note += f", promised are {PLANNED_S:g} s"
        self.replace(case.process)
        return case

    def fence(self) -> Case:
        """Raise fence and term under a healthy leader, locks untouched.

        The rows are committed when a batch of the leader waits for them.
        """
        case = self.case("fence", self.leader_of(0))
        with self.holding(case.old) as holder:
            case.old = takeovers.raise_fences(holder, case.old)
            case.sends = self.wait_until_blocked(case.process)
            case.at = time.time()
        self.recover(case)
        self.wait_even()
        return case

    # What they are made of

    def case(self, name: str, process: Process) -> Case:
        """Return a case about this leader, which is told to nobody yet."""
        return Case(
            name=name,
            process=process,
            old=[led for led in self.led_all() if _pid(led) == process.pid],
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
        return next(p for p in self.schedulers if p.pid == _pid(led))

    def first_fires(self, old: Sequence[Led]) -> dict[int, float]:
        return takeovers.read_first_fires(self.conn, old)

    def recover(self, case: Case) -> None:
        """Wait until each partition of the case is fired by a successor; note when."""
        wait_for(
            lambda: len(self.first_fires(case.old)) == len(case.old),
            seconds=40,
            what=f"successors of the leader after {case.name}",
        )
        fires = self.first_fires(case.old)
        first = min(fires.values()) - case.at
        case.seconds = max(fires.values()) - case.at
        case.note = (
            f"{len(case.old)} partitions with jobs fired again after "
            f"{first:.2f} to {case.seconds:.2f} s"
        )

    def replace(self, process: Process) -> None:
        """Start another scheduler in place of one that ended; wait for its share."""
        self.schedulers.remove(process)
        self.schedulers.append(self.stack.scheduler(process.name + "'"))
        self.wait_even()

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
            wait_for(lambda: self.is_blocked(process), seconds=1.5, what="a batch")
            return True
        return False

    def is_blocked(self, process: Process) -> bool:
        """Return whether the leader's firing session waits for a lock."""
        ports = [
            connection.laddr.port
            for connection in psutil.Process(process.pid).net_connections("tcp")
        ]
        [(blocked,)] = self.conn.execute(
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE client_port = ANY(%s) "
            "AND application_name = 'chrono fire' AND wait_event_type = 'Lock'",
            [ports],
        ).fetchall()
        return bool(blocked)


def _pid(led: Led) -> int:
    return int(led.owner.split(":")[-2])


def definitions(base: float) -> dict[str, dict[str, Any]]:
    """Return the jobs by key: half at the full second, half spread over it."""
    first, last = SPREAD_MS
    jobs = {}
    for number in range(JOBS):
        offset = 0 if number % 2 else first + number * (last - first) // JOBS
        key = f"every-second-{number:03}"
        jobs[key] = {
            "key": key,
            "interval": "1s",
            "starts_at": iso(base + offset / 1000),
            "overlap_policy": "allow_all",
            "target": {"kind": "task", "name": "rig.note"},
            "payload": {"job": key},
        }
    return jobs


def check(rig: Rig, cases: Sequence[Case]) -> tuple[Findings, int, int]:
    """Return what is wrong, how many runs there are, and how many rows are stale."""
    findings = Findings()
    decisions, runs = tables.read_decisions(rig.conn), tables.read_runs(rig.conn)
    effects = rig.stack.effects()
    due = {key: expected(eras) for key, eras in rig.history.eras.items()}
    check_decisions(findings, decisions, due)
    check_runs(findings, decisions, runs, effects, {})
    check_order(findings, decisions)
    fences = {decision.run: decision.fence for decision in decisions}
    for run in runs:
        findings.require(
            run.fence == fences.get(run.id),
            f"the run {run.id} has fence {run.fence}, fired by {fences.get(run.id)}",
        )
    stale = takeovers.read_stale(rig.conn)
    for line in stale:
        findings.require(False, f"stale: {line}")
    for case in cases:
        findings.require(
            case.seconds < WORST_S, f"{case.name} took {case.seconds:.1f} s"
        )
        findings.require(
            not case.sends or case.refused > 0,
            f"{case.name}: a stale batch was on the way and no refusal was logged",
        )
    findings.require(
        set(rig.codes.values()) == {0}, f"exit codes after SIGTERM: {rig.codes}"
    )
    occurrences = sum(map(len, due.values()))
    skipped = sum(d.occurrences for d in decisions if not d.fired)
    findings.require(
        len(runs) == occurrences - skipped,
        f"{len(runs)} runs of {occurrences} occurrences, {skipped} skipped",
    )
    lags = tables.read_lags(rig.conn)
    print(
        f"{occurrences} occurrences of {len(due)} jobs: {len(runs)} runs and {skipped} "
        f"skipped; {len(effects)} effects in the ledgers; start lag, faults included, "
        f"p50 {percentile(lags, 0.5):.0f} ms p99 {percentile(lags, 0.99):.0f} ms"
    )
    return findings, len(runs), len(stale)


def run() -> int:
    """Run the rig; return the exit code."""
    with Stack(seconds=LIMIT_S) as stack:
        rig = Rig(stack)
        rig.prepare()
        faults: list[Callable[[], Case]] = [rig.kill, rig.stop, rig.term, rig.fence]
        cases = []
        for fault in faults:
            time.sleep(CALM_S)
            cases.append(fault())
            cases[-1].end()
        time.sleep(CALM_S)
        rig.finish()
        findings, runs, stale = check(rig, cases)
        try:
            print(stack.manage("chronoaudit").splitlines()[-1])
        except RigError as error:
            findings.require(False, str(error))
        times = ", ".join(f"{case.name} {case.seconds:.2f} s" for case in cases)
        said = (
            f"{times}, {runs} runs, {findings.lost} lost, {findings.doubled} doubled, "
            f"{stale} stale"
        )
        if not findings.clean or "--logs" in sys.argv:
            stack.show_logs()
        if findings.clean:
            print(f"failover: {said}")
            return 0
        findings.show()
        print(f"failover: FAILED {said}, {len(findings.lines)} findings above")
        return 1


def main() -> int:
    """Run the rig; what keeps it from its end is one line."""
    try:
        return run()
    except (RigError, PostgresError) as error:
        print(f"failover: FAILED {error}")
    except KeyboardInterrupt:
        print("failover: FAILED it was broken off")
        return 128 + signal.SIGINT
    return 1


if __name__ == "__main__":
    sys.exit(main())
