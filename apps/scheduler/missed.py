"""What schedules missed: decided all at once, and run in a lane of their own."""

import logging
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from apps.runtime.arrays import int8s, texts, uuids
from apps.runtime.sessions import Connection
from apps.scheduler import store
from apps.scheduler.batches import (
    BUSY,
    FAR,
    Fired,
    Moment,
    Tags,
    by_bucket,
    guards,
    next_due,
)
from apps.scheduler.cache import Cache, Entry
from apps.scheduler.store import Term
from chrono.rules import catchup
from chrono.rules.buckets import bucket_name
from chrono.rules.catchup import CatchUp
from chrono.rules.instants import Millis
from chrono.rules.keys import run_id
from chrono.rules.states import Priority, Reason

log = logging.getLogger("chrono.scheduler")

MOST_SCHEDULES = 200
MOST_MISSED = 1_000
"""How many missed occurrences a round looks at; live runs come between rounds."""
REST: Millis = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """A row of the ledger: one run, or a stretch that is skipped."""

    n: int
    first: Millis
    last: Millis
    count: int
    reason: int
    run: uuid.UUID


class Misser:
    """Decides the missed entries that were set aside, some at a time."""

    def __init__(self, conn: Connection, cache: Cache, tags: Tags) -> None:
        self._conn = conn
        self._cache = cache
        self._tags = tags

    def step(self, moment: Moment, progress: Callable[[], None]) -> Fired:
        """Decide some of what was set aside; return what came of it."""
        fired = Fired()
        plans: list[tuple[Entry, CatchUp]] = []
        weight = 0
        while len(plans) < MOST_SCHEDULES and weight < MOST_MISSED:
            taken = self._cache.take_aside(1)
            if not taken:
                break
            [entry] = taken
            try:
                plan = _plan(entry, moment.now)
            except Exception:
                # Whatever is wrong with one job's schedule: the others catch up.
                log.exception("job %s can't be decided", entry.job_id)
                self._cache.put_back(entry, at=moment.now + 60 * REST)
                continue
            weight += len(plan.runs) + sum(stretch.count for stretch in plan.given_up)
            plans.append((entry, plan))
        found = {entry.key: plan for entry, plan in plans}
        for bucket, entries in by_bucket(entry for entry, _ in plans).items():
            self._miss(bucket, [(e, found[e.key]) for e in entries], moment, fired)
            progress()
        return fired

    def _miss(
        self,
        bucket: str,
        plans: list[tuple[Entry, CatchUp]],
        moment: Moment,
        fired: Fired,
    ) -> None:
        held = {p: h.term for p, h in self._cache.held.items()}
        plans = [(entry, plan) for entry, plan in plans if entry.part in held]
        if not plans:
            return
        dues = [next_due(e, plan.following, moment.now) for e, plan in plans]
        batch = self._batch(plans, dues, held, moment)
        try:
            missing = store.miss_if_held(self._conn, bucket=bucket, batch=batch)
        except psycopg.errors.UndefinedTable:
            for entry, _ in plans:  # The bucket was dropped: the next look tells.
                self._cache.forget(entry)
            return
        except BUSY:
            self._miss_apart(bucket, plans, moment, fired)
            return
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            self._miss_halves(bucket, plans, moment, fired, error)
            return
        fired.waiting |= missing.runs > 0
        for n, (entry, plan) in enumerate(plans):
            if entry.part not in missing.held:
                self._cache.put_back(entry, at=entry.due)
                fired.stale.add(entry.part)
                continue
            self._cache.forget(entry)
            if n in missing.done and plan.following is not None:
                self._put_next(entry, plan.following, dues[n], len(plan.runs), moment)

    def _miss_apart(
        self,
        bucket: str,
        plans: list[tuple[Entry, CatchUp]],
        moment: Moment,
        fired: Fired,
    ) -> None:
        """One partition is locked by somebody: the others must not wait for it."""
        by_part: defaultdict[int, list[tuple[Entry, CatchUp]]] = defaultdict(list)
        for entry, plan in plans:
            by_part[entry.part].append((entry, plan))
        if len(by_part) > 1:
            for part_plans in by_part.values():
                self._miss(bucket, part_plans, moment, fired)
            return
        log.warning("partition %s is locked by another session", plans[0][0].part)
        for entry, _ in plans:
            self._cache.put_back(entry, at=moment.now + REST)

    def _miss_halves(
        self,
        bucket: str,
        plans: list[tuple[Entry, CatchUp]],
        moment: Moment,
        fired: Fired,
        error: psycopg.Error,
    ) -> None:
        """One bad row must not stop the others: find it, leave it out, say so."""
        if len(plans) > 1:
            middle = len(plans) // 2
            self._miss(bucket, plans[:middle], moment, fired)
            self._miss(bucket, plans[middle:], moment, fired)
            return
        [(entry, _)] = plans
        log.error("job %s can't be caught up: %s", entry.job_id, error)
        self._cache.put_back(entry, at=moment.now + 60 * REST)

    def _batch(
        self,
        plans: list[tuple[Entry, CatchUp]],
        dues: list[Millis],
        held: dict[int, Term],
        moment: Moment,
    ) -> dict[str, Any]:
        """Return the parameters of ``miss_if_held``."""
        entries = [entry for entry, _ in plans]
        pieces = [p for n, (e, plan) in enumerate(plans) for p in _pieces(n, e, plan)]
        return {
            **guards(held[part] for part in {entry.part for entry in entries}),
            "ns": int8s(range(len(entries))),
            "part": int8s([e.part for e in entries]),
            "due": int8s([e.due for e in entries]),
            "ref": uuids([e.ref for e in entries]),
            "version": int8s([e.version for e in entries]),
            "scheduled_for": int8s([e.scheduled_for for e in entries]),
            "revision": int8s([e.revision for e in entries]),
            "tenant": int8s([e.tenant for e in entries]),
            "queue": texts([e.definition.queue for e in entries]),
            "tag": int8s(
                [
                    self._tags.draw(
                        e.tenant, moment.now, e.definition.queue, Priority.BULK
                    )
                    for e in entries
                ]
            ),
            "fence": int8s([held[e.part].fence for e in entries]),
            "shift": int8s([e.definition.offset for e in entries]),
            "next_for": int8s([plan.following or 0 for _, plan in plans]),
            "next_due": int8s(dues),
            "p_n": int8s([p.n for p in pieces]),
            "p_first": int8s([p.first for p in pieces]),
            "p_run_id": uuids([p.run for p in pieces]),
            "p_reason": int8s([p.reason for p in pieces]),
            "p_count": int8s([p.count for p in pieces]),
            "p_last": int8s([p.last for p in pieces]),
            "priority": int(Priority.BULK),
            "gate": Reason.CATCH_UP.label,
            "gate_reason": int(Reason.CATCH_UP),
            "now": moment.override,
            "horizon": moment.horizon,
        }

    def _put_next(
        self, entry: Entry, following: Millis, due: Millis, runs: int, moment: Moment
    ) -> None:
        """Put the next timer, which the statement wrote, into the wheel."""
        if entry.remaining is not None:
            entry.remaining -= runs
        if entry.remaining == 0 or not self._cache.covers(entry.part, due):
            return
        entry.bucket = bucket_name(due) if due < moment.horizon else FAR
        entry.due = due
        entry.scheduled_for = following
        entry.run_id = run_id(entry.job_id, following, 0, entry.part)
        entry.put_back = 0
        entry.old_prev_live = None
        self._cache.put(entry)


def _plan(entry: Entry, now: Millis) -> CatchUp:
    plan = catchup.catch_up(
        entry.definition.schedule,
        entry.scheduled_for,
        policy=entry.definition.policy,
        offset=entry.definition.offset,
        now=now,
    )
    if entry.remaining is None or len(plan.runs) < entry.remaining:
        return plan
    # The first ones use up what is left; after them the schedule is over.
    runs = plan.runs[: entry.remaining]
    return CatchUp(plan.given_up, runs, None)


def _pieces(n: int, entry: Entry, plan: CatchUp) -> list[_Piece]:
    def run(moment: Millis) -> uuid.UUID:
        return run_id(entry.job_id, moment, 0, entry.part)

    skipped = [
        _Piece(
            n=n,
            first=stretch.first,
            last=stretch.last,
            count=stretch.count,
            reason=int(stretch.reason),
            run=run(stretch.first),
        )
        for stretch in plan.given_up
    ]
    made = [
        _Piece(n=n, first=at, last=at, count=1, reason=0, run=run(at))
        for at in plan.runs
    ]
    return skipped + made
