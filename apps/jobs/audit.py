"""Whether what was promised holds: each invariant asked of the database.

Every check is a statement that returns nothing where all is right; one that reads much
is asked partition by partition. Those that compare tables do it in one snapshot, so
that a run on the move is not taken for lost: the audit may run while all else does.

Not asked here, since a database that is running cannot answer: whether fences rise in
the order of commits (the staged tests do), whether a change once acknowledged is
there, and what happened at the targets (the rigs do).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from apps.jobs import store
from apps.jobs.store import Found, Ledger, Window, WrongPlan
from apps.runtime.sessions import Connection
from chrono.rules.instants import DAY, LATEST, Millis, format_instant
from chrono.rules.partitions import PARTITIONS
from chrono.rules.schedule import next_after, occurrences, schedule_from_json

LIMIT = 100
"""How many violations of one invariant are told at most."""
ROWS = 5_000
"""How many decisions of one job are compared with its schedule at most."""

CONSTRAINTS = (
    ("chrono_occurrence", "chrono_occurrence_pkey"),
    ("chrono_occurrence", "chrono_occurrence_scheduled_for"),
    ("chrono_occurrence", "chrono_occurrence_outcome"),
    ("chrono_occurrence", "chrono_occurrence_range"),
    ("chrono_run", "chrono_run_pkey"),
    ("chrono_run", "chrono_run_state"),
    ("chrono_run", "chrono_run_result"),
    ("chrono_lease", "chrono_lease_pkey"),
    ("chrono_lease", "chrono_lease_checkpoint"),
    ("chrono_attempt", "chrono_attempt_pkey"),
    ("chrono_timer", "chrono_timer_due_at"),
    ("chrono_timer", "chrono_timer_scheduled_for"),
    ("chrono_timer_far", "chrono_timer_due_at"),
    ("chrono_timer_far", "chrono_timer_scheduled_for"),
    ("chrono_run_input", "chrono_run_input_payload"),
    ("chrono_run_input", "chrono_run_input_some"),
    ("chrono_job", "chrono_job_instants"),
    ("chrono_job", "chrono_job_paused_until"),
    ("chrono_job", "chrono_job_tags"),
    ("chrono_job_revision", "chrono_job_revision_instants"),
    ("chrono_job_revision", "chrono_job_revision_payload_size"),
    ("chrono_job_revision", "chrono_job_revision_payload_depth"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Something that should not be."""

    invariant: str
    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.subject} {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One invariant: its short name, what it says, and how it is asked."""

    name: str
    says: str
    ask: Callable[[Connection, Window], Iterable[Found]]


def audit(conn: Connection, *, window: Millis = DAY) -> list[Violation]:
    """Return every violation of every invariant, at most 100 of each.

    Looks ``window`` milliseconds back. ``conn`` is an autocommit session.
    """
    return [found for _, violations in run_checks(conn, window) for found in violations]


def run_checks(
    conn: Connection, window: Millis = DAY
) -> Iterator[tuple[Check, list[Violation]]]:
    """Iterate over the checks, each with what it found."""
    since = max(0, store.read_instant(conn).now - window)
    for check in CHECKS:
        found = islice(check.ask(conn, Window(since=since, limit=LIMIT)), LIMIT)
        yield (
            check,
            [
                Violation(invariant=check.name, subject=subject, detail=detail)
                for subject, detail in found
            ],
        )


def _constraints(conn: Connection, window: Window) -> Iterable[Found]:
    return store.audit_constraints(conn, constraints=CONSTRAINTS)


def _decisions(conn: Connection, window: Window) -> Iterator[Found]:
    for part in range(PARTITIONS):
        ledgers = store.audit_decisions(conn, part=part, since=window.since, rows=ROWS)
        for ledger in ledgers:
            yield from judge_ledger(ledger, since=window.since)


def judge_ledger(ledger: Ledger, *, since: Millis) -> Iterator[Found]:
    """Yield where a job's decisions and the occurrences of its schedule differ.

    Every occurrence after the start of the plan, up to the last decided one, has
    exactly one decision, and there is no other decision. Where the plan began before
    ``since``, or has more decisions than are looked at, the first seen begins it.
    """
    subject = f"job {ledger.job_id}"
    if ledger.stopped:
        first = format_instant(ledger.scheduled_for[0])
        yield subject, f"is paused or deleted, but {first} was decided since"
        return
    for moment, version in zip(ledger.scheduled_for, ledger.versions, strict=True):
        if version != ledger.version:
            decided = f"{format_instant(moment)} decided by plan {version}"
            yield subject, f"has {decided} in the time of plan {ledger.version}"
    begins = ledger.activated_at
    if begins < since or len(ledger.scheduled_for) == ROWS:
        begins = ledger.scheduled_for[0] - 1
    yield from _compare(ledger, begins, subject)


def _compare(ledger: Ledger, begins: Millis, subject: str) -> Iterator[Found]:
    rows = [
        (first, last or first)
        for first, last in zip(ledger.scheduled_for, ledger.last_for, strict=True)
    ]
    schedule = schedule_from_json(ledger.schedule)
    expected = occurrences(schedule, begins, max(last for _, last in rows))
    moment = next(expected, None)
    over = begins
    for first, last in rows:
        while moment is not None and moment < first:
            yield subject, f"has {format_instant(moment)} undecided"
            moment = next(expected, None)
        if first <= over:
            yield subject, f"has {format_instant(first)} decided twice"
        elif moment != first:
            yield subject, f"has no occurrence at {format_instant(first)}"
        while moment is not None and moment <= last:
            moment = next(expected, None)
        over = max(over, last)


def _fences(conn: Connection, window: Window) -> Iterable[Found]:
    return store.audit_fences(conn, window=window)


def _attempts(conn: Connection, window: Window) -> Iterable[Found]:
    return store.audit_attempts(conn, window=window)


def _overlaps(conn: Connection, window: Window) -> Iterable[Found]:
    return store.audit_overlaps(conn, window=window)


def _updates(conn: Connection, window: Window) -> Iterable[Found]:
    return store.audit_updates(conn)


def _instants(conn: Connection, window: Window) -> Iterable[Found]:
    return store.audit_instants(conn, window=window)


def _dead(conn: Connection, window: Window) -> Iterable[Found]:
    return store.audit_dead(conn, window=window)


def _doubles(conn: Connection, window: Window) -> Iterable[Found]:
    return store.audit_doubles(conn, window=window)


def _lost(conn: Connection, window: Window) -> Iterator[Found]:
    for part in range(PARTITIONS):
        yield from store.audit_lost(conn, part=part, window=window)


def _plans(conn: Connection, window: Window) -> Iterator[Found]:
    for part in range(PARTITIONS):
        for plan in store.audit_plans(conn, part=part):
            if not _is_over(plan):
                state = "deleted" if plan.deleted else "paused" if plan.paused else ""
                yield plan.subject, f"has {plan.timers} timers {state}".rstrip()


def _is_over(plan: WrongPlan) -> bool:
    """Return whether an enabled job rightly has no timer: nothing is left to plan."""
    if plan.timers or plan.paused or plan.deleted:
        return False
    following = next_after(schedule_from_json(plan.schedule), plan.decided)
    return following is None or following >= LATEST - DAY


def _manual(conn: Connection, window: Window) -> Iterable[Found]:
    return store.audit_manual(conn, window=window)


def _strays(conn: Connection, window: Window) -> Iterable[Found]:
    return store.audit_strays(conn)


CHECKS = (
    Check(
        name="constraints",
        says="the keys and limits that promises rest on are in force",
        ask=_constraints,
    ),
    Check(
        name="decisions",
        says="each occurrence of the present plan up to the last decided one has "
        "exactly one decision, and no other instant has one",
        ask=_decisions,
    ),
    Check(
        name="plans",
        says="an enabled job has one timer of its present plan, unless its schedule "
        "is over; a paused or deleted one has none",
        ask=_plans,
    ),
    Check(
        name="doubles",
        says="no run is in two places, but for withdrawn ones",
        ask=_doubles,
    ),
    Check(name="lost", says="no fired run is nowhere", ask=_lost),
    Check(name="fences", says="no row has a fence above its partition's", ask=_fences),
    Check(
        name="attempts",
        says="attempts count 1 to n without a gap, n at most what the policy allows",
        ask=_attempts,
    ),
    Check(
        name="overlaps", says="no attempt begins before the last ended", ask=_overlaps
    ),
    Check(
        name="updates",
        says="no row of the history, the ledger, timers or ready was ever updated",
        ask=_updates,
    ),
    Check(
        name="instants",
        says="nothing is early: scheduled, due, ready, started, ended, in this order",
        ask=_instants,
    ),
    Check(name="dead", says="a dead run has its error and its dead letter", ask=_dead),
    Check(
        name="manual",
        says="a manual run is none of the schedule's, and a slot has its run",
        ask=_manual,
    ),
    Check(name="strays", says="the default leaves are empty", ask=_strays),
)
"""Every invariant whose subject exists, in the order in which it is told."""
