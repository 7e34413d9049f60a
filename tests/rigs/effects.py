"""`make faults-effects`: effects counted while their workers are killed.

Runs of three kinds come due together: transactional ones, webhooks to a receiver that
honours the idempotency key, and ones that are delivered at most once. Workers kill
themselves before and after their effect, between settle and commit, and after the
commit; others are killed at any instant. In the end each effect of the first two kinds
is there exactly once, and of the third at most once, with the rest of them `unknown`.
"""

import argparse
import json
import random
import re
import signal
import sqlite3
import sys
import time
from collections import Counter
from dataclasses import dataclass
from itertools import batched
from typing import Any

from dev.postgres import PostgresError
from tests.rigs.check import Findings
from tests.rigs.effect_tasks import AT_MOST_ONCE, TRANSACTIONAL
from tests.rigs.ledger import read_tasks
from tests.rigs.oracle import iso
from tests.rigs.stack import Process, RigError, Stack, sleep_until, wait_for

TX, HOOK, ONCE = "tx", "hook", "once"
KINDS = (TX, HOOK, ONCE)
WORKERS = 3
CONCURRENCY = 8
LEAD_S = 15.0
LEAD_OF_EACH_S = 0.1
APPLIED_AT_ONCE = 500
MANY_KILLS = 5
"""So many meet runs of each kind."""
RATE = 40.0
"""How many runs come due in a second, of all kinds."""
DRAIN_S = 900.0
BESIDES_S = 400
RETRIES = {"max_attempts": 50, "backoff": {"base_ms": 100, "cap_ms": 1_000}}
SUCCESS, DEAD, UNKNOWN, WORKER_LOST, PROCESS_CRASH = 1, 3, 6, 21, 22
TASKS = "tests.rigs.tasks,tests.rigs.effect_tasks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much there is, and what is done to it."""

    runs: int
    """Of each kind."""
    deaths: int
    """How many runs kill their worker, of each of the first and the third kind."""
    kills: int
    """How many more workers are killed at any instant."""
    seed: int

    @property
    def seconds(self) -> float:
        """How long runs come due."""
        return 3 * self.runs / RATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One run as it ended."""

    job: str
    key: str
    state: int
    reason: int | None
    attempt: int
    lost: int
    """How many of its attempts lost their worker."""


def definitions(plan: Plan, base: float, receiver: str) -> list[dict[str, Any]]:
    """Return a one-shot job for each run; the points of death are drawn by the seed."""
    chance = random.Random(plan.seed)
    jobs = []
    for kind, points in ((TX, TRANSACTIONAL), (HOOK, ()), (ONCE, AT_MOST_ONCE)):
        doomed = chance.sample(range(plan.runs), plan.deaths if points else 0)
        # The last runs outlive the last kills, so that all of the kills meet some.
        moments = [base + chance.random() * plan.seconds for _ in range(plan.runs)]
        for number in range(plan.runs):
            key = f"{kind}-{number:04}"
            payload: dict[str, Any] = {"job": key}
            if number in doomed:
                payload["die"] = points[doomed.index(number) % len(points)]
            jobs.append(
                {
                    "key": key,
                    "run_at": iso(moments[number]),
                    "payload": payload,
                    "target": _target(kind, receiver),
                    "retry_policy": RETRIES,
                    "catchup_policy": "run_all",
                    **({"delivery": "at_most_once"} if kind == ONCE else {}),
                }
            )
    return jobs


def _target(kind: str, receiver: str) -> dict[str, Any]:
    if kind == HOOK:
        # Long enough that a kill finds some before and some after their effect.
        return {"kind": "http", "url": f"{receiver}/sleep-ms/60/hook", "timeout": "20s"}
    name = "effect_in_transaction" if kind == TX else "effect_at_most_once"
    return {"kind": "task", "name": f"rig.{name}"}


class Rig:
    """One run of the rig on a stack that is up."""

    def __init__(self, stack: Stack, plan: Plan) -> None:
        self.stack = stack
        self.plan = plan
        self.conn = stack.connect()
        self.conn.execute(
            "CREATE TABLE rig_effect (job text NOT NULL, key uuid NOT NULL, "
            "attempt integer NOT NULL)"
        )
        self.file = stack.folder / "effects.db"
        self.killed = 0
        self._chance = random.Random(plan.seed + 1)
        self._names = 0
        self._workers: list[Process] = []

    def receiver(self) -> str:
        """Start the receiver; return its address."""
        process = self.stack.start(
            "receiver",
            *("-m", "examples.effects_receiver", "--port", "0"),
            *("--file", str(self.file)),
        )
        heard = wait_for(
            lambda: re.search(r"listening on (http://[0-9.:]+)", process.said()),
            seconds=30,
            what="the receiver",
        )
        return str(heard[1])

    def torment(self, until: float) -> None:
        """Have workers at work and killed until an instant."""
        span = until - time.time()
        kills = sorted(
            time.time() + span * (0.05 + 0.9 * self._chance.random())
            for _ in range(self.plan.kills)
        )
        while time.time() < until:
            self.replace_dead()
            if kills and time.time() >= kills[0]:
                kills.pop(0)
                victim = self._chance.choice(self._workers)
                victim.send(signal.SIGKILL)
                victim.wait(10)
                self.killed += 1
            time.sleep(0.05)

    def replace_dead(self) -> None:
        """Start a worker for each that is missing."""
        self._workers = [one for one in self._workers if one.alive]
        while len(self._workers) < WORKERS:
            self._names += 1
            self._workers.append(
                self.stack.worker(
                    f"worker-{self._names}",
                    concurrency=CONCURRENCY,
                    env={"CHRONO_TASK_MODULES": TASKS},
                )
            )

    def drain(self) -> None:
        """Wait until every run is over, with workers that are replaced."""

        def over() -> bool:
            self.replace_dead()
            [(ended,)] = self.conn.execute("SELECT count(*) FROM chrono_run").fetchall()
            return int(ended) == 3 * self.plan.runs

        wait_for(over, seconds=DRAIN_S, what="all runs to be over", every=0.25)

    def runs(self) -> list[Seen]:
        """Return all runs."""
        rows = self.conn.execute(
            """
            SELECT j.key, r.id::text, r.state, r.reason, r.attempt, count(a.attempt)
            FROM chrono_run r JOIN chrono_job j ON j.id = r.job_id
            LEFT JOIN chrono_attempt a ON a.run_id = r.id AND a.reason = %s
            GROUP BY 1, 2, 3, 4, 5 ORDER BY 1
            """,
            [WORKER_LOST],
        ).fetchall()
        return [
            Seen(
                job=job,
                key=key,
                state=state,
                reason=reason,
                attempt=attempt,
                lost=lost,
            )
            for job, key, state, reason, attempt, lost in rows
        ]

    def deaths(self) -> Counter[str]:
        """Return how many runs killed their worker, by kind and point."""
        return Counter(
            f"{line['job'].partition('-')[0]} {line['point']}"
            for path in self.stack.folder.glob("deaths-*.jsonl")
            for line in map(json.loads, path.read_text().splitlines())
        )

    def rows(self) -> Counter[str]:
        """Return how often each key's effect is in the table."""
        found = self.conn.execute("SELECT key::text FROM rig_effect").fetchall()
        return Counter(key for (key,) in found)

    def received(self) -> Counter[str]:
        """Return how often each key's effect is at the receiver."""
        conn = sqlite3.connect(f"file:{self.file}?mode=ro", uri=True, timeout=10)
        try:
            return Counter(key for (key,) in conn.execute("SELECT key FROM effect"))
        finally:
            conn.close()

    def noted(self) -> Counter[str]:
        """Return how often each key's effect is in the tasks' ledger."""
        return Counter(one.key for one in read_tasks(self.stack.folder))


