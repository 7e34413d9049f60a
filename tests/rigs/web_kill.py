"""`make faults-web`: processes of the web killed in the middle of requests.

Clients create, put and trigger without a pause, and send the same again under the same
key until they are answered. Everything acknowledged is there in the end, nothing is
there twice, and what had been carried out before an answer was lost says so.
"""

import argparse
import contextlib
import random
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import psutil

from dev import postgres
from dev.postgres import PostgresError
from tests.rigs import tables
from tests.rigs.acks import (
    CREATE,
    PUT,
    TRIGGER,
    AckLog,
    Operation,
    check_acks,
    read_events_there,
    read_jobs_there,
    read_log,
)
from tests.rigs.check import Findings
from tests.rigs.client import Answer, Broken, Client, Refused
from tests.rigs.stack import Process, RigError, Stack, wait_for

BESIDES_S = 70
COMMIT_MS = 60
"""So much longer a commit takes: kills often find it done and its answer unsent."""
LEAST_KILLS = 5
WEB_PROCESSES = 3
CLIENTS = {CREATE: 3, PUT: 2, TRIGGER: 3}
DEFINITIONS = 3
"""So many definitions are put under one key, one after the other."""
TARGETS = 4
ANSWERS = (8, 40)
"""So many answers the clients get between two kills."""
AFTER_S = (0.0, 0.05)
ORPHANED_S = 1.0
GIVE_UP_S = 40.0
AGAIN_S = (0.01, 0.1)
LATER = {409, 503}
"""Another has the key right now, or the database is busy: ask again."""
SENT_AGAIN = 100
STATUS = {CREATE: 201, TRIGGER: 202}


