"""Runs in public words, as answers show them."""

from datetime import datetime
from typing import Any

from apps.runs import letters, selectors
from apps.runs.letter_store import Letter
from apps.runs.selectors import trigger_of
from apps.runs.store import AttemptRow, Progress, Resolution, RunDetail, RunRow
from chrono.rules import retry
from chrono.rules.errors import ChronoError
from chrono.rules.instants import Millis, format_instant, to_millis
from chrono.rules.keys import scheduled_for_of
from chrono.rules.lease import LEASE_TTL, TERMINATE_AFTER
from chrono.rules.states import Priority, Reason, RunState, TimerKind, status_of


def short_form(row: RunRow) -> dict[str, Any]:
    """Return a run as a list shows it."""
    state = selectors.state_of(row)
    retrying = row.kind == TimerKind.RETRY
    ended = row.finished_at
    return {
        "id": str(row.id),
        "job_id": str(row.job_id),
        "job_key": row.job_key,
        "status": status_of(state),
        "state": state.label,
        "reason": selectors.reason_of(row),
        "cancel_requested": row.cancel or state is RunState.CANCELLED,
        "scheduled_for": format_instant(scheduled_for_of(row.id)),
        "due_at": _instant(row.due_at),
        "dispatched_at": _instant(row.dispatched_at),
        "started_at": _instant(row.started_at),
        "finished_at": _instant(ended),
        "dispatch_lag_ms": _between(row.due_at, row.dispatched_at),
        "start_lag_ms": _between(row.due_at, row.started_at),
        "duration_ms": _between(row.started_at, ended),
        "attempt": row.attempt,
        "next_retry_at": _instant(row.due_at) if retrying else None,
        "queue": row.queue,
        "priority": None if row.priority is None else Priority(row.priority).label,
        "revision": row.revision,
        "partition": row.part,
        "fence": row.fence,
        "worker": None if row.worker is None else str(row.worker),
    }


def full_form(
    row: RunRow, detail: RunDetail, said: Resolution | None = None
) -> dict[str, Any]:
    """Return a run with everything that is public, ``said`` of it what a person did."""
    running = row.place == "lease" and detail.beat_at is not None
    missed = detail.missed
    error = None
    if detail.error is not None and detail.error_reason is not None:
        error = {
            "reason": Reason(detail.error_reason).label,
            "message": detail.error,
            "at": _instant(detail.error_at),
        }
    return {
        **short_form(row),
        "trigger": trigger_of(row, detail),
        "attempt_group": detail.attempt_group,
        "max_attempts": _max_attempts(detail),
        "lease_until": _instant(detail.beat_at + LEASE_TTL)
        if running and detail.beat_at is not None
        else None,
        "idempotency_key": str(row.id),
        "payload": detail.payload,
        "result": detail.result,
        "checkpoint": detail.checkpoint,
        "progress": _progress(detail.progress),
        "error": error,
        "resolution": None
        if said is None
        else {
            "outcome": RunState(said.state).label,
            "by": said.actor,
            "reason": said.note,
            "at": format_instant(said.at),
        },
        "missed_from": None if missed is None else format_instant(missed.first),
        "missed_to": None if missed is None else format_instant(missed.last),
        "missed_count": None if missed is None else missed.count,
        "terminate_from": None
        if detail.told_at is None
        else format_instant(detail.told_at + TERMINATE_AFTER),
        "rerun_of": None if detail.rerun_of is None else str(detail.rerun_of),
        "rerun_as": None if detail.rerun_as is None else str(detail.rerun_as),
    }


def attempts_form(
    row: RunRow, failed: list[AttemptRow], *, log: str | None
) -> list[dict[str, Any]]:
    """Return the failed attempts, and the one that did not fail or has not ended.

    ``log`` is what that one logged last.
    """
    shown = [
        {
            "attempt": one.attempt,
            "outcome": "failed",
            "reason": Reason(one.reason).label,
            "started_at": _instant(one.started_at),
            "finished_at": _instant(one.finished_at),
            "duration_ms": one.finished_at - one.started_at,
            "error": one.error,
            "worker": str(one.worker),
            "fence": one.fence,
            "log": one.log,
        }
        for one in failed
    ]
    told = {one.attempt for one in failed}
    if row.started_at is None or row.attempt is None or row.attempt in told:
        return shown
    state = selectors.state_of(row)
    last = {
        "attempt": row.attempt,
        "outcome": state.label,
        "reason": selectors.reason_of(row),
        "started_at": _instant(row.started_at),
        "finished_at": _instant(row.finished_at),
        "duration_ms": _between(row.started_at, row.finished_at),
        "error": None,
        "worker": None if row.worker is None else str(row.worker),
        "fence": row.fence,
        "log": log,
    }
    return [*shown, last]


def letter_form(letter: Letter) -> dict[str, Any]:
    """Return a dead letter as a list shows it."""
    return {
        "run_id": str(letter.run_id),
        "job_id": str(letter.job_id),
        "job_key": letter.job_key,
        "job_deleted": letter.job_deleted,
        "state": letters.state_of(letter),
        "reason": Reason(letter.reason).label,
        "scheduled_for": format_instant(scheduled_for_of(letter.run_id)),
        "died_at": format_instant(letter.died_at),
        "attempt": letter.attempt,
        "queue": letter.queue,
        "revision": letter.revision,
        "error": letter.error,
        "rerun_as": None if letter.rerun_id is None else str(letter.rerun_id),
        "closed_at": _instant(letter.closed_at),
        "closed_by": letter.closed_by,
        "note": letter.note,
        "noted_at": _instant(letter.noted_at),
        "noted_by": letter.noted_by,
    }


def errors_form(errors: list[Any]) -> list[dict[str, Any]]:
    """Return the errors of a dead letter; what is not as expected is left out."""
    return [
        {
            "attempt": one.get("attempt"),
            "reason": _reason(one.get("reason")),
            "error": one.get("error"),
            "finished_at": _stored_instant(one.get("finished_at")),
            "log": one.get("log"),
        }
        for one in errors
        if isinstance(one, dict)
    ]


def _reason(number: Any) -> str | None:
    known = isinstance(number, int) and number in Reason
    return Reason(number).label if known else None


def _stored_instant(text: Any) -> str | None:
    """Return an instant that was written into JSON by the database."""
    if not isinstance(text, str):
        return None
    try:
        return format_instant(to_millis(datetime.fromisoformat(text)))
    except (ValueError, ChronoError):
        return None


def _progress(told: Progress | None) -> dict[str, Any] | None:
    if told is None:
        return None
    return {
        # A float4 as people wrote it: 0.3, not 0.30000001192092896.
        "share": None if told.share is None else round(told.share, 6),
        "text": told.text,
        "at": format_instant(told.at),
        "attempt": told.attempt,
    }


def _instant(moment: Millis | None) -> str | None:
    return None if moment is None else format_instant(moment)


def _between(start: Millis | None, end: Millis | None) -> int | None:
    return None if start is None or end is None else end - start


def _max_attempts(detail: RunDetail) -> int | None:
    if detail.retry_policy is None:
        return None
    try:
        return retry.from_json(detail.retry_policy).max_attempts
    except ChronoError:
        return None