def check(rig: Rig) -> Findings:
    """Compare what ended how with what happened."""
    findings = Findings()
    runs = rig.runs()
    of = {
        kind: [one for one in runs if one.job.startswith(f"{kind}-")] for kind in KINDS
    }
    for kind, effects in ((TX, rig.rows()), (HOOK, rig.received())):
        guilty: dict[str, int] = {}
        for run in of[kind]:
            if (run.state, run.reason) == (DEAD, PROCESS_CRASH):
                # In three processes that died it is taken for the cause, and has had
                # no effect, or the one before the third died.
                guilty[run.job] = effects[run.key]
                continue
            findings.require(
                run.state == SUCCESS, f"{run.job} ended as {run.state}, {run.reason}"
            )
            _require_once(findings, run, effects[run.key])
        for job, count in guilty.items():
            if count > (kind == HOOK):
                findings.double(f"{job}, dead, {count} times")
        findings.require(
            len(guilty) <= 1 + rig.plan.runs // 100,
            f"{len(guilty)} runs of {kind} were taken for the cause of deaths",
        )
        strange = set(effects) - {run.key for run in of[kind]}
        findings.require(not strange, f"{len(strange)} effects of {kind} of no run")
        hit = sum(run.lost > 0 for run in of[kind])
        again = sum(run.attempt > 1 for run in of[kind])
        print(
            f"{kind}: {len(of[kind])} runs, {sum(effects.values())} effects of "
            f"{len(effects)} keys; {hit} lost a worker, {again} were tried again"
        )
        findings.require(
            hit > 0 or rig.plan.kills < MANY_KILLS, f"no kill met a run of {kind}"
        )
    noted = rig.noted()
    states = Counter(run.state for run in of[ONCE])
    for run in of[ONCE]:
        if noted[run.key] > 1:
            findings.double(f"{run.job}, {noted[run.key]} times")
        known = run.state == UNKNOWN or (run.state == SUCCESS and noted[run.key] == 1)
        findings.require(known, f"{run.job} is {run.state}, {noted[run.key]} effects")
        findings.require(run.attempt == 1, f"{run.job} had attempt {run.attempt}")
    had = sum(noted[run.key] for run in of[ONCE] if run.state == UNKNOWN)
    print(
        f"once: {len(of[ONCE])} runs, {sum(noted.values())} effects of {len(noted)} "
        f"keys; {states[SUCCESS]} success, {states[UNKNOWN]} unknown, {had} of those "
        "with their effect"
    )
    findings.require(states[UNKNOWN] > 0, "no kill met a run of once")
    for kind in KINDS:
        findings.require(len(of[kind]) == rig.plan.runs, f"runs of {kind} are missing")
    deaths = rig.deaths()
    for point in TRANSACTIONAL[: rig.plan.deaths]:
        findings.require(deaths[f"{TX} {point}"] > 0, f"no run of {TX} died at {point}")
    told = ", ".join(f"{count} {name}" for name, count in sorted(deaths.items()))
    print(f"workers: {rig.killed} killed at any instant; by their runs {told}")
    return findings


