"""What an edit does to a job's occurrences: the past by the old plan, then the new.

Pure decisions, made under the locks of `apps.jobs.commands` from values read there.
An edit splits time at its instant. Occurrences of the old plan up to it (by nominal
time, jitter or not) are decided here; the new plan begins strictly after it. So an edit
during an outage loses nothing, and a job moved from 18:00 to 08:00 at noon fires
nothing at once.
"""

from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from chrono.rules import catchup, jitter
from chrono.rules.buckets import bucket_start
from chrono.rules.instants import DAY, LATEST, Millis
from chrono.rules.keys import run_id
from chrono.rules.policy import DEFAULT, Policy
from chrono.rules.schedule import (
    FixedDelay,
    Once,
    Schedule,
    latest_until,
    next_after,
    occurrences,
    period,
)
from chrono.rules.states import Reason, TimerKind

ONE_SHOT_GRACE: Millis = DAY
"""How far back the `run_at` of a new job may lie; it then runs at once."""
LEDGER_KEPT: Millis = 30 * DAY
"""Before that, nothing is known of what was decided, and nothing is decided again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What of a job decides its occurrences, under one planning version."""

    job_id: UUID
    part: int
    version: int
    revision: int
    schedule: Schedule
    jitter_window: Millis
    policy: Policy = DEFAULT

    @property
    def offset(self) -> Millis:
        """Return how much later than its instant an occurrence is due."""
        return jitter.offset(self.job_id, self.jitter_window)

    def due(self, scheduled_for: Millis) -> Millis:
        """Return when an occurrence is due."""
        return scheduled_for + self.offset

    def run(self, scheduled_for: Millis) -> UUID:
        """Return the id of an occurrence's run."""
        return run_id(self.job_id, scheduled_for, 0, self.part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A row for `chrono_timer` or `chrono_timer_far`."""

    kind: TimerKind
    ref: UUID
    job_id: UUID
    part: int
    version: int
    revision: int
    scheduled_for: Millis
    due_at: Millis
    prev: UUID | None = None
    attempt_group: int = 0
    remaining: int | None = None
    """How many runs of the schedule there are left, this one included; of a late one 1
    where it has taken a run off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A row of the ledger: one occurrence, or a stretch of them, that has no run."""

    job_id: UUID
    run_id: UUID
    part: int
    version: int
    revision: int
    scheduled_for: Millis
    reason: Reason
    count: int = 1
    """How many occurrences it stands for; of a very long stretch, at least so many."""
    last_scheduled_for: Millis | None = None
    """The last of a stretch; None for a single occurrence."""


def last_decided(*, ledger: Millis | None, activated_at: Millis, now: Millis) -> Millis:
    """Return the instant up to which a job's occurrences are decided.

    ``ledger`` is the latest scheduled instant that the ledger has of attempt group 0.
    """
    return max(ledger or 0, activated_at, now - LEDGER_KEPT)


def moved_by_zone(
    schedule: Schedule, *, ledger: Millis | None, activated_at: Millis
) -> Millis | None:
    """Return the occurrence that the last decided one has become, None for none.

    Where the rules of a time zone change, an instant that was decided by the old ones
    may be no occurrence any more, and its wall time comes again a little later. That
    is told from its distance: less than half of what lies between two occurrences. The
    arguments are those of :func:`last_decided`; only what the plan in force decided is
    looked at.
    """
    if ledger is None or ledger <= activated_at:
        return None
    if next_after(schedule, ledger - 1) == ledger:
        return None
    following, between = next_after(schedule, ledger), period(schedule)
    if following is None or between is None or following - ledger >= between // 2:
        return None
    return following


def skip_past(
    plan: Plan, *, decided: Millis, now: Millis, reason: Reason, limit: int
) -> list[Skip]:
    """Return the ledger rows that skip every occurrence in (decided, now].

    Counts up to ``limit`` of them one by one. Of a fixed delay there is none.
    """
    if isinstance(plan.schedule, FixedDelay):
        return []
    return _stretch(plan, decided, now, reason, limit)


def catch_up(
    plan: Plan, *, decided: Millis, now: Millis, limit: int
) -> tuple[list[Timer], list[Skip]]:
    """Return what becomes of the old plan's occurrences in (decided, now].

    Those due less than a minute ago, or not yet due, become late timers. What was
    missed for longer the catch-up policy decides; what it lets run are late timers,
    too. Of a fixed delay nothing is missed: the new plan goes on from now.
    """
    if isinstance(plan.schedule, FixedDelay):
        return [], []
    edge = catchup.borders(
        plan.schedule, plan.policy, after=decided, offset=plan.offset, now=now
    )
    skips: list[Skip] = []
    after = decided
    for border, reason in (
        (edge.past_deadline, Reason.PAST_DEADLINE),
        (edge.left_out, Reason.MISSED_SKIP),
    ):
        skips += _stretch(plan, after, border, reason, limit)
        after = max(after, border)
    if edge.collapse:
        newest, _ = latest_until(plan.schedule, after, edge.until, limit)
        if newest is not None:
            skips += _stretch(plan, after, newest - 1, Reason.COLLAPSED, limit)
            after = newest - 1
    late = occurrences(plan.schedule, after, now)
    return [_late(plan, moment, now) for moment in late], skips


def plan_next(
    plan: Plan,
    *,
    after: Millis,
    now: Millis,
    prev: UUID | None,
    remaining: int | None = None,
) -> Timer | None:
    """Return the timer of the first occurrence strictly after ``after``, or None.

    ``prev`` is the job's last fired run, ``remaining`` how many runs are left to it.
    """
    moment = next_after(plan.schedule, after)
    if moment is None or plan.due(moment) >= LATEST or remaining == 0:
        return None
    return Timer(
        kind=TimerKind.SCHEDULE,
        ref=plan.job_id,
        job_id=plan.job_id,
        part=plan.part,
        version=plan.version,
        revision=plan.revision,
        scheduled_for=moment,
        # Only a one-shot that lies back is due before now: it runs at once.
        due_at=max(plan.due(moment), now),
        prev=prev,
        remaining=remaining,
    )


def skip_next(plan: Plan, *, after: Millis, count: int) -> list[Skip]:
    """Return the ledger rows that skip the next ``count`` occurrences after an instant.

    Fewer where the schedule is over before.
    """
    return [
        Skip(
            job_id=plan.job_id,
            run_id=plan.run(moment),
            part=plan.part,
            version=plan.version,
            revision=plan.revision,
            scheduled_for=moment,
            reason=Reason.OPERATOR,
        )
        for moment in islice(occurrences(plan.schedule, after, LATEST - 1), count)
    ]


def start_of_plan(schedule: Schedule, *, now: Millis) -> Millis | None:
    """Return the instant after which a new job's plan begins, or None if it is over.

    That is now, but for a one-shot that lies up to a day back: it still runs.
    """
    if not isinstance(schedule, Once) or schedule.at > now:
        return now
    return schedule.at - 1 if schedule.at >= now - ONE_SHOT_GRACE else None


def _late(plan: Plan, moment: Millis, now: Millis) -> Timer:
    return Timer(
        kind=TimerKind.LATE,
        ref=plan.run(moment),
        job_id=plan.job_id,
        part=plan.part,
        version=plan.version,
        revision=plan.revision,
        scheduled_for=moment,
        # Earlier hours may have no bucket any more.
        due_at=max(plan.due(moment), bucket_start(now)),
    )


def _stretch(
    plan: Plan, after: Millis, until: Millis, reason: Reason, limit: int
) -> list[Skip]:
    last, count = latest_until(plan.schedule, after, until, limit)
    first = next_after(plan.schedule, after)
    if last is None or first is None:
        return []
    single = first == last
    return [
        Skip(
            job_id=plan.job_id,
            run_id=plan.run(first),
            part=plan.part,
            version=plan.version,
            revision=plan.revision,
            scheduled_for=first,
            reason=reason,
            count=1 if single else max(count, 2),
            last_scheduled_for=None if single else last,
        )
    ]
