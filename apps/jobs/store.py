"""The statements of this room, one function a file; rows in, frozen values out."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from apps.jobs.planning import Skip, Timer
from apps.runtime import sql
from apps.runtime.arrays import (
    bools,
    int8s,
    int8s_or_nulls,
    jsonbs,
    texts,
    uuids,
    uuids_or_nulls,
)
from apps.runtime.sessions import Connection
from chrono.rules.instants import Millis
from chrono.rules.keys import PAST_ID
from chrono.rules.partitions import partition_of

_SQL = {
    name: sql.load("jobs", name)
    for name in (
        "set_limits",
        "find_jobs",
        "find_nth_job",
        "list_ended_pauses",
        "list_jobs",
        "list_revisions",
        "list_last_runs",
        "forbid_sorts",
        "list_long_runs",
        "list_schedules",
        "list_cron_timers",
        "measure_minute",
        "next_group",
        "lock_jobs",
        "load_jobs",
        "bump_epochs",
        "read_instant",
        "read_decided",
        "read_remaining",
        "insert_jobs",
        "insert_revisions",
        "update_jobs",
        "insert_timers",
        "keep_plan_ends",
        "list_given_back",
        "insert_skips",
        "notify_leaders",
        "count_skips",
        "find_decision",
        "find_revision",
        "list_past",
        "insert_backfill",
        "list_backfills",
        "cancel_backfill",
        "read_terms",
        "hurry",
        "hold_jobs",
        "lock_counts",
        "begin_count",
        "end_count",
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """The row of a revision but for its job and number: a definition as JSON."""

    schedule: dict[str, Any]
    jitter_window: Millis
    overlap_policy: str
    queue: str
    priority: int
    target: dict[str, Any]
    payload: Any
    retry_policy: dict[str, Any]
    policy: dict[str, Any]
    """Further policies that are not default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job with its revision in force."""

    id: UUID
    tenant: int
    part: int
    key: str
    name: str
    tags: tuple[str, ...]
    version: int
    """The planning version: every change of the plan takes the next."""
    revision: int
    changes: int
    """Rises with every change."""
    paused: bool
    pause_note: str
    paused_until: Millis | None
    paused_by: str
    activated_at: Millis
    created_at: Millis
    updated_at: Millis
    deleted_at: Millis | None
    remaining_runs: int | None
    """How many runs of the schedule were left when its plan began; None for any."""
    definition: Revision


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedRevision:
    """A revision of a job as it was made, but for its payload."""

    number: int
    created_at: Millis
    payload_bytes: int
    """Length of the payload as JSON; 0 for none."""
    definition: Revision


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Which stretch of a tenant's jobs is looked at, by id from the newest on."""

    tenant: int
    before: UUID
    """Ids below this."""
    most: int
    """At how many jobs."""
    living: bool
    deleted: bool
    key: str | None = None

    def params(self) -> dict[str, Any]:
        """Return the parameters of a statement."""
        return {
            "tenant": self.tenant,
            "before": self.before,
            "look": self.most,
            "living": self.living,
            "deleted": self.deleted,
            "key": self.key,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which of the jobs looked at are wanted; None leaves a question open."""

    states: frozenset[str] | None = None
    """Some of active, paused, ended and deleted."""
    queue: str | None = None
    priority: int | None = None
    tags: tuple[str, ...] = ()
    """All of them."""
    target: str | None = None
    """A task's name, or how an address begins."""
    words: str | None = None
    """A part of key, name, tags, target or schedule in any case, or the whole id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """The row of a job that is created."""

    id: UUID
    part: int
    key: str
    name: str
    tags: tuple[str, ...]
    activated_at: Millis
    paused: bool
    paused_by: str
    remaining_runs: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedJob:
    """What an edit writes into a job's row."""

    id: UUID
    name: str
    tags: tuple[str, ...]
    version: int
    revision: int
    epoch: int
    activated_at: Millis
    paused: bool
    pause_note: str
    paused_until: Millis | None
    paused_by: str
    deleted: bool
    remaining_runs: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """The instant of an edit, and up to when timers have a bucket."""

    now: Millis
    horizon: Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What the ledger knows of a job's schedule, each None where it knows nothing."""

    scheduled_for: Millis | None
    last_run: UUID | None
    remaining: int | None = None
    """How many runs of the schedule are left; None where they are not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skips:
    """How many occurrences of a job did not run, or not when they should."""

    skipped: int
    missed: int
    """Those of more than a minute, whether they ran later or not."""
    capped: bool
    """Whether there are more, which were not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """The run of a job that was fired last, and where it stands."""

    run_id: UUID
    state: int
    """A RunState; ready stands for everything that waits."""
    reason: int | None
    finished_at: Millis | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRuns:
    """Recent successes of a job's schedule, of which some took longer than its period.

    Lengths are from the start of the last attempt to its end.
    """

    runs: int
    longer: int
    """How many of them took longer."""
    median: Millis
    longest: Millis
    longest_run: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """When a living job fires: what of its definition says so."""

    id: UUID
    paused: bool
    schedule: str
    """JSON, as it is stored."""
    jitter_window: Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class CronTimer:
    """What is planned of a cron job, beside what the next instant follows from."""

    job_id: UUID
    scheduled_for: Millis
    changes: int
    activated_at: Millis
    decided: Millis | None
    """The last instant of the schedule that the ledger has."""
    schedule: str
    """JSON, as it is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A row of the ledger: what was decided of an occurrence, or of a stretch."""

    scheduled_for: Millis
    attempt_group: int
    outcome: int
    reason: int | None
    run_id: UUID | None
    revision: int
    decided_at: Millis
    occurrences: int | None
    last_scheduled_for: Millis | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """A run of a past occurrence, fired or with its timer still to be."""

    scheduled_for: Millis
    attempt_group: int
    state: int | None
    """The state it ended in, None where it is live."""
    made: bool
    """False for one that was cancelled before it fired: only its group is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBackfill:
    """A backfill to be written, with its runs as parallel lists."""

    id: UUID
    start: Millis
    end: Millis
    by: str
    scheduled_for: Sequence[Millis]
    due_at: Sequence[Millis]
    groups: Sequence[int]
    runs: Sequence[UUID]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRow:
    """A backfill as it stands."""

    id: UUID
    start: Millis
    end: Millis
    revision: int
    runs: int
    waiting: int
    """How many of its runs were not let in yet."""
    created_at: Millis
    created_by: str
    cancelled_at: Millis | None
    cancelled_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Under which terms a tenant has its jobs."""

    timezone: str
    """Of a new cron that names none."""
    max_jobs: int | None
    max_payload_bytes: int | None
    jobs: int | None
    """How many it has that are not deleted; None where nobody counts them."""
    instant: Instant
    """When they were read: who makes jobs needs both, and asks once."""


def set_limits(conn: Connection) -> None:
    """Bound the waits and pauses of the open transaction."""
    _SQL["set_limits"].run(conn)


def read_terms(conn: Connection, *, tenant: int) -> Terms | None:
    """Return a tenant's terms, None where there is no such tenant."""
    for timezone, max_jobs, max_bytes, jobs, now, horizon in _SQL["read_terms"].run(
        conn, {"tenant": tenant}
    ):
        return Terms(
            timezone=timezone,
            max_jobs=max_jobs,
            max_payload_bytes=max_bytes,
            jobs=jobs,
            instant=Instant(now=now, horizon=horizon),
        )
    return None


def hurry(conn: Connection) -> None:
    """Bound the open transaction to 200 ms for a lock and 250 ms for a statement."""
    _SQL["hurry"].run(conn)


def hold_jobs(conn: Connection) -> None:
    """Let nobody write a job until the transaction ends; waits for whoever does."""
    _SQL["hold_jobs"].run(conn)


def begin_count(conn: Connection, *, tenant: int) -> int:
    """Begin to count a tenant's jobs, which nobody writes now; return 0 if they are."""
    return _SQL["begin_count"].change(conn, {"tenant": tenant})


def lock_counts(conn: Connection, *, tenants: Sequence[int]) -> None:
    """Lock what is counted of these tenants' jobs until the transaction ends."""
    _SQL["lock_counts"].run(conn, {"tenants": list(tenants)})


def end_count(conn: Connection, *, tenant: int) -> int:
    """Count a tenant's jobs no more; return 0 where they were not."""
    return _SQL["end_count"].change(conn, {"tenant": tenant})


def find_jobs(conn: Connection, *, tenant: int, keys: Sequence[str]) -> dict[str, UUID]:
    """Return the ids of the jobs that exist among these keys."""
    rows = _SQL["find_jobs"].run(conn, {"tenant": tenant, "keys": texts(keys)})
    return dict(rows)


def list_ended_pauses(
    conn: Connection, *, now: Millis | None, limit: int
) -> list[tuple[UUID, Millis]]:
    """Return jobs whose pause is over, each with its end; the first end first."""
    return [
        (job, until)
        for job, until in _SQL["list_ended_pauses"].run(
            conn, {"now": now, "limit": limit}
        )
    ]


def lock_jobs(
    conn: Connection, *, jobs: Sequence[UUID], tenant: int | None = None
) -> None:
    """Lock the rows of these jobs, of this tenant, until the transaction ends."""
    _SQL["lock_jobs"].run(conn, {"jobs": uuids(jobs), "tenant": tenant})


def load_jobs(
    conn: Connection, *, jobs: Sequence[UUID], tenant: int | None = None
) -> list[Job]:
    """Return those of these jobs that exist, by id, deleted ones too.

    None stands for all tenants.
    """
    rows = _SQL["load_jobs"].run(conn, {"jobs": uuids(jobs), "tenant": tenant})
    return [_job(row) for row in rows]


def list_jobs(conn: Connection, *, look: Look, chosen: Chosen, limit: int) -> list[Job]:
    """Return the jobs that were chosen, newest first, without their payloads."""
    rows = _SQL["list_jobs"].run(
        conn,
        {
            **look.params(),
            "limit": limit,
            "states": None if chosen.states is None else sorted(chosen.states),
            "queue": chosen.queue,
            "priority": chosen.priority,
            "tags": list(chosen.tags),
            "target": chosen.target,
            "words": chosen.words,
        },
    )
    return [_job(row) for row in rows]


def find_nth_job(conn: Connection, *, look: Look) -> UUID | None:
    """Return the last job of a look, None where there are fewer than it may have."""
    params = {k: v for k, v in look.params().items() if k != "key"}
    for (job,) in _SQL["find_nth_job"].run(conn, params):
        return UUID(str(job))
    return None


def list_revisions(
    conn: Connection, *, job: UUID, before: int, limit: int
) -> list[NumberedRevision]:
    """Return a job's revisions with numbers below ``before``, newest first."""
    rows = _SQL["list_revisions"].run(
        conn, {"job": job, "before": before, "limit": limit}
    )
    return [
        NumberedRevision(
            number=number,
            created_at=created_at,
            payload_bytes=payload_bytes or 0,
            definition=Revision(
                schedule=_object(schedule),
                jitter_window=jitter_window,
                overlap_policy=overlap_policy,
                queue=queue,
                priority=priority,
                target=json.loads(target),
                payload=None,
                retry_policy=json.loads(retry_policy),
                policy=json.loads(policy),
            ),
        )
        for (
            number,
            created_at,
            schedule,
            jitter_window,
            overlap_policy,
            queue,
            priority,
            target,
            retry_policy,
            policy,
            payload_bytes,
        ) in rows
    ]


def list_last_runs(conn: Connection, *, jobs: Sequence[Job]) -> dict[UUID, LastRun]:
    """Return the last fired run of each of these jobs that has one, whoever asked."""
    rows = _SQL["list_last_runs"].run(
        conn, {"parts": [job.part for job in jobs], "jobs": [job.id for job in jobs]}
    )
    return {
        job: LastRun(run_id=run, state=state, reason=reason, finished_at=finished_at)
        for job, run, state, reason, finished_at in rows
    }


def forbid_sorts(conn: Connection) -> None:
    """Have the open transaction read in the order of its indexes, and never sort."""
    _SQL["forbid_sorts"].run(conn)


def list_long_runs(
    conn: Connection, *, periods: Sequence[tuple[UUID, int, Millis]], since: Millis
) -> dict[UUID, LongRuns]:
    """Return those of these (job, partition, period) that run longer than that.

    Of each the last 20 runs since an instant count; the ledger is where they are found.
    Comes after ``forbid_sorts``, or a job with many occurrences costs them all.
    """
    rows = _SQL["list_long_runs"].run(
        conn,
        {
            "jobs": [job for job, _, _ in periods],
            "parts": [part for _, part, _ in periods],
            "periods": [period for _, _, period in periods],
            "since": since,
        },
    )
    return {
        job: LongRuns(
            runs=runs, longer=longer, median=median, longest=longest, longest_run=run
        )
        for job, runs, longer, median, longest, run in rows
    }


def list_schedules(
    conn: Connection, *, tenant: int, before: UUID, limit: int
) -> list[Scheduled]:
    """Return a tenant's living jobs with ids below ``before``, newest first."""
    rows = _SQL["list_schedules"].run(
        conn, {"tenant": tenant, "before": before, "limit": limit}
    )
    return [
        Scheduled(id=job, paused=paused, schedule=schedule, jitter_window=window)
        for job, paused, schedule, window in rows
    ]


def list_cron_timers(
    conn: Connection,
    *,
    part: int,
    table: str,
    after: tuple[Millis, UUID],
    since: Millis,
    limit: int,
) -> tuple[list[CronTimer], tuple[Millis, UUID] | None]:
    """Return what is planned of cron jobs in ``chrono_timer`` or ``chrono_timer_far``.

    The timers after one of these (due, job), at most ``limit``; and after which one the
    next page goes on, None at the end. The ledger is asked from ``since`` on.
    """
    rows = _SQL["list_cron_timers"].run(
        conn,
        {
            "part": part,
            "due_at": after[0],
            "ref": after[1],
            "since": since,
            "limit": limit,
        },
        timers=table,
    )
    found = [
        CronTimer(
            job_id=ref,
            scheduled_for=scheduled_for,
            changes=changes,
            activated_at=activated_at,
            decided=decided,
            schedule=schedule,
        )
        for _, ref, scheduled_for, changes, activated_at, schedule, decided in rows
        if changes is not None
    ]
    return found, (rows[-1][0], rows[-1][1]) if len(rows) == limit else None


def measure_minute(
    conn: Connection, *, tenant: int, start: Millis, end: Millis, most: int
) -> int:
    """Return how many fires of a tenant are planned in [start, end), up to ``most``."""
    [(count,)] = _SQL["measure_minute"].run(
        conn, {"tenant": tenant, "start": start, "end": end, "most": most}
    )
    return int(count)


def next_group(
    conn: Connection, *, job: Job, scheduled_for: Millis, low: UUID, high: UUID
) -> int:
    """Return the lowest attempt group from 1 on that is above all of an instant.

    The run ids of the instant are in [low, high). The job's row is locked.
    """
    [(group,)] = _SQL["next_group"].run(
        conn,
        {
            "part": job.part,
            "job": job.id,
            "scheduled_for": scheduled_for,
            "low": low,
            "high": high,
        },
    )
    return int(group)


def bump_epochs(conn: Connection, *, parts: Iterable[int]) -> dict[int, int]:
    """Lock partitions against fires and takeovers; return their new epochs.

    Comes after the locks on jobs and before everything that is read of the ledger.
    """
    rows = _SQL["bump_epochs"].run(conn, {"parts": sorted(set(parts))})
    return dict(rows)


def read_instant(conn: Connection) -> Instant:
    """Return the database's clock and the far horizon."""
    [(now, horizon)] = _SQL["read_instant"].run(conn)
    return Instant(now=now, horizon=horizon)


def read_decided(
    conn: Connection, *, jobs: Sequence[Job], since: Millis
) -> dict[UUID, Decided]:
    """Return what the ledger has of these jobs' schedules since an instant."""
    rows = _SQL["read_decided"].run(
        conn,
        {
            "parts": [job.part for job in jobs],
            "jobs": [job.id for job in jobs],
            "since": since,
        },
    )
    return {
        job: Decided(scheduled_for=scheduled_for, last_run=last_run)
        for job, scheduled_for, last_run in rows
    }


def read_remaining(
    conn: Connection, *, jobs: Sequence[Job], decided: Mapping[UUID, Decided]
) -> dict[UUID, tuple[int | None, int]]:
    """Return how many runs are left to these jobs by their plans in force, and how many
    skipped late occurrences have given back.

    None where no plan is in force.
    """
    rows = _SQL["read_remaining"].run(
        conn,
        {
            "parts": [job.part for job in jobs],
            "jobs": [job.id for job in jobs],
            "versions": [job.version for job in jobs],
            "decided": [
                max(decided[job.id].scheduled_for or 0, job.activated_at)
                for job in jobs
            ],
        },
    )
    return {job: (left, back) for job, left, back in rows}


def list_given_back(conn: Connection, *, limit: int) -> list[UUID]:
    """Return jobs to which skipped late occurrences gave runs back, by id."""
    return [job for (job,) in _SQL["list_given_back"].run(conn, {"limit": limit})]


def insert_jobs(
    conn: Connection, *, jobs: Sequence[NewJob], tenant: int, now: Millis
) -> set[UUID]:
    """Write new jobs; return the ids of those whose key was free."""
    rows = _SQL["insert_jobs"].run(
        conn,
        {
            "tenant": tenant,
            "now": now,
            "ids": uuids([job.id for job in jobs]),
            "keys": texts([job.key for job in jobs]),
            "names": texts([job.name for job in jobs]),
            "tags": texts([" ".join(job.tags) for job in jobs]),
            "parts": int8s([job.part for job in jobs]),
            "activated_at": int8s([job.activated_at for job in jobs]),
            "paused": bools([job.paused for job in jobs]),
            "paused_by": texts([job.paused_by for job in jobs]),
            "remaining_runs": int8s_or_nulls([job.remaining_runs for job in jobs]),
        },
    )
    return {job for (job,) in rows}


def insert_revisions(
    conn: Connection,
    *,
    revisions: Sequence[tuple[UUID, int, Revision]],
    now: Millis,
) -> None:
    """Write revisions as (job, number, definition)."""
    rows = [definition for _, _, definition in revisions]
    _SQL["insert_revisions"].change(
        conn,
        {
            "now": now,
            "jobs": uuids([job for job, _, _ in revisions]),
            "revisions": int8s([number for _, number, _ in revisions]),
            "schedules": jsonbs([row.schedule for row in rows]),
            "jitter_windows": int8s([row.jitter_window for row in rows]),
            "overlap_policies": texts([row.overlap_policy for row in rows]),
            "queues": texts([row.queue for row in rows]),
            "priorities": int8s([int(row.priority) for row in rows]),
            "targets": jsonbs([row.target for row in rows]),
            "payloads": jsonbs([row.payload for row in rows]),
            "retry_policies": jsonbs([row.retry_policy for row in rows]),
            "policies": jsonbs([row.policy for row in rows]),
        },
    )


def update_jobs(conn: Connection, *, jobs: Sequence[ChangedJob], now: Millis) -> None:
    """Write what an edit made of jobs that this transaction has locked."""
    _SQL["update_jobs"].change(
        conn,
        {
            "now": now,
            "ids": [job.id for job in jobs],
            "names": [job.name for job in jobs],
            "tags": [" ".join(job.tags) for job in jobs],
            "versions": [job.version for job in jobs],
            "revisions": [job.revision for job in jobs],
            "epochs": [job.epoch for job in jobs],
            "activated_at": [job.activated_at for job in jobs],
            "paused": [job.paused for job in jobs],
            "pause_notes": [job.pause_note for job in jobs],
            "paused_until": [job.paused_until or 0 for job in jobs],
            "paused_by": [job.paused_by for job in jobs],
            "deleted": [job.deleted for job in jobs],
            "remaining_runs": [job.remaining_runs for job in jobs],
        },
    )


def insert_timers(conn: Connection, *, timers: Sequence[Timer], table: str) -> int:
    """Write timers into ``chrono_timer`` or ``chrono_timer_far``; return how many.

    One that is there already stays as it is.
    """
    return _SQL["insert_timers"].change(
        conn,
        {
            "due_at": int8s([timer.due_at for timer in timers]),
            "scheduled_for": int8s([timer.scheduled_for for timer in timers]),
            "refs": uuids([timer.ref for timer in timers]),
            "jobs": uuids([timer.job_id for timer in timers]),
            "prevs": uuids_or_nulls([timer.prev for timer in timers]),
            "versions": int8s([timer.version for timer in timers]),
            "revisions": int8s([timer.revision for timer in timers]),
            "parts": int8s([timer.part for timer in timers]),
            "kinds": int8s([int(timer.kind) for timer in timers]),
            "groups": int8s([timer.attempt_group for timer in timers]),
            "remaining": int8s_or_nulls([timer.remaining for timer in timers]),
        },
        timers=table,
    )


def keep_plan_ends(
    conn: Connection, *, jobs: Sequence[ChangedJob], over: Collection[UUID]
) -> None:
    """Keep what is left to those of these newly planned jobs whose plans are over.

    What skipped late occurrences gave back to any of them is in their plans by now.
    """
    _SQL["keep_plan_ends"].change(
        conn,
        {
            "parts": [partition_of(job.id) for job in jobs],
            "jobs": [job.id for job in jobs],
            "versions": [job.version for job in jobs],
            "remaining": [
                job.remaining_runs if job.id in over else None for job in jobs
            ],
        },
    )


def insert_skips(conn: Connection, *, skips: Sequence[Skip]) -> int:
    """Write decided occurrences without a run; return how many rows were new."""
    return _SQL["insert_skips"].change(
        conn,
        {
            "scheduled_for": [skip.scheduled_for for skip in skips],
            "jobs": [skip.job_id for skip in skips],
            "runs": [skip.run_id for skip in skips],
            "versions": [skip.version for skip in skips],
            "revisions": [skip.revision for skip in skips],
            "parts": [skip.part for skip in skips],
            "reasons": [int(skip.reason) for skip in skips],
            "counts": [skip.count for skip in skips],
            "last_for": [skip.last_scheduled_for or 0 for skip in skips],
        },
    )


def notify_leaders(conn: Connection, *, partitions: Iterable[int]) -> None:
    """Send the numbers of these partitions to whoever leads them."""
    text = ",".join(map(str, sorted(set(partitions))))
    _SQL["notify_leaders"].run(conn, {"partitions": text})


def count_skips(
    conn: Connection, *, jobs: Sequence[Job], since: Millis, limit: int
) -> dict[UUID, Skips]:
    """Return how many occurrences of these jobs were skipped and missed since.

    Counts the newest ``limit`` rows of a job; one may stand for many occurrences.
    """
    rows = _SQL["count_skips"].run(
        conn,
        {
            "parts": [job.part for job in jobs],
            "jobs": [job.id for job in jobs],
            "since": since,
            "limit": limit,
        },
    )
    return {
        job: Skips(skipped=skipped, missed=missed, capped=seen == limit)
        for job, skipped, missed, seen in rows
    }


def find_decision(
    conn: Connection, *, job: Job, at: Millis, since: Millis
) -> list[Decision]:
    """Return what was decided of a job at an instant, and the schedule's last before.

    Of an instant the newest attempt group comes first.
    """
    rows = _SQL["find_decision"].run(
        conn, {"part": job.part, "job": job.id, "at": at, "since": since}
    )
    names = list(Decision.__dataclass_fields__)
    return [Decision(**dict(zip(names, row, strict=True))) for row in rows]


def find_revision(conn: Connection, *, job: UUID, at: Millis) -> dict[str, Any] | None:
    """Return the schedule of a job's revision in force at an instant, if any was."""
    for _, schedule in _SQL["find_revision"].run(conn, {"job": job, "at": at}):
        return _object(schedule)
    return None


def list_past(
    conn: Connection, *, job: Job, start: Millis, end: Millis
) -> list[PastRun]:
    """Return the runs of a job's occurrences in [start, end), oldest first.

    Those that were fired, those whose timer is still to be, and extra ones that were
    cancelled before they fired.
    """
    return [
        PastRun(
            scheduled_for=scheduled_for, attempt_group=group, state=state, made=made
        )
        for scheduled_for, group, state, made in _SQL["list_past"].run(
            conn,
            {
                "part": job.part,
                "job": job.id,
                "start": start,
                "end": end,
                "low": UUID(int=start << 80),
                "high": UUID(int=end << 80),
            },
        )
    ]


def insert_backfill(
    conn: Connection, *, job: Job, backfill: NewBackfill, now: Millis
) -> None:
    """Write a backfill and its runs; the job's row is locked."""
    _SQL["insert_backfill"].change(
        conn,
        {
            "backfill": backfill.id,
            "tenant": job.tenant,
            "job": job.id,
            "part": job.part,
            "version": job.version,
            "revision": job.revision,
            "queue": job.definition.queue,
            "start": backfill.start,
            "end": backfill.end,
            "by": backfill.by,
            "now": now,
            "scheduled_for": list(backfill.scheduled_for),
            "due_at": list(backfill.due_at),
            "groups": list(backfill.groups),
            "runs": list(backfill.runs),
        },
    )


def list_backfills(
    conn: Connection,
    *,
    job: UUID,
    before: UUID | None = None,
    backfill: UUID | None = None,
    limit: int,
) -> list[BackfillRow]:
    """Return a job's backfills with ids below ``before``, or one of them."""
    rows = _SQL["list_backfills"].run(
        conn,
        {
            "job": job,
            "before": PAST_ID if before is None else before,
            "backfill": backfill,
            "limit": limit,
        },
    )
    return [
        BackfillRow(
            id=row[0],
            start=row[1],
            end=row[2],
            revision=row[3],
            runs=row[4],
            waiting=row[5],
            created_at=row[6],
            created_by=row[7],
            cancelled_at=row[8],
            cancelled_by=row[9],
        )
        for row in rows
    ]


def cancel_backfill(conn: Connection, *, job: UUID, backfill: UUID, by: str) -> int:
    """Call off what waits of a job's backfill; return how many runs."""
    [(count,)] = _SQL["cancel_backfill"].run(
        conn, {"job": job, "backfill": backfill, "by": by}
    )
    return int(count)


def _object(text: str) -> dict[str, Any]:
    """Return a JSON object; of any other value, which is none of ours, an empty one."""
    value = json.loads(text)
    return value if isinstance(value, dict) else {}


def _job(row: tuple[Any, ...]) -> Job:
    ident, tenant, part, key, name, tags, version, revision, changes = row[:9]
    paused, pause_note, paused_until, paused_by = row[9:13]
    activated_at, created_at, updated_at, deleted_at, remaining_runs = row[13:18]
    schedule, jitter_window, overlap_policy, queue, priority = row[18:23]
    target, payload, retry_policy, policy = row[23:]
    return Job(
        id=ident,
        tenant=tenant,
        part=part,
        key=key,
        name=name,
        tags=tuple(tags),
        version=version,
        revision=revision,
        changes=changes,
        paused=paused,
        pause_note=pause_note,
        paused_until=paused_until,
        paused_by=paused_by,
        activated_at=activated_at,
        created_at=created_at,
        updated_at=updated_at,
        deleted_at=deleted_at,
        remaining_runs=remaining_runs,
        definition=Revision(
            schedule=_object(schedule),
            jitter_window=jitter_window,
            overlap_policy=overlap_policy,
            queue=queue,
            priority=priority,
            target=json.loads(target),
            payload=None if payload is None else json.loads(payload),
            retry_policy=json.loads(retry_policy),
            policy=json.loads(policy),
        ),
    )
