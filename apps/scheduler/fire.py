"""The fenced batch: due entries in, one statement, verdicts out."""

import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg

from apps.runtime.arrays import bools, int8s, texts, uuids
from apps.runtime.sessions import Connection
from apps.scheduler import store
from apps.scheduler.cache import Cache, Entry
from apps.scheduler.store import Term
from chrono.rules import catchup, fairness
from chrono.rules.buckets import DAY, bucket_name, bucket_start
from chrono.rules.catchup import Decision
from chrono.rules.instants import Millis
from chrono.rules.keys import run_id, scheduled_for_of
from chrono.rules.states import Reason, TimerKind

log = logging.getLogger("chrono.scheduler")

BATCH = 500
FAR = "chrono_timer_far"
NOT_FOUND_AGAIN_AFTER: Millis = 10
REST: Millis = 1_000
HISTORY: Millis = 6 * DAY
"""A run older than this may have left the history with its day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What a round of firing goes by."""

    now: Millis
    override: Millis | None
    """The instant that stands for the database's clock in tests, else None."""
    slice: int
    horizon: Millis
    loaded_until: Millis


@dataclass(slots=True, kw_only=True)
class Fired:
    """What a round of firing came to."""

    readied: int = 0
    queues: set[str] = field(default_factory=set)
    stale: set[int] = field(default_factory=set)
    """Partitions that refused: their epoch or term has moved."""


class Gun:
    """Fires due entries; keeps each tenant's last fair tag."""

    def __init__(self, conn: Connection, cache: Cache) -> None:
        self._conn = conn
        self._cache = cache
        self._tags: dict[int, int] = {}

    def fire(
        self, entries: Iterable[Entry], moment: Moment, progress: Callable[[], None]
    ) -> Fired:
        """Fire all entries, a statement for each bucket and 500; return what came.

        Every entry is decided and forgotten, or goes back into the wheel.
        """
        fired = Fired()
        self._ask_for_old_runs(due := list(entries), moment.now)
        by_bucket: defaultdict[str, list[Entry]] = defaultdict(list)
        for entry in due:
            by_bucket[entry.bucket].append(entry)
        for bucket, due in by_bucket.items():
            for start in range(0, len(due), BATCH):
                self._fire(bucket, due[start : start + BATCH], moment, fired)
                progress()
        return fired

    def _ask_for_old_runs(self, entries: list[Entry], now: Millis) -> None:
        """Overlap with a run older than the history kept: ask where it could be."""
        old = [
            (e.part, e.prev, e.job_id)
            for e in entries
            if e.prev is not None and is_bounded(e) and _is_old(e.prev, now)
        ]
        if not old:
            return
        live = store.list_unsettled(self._conn, runs=old)
        for entry in entries:
            if entry.prev is not None and _is_old(entry.prev, now):
                entry.old_prev_live = entry.prev in live

    def _fire(
        self, bucket: str, entries: list[Entry], moment: Moment, fired: Fired
    ) -> None:
        held = {p: h.term for p, h in self._cache.held.items()}
        entries = [e for e in entries if e.part in held]
        if not entries:
            return
        decisions = [decide(entry, moment.now) for entry in entries]
        next_dues = [
            next_due(entry, decision, moment.now)
            for entry, decision in zip(entries, decisions, strict=True)
        ]
        batch = self._batch(entries, decisions, next_dues, held, moment)
        try:
            firing = store.fire_if_held(self._conn, bucket=bucket, batch=batch)
        except psycopg.errors.UndefinedTable:
            for entry in entries:  # The bucket was dropped: the next look tells.
                self._cache.forget(entry)
            return
        except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled):
            self._fire_apart(bucket, entries, moment, fired)
            return
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            self._fire_halves(bucket, entries, moment, fired, error)
            return
        self._conclude(entries, decisions, next_dues, firing, moment, fired)

    def _fire_apart(
        self, bucket: str, entries: list[Entry], moment: Moment, fired: Fired
    ) -> None:
        """One partition is locked by somebody: the others must not wait for it."""
        by_part: defaultdict[int, list[Entry]] = defaultdict(list)
        for entry in entries:
            by_part[entry.part].append(entry)
        if len(by_part) > 1:
            for part_entries in by_part.values():
                self._fire(bucket, part_entries, moment, fired)
            return
        log.warning("partition %s is locked by another session", entries[0].part)
        for entry in entries:
            self._cache.put_back(entry, at=moment.now + REST)

    def _fire_halves(
        self,
        bucket: str,
        entries: list[Entry],
        moment: Moment,
        fired: Fired,
        error: psycopg.Error,
    ) -> None:
        """One bad row must not stop a batch: find it, leave it out, say so."""
        if len(entries) > 1:
            middle = len(entries) // 2
            self._fire(bucket, entries[:middle], moment, fired)
            self._fire(bucket, entries[middle:], moment, fired)
            return
        log.error("job %s can't be fired: %s", entries[0].job_id, error)
        self._cache.put_back(entries[0], at=moment.now + 60 * REST)

    def _batch(
        self,
        entries: list[Entry],
        decisions: list[Decision],
        next_dues: list[Millis],
        held: Mapping[int, Term],
        moment: Moment,
    ) -> dict[str, Any]:
        """Return the parameters of ``fire_if_held``: guards and parallel arrays."""
        terms = [held[part] for part in sorted({entry.part for entry in entries})]
        return {
            "parts": [term.part for term in terms],
            "fences": [term.fence for term in terms],
            "terms": [term.term for term in terms],
            "epochs": [term.epoch for term in terms],
            "ns": int8s(range(len(entries))),
            "part": int8s([e.part for e in entries]),
            "due": int8s([e.due for e in entries]),
            "ref": uuids([e.ref for e in entries]),
            "kind": int8s([e.kind for e in entries]),
            "version": int8s([e.version for e in entries]),
            "scheduled_for": int8s([e.scheduled_for for e in entries]),
            "run_id": uuids([e.run_id for e in entries]),
            "revision": int8s([e.revision for e in entries]),
            "tenant": int8s([e.tenant for e in entries]),
            "queue": texts([e.definition.queue for e in entries]),
            "priority": int8s([e.definition.priority for e in entries]),
            "tag": int8s([self._tag(e, moment.now) for e in entries]),
            "fence": int8s([held[e.part].fence for e in entries]),
            "skip": int8s([d.skip or 0 for d in decisions]),
            "span": int8s([d.span if d.span > 1 else 0 for d in decisions]),
            "last_for": int8s([d.last if d.span > 1 else 0 for d in decisions]),
            "bounded": bools(
                [is_bounded(e) and e.old_prev_live is None for e in entries]
            ),
            "next_for": int8s([d.following or 0 for d in decisions]),
            "next_due": int8s(next_dues),
            "now": moment.override,
            "slice": moment.slice,
            "horizon": moment.horizon,
        }

    def _tag(self, entry: Entry, now: Millis) -> int:
        tag = fairness.tag(now, self._tags.get(entry.tenant, 0), 1.0)
        self._tags[entry.tenant] = tag
        return tag

    def _conclude(
        self,
        entries: list[Entry],
        decisions: list[Decision],
        next_dues: list[Millis],
        firing: store.Firing,
        moment: Moment,
        fired: Fired,
    ) -> None:
        for n, (entry, decision) in enumerate(zip(entries, decisions, strict=True)):
            if entry.part not in firing.held:
                self._cache.put_back(entry, at=entry.due)
                fired.stale.add(entry.part)
                continue
            verdict = firing.verdicts.get(n)
            if verdict is None:
                self._not_found(entry, moment)
                continue
            self._cache.forget(entry)
            if verdict == 0:
                fired.readied += 1
                fired.queues.add(entry.definition.queue)
            if decision.following is not None:
                self._plan(entry, decision.following, next_dues[n], verdict, moment)

    def _not_found(self, entry: Entry, moment: Moment) -> None:
        """Not due by the database's clock yet, or moved by somebody else."""
        if entry.put_back:
            self._cache.forget(entry)
            return
        entry.put_back += 1
        self._cache.put_back(entry, at=moment.now + NOT_FOUND_AGAIN_AFTER)

    def _plan(
        self,
        entry: Entry,
        following: Millis,
        due: Millis,
        verdict: int,
        moment: Moment,
    ) -> None:
        """Put the next timer, which the statement wrote, into the wheel."""
        if due >= moment.loaded_until:
            return  # The window will bring it.
        if verdict == 0:
            entry.prev = entry.run_id
        entry.bucket = bucket_name(due) if due < moment.horizon else FAR
        entry.due = due
        entry.scheduled_for = following
        entry.run_id = run_id(entry.job_id, following, 0, entry.part)
        entry.put_back = 0
        entry.old_prev_live = None
        self._cache.put(entry)


