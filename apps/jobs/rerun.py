"""Run a finished run's occurrence again, as a new run in an attempt group of its own.

One run at once: a retry. Many dead letters, in the catch-up lane: a redrive. Either way
the run that was stays as it is, and is linked to the one that follows it. A run is
followed by one run at most; what came of that can be run again in turn. The new one
goes by the revision in force now, with the payload of the run that was.
"""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import batched
from typing import Any
from uuid import UUID

from apps.jobs import rerun_store, store
from apps.jobs.commands import COMMAND, LONGEST_NOTE, lock_living
from apps.jobs.definition import check_queue
from apps.jobs.editing import key_of
from apps.jobs.errors import JobDeleted
from apps.jobs.json_value import check_json, check_note, same_json
from apps.jobs.manual import UNSET, put_run
from apps.jobs.quotas import check_own_payload
from apps.jobs.rerun_store import NewRerun
from apps.jobs.store import Job
from apps.jobs.transactions import Open, open_change
from apps.runs import days, letters, selectors
from apps.runs.errors import RunNotFinished, RunRerunAlready
from apps.runs.letter_store import Letter
from apps.runs.letters import LetterFilter
from apps.tenants import audit
from apps.tenants.actor import Actor, Scope
from apps.tenants.event import Event
from chrono.rules.errors import BadValue
from chrono.rules.instants import SECOND, Millis, format_instant
from chrono.rules.keys import run_id, scheduled_for_of, uuid7
from chrono.rules.policy import FILLED_KEY
from chrono.rules.states import RunState, is_final

MOST_RATE = 1_000
PAYLOADS = 50
"""How many payloads of letters are in memory at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """What a redrive makes, or would."""

    id: UUID | None
    """None for a dry run, and where there is nothing to run again."""
    letters: tuple[Letter, ...]
    """The dead letters that are run again, in the order in which their runs begin."""
    runs: tuple[UUID, ...]
    """The new runs, in the same order; none for a dry run."""
    more: bool
    """Whether the filter fits more than one call takes: repeat it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which dead letters are to be run again, and how; checked."""

    ids: tuple[UUID, ...] | None = None
    """The runs that died; or a filter, for those of living jobs that are open."""
    filter: LetterFilter | None = None
    limit: int = letters.MOST
    queue: str | None = None
    """Another queue than that of the job."""
    payload: Any = UNSET
    """Another payload than the letter's, for one letter."""
    rate: int | None = None
    """How many begin a second at most; the lane has a rate of its own, besides."""

    def __post_init__(self) -> None:
        if (self.ids is None) == (self.filter is None):
            raise BadValue("Give either ids or a filter.", field="ids")
        if self.ids is not None and not 1 <= len(self.ids) <= letters.MOST:
            raise BadValue(f"ids are 1 to {letters.MOST} ids of runs.", field="ids")
        if self.queue is not None:
            check_queue(self.queue)
        if self.payload is not UNSET:
            if self.ids is None or len(self.ids) != 1:
                raise BadValue("A payload is for one id alone.", field="payload")
            check_json(self.payload, field="payload")
        _check_whole(self.limit, "limit", letters.MOST)
        if self.rate is not None:
            _check_whole(self.rate, "rate", MOST_RATE)


