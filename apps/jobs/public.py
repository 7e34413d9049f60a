"""A job as people and programs see it: flat fields, durations and instants as text.

Of the public form the fields of a definition go back into `parse_definition` and give
the same job again; the others say what the job is doing. `version` is the number of
its last change, which an ETag carries.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from apps.jobs.planning import last_decided
from apps.jobs.store import (
    Decided,
    Job,
    LastRun,
    NumberedRevision,
    Revision,
    Skips,
)
from apps.jobs.watch_store import JobEvent
from chrono.rules import jitter, policy
from chrono.rules.durations import format_duration
from chrono.rules.errors import ChronoError
from chrono.rules.instants import LATEST, Millis, format_instant
from chrono.rules.keys import scheduled_for_of
from chrono.rules.policy import POLICY_FIELDS
from chrono.rules.schedule import (
    SCHEDULE_FIELDS,
    next_after,
    occurrences,
    schedule_from_json,
)
from chrono.rules.states import Priority, Reason, RunState, status_of
from chrono.rules.words import describe

NEXT_RUNS = 5
HIDDEN = "(hidden)"
CHANGED = "(hidden, changed)"
AUDITED_PAYLOAD = 4_096
"""Bytes of JSON: what is longer is named in the audit by its length."""
READ_ONLY = (
    "id",
    "state",
    "version",
    "revision",
    "schedule_text",
    "pause_note",
    "paused_until",
    "paused_by",
    "runs_left",
    "next_run_at",
    "next_due_at",
    "next_runs",
    "last_run",
    "skipped_count",
    "missed_count",
    "counts_capped",
    "created_at",
    "updated_at",
    "deleted_at",
)
"""The fields of the public form that no definition has."""

_ONLY_ALONE = ("payload", "retry_policy", "next_runs")
_TARGET_ITEM = ("kind", "name", "method", "url")
_UNREVISED = ("key", "name", "tags", "paused")
_NOT_REVISED = (*_UNREVISED, "payload")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a job's plan has before it, as of one instant."""

    moments: tuple[Millis, ...]
    """Its next nominal instants; none where nothing is planned."""
    offset: Millis
    """How much later than that a run is due."""
    ended: bool
    """Whether the schedule is over."""
    broken: str | None = None
    """Why the schedule, as it is stored, cannot be read."""


def definition_fields(job: Job) -> dict[str, Any]:
    """Return the fields that `parse_definition` takes, for a job as it is."""
    definition = job.definition
    stored = definition.schedule
    schedule = {name: stored[name] for name in stored if name in SCHEDULE_FIELDS}
    if stored.get("written") is not None:
        schedule["cron"] = stored["written"]
    return {
        "key": job.key,
        "name": job.name,
        "tags": list(job.tags),
        **schedule,
        "jitter_window": format_duration(definition.jitter_window),
        "overlap_policy": definition.overlap_policy,
        "queue": definition.queue,
        "priority": Priority(definition.priority).label,
        "target": definition.target,
        "payload": definition.payload,
        "retry_policy": definition.retry_policy,
        **_policy_fields(definition.policy),
        "paused": job.paused,
    }


def has_chosen_start(job: Job) -> bool:
    """Return whether somebody chose the `starts_at` of a job's schedule.

    An interval or a delay that is given none counts from the job's creation.
    """
    schedule = job.definition.schedule
    start = schedule.get("starts_at")
    if start is None:
        return False
    return "cron" in schedule or start != format_instant(job.created_at)


def job_fields(
    job: Job,
    *,
    decided: Decided,
    last_run: LastRun | None,
    skips: Skips,
    now: Millis,
    runs: int = NEXT_RUNS,
    secrets: bool = True,
) -> dict[str, Any]:
    """Return a job's public form with its next ``runs`` instants.

    Without ``secrets`` the values of its target's headers are hidden.
    """
    text = ""
    try:
        view = outlook(job, decided=decided, now=now, runs=max(1, runs))
        text = describe(schedule_from_json(job.definition.schedule))
    except ChronoError as error:
        # One bad row is shown as such; it takes no list and no page with it.
        view = Outlook(moments=(), offset=0, ended=False, broken=error.message)
    first = view.moments[0] if view.moments else None
    fields = definition_fields(job)
    if not secrets:
        fields["target"] = hide_headers(fields["target"])
    return {
        "id": str(job.id),
        **fields,
        "state": _state(job, view),
        "version": job.changes,
        "revision": job.revision,
        "schedule_text": text if view.broken is None else view.broken,
        "pause_note": job.pause_note,
        "paused_until": _instant(job.paused_until),
        "paused_by": job.paused_by,
        "runs_left": decided.remaining,
        "next_run_at": _instant(first),
        "next_due_at": None if first is None else format_instant(first + view.offset),
        "next_runs": [format_instant(moment) for moment in view.moments[:runs]],
        "last_run": None if last_run is None else last_run_fields(last_run),
        "skipped_count": skips.skipped,
        "missed_count": skips.missed,
        "counts_capped": skips.capped,
        "created_at": format_instant(job.created_at),
        "updated_at": format_instant(job.updated_at),
        "deleted_at": _instant(job.deleted_at),
    }


