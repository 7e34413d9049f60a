"""Why did a job run, or not run, at an instant: an answer in plain words."""

from dataclasses import dataclass
from uuid import UUID

from apps.jobs import store
from apps.jobs.planning import LEDGER_KEPT, last_decided
from apps.jobs.selectors import find_job, read_decisions
from apps.jobs.store import Decision, Job
from apps.runs.errors import RunNotFound
from apps.runs.selectors import get_run, reason_of, state_of
from apps.runs.store import RunRow
from apps.runs.waits import why_waiting
from apps.runtime.sessions import Connection
from apps.tenants.actor import Actor
from chrono.rules import jitter, words
from chrono.rules.durations import format_duration
from chrono.rules.errors import ChronoError
from chrono.rules.instants import DAY, MINUTE, Millis, format_instant
from chrono.rules.keys import run_id
from chrono.rules.schedule import (
    FixedDelay,
    Schedule,
    latest_until,
    next_after,
    schedule_from_json,
)
from chrono.rules.states import Outcome, Reason, RunState
from chrono.rules.why import Mismatch, is_occurrence, mismatches

LOOK_BACK: tuple[Millis, ...] = (60 * MINUTE, DAY, 32 * DAY, 400 * DAY)
COUNTED = 10_000

_SKIPPED = {
    Reason.PAUSED: "The job was paused then.",
    Reason.OVERLAP: "The run before was not finished, and the job may not overlap.",
    Reason.BUFFER_FULL: "As many runs as may wait were waiting for the one before.",
    Reason.MISSED_SKIP: "It was missed by more than a minute, and the job's catch-up "
    "policy leaves such occurrences out.",
    Reason.COLLAPSED: "It was missed, and one later run stands for it and others.",
    Reason.PAST_DEADLINE: "It could not begin within the job's max_delay.",
    Reason.ENDED: "The job had come to its end.",
    Reason.DELETED: "The job was deleted.",
    Reason.RATE_DROP: "Its rate was used up, and the job drops what is above it.",
    Reason.OPERATOR: "Somebody skipped or cancelled it.",
}
_ENDED = {
    RunState.SUCCESS: "It ran, and succeeded.",
    RunState.DEAD: "It ran, and failed for good; it is in the dead-letter queue.",
    RunState.FAILED: "It ran, and a person resolved it as failed.",
    RunState.CANCELLED: "It was cancelled.",
    RunState.SKIPPED: "It was skipped.",
    RunState.UNKNOWN: "Its worker died; whether it took effect, a person decides.",
    RunState.RUNNING: "It is running.",
    RunState.RETRYING: "An attempt failed, and the next one is to come.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What became of an instant."""

    at: Millis
    verdict: str
    """One of run, skipped, no_occurrence, to_come, undecided, paused, ended, deleted,
    not_yet_created, forgotten, broken."""
    text: str
    reason: str | None = None
    """The reason of a skip, or of what holds the run."""
    mismatches: tuple[Mismatch, ...] = ()
    run: RunRow | None = None
    previous: Millis | None = None
    """The occurrence before the instant, by the schedule in force then."""
    following: Millis | None = None


def explain(
    conn: Connection,
    job_id: UUID,
    *,
    at: Millis,
    actor: Actor,
    now: Millis | None = None,
) -> Explanation:
    """Return why a job ran, or did not, at an instant.

    Raises JobNotFound; a deleted job is explained, too.
    """
    job = find_job(conn, job_id, actor=actor)
    now = store.read_instant(conn).now if now is None else now
    schedule = _schedule_at(conn, job, at)
    decisions = store.find_decision(conn, job=job, at=at, since=at - LEDGER_KEPT)
    for decision in decisions:
        if _covers(decision, schedule, at):
            return _around(_decided(conn, job, decision, at, now), schedule)
    return _around(_undecided(conn, job, schedule, at, now), schedule)


def last_before(schedule: Schedule, at: Millis) -> Millis | None:
    """Return the last occurrence before an instant, at most 400 days back."""
    if isinstance(schedule, FixedDelay):
        return None
    for back in LOOK_BACK:
        found, _ = latest_until(schedule, max(0, at - back), at - 1, COUNTED)
        if found is not None:
            return found
    return None


def _schedule_at(conn: Connection, job: Job, at: Millis) -> Schedule | str | None:
    """Return the schedule in force at an instant, or why it can't be read; None where
    there was none yet.
    """
    found = store.find_revision(conn, job=job.id, at=at)
    if found is None:
        return None
    try:
        return schedule_from_json(found)
    except ChronoError as error:
        return error.message


def _covers(decision: Decision, schedule: Schedule | str | None, at: Millis) -> bool:
    if decision.scheduled_for == at:
        return True
    last = decision.last_scheduled_for
    if last is None or at > last or schedule is None or isinstance(schedule, str):
        return False
    return is_occurrence(schedule, at)


def _decided(
    conn: Connection, job: Job, decision: Decision, at: Millis, now: Millis
) -> Explanation:
    if decision.outcome == Outcome.FIRED and decision.run_id is not None:
        try:
            return _ran(conn, job, decision.run_id, at, now)
        except RunNotFound:
            return Explanation(
                at=at, verdict="run", text="It ran; its history is no longer kept."
            )
    reason = None if decision.reason is None else Reason(decision.reason)
    text = _SKIPPED.get(reason, "It was decided not to run.") if reason else ""
    if decision.occurrences:
        first, last = decision.scheduled_for, decision.last_scheduled_for or at
        text += (
            f" So it was for {decision.occurrences} occurrences from "
            f"{format_instant(first)} to {format_instant(last)}."
        )
    return Explanation(
        at=at,
        verdict="skipped",
        text=text,
        reason=None if reason is None else reason.label,
    )


def _ran(conn: Connection, job: Job, run: UUID, at: Millis, now: Millis) -> Explanation:
    row, detail = get_run(conn, run, tenant=job.tenant)
    state = state_of(row)
    text = _ENDED.get(state, "")
    waits = why_waiting(conn, row, now, error=detail.error_reason)
    text = f"{text} {waits}".strip() if waits else text
    if state is RunState.SUCCESS and row.started_at and row.due_at:
        late = row.started_at - row.due_at
        if late >= MINUTE:
            text += f" It began {format_duration(late)} after it was due."
    if detail.error and state is not RunState.SUCCESS:
        text += f" Its last error: {detail.error.splitlines()[0][:200]}"
    return Explanation(at=at, verdict="run", text=text, reason=reason_of(row), run=row)


def _undecided(
    conn: Connection,
    job: Job,
    schedule: Schedule | str | None,
    at: Millis,
    now: Millis,
) -> Explanation:
    def answer(verdict: str, text: str) -> Explanation:
        return Explanation(at=at, verdict=verdict, text=text)

    if schedule is None:
        created = format_instant(job.created_at)
        return answer("not_yet_created", f"The job exists since {created}.")
    if isinstance(schedule, str):
        return answer("broken", f"The job's schedule can't be read: {schedule}")
    found = tuple(mismatches(schedule, at))
    if found:
        text = "It is no occurrence of the schedule. " + " ".join(
            one.text for one in found
        )
        return Explanation(at=at, verdict="no_occurrence", text=text, mismatches=found)
    if job.deleted_at is not None and job.deleted_at <= at:
        at_text = format_instant(job.deleted_at)
        return answer("deleted", f"The job is deleted since {at_text}.")
    try:
        # An edit leaves what was late then to a timer of its own.
        return _ran(conn, job, run_id(job.id, at, 0, job.part), at, now)
    except RunNotFound:
        pass
    if at < now - LEDGER_KEPT:
        return answer("forgotten", "What was decided so long ago is no longer kept.")
    return _of_plan(conn, job, at, now)


def _of_plan(conn: Connection, job: Job, at: Millis, now: Millis) -> Explanation:
    """Explain an occurrence of the schedule that nothing was decided of yet."""
    [decided] = read_decisions(conn, [job], now=now).values()
    known = last_decided(
        ledger=decided.scheduled_for, activated_at=job.activated_at, now=now
    )
    due = at + jitter.offset(job.id, job.definition.jitter_window)
    verdict, text = "to_come", f"It is due at {format_instant(due)}."
    if job.paused:
        since = format_instant(job.activated_at)
        by = f" by {job.paused_by}" if job.paused_by else ""
        note = words.noted(job.pause_note)
        verdict, text = "paused", f"The job is paused since {since}{by}{note}"
        if job.paused_until is not None:
            text += f" The pause ends at {format_instant(job.paused_until)}."
    elif at <= known:
        verdict = "no_occurrence"
        text = (
            "The plan in force began later: the schedule was changed, or its next "
            "occurrences were skipped, up to "
            f"{format_instant(known)}."
        )
    elif decided.remaining == 0:
        verdict, text = "ended", "The job has used up its number of runs."
    elif due <= now:
        verdict = "undecided"
        text = (
            f"It was due at {format_instant(due)}, and no scheduler has fired it yet; "
            "/status tells whether every partition is led."
        )
    return Explanation(at=at, verdict=verdict, text=text)


def _around(found: Explanation, schedule: Schedule | str | None) -> Explanation:
    if schedule is None or isinstance(schedule, str):
        return found
    return Explanation(
        at=found.at,
        verdict=found.verdict,
        text=found.text,
        reason=found.reason,
        mismatches=found.mismatches,
        run=found.run,
        previous=last_before(schedule, found.at),
        following=next_after(schedule, found.at),
    )
