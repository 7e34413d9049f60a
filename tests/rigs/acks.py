"""What clients were told, beside what is there: nothing lost, nothing twice.

Each client notes what it is about to ask and what it is answered, each line on disk
before it goes on. An operation without an answer may or may not have been carried out;
one with an answer was, once.
"""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.rigs.check import Findings
from tests.rigs.ledger import Effect
from tests.rigs.tables import Lost
from tests.support.pg import Connection

CREATE, PUT, TRIGGER = "create", "put", "trigger"
ACTIONS = {
    "job.create": CREATE,
    "job.change": PUT,
    "job.run": TRIGGER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing that a client wants, sent as often as it takes."""

    name: str
    """Its own, and its Idempotency-Key; sent for the n-th time, the request's id is
    this name, a colon and n."""
    kind: str
    key: str
    """The key of the job that is made, put or triggered."""
    number: int = 0
    """Of a put: which of its job's definitions this is, from 1."""
    tries: int = 0
    """How often it was sent before its answer, that one included."""
    answered: str | None = None
    """The id of the job or the run; None while nothing was answered."""
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobThere:
    """A job as the database has it."""

    id: str
    key: str
    revision: int
    number: int
    """What the payload says of which definition it is; 0 where it says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventThere:
    """A row of the audit."""

    kind: str
    object_id: str
    """The id of the job."""
    run: str | None
    request_id: str


class AckLog:
    """A client's log; each line is on disk when the call returns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def begin(self, operation: Operation) -> None:
        """Note what is about to be asked."""
        self._write(
            {
                "name": operation.name,
                "kind": operation.kind,
                "key": operation.key,
                "number": operation.number,
            }
        )

    def answer(self, name: str, *, tries: int, made: str, replayed: bool) -> None:
        """Note what was answered: the id of the job or the run, after so many tries."""
        entry = {"name": name, "tries": tries, "answered": made, "replayed": replayed}
        self._write(entry)

    def _write(self, entry: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def read_log(path: Path) -> list[Operation]:
    """Return the operations of a log, in their order."""
    operations: dict[str, Operation] = {}
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        name = entry["name"]
        if "kind" in entry:
            operations[name] = Operation(**entry)
        else:
            operations[name] = replace(operations[name], **entry)
    return list(operations.values())


def read_jobs_there(conn: Connection) -> list[JobThere]:
    """Return all jobs, deleted ones too."""
    rows = conn.execute("""
        SELECT j.id::text, j.key, j.revision,
            CASE jsonb_typeof(r.payload) WHEN 'object'
                THEN coalesce((r.payload ->> 'number')::integer, 0) ELSE 0 END
        FROM chrono_job j
        JOIN chrono_job_revision r ON r.job_id = j.id AND r.revision = j.revision
    """).fetchall()
    return [
        JobThere(id=job, key=key, revision=revision, number=number)
        for job, key, revision, number in rows
    ]


def read_events_there(conn: Connection) -> list[EventThere]:
    """Return the audit's rows about jobs that were made, changed or triggered."""
    rows = conn.execute(
        "SELECT action, object_id, after ->> 'run_id', request_id "
        "FROM chrono_audit_event WHERE action = ANY(%s) AND request_id <> ''",
        [list(ACTIONS)],
    ).fetchall()
    return [
        EventThere(
            kind=ACTIONS[action], object_id=object_id, run=run, request_id=request_id
        )
        for action, object_id, run, request_id in rows
    ]


def check_acks(
    findings: Findings,
    operations: Sequence[Operation],
    *,
    jobs: Iterable[JobThere],
    events: Iterable[EventThere],
    effects: Iterable[Effect],
    runs: Iterable[str],
    lost: Collection[Lost] = frozenset(),
) -> None:
    """Every acknowledged operation was carried out once, every other one at most once.

    ``effects`` are what the runs of triggers did, each under the operation's name as
    its job; ``runs`` are the ids of all settled runs, each of which somebody asked for.
    Of the attempts in ``lost`` nobody knows what they did.
    """
    by_key: defaultdict[str, list[JobThere]] = defaultdict(list)
    for job in jobs:
        by_key[job.key].append(job)
    for key, there in by_key.items():
        if len(there) > 1:
            findings.double(f"the job {key} is there {len(there)} times")
    by_name: defaultdict[str, list[EventThere]] = defaultdict(list)
    for event in events:
        by_name[event.request_id.rpartition(":")[0]].append(event)
    for operation in operations:
        carried_out = by_name.pop(operation.name, [])
        _check_events(findings, operation, carried_out)
        if operation.answered is not None and operation.kind != TRIGGER:
            _check_job(findings, operation, by_key[operation.key])
    for name, strays in by_name.items():
        findings.double(f"{strays[0].kind} {name}, for which nobody asked")
    for key, last in _last_puts(operations):
        for job in by_key[key]:
            # What was put later and never answered may be there too.
            findings.require(
                job.number in last and job.revision == job.number,
                f"the job {key} has the definition {job.number} in revision "
                f"{job.revision}; put were {last}",
            )
    _check_runs(findings, operations, effects=effects, runs=runs, lost=lost)


def _check_events(
    findings: Findings, operation: Operation, events: Sequence[EventThere]
) -> None:
    if len(events) > 1:
        findings.double(
            f"{operation.kind} {operation.name} was carried out {len(events)} times"
        )
    if operation.answered is None:
        return
    if not events:
        findings.lose(f"{operation.kind} {operation.name}: the audit has nothing of it")
        return
    [event, *_] = events
    what = event.run if operation.kind == TRIGGER else event.object_id
    findings.require(
        what == operation.answered,
        f"{operation.name}: made was {what}, answered {operation.answered}",
    )
    wanted = PUT if operation.number > 1 else CREATE
    findings.require(
        event.kind == (TRIGGER if operation.kind == TRIGGER else wanted),
        f"{operation.name} was carried out as {event.kind}",
    )
    if operation.kind == PUT:
        # It has no key: sent again, it finds the job as it wants it.
        return
    last = event.request_id == f"{operation.name}:{operation.tries}"
    findings.require(
        last != operation.replayed,
        f"{operation.name}: carried out by {event.request_id}, the answer to its "
        f"request {operation.tries} was {'a' if operation.replayed else 'no'} replay",
    )


def _check_job(
    findings: Findings, operation: Operation, there: Sequence[JobThere]
) -> None:
    if not there:
        findings.lose(f"the job {operation.key} is not there")
    elif all(job.id != operation.answered for job in there):
        findings.lose(
            f"the job {operation.key} is {there[0].id}, answered {operation.answered}"
        )


def _last_puts(operations: Sequence[Operation]) -> Iterator[tuple[str, list[int]]]:
    """Return for each key that was put which definitions it may have in the end."""
    puts: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        if operation.kind == PUT:
            puts[operation.key].append(operation)
    for key, of_key in puts.items():
        answered = max((o.number for o in of_key if o.answered is not None), default=0)
        if answered:
            yield key, sorted(o.number for o in of_key if o.number >= answered)


def _check_runs(
    findings: Findings,
    operations: Sequence[Operation],
    *,
    effects: Iterable[Effect],
    runs: Iterable[str],
    lost: Collection[Lost],
) -> None:
    by_name: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for effect in effects:
        known = (effect.key, effect.attempt) not in lost
        by_name[effect.job][effect.key] += known and effect.succeeded
    settled = set(runs)
    for operation in operations:
        if operation.kind != TRIGGER:
            continue
        ran = by_name.pop(operation.name, Counter())
        if ran.total() > 1:
            findings.double(f"the trigger {operation.name} ran: {dict(ran)}")
        made = operation.answered
        if made is not None and not ran[made]:
            findings.lose(f"the trigger {operation.name}: its run had no effect")
        if made is not None and made not in settled:
            findings.lose(f"the run {made} of the trigger {operation.name}")
        settled -= {made, *ran}
    for name in by_name:
        findings.double(f"an effect of {name}, for which nobody asked")
    for run in settled:
        findings.double(f"the run {run}, for which nobody asked")
