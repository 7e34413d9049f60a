"""From the timer tables into the wheel: ahead, overdue, second look, delta."""

import json
import logging
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import batched
from operator import itemgetter

from apps.runs.store import Queueing, load_run_queueing
from apps.runtime.sessions import Connection
from apps.scheduler import store
from apps.scheduler.cache import START, Cache, Definition, Entry, Key
from apps.scheduler.store import Cursor, RevisionRow, Term, TimerRow
from chrono.rules import jitter, overlap, policy
from chrono.rules.catchup import LATE
from chrono.rules.instants import Millis
from chrono.rules.keys import is_extra, run_id
from chrono.rules.overlap import Check
from chrono.rules.policy import Policy
from chrono.rules.schedule import Once, Schedule, resolve, schedule_from_json
from chrono.rules.states import TimerKind

log = logging.getLogger("chrono.scheduler")

AHEAD: Millis = 60_000
"""How far ahead timers are read, again when half of it is over."""
AHEAD_ANYHOW: Millis = 4_000
"""The same where the wheel is full."""
WHEEL = 50_000
"""How many timers fill it: then no more are read than must be."""
PIECE = 5_000
"""Rows a read takes: a fifth of a second, and then what is due fires."""
OVERDUE_PIECE = 1_000
OVERDUE_PARTS = 16
"""Of how many partitions a read of what is overdue is. While somebody holds an old
snapshot it passes over all timers fired since, and what is due now waits for it."""
OVERDUE_EVERY: Millis = 30_000
LOOK_AHEAD: Millis = 1_000
LOOK_BACK: Millis = 5_000
"""How long before the last look; what is committed later than that waits for the walk
along what is overdue."""
DEFINITIONS = 200_000
DEFINITIONS_AT_ONCE = 5_000
TEXTS = 4_096
"""How many schedules and policies that jobs share are remembered as written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a look found."""

    slice: int
    horizon: Millis
    gates: int
    """The number of the gates, as in :class:`apps.scheduler.store.Look`."""
    lost: list[Term]
    """Terms that are over: another one has begun in their partition."""


