"""`make failover`: leaders killed, stopped, told to go and deposed, under load.

Three schedulers share 200 jobs of every second. Each fault is timed from itself to the
first fires that a successor commits; in the end every occurrence has one decision,
every effect is there once, and nothing was written under a fence that was over.
"""

import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

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
from tests.rigs.squad import Case, Squad
from tests.rigs.stack import RigError, Stack, sleep_until, wait_for

LIMIT_S = 175
JOBS = 200
CALM_S = 3.0
STOPPED_S = 12.0
WORST_S = 10.0
PLANNED_S = 2.0
EXIT_S = 10.0
# Half of the jobs come at the full second, the others between these milliseconds of it.
SPREAD_MS = (100, 900)


class Rig(Squad):
    """Schedulers and workers that are up, and the faults."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.schedulers = [stack.scheduler(f"scheduler-{n}") for n in "abc"]
        self.workers = [stack.worker(f"worker-{n}") for n in "ab"]
        self.codes: dict[str, int] = {}
        self.history = History()

    # The load

    def prepare(self) -> None:
        """Wait until all are up, then create the jobs."""
        takeovers.log_takeovers(self.conn)
        self.wait_even()
        self.wait_workers()
        self.jobs = definitions(float(int(time.time()) + 3))
        self.stack.apply(self.jobs.values())
        for row in tables.read_jobs(self.conn).values():
            self.history.begin(self.jobs[row.key], row)
        self.wait_first_fires()

    def finish(self) -> None:
        """Pause all jobs and let the last runs end, then stop everything."""
        self.stack.apply({**job, "paused": True} for job in self.jobs.values())
        for row in tables.read_jobs(self.conn).values():
            self.history.end(row)
        self.stack.drain()
        self.codes |= self.stack.stop(*self.workers, *self.schedulers)

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
            cases.append(case := fault())
            case.count_refused()
            sure = "a stale batch was on the way, " if case.sends else ""
            print(f"{case.name}: {case.note}; {sure}{case.refused} partitions refused")
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
