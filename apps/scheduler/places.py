"""What a leader asks of earlier runs before it makes another one.

Only a partition's leader makes runs of its schedules, and a run that ends only frees
its place: what is read here holds, or errs on the safe side, until the fenced statement
acts on it.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from apps.runtime.sessions import Connection
from apps.scheduler import store
from apps.scheduler.cache import Entry, Key
from apps.scheduler.store import Live
from chrono.rules import overlap
from chrono.rules.buckets import DAY
from chrono.rules.instants import Millis
from chrono.rules.keys import scheduled_for_of
from chrono.rules.overlap import Check, Place
from chrono.rules.schedule import FixedDelay
from chrono.rules.states import Reason, TimerKind

HISTORY: Millis = 6 * DAY
"""A run older than this may have left the history with its day."""


class Places:
    """Looks for earlier runs; one statement for many entries, none for most."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def ask(self, entries: Sequence[Entry], now: Millis) -> None:
        """Note at entries what is known of their schedule's last run.

        Whether it is live, where it is older than the history kept; when it ended,
        where a delay is counted from it.
        """
        delayed = [e for e in entries if _is_delayed(e)]
        ends: Mapping[uuid.UUID, Millis] = {}
        if delayed:
            ends = store.list_ends(
                self._conn, runs=[e.prev for e in delayed if e.prev is not None]
            )
        asked = [
            e
            for e in entries
            if e.prev is not None
            and _is_old(e.prev, now)
            and (e.definition.check is Check.LAST or _is_delayed(e))
        ]
        live = self._unsettled((e.part, e.prev, e.job_id) for e in asked if e.prev)
        for entry in asked:
            entry.old_prev_live = entry.prev in live
        for entry in delayed:
            if entry.prev is not None:
                # A run that is nowhere any more ended long ago.
                gone = 0 if entry.old_prev_live is False else None
                entry.prev_ended = ends.get(entry.prev, gone)

    def of_people(self, entries: Sequence[Entry]) -> set[uuid.UUID]:
        """Return those of these entries' runs that somebody asked for."""
        if not entries:
            return set()
        return store.list_manual(
            self._conn, runs=[(e.part, e.job_id, e.run_id) for e in entries]
        )

    def find(self, entries: Sequence[Entry], now: Millis) -> dict[Key, Place | Reason]:
        """Return where the runs of these entries go, in their order."""
        if not entries:
            return {}
        live = self.live({(e.part, e.job_id) for e in entries}, now)
        found: dict[Key, Place | Reason] = {}
        for entry in entries:
            seen = live[entry.job_id]
            place = overlap.decide(
                entry.definition.overlap,
                bound=entry.definition.bound,
                live=len(seen.runs),
                buffered=len(seen.buffered),
            )
            found[entry.key] = place
            if place is Place.READY:
                seen = replace(seen, runs=(*seen.runs, entry.run_id))
            elif place is Place.BUFFER:
                seen = replace(seen, buffered=(*seen.buffered, entry.run_id))
            live[entry.job_id] = seen
        return found

    def live(
        self, jobs: Iterable[tuple[int, uuid.UUID]], now: Millis
    ) -> dict[uuid.UUID, Live]:
        """Return the live and buffered runs of jobs, given as (partition, job)."""
        parts = {job: part for part, job in jobs}
        found = store.list_live(
            self._conn, jobs=[(part, job) for job, part in parts.items()], now=now
        )
        # A slot is cleared away long before its run's history is: it says enough, and
        # runs of a backfill, which are all old, would be asked for with every look.
        # Of themselves alone: what else of their job is live is among them.
        old = [
            (parts[job], run, None)
            for job, seen in found.items()
            for run in seen.runs
            if _is_old(run, now) and run not in seen.slots
        ]
        if not old:
            return found
        gone = {run for _, run, _ in old} - self._unsettled(old)
        return {
            job: replace(seen, runs=tuple(r for r in seen.runs if r not in gone))
            for job, seen in found.items()
        }

    def _unsettled(
        self, runs: Iterable[tuple[int, uuid.UUID, uuid.UUID | None]]
    ) -> set[uuid.UUID]:
        asked = list(runs)
        return store.list_unsettled(self._conn, runs=asked) if asked else set()


def _is_delayed(entry: Entry) -> bool:
    return (
        entry.kind == TimerKind.SCHEDULE
        and entry.prev is not None
        and isinstance(entry.definition.schedule, FixedDelay)
    )


def _is_old(run: uuid.UUID, now: Millis) -> bool:
    return scheduled_for_of(run) < now - HISTORY