def definition(key: str, *, number: int) -> dict[str, object]:
    """Return a job that comes due in January alone; each definition differs."""
    return {
        "key": key,
        "cron": "0 0 1 1 *",
        "overlap_policy": "allow_all",
        "target": {"kind": "task", "name": "rig.note"},
        "payload": {"job": key, "number": number},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """How an operation is asked."""

    method: str
    path: str
    body: object
    headers: dict[str, str]


def request_of(operation: Operation, targets: Sequence[str]) -> Request:
    """Return the request that asks for an operation, the same each time."""
    keyed = {"Idempotency-Key": operation.name}
    match operation.kind:
        case "create":
            body = definition(operation.key, number=0)
            return Request(method="POST", path="/jobs", body=body, headers=keyed)
        case "put":
            body = definition(operation.key, number=operation.number)
            path = f"/jobs/by-key/{operation.key}"
            return Request(method="PUT", path=path, body=body, headers={})
        case _:
            target = targets[int(operation.key)]
            body = {"payload": {"job": operation.name}, "beside": True}
            path = f"/jobs/{target}/run"
            return Request(method="POST", path=path, body=body, headers=keyed)


class Asked(Protocol):
    """Whom clients ask, and until when."""

    @property
    def stack(self) -> Stack: ...
    @property
    def key(self) -> str:
        """The text of the API key."""
        ...

    @property
    def targets(self) -> list[str]:
        """The ids of the jobs that are triggered."""
        ...

    @property
    def over(self) -> threading.Event: ...


class Asker(threading.Thread):
    """A client: one operation after the other, each until it is answered."""

    def __init__(
        self,
        rig: Asked,
        *,
        kind: str,
        number: int,
        seed: int,
    ) -> None:
        self.label = f"{kind}-{number}"
        super().__init__(name=self.label, daemon=True)
        self._rig = rig
        self._kind = kind
        self._chance = random.Random(f"{seed}:{self.label}")
        self.path = rig.stack.folder / f"acks-{self.label}.jsonl"
        self.answered = 0
        self.broken = 0
        self.asked_again = 0
        self.failure = ""

    def run(self) -> None:
        try:
            with (
                Client(self._rig.stack.web_url, self._rig.key) as client,
                AckLog(self.path) as log,
            ):
                count = 0
                while not self._rig.over.is_set():
                    self._carry_out(client, log, self._operation(count))
                    count += 1
        except (Refused, OSError) as error:
            self.failure = f"{self.label}: {error}"
            self._rig.over.set()

    def _operation(self, count: int) -> Operation:
        name = f"{self.label}-{count}"
        match self._kind:
            case "put":
                group, turn = divmod(count, DEFINITIONS)
                key = f"{self.label}-{group}"
                return Operation(name=name, kind=PUT, key=key, number=turn + 1)
            case "trigger":
                target = str(self._chance.randrange(len(self._rig.targets)))
                return Operation(name=name, kind=TRIGGER, key=target)
            case _:
                return Operation(name=name, kind=CREATE, key=name)

    def _carry_out(self, client: Client, log: AckLog, operation: Operation) -> None:
        log.begin(operation)
        request = request_of(operation, self._rig.targets)
        deadline = time.monotonic() + GIVE_UP_S
        tries = 0
        while time.monotonic() < deadline:
            tries += 1
            headers = {**request.headers, "X-Request-Id": f"{operation.name}:{tries}"}
            try:
                answer = client.ask(request.method, request.path, request.body, headers)
            except Broken:
                self.broken += 1
            else:
                if answer.succeeded:
                    log.answer(
                        operation.name,
                        tries=tries,
                        made=answer.body["id"],
                        replayed=is_replay(answer),
                    )
                    self.answered += 1
                    return
                code = answer.body.get("code")
                if answer.status not in LATER or code == "key_taken":
                    raise Refused(f"{operation.name}: {answer.status} {answer.body}")
                self.asked_again += 1
            time.sleep(self._chance.uniform(*AGAIN_S))
        raise Refused(f"{operation.name}: no answer within {GIVE_UP_S:g} s")


def is_replay(answer: Answer) -> bool:
    """Return whether an answer says that it was given before."""
    return answer.headers.get("idempotency-replayed") == "true"


class Rig:
    """A stack that is up, the clients, and the nemesis."""

    def __init__(self, stack: Stack, *, seed: int) -> None:
        self.stack = stack
        self.conn = stack.connect()
        self._chance = random.Random(seed)
        self._port = postgres.free_port()
        self.over = threading.Event()
        self.kills = 0
        self._slow_commits_down()
        self.web = self._start_web()
        self.key = stack.key("operate", "write")
        self._made = self._make_targets()
        self.targets = [str(operation.answered) for operation in self._made]
        self.clients = [
            Asker(self, kind=kind, number=number, seed=seed)
            for kind, count in CLIENTS.items()
            for number in range(count)
        ]

    def _slow_commits_down(self) -> None:
        """Of the sessions that begin from now on."""
        for setting in (f"commit_delay = {COMMIT_MS * 1000}", "commit_siblings = 0"):
            self.conn.execute(f"ALTER DATABASE chrono SET {setting}")

    def _start_web(self, name: str = "web") -> Process:
        return self.stack.web(name, port=self._port, processes=WEB_PROCESSES)

    def _make_targets(self) -> list[Operation]:
        """Make the jobs that are triggered; return how that was asked and answered."""
        made = []
        with Client(self.stack.web_url, self.key) as client:
            for number in range(TARGETS):
                name = f"target-{number}"
                policy = "skip" if number % 2 else "allow_all"
                body = {**definition(name, number=0), "overlap_policy": policy}
                headers = {"X-Request-Id": f"{name}:1"}
                job = client.done("POST", "/jobs", body, headers).body["id"]
                operation = Operation(
                    name=name, kind=CREATE, key=name, tries=1, answered=job
                )
                made.append(operation)
        return made

    def torment(self, *, seconds: float) -> None:
        """Let the clients ask and the nemesis kill for so long; return at rest."""
        for client in self.clients:
            client.start()
        middle, end = time.monotonic() + seconds / 2, time.monotonic() + seconds
        self._kill_workers(until=middle)
        if not self.over.is_set():
            self._kill_master()
        self._kill_workers(until=end)
        self.over.set()
        for client in self.clients:
            client.join(GIVE_UP_S)
        failures = [client.failure for client in self.clients if client.failure]
        if failures:
            raise RigError(failures[0])

    def _kill_workers(self, *, until: float) -> None:
        """Kill one of the web's processes whenever the clients got some answers."""
        while not self.over.is_set():
            enough = self._answers() + self._chance.randint(*ANSWERS)
            while self._answers() < enough:
                if time.monotonic() > until or self.over.wait(0.005):
                    return
            time.sleep(self._chance.uniform(*AFTER_S))
            children = psutil.Process(self.web.pid).children()
            with contextlib.suppress(psutil.NoSuchProcess, IndexError):
                self._chance.choice(children).kill()
                self.kills += 1

    def _answers(self) -> int:
        return sum(client.answered for client in self.clients)

    def _kill_master(self) -> None:
        """Kill the master, then those of its orphans that still serve; start anew."""
        orphans = psutil.Process(self.web.pid).children()
        self.web.send(signal.SIGKILL)
        self.web.wait(5)
        _, left = psutil.wait_procs(orphans, timeout=ORPHANED_S)
        for orphan in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                orphan.kill()
        self.kills += 1 + len(left)
        self.web = self._start_web("web again")

    def read_operations(self) -> list[Operation]:
        """Return what all clients asked for and what they were answered."""
        asked = [op for client in self.clients for op in read_log(client.path)]
        return [*self._made, *asked]

    def send_again(self, findings: Findings, operations: Sequence[Operation]) -> int:
        """Send a sample of what was answered once more: the first answer, and no more.

        Whatever was sent more than once before belongs to it.
        """
        keyed = [
            op
            for op in operations[len(self._made) :]
            if op.kind != PUT and op.answered is not None
        ]
        often = [op for op in keyed if op.tries > 1]
        sample = self._chance.sample(keyed, min(SENT_AGAIN, len(keyed)))
        chosen = {op.name: op for op in [*often[:SENT_AGAIN], *sample]}
        with Client(self.stack.web_url, self.key) as client:
            for op in chosen.values():
                asked = request_of(op, self.targets)
                answer = client.ask(asked.method, asked.path, asked.body, asked.headers)
                findings.require(
                    is_replay(answer)
                    and answer.status == STATUS[op.kind]
                    and answer.body["id"] == op.answered,
                    f"{op.name} sent again: {answer.status}, id "
                    f"{answer.body.get('id')}, first answered {op.answered}",
                )
        return len(chosen)


def check(rig: Rig, operations: Sequence[Operation]) -> Findings:
    """Return what is wrong."""
    findings = Findings()
    again = rig.send_again(findings, operations)
    rig.stack.drain()
    runs = rig.conn.execute("SELECT id::text FROM chrono_run").fetchall()
    check_acks(
        findings,
        operations,
        jobs=read_jobs_there(rig.conn),
        events=read_events_there(rig.conn),
        effects=rig.stack.effects(),
        runs=[run for (run,) in runs],
    )
    broken = sum(client.broken for client in rig.clients)
    asked_again = sum(client.asked_again for client in rig.clients)
    replayed = sum(op.replayed for op in operations)
    unanswered = sum(op.answered is None for op in operations)
    # Otherwise the kills met nothing that they could have spoilt.
    findings.require(
        rig.kills >= LEAST_KILLS and replayed > 0,
        f"{rig.kills} kills, {replayed} answers that got lost after their commit",
    )
    findings.require(unanswered == 0, f"{unanswered} requests were never answered")
    print(
        f"{len(operations)} operations, {broken} times a connection broke, "
        f"{asked_again} times the key was busy, {replayed} answers were replays; "
        f"{again} sent again in the end"
    )
    return findings


def run(options: argparse.Namespace) -> int:
    """Run the rig; return the exit code."""
    with Stack(seconds=options.seconds + BESIDES_S) as stack:
        print(f"seed {options.seed}")
        stack.scheduler("scheduler")
        stack.worker("worker")
        rig = Rig(stack, seed=options.seed)
        wait_for(
            lambda: tables.count_workers(rig.conn) == 1, seconds=20, what="the worker"
        )
        rig.torment(seconds=options.seconds)
        operations = rig.read_operations()
        findings = check(rig, operations)
        try:
            print(stack.manage("chronoaudit").splitlines()[-1])
        except RigError as error:
            findings.require(False, str(error))
        creates = sum(op.kind != TRIGGER for op in operations)
        said = (
            f"{creates} creates, {len(operations) - creates} triggers, "
            f"{rig.kills} kills, {findings.lost} lost, {findings.doubled} doubled"
        )
        if not findings.clean or options.logs:
            stack.show_logs()
        if findings.clean:
            print(f"faults-web: ok {said}")
            return 0
        findings.show()
        print(f"faults-web: FAILED {said}, {len(findings.lines)} findings above")
        return 1


def main() -> int:
    """Run the rig; what keeps it from its end is one line."""
    parser = argparse.ArgumentParser(prog="make faults-web")
    parser.add_argument("--seconds", type=int, default=18, help="under faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--logs", action="store_true", help="show them in any case")
    try:
        return run(parser.parse_args())
    except (RigError, PostgresError, Refused, Broken) as error:
        print(f"faults-web: FAILED {error}")
    except KeyboardInterrupt:
        print("faults-web: FAILED it was broken off")
        return 128 + signal.SIGINT
    return 1


if __name__ == "__main__":
    sys.exit(main())