def _require_once(findings: Findings, run: Seen, count: int) -> None:
    if count == 0:
        findings.lose(f"the effect of {run.job}")
    elif count > 1:
        findings.double(f"{run.job}, {count} times")


def prove(plan: Plan) -> Findings:
    """Run the rig; return what is wrong."""
    limit = int(plan.seconds + DRAIN_S + BESIDES_S)
    with Stack(seconds=limit) as stack:
        rig = Rig(stack, plan)
        receiver = rig.receiver()
        rig.replace_dead()
        base = time.time() + LEAD_S + plan.runs * LEAD_OF_EACH_S
        for some in batched(definitions(plan, base, receiver), APPLIED_AT_ONCE):
            stack.apply(some)
        early = base - time.time()
        print(f"jobs were applied {early:.0f} s before the first is due")
        if early < 0:
            raise RigError("the machine is slow: jobs were due before they were made")
        stack.scheduler("scheduler")
        sleep_until(base)
        rig.torment(base + plan.seconds)
        rig.drain()
        findings = check(rig)
        try:
            print(stack.manage("chronoaudit").splitlines()[-1])
        except RigError as error:
            findings.require(False, str(error))
        if not findings.clean:
            stack.show_logs()
    return findings


def main() -> int:
    """Run the rig; what keeps it from its end is one line."""
    parser = argparse.ArgumentParser(prog="make faults-effects")
    parser.add_argument("--runs", type=int, default=1_000, help="of each kind")
    parser.add_argument("--deaths", type=int, default=8, help="by runs, of each kind")
    parser.add_argument("--kills", type=int, default=6, help="at any instant")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    plan = Plan(
        runs=given.runs, deaths=given.deaths, kills=given.kills, seed=given.seed
    )
    print(f"seed {plan.seed}")
    begun = time.monotonic()
    try:
        findings = prove(plan)
    except (RigError, PostgresError) as error:
        print(f"faults-effects: FAILED {error}")
        return 1
    except KeyboardInterrupt:
        print("faults-effects: FAILED it was broken off")
        return 128 + signal.SIGINT
    findings.show()
    said = (
        f"3 x {plan.runs} runs, {findings.lost} lost, {findings.doubled} doubled, "
        f"{time.monotonic() - begun:.0f} s"
    )
    print(f"faults-effects: {'ok' if findings.clean else 'FAILED'} {said}")
    return 0 if findings.clean else 1


if __name__ == "__main__":
    sys.exit(main())