def retry_run(
    run: UUID,
    *,
    payload: Any = UNSET,
    queue: str | None = None,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> UUID:
    """Run a finished run's occurrence again, at once; return the new run.

    As a manual run: whether its job is paused and whatever runs of it are live. Without
    ``payload`` it gets that of the run. Raises Forbidden, RunNotFound, RunNotFinished,
    RunRerunAlready, JobDeleted, JobsBusy, BadValue, QuotaExceeded.
    """
    actor.require(Scope.OPERATE)
    reason = check_note(reason, field="reason", most=LONGEST_NOTE)
    if payload is not UNSET:
        check_json(payload, field="payload")
    if queue is not None:
        check_queue(queue)
    with open_change() as opened:
        row, detail = selectors.get_run(opened.conn, run, tenant=actor.tenant)
        state = selectors.state_of(row)
        if not is_final(state):
            raise RunNotFinished(
                f"The run is {state.label}: only one that is over can be run again."
            )
        if row.place == "skip":
            raise RunNotFinished(
                "The occurrence was skipped and has no run; a backfill makes one."
            )
        job = lock_living(opened, row.job_id, actor)
        # Read again: it may have been run again while the job's row was waited for.
        links = selectors.get_reruns(opened.conn, run)
        if links.rerun_as is not None:
            raise RunRerunAlready(
                f"The run was run again already, as {links.rerun_as}."
            )
        wanted = detail.payload if payload is UNSET else payload
        own = None if same_json(wanted, job.definition.payload) else json.dumps(wanted)
        if payload is not UNSET and own is not None:
            check_own_payload(opened.conn, payload, tenant=job.tenant)
        key = None if own is None else key_of(job.definition, wanted)
        made = _retry(
            opened, job, run, own=own, key=key, queue=queue, actor=actor, now=now
        )
        event = Event(
            tenant=job.tenant,
            action="run.retry",
            object_kind="run",
            object_id=str(run),
            before={"state": state.label},
            after={
                "rerun_as": str(made),
                "revision": job.revision,
                "own_payload": payload is not UNSET,
                "queue": queue or job.definition.queue,
            },
            reason=reason,
        )
        audit.record(opened.conn, actor=actor, events=[event])
        return made


def redrive(
    wanted: Wanted,
    *,
    tenant: int,
    dry_run: bool = False,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> Redriven:
    """Run dead letters of a tenant again, those that are named or that a filter fits.

    All that are named or none: raises LetterNotFound, LetterClosed and JobDeleted with
    the place in the list. A filter passes over what is closed, what has no job any
    more, and what does not fill its job's concurrency key; a call that finds nothing
    but that says that there is no more. Raises Forbidden, JobsBusy, BadValue and
    QuotaExceeded, too.
    """
    actor.require(Scope.OPERATE)
    reason = check_note(reason, field="reason", most=LONGEST_NOTE)
    with open_change() as opened:
        moment = store.read_instant(opened.conn).now if now is None else now
        named, more = _choose(opened, wanted, tenant)
        jobs = _lock_jobs(opened, named)
        still = _still_open(opened, wanted, named, jobs, tenant)
        keys, unfit = _keys(opened, wanted, still, jobs)
        chosen = [letter for letter in still if letter.run_id not in unfit]
        more = more and bool(chosen or not unfit)
        chosen.sort(key=lambda letter: letter.run_id)
        _check_payload(opened, wanted, chosen, jobs)
        if dry_run or not chosen:
            return Redriven(id=None, letters=tuple(chosen), runs=(), more=more)
        made = uuid7(moment, secrets.token_bytes(10))
        pairs = [(letter, jobs[letter.job_id]) for letter in chosen]
        reruns = _write(opened, wanted, pairs, keys, made, actor, moment)
        events = _events(chosen, reruns, made, jobs, reason)
        audit.record(opened.conn, actor=actor, events=events)
        return Redriven(
            id=made,
            letters=tuple(chosen),
            runs=tuple(one.rerun for one in reruns),
            more=more,
        )


def _retry(
    opened: Open,
    job: Job,
    run: UUID,
    *,
    own: str | None,
    key: str | None,
    queue: str | None,
    actor: Actor,
    now: Millis | None,
) -> UUID:
    """Write the timer of a run that runs another again, and what it has of its own."""
    conn = opened.conn
    instant = store.read_instant(conn)
    scheduled_for = scheduled_for_of(run)
    days.ensure_days_of(conn, [scheduled_for])
    [(made, group)] = _new_runs(opened, [(job, scheduled_for)])
    put_run(
        opened,
        job,
        made,
        group=group,
        scheduled_for=scheduled_for,
        due_at=instant.now if now is None else now,
        horizon=instant.horizon,
        payload=own,
        key=key,
        queue=None if queue == job.definition.queue else queue,
    )
    rerun_store.insert_rerun(conn, run=run, part=job.part, rerun=made, by=actor.name)
    return made


def _choose(opened: Open, wanted: Wanted, tenant: int) -> tuple[list[Letter], bool]:
    """Return the letters that are meant, not locked yet, and whether there are more."""
    if wanted.filter is None:
        ids = wanted.ids or ()
        found = letters.load(opened.conn, ids, tenant=tenant)
        return list(found.values()), False
    page = letters.list_letters(
        opened.conn, tenant=tenant, wanted=wanted.filter, limit=wanted.limit
    )
    return list(page.letters), page.next is not None


def _lock_jobs(opened: Open, named: Sequence[Letter]) -> dict[UUID, Job]:
    ids = sorted({letter.job_id for letter in named})
    store.lock_jobs(opened.conn, jobs=ids)
    return {job.id: job for job in store.load_jobs(opened.conn, jobs=ids)}


def _still_open(
    opened: Open,
    wanted: Wanted,
    named: Sequence[Letter],
    jobs: dict[UUID, Job],
    tenant: int,
) -> list[Letter]:
    """Lock the letters and return those to run again, as they are now."""
    if wanted.ids is not None:
        found = letters.load_named(opened.conn, wanted.ids, tenant=tenant)
        for n, letter in enumerate(found):
            if jobs[letter.job_id].deleted_at is not None:
                raise JobDeleted(
                    f"The job {letter.job_key} is deleted; restore it first.",
                    field=f"ids.{n}",
                )
        return found
    ids = [letter.run_id for letter in named]
    now = letters.load(opened.conn, ids, tenant=tenant, locked=True)
    return [
        letter
        for letter in now.values()
        if letters.state_of(letter) == "open"
        and letter.rerun_id is None
        and jobs[letter.job_id].deleted_at is None
    ]


def _check_payload(
    opened: Open, wanted: Wanted, chosen: Sequence[Letter], jobs: dict[UUID, Job]
) -> None:
    """Raise QuotaExceeded for a payload that is too long and not the job's already."""
    if wanted.payload is UNSET:
        return
    for letter in chosen:
        job = jobs[letter.job_id]
        if not same_json(wanted.payload, job.definition.payload):
            check_own_payload(opened.conn, wanted.payload, tenant=job.tenant)


def _write(
    opened: Open,
    wanted: Wanted,
    chosen: Sequence[tuple[Letter, Job]],
    keys: dict[UUID, str],
    made: UUID,
    actor: Actor,
    now: Millis,
) -> list[NewRerun]:
    pairs = [(job, scheduled_for_of(letter.run_id)) for letter, job in chosen]
    days.ensure_days_of(opened.conn, [moment for _, moment in pairs])
    fresh = _new_runs(opened, pairs)
    apart = 1 if wanted.rate is None else SECOND // wanted.rate
    reruns = [
        NewRerun(
            run=letter.run_id,
            rerun=run,
            part=job.part,
            job=job.id,
            tenant=job.tenant,
            version=job.version,
            revision=job.revision,
            group=group,
            scheduled_for=moment,
            due_at=now + n * apart,
            queue=wanted.queue or job.definition.queue,
            key=keys.get(letter.run_id),
        )
        for n, ((letter, _), (job, moment), (run, group)) in enumerate(
            zip(chosen, pairs, fresh, strict=True)
        )
    ]
    own = wanted.payload is not UNSET
    rerun_store.insert_redriven(
        opened.conn,
        redrive=made,
        reruns=reruns,
        own_queue=wanted.queue is not None,
        own_payload=own,
        payload=json.dumps(wanted.payload) if own else None,
        by=actor.name,
        now=now,
    )
    opened.parts.update(one.part for one in reruns)
    return reruns


def _keys(
    opened: Open,
    wanted: Wanted,
    chosen: Sequence[Letter],
    jobs: dict[UUID, Job],
) -> tuple[dict[UUID, str], set[UUID]]:
    """Return the concurrency keys that payloads fill, and those that fill none.

    By the runs that died. Letters are read only for jobs that have such a key, some
    payloads at a time. Raises BadValue for one that is named and fills none.
    """
    keys: dict[UUID, str] = {}
    unfit: set[UUID] = set()
    with_holes = [
        letter
        for letter in chosen
        if FILLED_KEY in jobs[letter.job_id].definition.policy
    ]
    for batch in batched(with_holes, PAYLOADS):
        ids = [letter.run_id for letter in batch]
        payloads = (
            letters.load_payloads(opened.conn, ids)
            if wanted.payload is UNSET
            else dict.fromkeys(ids, wanted.payload)
        )
        for letter in batch:
            try:
                key = key_of(jobs[letter.job_id].definition, payloads[letter.run_id])
            except BadValue as error:
                unfit.add(letter.run_id)
                if wanted.ids is None:
                    continue
                place = f"ids.{wanted.ids.index(letter.run_id)}"
                raise BadValue(
                    f"The run {letter.run_id} can't be run again as its job is now. "
                    f"{error.message}",
                    field=place if wanted.payload is UNSET else error.field,
                ) from None
            if key is not None:
                keys[letter.run_id] = key
    return keys, unfit


def _new_runs(
    opened: Open, pairs: Sequence[tuple[Job, Millis]]
) -> list[tuple[UUID, int]]:
    """Return ids that no run has, each of a job's instant, and their attempt groups.

    The ledger knows the groups of 30 days; what is older, or not fired yet, is told by
    the id itself. The rows of the jobs are locked, so nobody else takes one.
    """
    above = rerun_store.next_groups(
        opened.conn, instants=[(job.part, job.id, moment) for job, moment in pairs]
    )
    groups = [group + 1 for group in above]
    found: dict[int, UUID] = {}
    while len(found) < len(pairs):
        wanted = {
            n: _id(pairs[n], groups[n]) for n in range(len(pairs)) if n not in found
        }
        taken = rerun_store.find_taken_runs(
            opened.conn, runs=[(pairs[n][0].part, run) for n, run in wanted.items()]
        )
        taken.update(found.values())
        for n, run in wanted.items():
            if run in taken:
                groups[n] += 1
            else:
                found[n] = run
                taken.add(run)
    return [(found[n], groups[n]) for n in range(len(pairs))]


def _id(pair: tuple[Job, Millis], group: int) -> UUID:
    job, moment = pair
    return run_id(job.id, moment, group, job.part)


def _events(
    chosen: Sequence[Letter],
    reruns: Sequence[NewRerun],
    made: UUID,
    jobs: dict[UUID, Job],
    reason: str,
) -> list[Event]:
    """Return what was done to each run, and to each job."""
    of_runs = [
        Event(
            tenant=letter.tenant,
            action="run.redrive",
            object_kind="run",
            object_id=str(letter.run_id),
            before={"state": RunState.DEAD.label},
            after={
                "rerun_as": str(one.rerun),
                "redrive_id": str(made),
                "queue": one.queue,
                "due_at": format_instant(one.due_at),
            },
            reason=reason,
        )
        for letter, one in zip(chosen, reruns, strict=True)
    ]
    counts: dict[UUID, int] = {}
    for one in reruns:
        counts[one.job] = counts.get(one.job, 0) + 1
    of_jobs = [
        Event(
            tenant=jobs[job].tenant,
            action="job.redrive",
            object_kind="job",
            object_id=str(job),
            after={"redrive_id": str(made), "runs": count},
            reason=reason,
        )
        for job, count in counts.items()
    ]
    return of_jobs + of_runs


def _check_whole(value: object, field: str, most: int) -> None:
    if type(value) is not int or not 1 <= value <= most:
        raise BadValue(f"{field} is a whole number from 1 to {most}.", field=field)