def decide(entry: Entry, now: Millis) -> Decision:
    """Return what to do with a due entry."""
    match TimerKind(entry.kind):
        case TimerKind.SCHEDULE:
            decision = catchup.decide(
                entry.definition.schedule,
                entry.scheduled_for,
                offset=entry.definition.offset,
                now=now,
            )
            if entry.old_prev_live and decision.skip is None:
                return replace(decision, skip=Reason.OVERLAP)
            return decision
        case TimerKind.LATE if entry.job_deleted:
            return _alone(entry, Reason.ENDED)
        case TimerKind.LATE if entry.job_paused:
            return _alone(entry, Reason.PAUSED)
        case _:
            return _alone(entry, None)


def _alone(entry: Entry, skip: Reason | None) -> Decision:
    return Decision(skip=skip, span=1, last=entry.scheduled_for, following=None)


def next_due(entry: Entry, decision: Decision, now: Millis) -> Millis:
    """Return when the next timer is due, 0 where there is none.

    Never in an hour whose bucket may be gone, and never by a key used before.
    """
    if decision.following is None:
        return 0
    return max(
        decision.following + entry.definition.offset, bucket_start(now), entry.due + 1
    )


def is_bounded(entry: Entry) -> bool:
    """Return whether overlap skip applies to this timer."""
    return entry.definition.bounded and entry.kind in (
        TimerKind.SCHEDULE,
        TimerKind.LATE,
    )


def _is_old(run: uuid.UUID, now: Millis) -> bool:
    return scheduled_for_of(run) < now - HISTORY
