"""`make smoke`: half a minute of every kind of job, checked against oracle and ledgers.

Each occurrence has a run or a recorded decision, each effect is there once, nothing
comes early, nothing after a pause. The jobs are made, edited and paused through the
API of a live web.
"""

import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from dev.postgres import PostgresError
from tests.rigs import tables
from tests.rigs.check import Findings, check_decisions, check_runs, percentile
from tests.rigs.client import Answer, Broken, Client, Refused
from tests.rigs.ledger import Effect
from tests.rigs.oracle import Era, History, expected, iso
from tests.rigs.stack import (
    PARTITIONS,
    Process,
    RigError,
    Stack,
    sleep_until,
    wait_for,
)
from tests.rigs.tables import DEAD, OVERLAP, PAUSED, Decision, JobRow, Run
from tests.support.pg import Connection

LIMIT_S = 88
LEAD_S = 8.0
EDIT_S, PAUSE_S, END_S = 9.6, 12.3, 27.2
ONE_SHOTS, ONE_SHOTS_MS = 200, 5_000
CLIENTS = 4
WORST_LAG_MS = 1_000.0
SLOW_MS = 1_500
# A run is over for a fire once its settle is committed, a moment after its instant.
COMMIT_S = 0.25

type Definition = dict[str, Any]


def retries(attempts: int) -> Definition:
    """Return a retry policy of so many attempts close together."""
    return {"max_attempts": attempts, "backoff": {"base_ms": 200, "cap_ms": 800}}


def definitions(base: float, receiver: str) -> dict[str, Definition]:
    """Return the jobs, by key; the first instants come at ``base``."""

    def http(path: str) -> Definition:
        return {"kind": "http", "url": f"{receiver}/{path}", "timeout": "10s"}

    def task(name: str) -> Definition:
        return {"kind": "task", "name": name}

    start = iso(base)
    every = {"interval": "1s", "starts_at": start, "overlap_policy": "allow_all"}
    jobs: list[Definition] = [
        {"key": "every-second", **every, "target": http("every-second")},
        {"key": "every-second-task", **every, "target": task("rig.note_in_thread")},
        {
            "key": "fails-twice",
            **every,
            "interval": "4s",
            "target": http("fail-times/2/fails-twice"),
            "retry_policy": retries(4),
        },
        {
            "key": "always-fails",
            **every,
            "interval": "7s",
            "target": http("status/503/always-fails"),
            "retry_policy": retries(3),
        },
        {"key": "paused", **every, "target": http("paused")},
        {
            "key": "edited",
            "cron": "0-59/2 * * * * *",
            "seconds": True,
            "overlap_policy": "allow_all",
            "target": http("edited"),
        },
        {
            # The default policy: a run of a second and a half, wanted each second.
            "key": "slow",
            "interval": "1s",
            "starts_at": start,
            "target": http(f"sleep-ms/{SLOW_MS}/slow"),
        },
        {
            "key": "each-minute",
            "cron": "* * * * *",
            "jitter_window": "0s",
            "overlap_policy": "allow_all",
            "target": task("rig.note"),
        },
    ]
    for number in range(ONE_SHOTS):
        moment = base + number * ONE_SHOTS_MS / ONE_SHOTS / 1000
        once = {"key": f"once-{number:03}", "run_at": iso(moment)}
        jobs.append(once | {"target": task("rig.note") if number % 2 else http("once")})
    return {job["key"]: job | {"payload": {"job": job["key"]}} for job in jobs}


