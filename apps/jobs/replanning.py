"""What a change of the time zone data means for the jobs that are planned already.

A timer has the instant that its wall time meant when it was written. After an update of
the zone data that may be another one: such timers are found here and planned anew.
"""

import json
from collections import Counter
from collections.abc import Iterator
from uuid import UUID

from apps.jobs import store
from apps.jobs.commands import BATCH, COMMAND, replan_jobs
from apps.jobs.planning import LEDGER_KEPT, last_decided, moved_by_zone
from apps.jobs.store import CronTimer
from apps.runtime.django_session import raw_connection
from apps.tenants.actor import Actor, Scope
from apps.timers.store import TIMERS
from chrono.rules.errors import ChronoError
from chrono.rules.instants import Millis
from chrono.rules.partitions import PARTITIONS
from chrono.rules.schedule import CronSchedule, next_after, schedule_from_json

_START: tuple[Millis, UUID] = (0, UUID(int=0))


def replan_moved(
    *,
    dry_run: bool = False,
    actor: Actor = COMMAND,
    reason: str = "",
    now: Millis | None = None,
) -> Counter[str]:
    """Plan the cron jobs anew whose next instant is another one by now.

    Returns how many there were by time zone. Each page of 500 timers is a transaction
    of its own, and what is planned rightly costs no lock: it may be repeated, and run
    while everything else does. Raises Forbidden, JobsBusy.
    """
    actor.require(Scope.WRITE)
    counts: Counter[str] = Counter()
    for moved in _pages(now):
        done = set(moved)
        if not dry_run and moved:
            outcomes = replan_jobs(
                {job: timer.changes for job, (timer, _) in moved.items()},
                actor=actor,
                reason=reason,
                now=now,
            )
            done = {outcome.job_id for outcome in outcomes if outcome.job_id}
        counts.update(zone for job, (_, zone) in moved.items() if job in done)
    return counts


def _pages(now: Millis | None) -> Iterator[dict[UUID, tuple[CronTimer, str]]]:
    """Iterate over the moved timers of each page, by job, each with its zone."""
    conn = raw_connection()
    for part in range(PARTITIONS):
        for table in TIMERS:
            after: tuple[Millis, UUID] | None = _START
            while after is not None:
                at = store.read_instant(conn).now if now is None else now
                timers, after = store.list_cron_timers(
                    conn,
                    part=part,
                    table=table,
                    after=after,
                    since=at - LEDGER_KEPT,
                    limit=BATCH,
                )
                yield {
                    timer.job_id: (timer, zone)
                    for timer in timers
                    if (zone := _moved(timer, at)) is not None
                }


def _moved(timer: CronTimer, now: Millis) -> str | None:
    """Return the zone of a timer that would be planned for another instant now."""
    known = last_decided(ledger=timer.decided, activated_at=timer.activated_at, now=now)
    if timer.scheduled_for <= known:
        return None  # It was fired meanwhile, or is too old for the ledger to tell.
    try:
        schedule = schedule_from_json(json.loads(timer.schedule))
        if not isinstance(schedule, CronSchedule):
            return None
        twin = moved_by_zone(
            schedule, ledger=timer.decided, activated_at=timer.activated_at
        )
        following = next_after(schedule, max(known, twin or 0))
    except ChronoError:
        return None  # It cannot be read: its page says so.
    return None if following == timer.scheduled_for else schedule.timezone
