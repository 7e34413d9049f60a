"""Jobs that are paused because so many of their runs died in a row.

Nothing is counted where runs are settled. Of the jobs whose runs died lately, the last
runs are read from ledger and history, and judged. What is found depends on the tables
alone, so to judge a job again does no harm, and a new keeper misses none.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import batched
from uuid import UUID

from apps.jobs import watch_store as store
from apps.jobs.commands import LONGEST_NOTE, Pausing, pause_if_unchanged
from apps.jobs.editing import Outcome
from apps.jobs.watch_store import Failing, FiredRun
from apps.runtime.sessions import Connection
from apps.tenants.actor import Actor
from chrono.rules.errors import BadValue
from chrono.rules.failures import Ended, dead_in_a_row
from chrono.rules.instants import DAY, MINUTE, SECOND, Millis
from chrono.rules.keys import scheduled_for_of
from chrono.rules.policy import from_json
from chrono.rules.states import Reason, RunState

BEFORE: Millis = 10 * MINUTE
"""How far back a keeper looks that has just begun."""
OVERLAP: Millis = 30 * SECOND
"""A death may be committed so much later than it says; a settle ends before that."""
DEATHS = 1_000
LOOKS = 10
"""How many thousand deaths a step looks at; of more the next step sees the rest."""
JUDGED_AT_ONCE = 100
SPARE = 50
"""How many runs more than are counted are looked at: live and cancelled ones."""
REASON = "As many runs in a row died as pause_on_failure bears."
HISTORY: Millis = 6 * DAY
"""A run older than this that lies nowhere was a success, and left with its day."""


class Failures:
    """Call :meth:`step` every few seconds; it remembers up to where it looked."""

    def __init__(self) -> None:
        self._reached: Millis | None = None
        self._judged: dict[UUID, frozenset[UUID]] = {}

    def since(self, now: Millis) -> Millis:
        """Return from when on the next step looks at deaths."""
        begun = now - BEFORE if self._reached is None else self._reached
        return min(begun, now - OVERLAP)

    def step(self, conn: Connection, *, actor: Actor, now: Millis) -> list[Outcome]:
        """Pause the jobs whose last runs died, as many as their policy bears.

        ``conn`` is an autocommit session. Raises JobsBusy.
        """
        found, reached = self._look(conn, now)
        asked = [
            job
            for job in found.values()
            if not job.runs <= self._judged.get(job.job_id, frozenset())
        ]
        outcomes: list[Outcome] = []
        judged: set[UUID] = set()
        for batch in batched(asked, JUDGED_AT_ONCE):
            pausing = judge(conn, batch, now=now)
            judged |= {one.job_id for one in pausing}
            if pausing:
                outcomes += pause_if_unchanged(
                    conn, pausing, actor=actor, reason=REASON
                )
        # Who was changed meanwhile is judged again, as it is then.
        again = judged - {outcome.job_id for outcome in outcomes}
        self._reached = reached
        self._judged = {
            job.job_id: job.runs for job in found.values() if job.job_id not in again
        }
        return outcomes

    def _look(
        self, conn: Connection, now: Millis
    ) -> tuple[dict[UUID, Failing], Millis]:
        """Return the jobs of which runs died since the last look, and up to when."""
        since = self.since(now)
        found: dict[UUID, Failing] = {}
        for _ in range(LOOKS):
            died = store.list_died(conn, since=since, limit=DEATHS)
            for job in died.jobs:
                known = found.get(job.job_id, job)
                found[job.job_id] = replace(job, runs=job.runs | known.runs)
            if died.seen < DEATHS or died.until is None:
                return found, now
            # Of more deaths than that in one millisecond some are passed over.
            since = max(died.until, since + 1)
        return found, since


def judge(conn: Connection, jobs: Sequence[Failing], *, now: Millis) -> list[Pausing]:
    """Return which of these jobs are to be paused, each with its last error."""
    bounds = {job.job_id: bound for job in jobs if (bound := _bound(job))}
    asked = [(job, bounds[job.job_id] + SPARE) for job in jobs if job.job_id in bounds]
    if not asked:
        return []
    ended: defaultdict[UUID, list[Ended]] = defaultdict(list)
    for run in store.list_ended(conn, jobs=asked):
        if (end := _end(run, now)) is not None:
            ended[run.job_id].append(end)
    last: dict[UUID, tuple[Failing, UUID]] = {}
    for job, _ in asked:
        dead = dead_in_a_row(ended[job.job_id], since=job.since)
        if len(dead) >= bounds[job.job_id]:
            last[job.job_id] = (job, dead[0].run_id)
    errors = store.load_last_errors(conn, runs=[run for _, run in last.values()])
    return [
        Pausing(job_id=job.job_id, changes=job.changes, note=_note(errors.get(run)))
        for job, run in last.values()
    ]


def _bound(job: Failing) -> int | None:
    try:
        return from_json({"pause_on_failure": job.bound}).pause_on_failure
    except BadValue:
        return None


def _end(run: FiredRun, now: Millis) -> Ended | None:
    if run.state is not None and run.finished_at is not None:
        return Ended(run_id=run.run_id, state=run.state, at=run.finished_at)
    moment = scheduled_for_of(run.run_id)
    if now - moment < HISTORY:
        return None
    return Ended(run_id=run.run_id, state=RunState.SUCCESS, at=moment)


def _note(found: tuple[int, str | None] | None) -> str:
    if found is None:
        return ""
    reason, error = found
    first = (error or "").strip().partition("\n")[0].strip()
    return first[:LONGEST_NOTE].strip() or Reason(reason).label.replace("_", " ")