class Rig:
    """One run of the smoke test on a stack that is up."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.conn = stack.connect()
        self.history = History()
        self._key = stack.key("write")
        self._made: dict[str, Answer] = {}

    def fire(self) -> dict[str, JobRow]:
        """Create the jobs, edit and pause some in the middle, pause all in the end."""
        base = float(int(time.time() + LEAD_S) + 1)
        jobs = definitions(base, self.stack.receiver_url)
        for row in self._create(jobs).values():
            self.history.begin(jobs[row.key], row)
        if time.time() > base:
            raise RigError(f"the jobs were made only {time.time() - base:.1f} s late")
        with Client(self.stack.web_url, self._key) as client:
            sleep_until(base + EDIT_S)
            patch = {"interval": "1s", "starts_at": iso(base + 0.5)}
            row = self._edit(client, "edited", patch)
            self.history.begin(jobs["edited"] | patch, row)

            sleep_until(base + PAUSE_S)
            at_pause = self._pause(client, "paused")
            self.history.end(at_pause)

            sleep_until(base + END_S)
            for key, job in jobs.items():
                if "run_at" not in job and key != "paused":
                    self.history.end(self._pause(client, key))
        [(now,)] = self.conn.execute("SELECT extract(epoch FROM now())").fetchall()
        self.history.end_all(int(now * 1000))
        return tables.read_jobs(self.conn) | {"paused": at_pause}

    def _create(self, jobs: dict[str, Definition]) -> dict[str, JobRow]:
        def create(share: Sequence[Definition]) -> list[Answer]:
            with Client(self.stack.web_url, self._key) as client:
                return [client.done("POST", "/jobs", job) for job in share]

        everything = list(jobs.values())
        shares = [everything[number::CLIENTS] for number in range(CLIENTS)]
        with ThreadPoolExecutor(CLIENTS) as clients:
            for answers in clients.map(create, shares):
                self._made |= {answer.body["key"]: answer for answer in answers}
        return tables.read_jobs(self.conn)

    def _edit(self, client: Client, key: str, patch: Definition) -> JobRow:
        made = self._made[key]
        match = {"If-Match": made.headers["etag"]}
        client.done("PATCH", f"/jobs/{made.body['id']}", patch, match)
        return tables.read_jobs(self.conn)[key]

    def _pause(self, client: Client, key: str) -> JobRow:
        body = {"note": "enough seen"}
        client.done("POST", f"/jobs/{self._made[key].body['id']}/pause", body)
        return tables.read_jobs(self.conn)[key]


def check(rig: Rig, jobs: dict[str, JobRow]) -> tuple[Findings, list[Run]]:
    """Return what is wrong, and the runs."""
    conn, findings = rig.conn, Findings()
    decisions, runs = tables.read_decisions(conn), tables.read_runs(conn)
    effects = rig.stack.effects()
    due = {key: expected(eras) for key, eras in rig.history.eras.items()}
    check_decisions(findings, decisions, due)
    check_runs(findings, decisions, runs, effects, {"always-fails": DEAD})
    skipped = check_skips(findings, decisions, runs)
    check_edit(findings, decisions, rig.history.eras["edited"])
    check_pause(findings, decisions, effects, jobs["paused"])
    check_requests(findings, decisions, effects, rig.stack.secret)
    check_dead(findings, conn, runs)
    wanted = sum(map(len, due.values())) - skipped
    findings.require(
        len(runs) == wanted, f"{len(runs)} runs, the oracle expects {wanted}"
    )
    print(
        f"{sum(map(len, due.values()))} occurrences of {len(due)} jobs: "
        f"{len(runs)} runs and {skipped} skipped; {len(effects)} effects in the "
        f"ledgers, {sum(e.is_request for e in effects)} of them requests"
    )
    return findings, runs


def check_skips(
    findings: Findings, decisions: Sequence[Decision], runs: Sequence[Run]
) -> int:
    """Return how many occurrences were skipped, each for a reason that was true."""
    by_id = {run.id: run for run in runs}
    skipped: Counter[int] = Counter()
    running: Run | None = None
    for decision in decisions:
        reason = decision.reason
        if reason is not None:
            skipped[reason] += decision.occurrences
        if reason == PAUSED or decision.job != "slow":
            findings.require(
                reason in (None, PAUSED), f"{decision.job} skipped for reason {reason}"
            )
            continue
        over = running.finished_at if running is not None else 0.0
        if reason == OVERLAP:
            findings.require(
                over + COMMIT_S > decision.decided_at,
                f"slow at {decision.scheduled_for} skipped, nothing was running",
            )
        else:
            findings.require(
                over <= decision.decided_at,
                f"slow at {decision.scheduled_for} fired beside another run",
            )
            running = by_id.get(decision.run) if decision.run else None
    findings.require(skipped[OVERLAP] >= 8, f"slow skipped {skipped[OVERLAP]} times")
    return skipped.total()


def check_edit(
    findings: Findings, decisions: Sequence[Decision], eras: Sequence[Era]
) -> None:
    """The old definition decides up to the edit's instant, the new one after it."""
    before, after = eras
    versions: Counter[int] = Counter()
    for decision in decisions:
        if decision.job == "edited":
            versions[decision.version] += 1
            findings.require(
                decision.version == (1 if decision.scheduled_for <= after.after else 2),
                f"edited at {decision.scheduled_for}: decided by version "
                f"{decision.version}, the edit was at {after.after}",
            )
    findings.require(before.until == after.after, "the edit has two instants")
    findings.require(versions[1] > 2 and versions[2] > 10, f"edited: {versions}")


def check_pause(
    findings: Findings,
    decisions: Sequence[Decision],
    effects: Sequence[Effect],
    job: JobRow,
) -> None:
    """Nothing fires once the pause is committed; what was ready before still runs."""
    fired = [d for d in decisions if d.job == "paused" and d.fired]
    for decision in fired:
        findings.require(
            decision.committed_at < job.committed_at
            and decision.scheduled_for <= job.activated_at,
            f"paused at {decision.scheduled_for} fired after the pause",
        )
    for effect in effects:
        if effect.job == "paused":
            findings.require(
                effect.scheduled_for <= job.activated_at,
                f"paused at {effect.scheduled_for} ran, the pause was at "
                f"{job.activated_at}",
            )
    findings.require(len(fired) >= 10, f"paused fired {len(fired)} times before")