def _policy_fields(stored: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return policy.all_fields(policy.from_json(stored))
    except ChronoError:
        # As it is stored: whoever mends the job sees what is wrong with it.
        return {name: stored.get(name) for name in sorted(POLICY_FIELDS)}


def job_item(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return of a job's public form what a list shows."""
    shown = {name: value for name, value in fields.items() if name not in _ONLY_ALONE}
    target = fields["target"]
    return {
        **shown,
        "target": {name: target[name] for name in _TARGET_ITEM if name in target},
    }


def revision_fields(job: Job, made: NumberedRevision) -> dict[str, Any]:
    """Return one of a job's revisions: its definition, its number and its instant.

    The values of headers are hidden.
    """
    fields = definition_fields(replace(job, definition=made.definition))
    shown = {name: fields[name] for name in fields if name not in _NOT_REVISED}
    return {
        "revision": made.number,
        "created_at": format_instant(made.created_at),
        **shown,
        "target": hide_headers(made.definition.target),
        "payload_bytes": made.payload_bytes,
    }


def revised_fields(
    job: Job, made: Revision, other: Revision | None = None
) -> dict[str, Any]:
    """Return the fields of one of a job's revisions, beside those of another.

    Values of headers and of an address's query are hidden; header values that differ
    from the ``other``'s are said to be changed.
    """
    fields = definition_fields(replace(job, definition=made))
    shown = {name: fields[name] for name in fields if name not in _UNREVISED}
    shown["target"] = _hide(made.target, {} if other is None else other.target)
    return shown


def event_fields(event: JobEvent) -> dict[str, Any]:
    """Return something that was noticed of a job."""
    return {
        "id": event.id,
        "at": format_instant(event.at),
        "kind": event.kind.label,
        "over": event.over,
        "run_id": None if event.run_id is None else str(event.run_id),
        "detail": event.detail,
    }


def outlook(job: Job, *, decided: Decided, now: Millis, runs: int) -> Outlook:
    """Return what a job's plan has before it.

    The first instant may be over: it is the next one to be decided. A paused or
    deleted job has none before it.
    """
    schedule = schedule_from_json(job.definition.schedule)
    known = last_decided(
        ledger=decided.scheduled_for, activated_at=job.activated_at, now=now
    )
    offset = jitter.offset(job.id, job.definition.jitter_window)
    first = next_after(schedule, known)
    if first is None or first + offset >= LATEST or decided.remaining == 0:
        return Outlook(moments=(), offset=offset, ended=True)
    if job.paused or job.deleted_at is not None:
        return Outlook(moments=(), offset=offset, ended=False)
    most = runs if decided.remaining is None else min(runs, decided.remaining)
    moments = tuple(islice(occurrences(schedule, known, LATEST - 1), most))
    return Outlook(moments=moments, offset=offset, ended=False)


def last_run_fields(last: LastRun) -> dict[str, Any]:
    """Return a job's last run in short."""
    state = RunState(last.state)
    return {
        "id": str(last.run_id),
        "status": status_of(state),
        "state": state.label,
        "reason": None if last.reason is None else Reason(last.reason).label,
        "scheduled_for": format_instant(scheduled_for_of(last.run_id)),
        "finished_at": _instant(last.finished_at),
    }


def audited(job: Job, other: Job | None = None) -> dict[str, Any]:
    """Return what the audit keeps of a job, beside how it was or will be.

    Values of headers and of an address's query are hidden, whatever they are; those
    that differ from the ``other``'s are said to be changed. A long payload is left out.
    """
    fields = definition_fields(job)
    fields["target"] = _hide(
        job.definition.target, {} if other is None else other.definition.target
    )
    size = len(json.dumps(fields["payload"], ensure_ascii=False).encode())
    if size > AUDITED_PAYLOAD:
        fields["payload"] = {"bytes": size, "revision": job.revision}
    return {
        **fields,
        "pause_note": job.pause_note,
        "paused_until": _instant(job.paused_until),
        "version": job.changes,
        "revision": job.revision,
        # Each plan decides up to where the next one begins: chronoaudit reads this.
        "plan_version": job.version,
        "plan_since": format_instant(job.activated_at),
    }


def hide_headers(
    target: Mapping[str, Any], other: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a target whose headers have no values."""
    shown = dict(target)
    headers = target.get("headers")
    if isinstance(headers, Mapping):
        known = {} if other is None else other.get("headers") or {}
        shown["headers"] = {
            name: CHANGED if name in known and known[name] != value else HIDDEN
            for name, value in headers.items()
        }
    return shown


def _hide(target: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    shown = hide_headers(target, other)
    url = target.get("url")
    if isinstance(url, str) and (parts := urlsplit(url)).query:
        shown["url"] = urlunsplit(parts._replace(query=HIDDEN))
    return shown


def _state(job: Job, view: Outlook) -> str:
    if job.deleted_at is not None:
        return "deleted"
    if job.paused:
        return "paused"
    if view.broken is not None:
        return "broken"
    return "ended" if view.ended else "active"


def _instant(moment: Millis | None) -> str | None:
    return None if moment is None else format_instant(moment)