class Loader:
    """Fills the cache from the database; every read carries its own epochs."""

    def __init__(
        self, conn: Connection, cache: Cache, progress: Callable[[], None]
    ) -> None:
        self._conn = conn
        self._cache = cache
        self._progress = progress
        # By a job's id as a number, and a revision.
        self._definitions: dict[tuple[int, int], Definition | None] = {}
        self._tables: dict[int, str] = {}
        self._goal: Millis = 0
        self._next_walk: Millis = 0
        self._looked: Millis = 0

    def ahead_due(self) -> Millis:
        """Return when to read ahead the next time."""
        first = min((held.ahead[0] for held in self._cache.held.values()), default=0)
        if len(self._cache) >= WHEEL:
            return first - AHEAD_ANYHOW // 2
        return 0 if first < self._goal else first - AHEAD // 2

    def load_ahead(self, now: Millis) -> None:
        """Read the next timers that are to come, from what may still be late on.

        Partitions that are far back, as those just taken over, go before the others.
        """
        length = AHEAD_ANYHOW if len(self._cache) >= WHEEL else AHEAD
        self._goal = now + length
        cursors = {
            part: max(held.ahead, store.cursor_at(now - LATE))
            for part, held in self._cache.held.items()
        }
        after = _before(cursors, now + length // 2) or _before(cursors, self._goal)
        if not after:
            return
        for part, cursor in self._read_on(after, self._goal, PIECE).items():
            self._cache.held[part].ahead = cursor or store.cursor_at(self._goal)

    def overdue_due(self) -> Millis:
        """Return when to read on along what is overdue."""
        under_way = any(held.behind for held in self._cache.held.values())
        return 0 if under_way else self._next_walk

    def load_overdue(self, now: Millis) -> None:
        """Read the next timers that are overdue.

        They are walked along once in each partition taken over, and every half minute,
        up to where looks begin. What was missed in a long outage must not keep from the
        wheel what is due now, nor what can't be decided what can.
        """
        if now >= self._next_walk:
            self._next_walk = now + OVERDUE_EVERY
            for held in self._cache.held.values():
                held.behind = held.behind or START
        under_way = {
            part: held.behind
            for part, held in self._cache.held.items()
            if held.behind is not None
        }
        if not under_way:
            return
        oldest = sorted(under_way.items(), key=itemgetter(1))
        after = dict(oldest[:OVERDUE_PARTS])
        end = now - LOOK_BACK
        for part, cursor in self._read_on(after, end, OVERDUE_PIECE).items():
            self._cache.held[part].behind = cursor

    def look(self, now: Millis) -> Seen:
        """Compare what is due soon with the wheel; read where they differ.

        Something must be held. A lost notice or a late commit costs no more than the
        time between two looks.
        """
        if self._looked < now - LATE:
            self._next_walk = 0  # This process stood still.
        after = max(now - LATE, min(now, self._looked) - LOOK_BACK)
        before = now + LOOK_AHEAD
        self._looked = now
        looks = store.look_again(
            self._conn, parts=list(self._cache.held), after=after, before=before
        )
        moved = []
        lost = []
        for look in looks:
            term = self._cache.held[look.part].term
            if (look.fence, look.term) != (term.fence, term.term):
                lost.append(term)
                self._cache.drop(look.part)
            elif look.epoch != term.epoch:
                moved.append(look.part)
        lost += self.catch_up(moved)
        counts = self._cache.count(after, before)
        differing = [
            look.part
            for look in looks
            if self._cache.covers(look.part, before - 1)
            and look.due != counts[look.part]
        ]
        cursors: Mapping[int, Cursor] = dict.fromkeys(differing, store.cursor_at(after))
        while cursors:
            found = self._read_on(cursors, before, PIECE)
            cursors = {
                part: cursor for part, cursor in found.items() if cursor is not None
            }
        return Seen(
            slice=looks[0].slice,
            horizon=looks[0].horizon,
            gates=looks[0].gates,
            lost=lost,
        )

    def catch_up(self, parts: Iterable[int]) -> list[Term]:
        """Bring these partitions to their present epoch: drop what changed since.

        The epoch is read first and the changed jobs in a later statement, so a change
        between the two is dropped once more rather than missed. Returns the terms that
        are over: another one has begun there, and the partition is dropped.
        """
        lost: list[Term] = []
        parts = [part for part in parts if part in self._cache.held]
        if not parts:
            return lost
        for now in store.read_epochs(self._conn, parts=parts):
            held = self._cache.held[now.part]
            if (now.fence, now.term) != (held.term.fence, held.term.term):
                lost.append(held.term)
                self._cache.drop(now.part)
                continue
            changed = store.list_changed_jobs(
                self._conn, part=now.part, epoch=held.term.epoch
            )
            if now.full_epoch > held.full_epoch:
                self._cache.clear(now.part)
                held.full_epoch = now.full_epoch
            self._cache.move_epoch(now.part, epoch=now.epoch, jobs=changed)
        return lost

    def _read_on(
        self, after: Mapping[int, Cursor], before: Millis, most: int
    ) -> dict[int, Cursor | None]:
        """Read timers into the wheel, each partition's from its cursor on.

        At most so many rows, of each partition an equal share. Returns where to go on,
        None where a partition has no more before the instant.
        """
        each = max(1, most // len(after))
        rows = store.load_timers(self._conn, after=after, before=before, each=each)
        self._progress()
        self._take(rows)
        counts = Counter(row.part for row in rows)
        last = {row.part: (row.due_at, row.ref, row.kind, row.version) for row in rows}
        return {part: last[part] if counts[part] == each else None for part in after}

    def _take(self, rows: list[TimerRow]) -> None:
        """Put timers into the wheel that belong there, delete those that are stale."""
        self._name_tables({row.bucket for row in rows})
        stale: defaultdict[tuple[int, int], list[TimerRow]] = defaultdict(list)
        fresh: list[TimerRow] = []
        for row in rows:
            held = self._cache.held.get(row.part)
            if held is None or row.bucket not in self._tables:
                continue
            if row.kind == TimerKind.SCHEDULE and row.version < row.job_version:
                stale[row.part, row.bucket].append(row)
            elif row.epoch >= held.term.epoch:
                fresh.append(row)
        self._define([(row.job_id, _revision(row)) for row in fresh])
        own = self._queueing(fresh)
        for row in fresh:
            self._put(row, own)
        for (part, bucket), old in stale.items():
            if part in self._cache.held:
                store.delete_stale_timers(
                    self._conn,
                    term=self._cache.held[part].term,
                    bucket=self._tables[bucket],
                    rows=old,
                )

    def _queueing(self, rows: list[TimerRow]) -> dict[uuid.UUID, Queueing]:
        """Return how runs queue in a way of their own; no schedule's do."""
        extra = [
            (row.part, row.ref)
            for row in rows
            if row.kind != TimerKind.SCHEDULE and is_extra(row.ref)
        ]
        return load_run_queueing(self._conn, runs=extra) if extra else {}

    def _put(self, row: TimerRow, own: Mapping[uuid.UUID, Queueing]) -> None:
        key: Key = (row.due_at, row.ref.int, row.kind, row.version)
        known = self._cache.find(row.part, key)
        if known is not None:
            known.bucket = self._tables[row.bucket]
            return
        revision = _revision(row)
        definition = self._definitions.get((row.job_id.int, revision))
        if definition is None:
            return
        if own and (queueing := own.get(row.ref)) is not None:
            definition = _queued(definition, queueing)
        of_schedule = row.kind == TimerKind.SCHEDULE
        self._cache.put(
            Entry(
                part=row.part,
                bucket=self._tables[row.bucket],
                due=row.due_at,
                ref=row.ref,
                kind=row.kind,
                version=row.version,
                job_id=row.job_id,
                revision=revision,
                scheduled_for=row.scheduled_for,
                run_id=run_id(row.job_id, row.scheduled_for, 0, row.part)
                if of_schedule
                else row.ref,
                prev=row.prev,
                tenant=row.tenant,
                job_paused=row.job_paused,
                job_deleted=row.job_deleted,
                remaining=row.remaining,
                definition=definition,
            )
        )

    def _name_tables(self, oids: set[int]) -> None:
        unknown = [oid for oid in oids if oid not in self._tables]
        if unknown:
            self._tables.update(store.list_tables(self._conn, oids=unknown))

    def definitions(
        self, wanted: set[tuple[uuid.UUID, int]]
    ) -> dict[tuple[uuid.UUID, int], Definition]:
        """Return these (job, revision) pairs, but for what can't be read."""
        self._define(wanted)
        found = {
            (job, revision): self._definitions.get((job.int, revision))
            for job, revision in wanted
        }
        return {key: one for key, one in found.items() if one is not None}

    def _define(self, wanted: Collection[tuple[uuid.UUID, int]]) -> None:
        known = self._definitions
        unknown = {pair for pair in wanted if (pair[0].int, pair[1]) not in known}
        if len(known) + len(unknown) > DEFINITIONS:
            known.clear()
            unknown = set(wanted)
        for part in batched(unknown, DEFINITIONS_AT_ONCE):
            for row in store.load_revisions(self._conn, revisions=part):
                known[row.job_id.int, row.revision] = _definition(row)
            self._progress()


@lru_cache(maxsize=TEXTS)
def _schedule(text: str) -> Schedule:
    """Return the schedule written in JSON; raises as ``schedule_from_json`` does."""
    return schedule_from_json(json.loads(text))


@lru_cache(maxsize=TEXTS)
def _policy(text: str) -> tuple[Policy, bool]:
    """Return the policies written in JSON, and whether a payload fills their key.

    Raises as ``policy.in_force`` does.
    """
    written = json.loads(text) or {}
    return policy.in_force(written), policy.FILLED_KEY in written


def _before(cursors: Mapping[int, Cursor], moment: Millis) -> dict[int, Cursor]:
    return {part: cursor for part, cursor in cursors.items() if cursor[0] < moment}


def _revision(row: TimerRow) -> int:
    """A schedule fires by the revision in force, all else by the one it was made of."""
    return row.job_revision if row.kind == TimerKind.SCHEDULE else row.revision


def _queued(definition: Definition, own: Queueing) -> Definition:
    """Return a definition for a run that queues in its own way."""
    return replace(
        definition,
        priority=definition.priority if own.priority is None else own.priority,
        queue=definition.queue if own.queue is None else own.queue,
        policy=definition.policy
        if own.key is None or not definition.filled
        else replace(definition.policy, concurrency_key=own.key),
    )


def _definition(row: RevisionRow) -> Definition | None:
    """Return the definition, or None, said in the log, where it can't be read."""
    try:
        schedule = resolve(_schedule(row.schedule), row.job_id)
        policies, filled = _policy(row.policy)
        overlaps = policy.overlap_from_name(row.overlap_policy)
    except Exception:
        # Whatever is wrong with one row, as a number of 5,000 digits, which is fit for
        # jsonb and not for Python: the other jobs fire.
        log.exception("job %s revision %s can't be read", row.job_id, row.revision)
        return None
    return Definition(
        schedule=schedule,
        offset=jitter.offset(row.job_id, row.jitter_window),
        policy=policies,
        overlap=overlaps,
        check=Check.NOTHING
        if isinstance(schedule, Once)
        else overlap.check(overlaps, policies.max_concurrent_runs),
        bound=policies.max_concurrent_runs or 1,
        queue=row.queue,
        priority=row.priority,
        limited=policies.concurrency_key is not None or policies.rate_limit is not None,
        filled=filled,
    )
