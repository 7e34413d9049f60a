"""Runs that somebody asks for, beside the schedule's own.

A manual run takes the same way as every other: a timer, due at once, that the leader
fires. It needs no epoch and waits for no fire; the row of its job is locked against
edits, so it is there before a delete, which cancels it, or refused after one.
"""

import hashlib
import json
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final
from uuid import UUID

from apps.jobs import store
from apps.jobs.commands import (
    COMMAND,
    LONGEST_NOTE,
    insert_near_or_far,
    lock_living,
)
from apps.jobs.editing import check_of, key_of, policy_of
from apps.jobs.json_value import check_json, check_note, same_json
from apps.jobs.planning import Timer
from apps.jobs.quotas import check_own_payload
from apps.jobs.store import Job
from apps.jobs.transactions import Open, open_change
from apps.runs import store as runs
from apps.runs.errors import RunUnderWay
from apps.runtime import requests
from apps.runtime.requests import KeyedRequest
from apps.tenants import audit
from apps.tenants.actor import Actor, Scope
from apps.tenants.event import Event
from chrono.rules.instants import Millis
from chrono.rules.keys import run_id
from chrono.rules.overlap import Check
from chrono.rules.states import Priority, TimerKind


class Unset(Enum):
    """The one value that no JSON has."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET
"""Stands for a payload that is not given; None is one that is null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRef:
    """The run that was asked for."""

    run_id: UUID
    created: bool
    """Whether this request made it, or an earlier one of the same key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What a request wants, and for whom."""

    payload: Any
    priority: Priority | None
    actor: Actor
    reason: str
    now: Millis | None
    beside: bool

    def own_payload(self, job: Job) -> str | None:
        """Return the payload as JSON where it is not the job's."""
        if self.payload is UNSET or same_json(self.payload, job.definition.payload):
            return None
        return json.dumps(self.payload)

    def own_priority(self, job: Job) -> Priority | None:
        """Return the priority where it is not the job's."""
        return None if self.priority == job.definition.priority else self.priority

    def request(self, job: Job, key: str) -> KeyedRequest:
        """Return the request under a name of its own: no key of the API is like it."""
        asked = [
            [] if self.payload is UNSET else [self.payload],
            None if self.priority is None else int(self.priority),
        ]
        text = json.dumps(asked, sort_keys=True)
        name = f"{job.id}:{key}".encode(errors="surrogatepass")
        return KeyedRequest(
            tenant=job.tenant,
            key=f"run_now:{hashlib.sha256(name).hexdigest()}",
            method="RUN",
            path=f"/jobs/{job.id}/run",
            fingerprint=hashlib.sha256(text.encode()).digest(),
        )


def run_now(
    job_id: UUID,
    *,
    payload: Any = UNSET,
    priority: Priority | None = None,
    request_key: str | None = None,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
    beside: bool = True,
) -> RunRef:
    """Run a job at once, whether it is paused and whatever runs of it are live.

    ``payload`` and ``priority`` are this run's alone. While it lives, a schedule that
    may not overlap skips. A second request with the same ``request_key`` within a day
    gets the same run. Raises Forbidden, JobNotFound, JobDeleted, JobsBusy, BadValue,
    QuotaExceeded, or RequestMismatch where the key was used with other values; and
    RunUnderWay unless ``beside``, where a job that skips overlaps has as many runs by
    hand as may be live.
    """
    actor.require(Scope.OPERATE)
    if payload is not UNSET:
        check_json(payload, field="payload")
    asked = _Asked(
        payload=payload,
        priority=priority,
        actor=actor,
        reason=check_note(reason, field="reason", most=LONGEST_NOTE),
        now=now,
        beside=beside,
    )
    with open_change() as opened:
        job = lock_living(opened, job_id, actor)
        if request_key is None:
            return RunRef(run_id=_make(opened, job, asked), created=True)
        request = asked.request(job, request_key)
        # Of one job nobody else is here: its row is locked. But at the end of another's
        # transaction the row may be free a moment before the key is.
        first = requests.begin(opened.conn, request, wait=True)
        if first is not None:
            return RunRef(run_id=UUID(json.loads(first.answer)), created=False)
        run = _make(opened, job, asked)
        answer = json.dumps(str(run))
        requests.finish(opened.conn, request, status=202, headers="{}", answer=answer)
        return RunRef(run_id=run, created=True)


def _make(opened: Open, job: Job, asked: _Asked) -> UUID:
    conn = opened.conn
    if not asked.beside:
        _refuse_another(opened, job)
    instant = store.read_instant(conn)
    moment = instant.now if asked.now is None else asked.now
    low, high = UUID(int=moment << 80), UUID(int=(moment + 1) << 80)
    group = store.next_group(conn, job=job, scheduled_for=moment, low=low, high=high)
    run = run_id(job.id, moment, group, job.part)
    payload, priority = asked.own_payload(job), asked.own_priority(job)
    key = None
    if payload is not None:
        check_own_payload(conn, asked.payload, tenant=job.tenant)
        key = key_of(job.definition, asked.payload)
    put_run(
        opened,
        job,
        run,
        group=group,
        scheduled_for=moment,
        due_at=moment,
        horizon=instant.horizon,
        payload=payload,
        priority=priority,
        key=key,
    )
    event = Event(
        tenant=job.tenant,
        action="job.run",
        object_kind="job",
        object_id=str(job.id),
        after={
            "run_id": str(run),
            "revision": job.revision,
            "own_payload": payload is not None,
            "priority": Priority(
                job.definition.priority if priority is None else priority
            ).label,
        },
        reason=asked.reason,
    )
    audit.record(conn, actor=asked.actor, events=[event])
    return run


def _refuse_another(opened: Open, job: Job) -> None:
    """Raise RunUnderWay where another run by hand would overlap; the job is locked."""
    definition = job.definition
    if definition.overlap_policy != "skip":
        return
    live = runs.list_live_slots(opened.conn, part=job.part, job=job.id)
    if len(live) >= (policy_of(definition).max_concurrent_runs or 1):
        raise RunUnderWay(
            f"The job may have no more runs at once than it has: /runs/{live[0]} is "
            "under way. Wait for its end or cancel it; POST /jobs/{id}/run with "
            "`beside` true runs the job all the same."
        )


def put_run(
    opened: Open,
    job: Job,
    run: UUID,
    *,
    group: int,
    scheduled_for: Millis,
    due_at: Millis,
    horizon: Millis,
    payload: str | None = None,
    priority: int | None = None,
    queue: str | None = None,
    key: str | None = None,
) -> None:
    """Write the timer of a run that somebody asks for, and what it has of its own.

    The job's row is locked. A payload is JSON as text; None is the job's, as with
    ``priority``, ``queue`` and the concurrency ``key``.
    """
    timer = Timer(
        kind=TimerKind.MANUAL,
        ref=run,
        job_id=job.id,
        part=job.part,
        version=job.version,
        revision=job.revision,
        scheduled_for=scheduled_for,
        due_at=due_at,
        attempt_group=group,
    )
    insert_near_or_far(opened.conn, [timer], horizon)
    if (payload, priority, queue) != (None, None, None):
        runs.insert_run_input(
            opened.conn,
            run=run,
            part=job.part,
            payload=payload,
            priority=priority,
            queue=queue,
            key=key,
        )
    if check_of(job.definition) is not Check.NOTHING:
        runs.insert_slot(opened.conn, part=job.part, job=job.id, run=run)
    opened.parts.add(job.part)