def check_requests(
    findings: Findings,
    decisions: Sequence[Decision],
    effects: Sequence[Effect],
    secret: str,
) -> None:
    """Signatures are valid and headers say what is true, the same in every attempt."""
    verifier = Webhook(secret)
    fences = {str(d.run): d.fence for d in decisions if d.fired}
    for effect in effects:
        where = f"{effect.job} at {effect.scheduled_for}, attempt {effect.attempt}"
        findings.require(
            effect.fence == fences.get(effect.key),
            f"{where}: fence {effect.fence}, fired by {fences.get(effect.key)}",
        )
        if not effect.is_request:
            continue
        try:
            verifier.verify(effect.body, effect.headers)
        except WebhookVerificationError as error:
            findings.require(False, f"{where}: signature: {error}")
        for name in ("chrono-run-id", "webhook-id"):
            findings.require(
                effect.headers.get(name) == effect.key,
                f"{where}: {name} is not its key",
            )


def check_dead(findings: Findings, conn: Connection, runs: Sequence[Run]) -> None:
    """Each run that was given up has its letter, with all its errors."""
    letters = {letter.run: letter for letter in tables.read_dead_letters(conn)}
    attempts = Counter(attempt.run for attempt in tables.read_attempts(conn))
    for run in runs:
        if run.job == "fails-twice":
            findings.require(
                (run.attempt, attempts[run.id]) == (3, 2),
                f"fails-twice: attempt {run.attempt}, {attempts[run.id]} failed",
            )
        if run.job != "always-fails":
            continue
        letter = letters.pop(run.id, None)
        if letter is None:
            findings.lose(f"the dead letter of {run.id}")
            continue
        findings.require(
            (run.attempt, letter.attempt, len(letter.errors), attempts[run.id])
            == (3, 3, 3, 3)
            and all("503" in json.dumps(error) for error in letter.errors)
            and letter.payload == {"job": run.job},
            f"the dead letter of {run.id}: {letter}",
        )
    findings.require(not letters, f"{len(letters)} dead letters of runs that are not")
    findings.require(
        sum(run.job == "always-fails" for run in runs) >= 3, "hardly one was dead"
    )


def start(stack: Stack) -> list[Process]:
    """Start all processes and wait until they work; return those of the product."""
    stack.receiver()
    scheduler, worker = stack.scheduler("scheduler"), stack.worker("worker")
    web = stack.web()
    conn = stack.connect()
    wait_for(
        lambda: (
            conn.execute(
                "SELECT count(taken_at) = %s FROM chrono_partition", [PARTITIONS]
            ).fetchone()
            == (True,)
        ),
        seconds=20,
        what="a leader of all partitions",
    )
    wait_for(
        lambda: conn.execute("SELECT FROM chrono_worker").fetchone() is not None,
        seconds=20,
        what="a worker",
    )
    return [scheduler, worker, web]


def run() -> int:
    """Run the rig; return the exit code."""
    with Stack(seconds=LIMIT_S) as stack:
        processes = start(stack)
        rig = Rig(stack)
        jobs = rig.fire()
        stack.drain()
        codes = stack.stop(*reversed(processes))
        findings, runs = check(rig, jobs)
        findings.require(
            set(codes.values()) == {0}, f"exit codes after SIGTERM: {codes}"
        )
        try:
            print(stack.manage("chronoaudit").splitlines()[-1])
        except RigError as error:
            findings.require(False, str(error))
        lags = tables.read_lags(rig.conn)
        p50, p99 = percentile(lags, 0.5), percentile(lags, 0.99)
        findings.require(p99 <= WORST_LAG_MS, f"start lag p99 is {p99:.0f} ms")
        said = (
            f"{len(runs)} runs, start lag p50 {p50:.0f} ms p99 {p99:.0f} ms, "
            f"{findings.lost} lost, {findings.doubled} doubled"
        )
        if not findings.clean or "--logs" in sys.argv:
            stack.show_logs()
        if findings.clean:
            print(f"smoke: ok {said}")
            return 0
        findings.show()
        print(f"smoke: FAILED {said}, {len(findings.lines)} findings above")
        return 1


def main() -> int:
    """Run the rig; what keeps it from its end is one line."""
    try:
        return run()
    except (RigError, PostgresError, Refused, Broken) as error:
        print(f"smoke: FAILED {error}")
    except KeyboardInterrupt:
        print("smoke: FAILED it was broken off")
        return 128 + signal.SIGINT
    return 1


if __name__ == "__main__":
    sys.exit(main())
