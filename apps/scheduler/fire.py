"""The fenced batch: due entries in, one statement, verdicts out."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import Any, Final, Protocol

import psycopg

from apps.runtime.arrays import bools, int8s, texts, uuids
from apps.runtime.sessions import Connection
from apps.scheduler import store
from apps.scheduler.batches import (
    BUSY,
    FAR,
    Fired,
    Moment,
    Tags,
    by_bucket,
    growing,
    guards,
    next_due,
)
from apps.scheduler.cache import Cache, Entry
from apps.scheduler.places import Places
from apps.scheduler.store import Term
from chrono.rules.buckets import bucket_name
from chrono.rules.catchup import is_past_deadline, missed_until
from chrono.rules.fairness import Share
from chrono.rules.gates import Gate, limits_of, written
from chrono.rules.instants import Millis
from chrono.rules.keys import run_id
from chrono.rules.overlap import Check, Place
from chrono.rules.schedule import FixedDelay, Once, next_after
from chrono.rules.states import Priority, Reason, TimerKind

log = logging.getLogger("chrono.scheduler")

BATCH = 1_000
"""Most entries of a statement: its commit is waited for once, whatever it holds."""
FIRST_BATCH = 250
"""Of many, the first statement has so few: workers begin the sooner."""
NOT_FOUND_AGAIN_AFTER: Millis = 10
REST: Millis = 1_000
MOVED: Final = -1
"""Stands for the reason of a timer that is only moved: nothing is decided."""
OF_SCHEDULE = (TimerKind.SCHEDULE, TimerKind.LATE)


@dataclass(slots=True, kw_only=True)
class Decision:
    """What to do with one due entry. One that is frozen takes twice as long to make."""

    following: Millis | None
    """The occurrence to plan next, None where there is none to plan."""
    skip: int | None = None
    """The reason why it does not fire, or MOVED; None where it does."""
    gate: Reason | None = None
    """What holds its run back; None where it goes to the workers."""
    slot: bool = False
    """Whether its run counts against the job's bound by a slot."""
    held: Gate | None = None
    """The shut gate of many jobs behind which a run waits that may go by its own."""


class Holds(Protocol):
    """Which gates of many jobs are shut: :class:`apps.scheduler.gates.Gates`."""

    @property
    def any_shut(self) -> bool:
        """Whether any is."""
        ...

    def hold(
        self, decided: Sequence[tuple[Entry, Decision]]
    ) -> list[tuple[Entry, Decision]]:
        """Have decisions held whose run may go by its job, but whose gate is shut.

        Asks the database for what jobs call that it does not know, while a circuit is
        open.
        """
        ...


type Tell = Callable[[set[str]], None]
"""Says that runs became ready in these queues; raises ``psycopg.Error`` if it can't."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """Entries of one bucket that were decided, and the statement's parameters."""

    bucket: str
    decided: list[tuple[Entry, Decision]]
    next_dues: list[Millis]
    gates: Mapping[int, tuple[str, int, str]]
    """Behind which gates runs have to wait, by position."""
    batch: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """A shot that was sent, and what will have come of it."""

    shot: Shot
    firing: Future[store.Firing]


def send(conn: Connection, *, bucket: str, batch: dict[str, Any]) -> store.Firing:
    """Have the database fire a batch of one bucket, row by row where it has to be.

    ``batch`` and what is raised are those of :func:`store.fire_if_held`.
    """
    try:
        return store.fire_undecided(conn, bucket=bucket, batch=batch)
    except psycopg.errors.UniqueViolation:
        # Somebody decided an instant of it before, or planned the next one.
        return store.fire_if_held(conn, bucket=bucket, batch=batch)


class Gun:
    """Fires due entries that are not missed.

    Of many entries one batch is aimed while the server fires the one before, which
    another thread waits for. Nothing else uses the session meanwhile.
    """

    def __init__(
        self, conn: Connection, cache: Cache, tags: Tags, holds: Holds, tell: Tell
    ) -> None:
        self._conn = conn
        self._cache = cache
        self._tags = tags
        self._holds = holds
        self._tell = tell
        self._places = Places(conn)
        self._hand: ThreadPoolExecutor | None = None
        self._flight: Flight | None = None

    def close(self) -> None:
        """Let go of the thread that sends a herd."""
        if self._hand is not None:
            self._hand.shutdown()

    def fire(
        self, entries: Iterable[Entry], moment: Moment, progress: Callable[[], None]
    ) -> Fired:
        """Fire all entries, in statements of one bucket each; return what came.

        Every entry is decided and forgotten, or goes back into the wheel.
        """
        fired = Fired()
        due = list(entries)
        try:
            self._places.ask(due, moment.now)
        except BUSY:
            self._put_off(due, moment)
            return fired
        pieces = [
            (bucket, piece)
            for bucket, waiting in by_bucket(due).items()
            for piece in growing(waiting, first=FIRST_BATCH, most=BATCH)
        ]
        if len(pieces) < 2:
            for bucket, piece in pieces:
                self._fire(bucket, piece, moment, fired)
                progress()
            return fired
        try:
            self._fire_on(pieces, moment, fired, progress)
        finally:
            if self._flight is not None:  # Something else failed: nobody waits for it.
                wait([self._flight.firing])
                self._flight = None
        return fired

    def rehearse(self, bucket: str, moment: Moment) -> None:
        """Fire nothing from a bucket, so that a fire to come finds its plan made.

        A plan is made anew each hour, of the new bucket, and whenever one of its tables
        was analyzed. That would take some milliseconds at the very instant. Locks and
        writes nothing.
        """
        batch = self._batch([], [], {}, {}, moment)
        try:
            store.fire_undecided(self._conn, bucket=bucket, batch=batch)
        except (psycopg.errors.UndefinedTable, *BUSY):
            log.debug("%s can't be fired from now: the fire itself will tell", bucket)

    def _fire_on(
        self,
        pieces: list[tuple[str, list[Entry]]],
        moment: Moment,
        fired: Fired,
        progress: Callable[[], None],
    ) -> None:
        """Fire one piece after the other, each aimed while the one before is fired.

        Once workers could not be told they are told no more here: the step's end does.
        """
        told = True
        for bucket, piece in pieces:
            shot = self._aim(bucket, piece, moment, fired)
            landed = self._land(moment, fired)
            if shot is not None:
                self._launch(shot)
            for before, firing in landed:
                self._conclude(before, firing, moment, fired)
            if fired.queues and told:  # Workers begin while the rest is fired.
                told = self._told(fired.queues)
                fired.queues = set() if told else fired.queues
            progress()
        self._settle(moment, fired)
        progress()

    def _told(self, queues: set[str]) -> bool:
        """Tell of these queues; return False where that fails: a notice is a hint."""
        try:
            self._tell(queues)
        except psycopg.Error as error:
            why = str(error).partition("\n")[0]
            log.warning("workers are told once all is fired: %s", why)
            return False
        return True

    def _launch(self, shot: Shot) -> None:
        """Have another thread send a shot; return once it is about to."""
        if self._hand is None:
            self._hand = ThreadPoolExecutor(1, thread_name_prefix="chrono fire")
        begun = Event()

        def sending() -> store.Firing:
            begun.set()
            return send(self._conn, bucket=shot.bucket, batch=shot.batch)

        firing = self._hand.submit(sending)
        # Else it would wait for its turn while this one computes, for up to 5 ms.
        begun.wait()
        self._flight = Flight(shot=shot, firing=firing)

    def _land(self, moment: Moment, fired: Fired) -> list[tuple[Shot, store.Firing]]:
        """Wait for what was sent last; return it, if it is still to be concluded."""
        flight, self._flight = self._flight, None
        if flight is None:
            return []
        firing = self._result(flight.shot, flight.firing.result, moment, fired)
        return [] if firing is None else [(flight.shot, firing)]

    def _settle(self, moment: Moment, fired: Fired) -> None:
        """Wait for what was sent last and conclude it."""
        for shot, firing in self._land(moment, fired):
            self._conclude(shot, firing, moment, fired)

    def _fire(
        self, bucket: str, entries: list[Entry], moment: Moment, fired: Fired
    ) -> None:
        shot = self._aim(bucket, entries, moment, fired)
        if shot is None:
            return
        sending = partial(send, self._conn, bucket=shot.bucket, batch=shot.batch)
        firing = self._result(shot, sending, moment, fired)
        if firing is not None:
            self._conclude(shot, firing, moment, fired)

    def _aim(
        self, bucket: str, entries: list[Entry], moment: Moment, fired: Fired
    ) -> Shot | None:
        """Decide entries and return what is to be sent, None where there is nothing."""
        held = {p: h.term for p, h in self._cache.held.items()}
        entries = [e for e in entries if e.part in held]
        if not entries:
            return None
        try:
            decided = self._decide(entries, moment, fired)
        except BUSY:
            self._put_off(entries, moment)
            return None
        if not decided:
            return None
        next_dues = [
            next_due(entry, decision.following, moment.now)
            for entry, decision in decided
        ]
        gates = self._gates(decided)
        batch = self._batch(decided, next_dues, gates, held, moment)
        return Shot(
            bucket=bucket,
            decided=decided,
            next_dues=next_dues,
            gates=gates,
            batch=batch,
        )

    def _result(
        self,
        shot: Shot,
        result: Callable[[], store.Firing],
        moment: Moment,
        fired: Fired,
    ) -> store.Firing | None:
        """Return what came of a shot; None where it failed and that was dealt with."""
        entries = [entry for entry, _ in shot.decided]
        try:
            return result()
        except psycopg.errors.UndefinedTable:
            for entry in entries:  # The bucket was dropped: the next look tells.
                self._cache.forget(entry)
        except BUSY:
            self._fire_apart(shot.bucket, entries, moment, fired)
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            self._fire_halves(shot.bucket, entries, moment, fired, error)
        return None

    def _put_off(self, entries: list[Entry], moment: Moment) -> None:
        """Upkeep has a table that was to be asked: it gives it back in no time."""
        for entry in entries:
            self._cache.put_back(entry, at=moment.now + REST // 10)

    def _decide(
        self, entries: list[Entry], moment: Moment, fired: Fired
    ) -> list[tuple[Entry, Decision]]:
        """Return what to do with entries; one that can't be decided waits a minute.

        What is asked of the database for it is asked after all that was sent before.
        """
        now = moment.now
        decided: list[tuple[Entry, Decision]] = []
        for entry in entries:
            try:
                decided.append((entry, decide(entry, now)))
            except Exception:
                # Whatever is wrong with one job's schedule: the others fire.
                log.exception("job %s can't be decided", entry.job_id)
                self._cache.put_back(entry, at=now + 60 * REST)
        retries = [e for e, decision in decided if decision.gate is Reason.PAUSED]
        if retries:
            self._settle(moment, fired)
        if manual := self._places.of_people(retries):
            decided = [
                (entry, replace(one, gate=None) if entry.run_id in manual else one)
                for entry, one in decided
            ]
        late = {entry.job_id for entry in entries if entry.kind == TimerKind.LATE}
        asking = [
            entry
            for entry, decision in decided
            if needs_place(entry, decision, beside_late=entry.job_id in late)
        ]
        if asking:
            self._settle(moment, fired)
            places = self._places.find(asking, now)
            decided = [
                (entry, settle_place(decision, places[entry.key]))
                if entry.key in places
                else (entry, decision)
                for entry, decision in decided
            ]
        if not self._holds.any_shut:
            return decided
        self._settle(moment, fired)
        return self._holds.hold(decided)

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
        decided: list[tuple[Entry, Decision]],
        next_dues: list[Millis],
        gates: Mapping[int, tuple[str, int, str]],
        held: Mapping[int, Term],
        moment: Moment,
    ) -> dict[str, Any]:
        """Return the parameters of both fires: guards and parallel arrays."""
        entries = [entry for entry, _ in decided]
        decisions = [decision for _, decision in decided]
        priorities = [
            Priority.BULK if d.gate is Reason.CATCH_UP else e.definition.priority
            for e, d in zip(entries, decisions, strict=True)
        ]
        return {
            **guards(held[part] for part in {entry.part for entry in entries}),
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
            "priority": int8s(priorities),
            "tag": int8s(
                self._tags.draw_all(
                    [
                        (e.tenant, e.definition.queue, priority)
                        for e, priority in zip(entries, priorities, strict=True)
                    ],
                    moment.now,
                )
            ),
            "fence": int8s([held[e.part].fence for e in entries]),
            "skip": int8s([d.skip or 0 for d in decisions]),
            "bounded": bools(
                [
                    is_bounded(e) and e.old_prev_live is None and d.gate is None
                    for e, d in zip(entries, decisions, strict=True)
                ]
            ),
            "next_for": int8s([d.following or 0 for d in decisions]),
            "next_due": int8s(next_dues),
            "gated_n": list(gates),
            "gate": [key for key, _, _ in gates.values()],
            "gate_reason": [reason for _, reason, _ in gates.values()],
            "gates_left": [left for _, _, left in gates.values()],
            "slot_n": [n for n, d in enumerate(decisions) if d.slot],
            "now": moment.override,
            "slice": moment.slice,
            "horizon": moment.horizon,
        }

    def _gates(
        self, decided: list[tuple[Entry, Decision]]
    ) -> dict[int, tuple[str, int, str]]:
        """Return the gates of those whose runs have to wait, by position."""
        shares = self._cache.shares
        return {
            n: gate
            for n, (entry, decision) in enumerate(decided)
            if decision.skip is None
            and (gate := gate_of(entry, decision, shares)) is not None
        }

    def _conclude(
        self, shot: Shot, firing: store.Firing, moment: Moment, fired: Fired
    ) -> None:
        for n, (entry, decision) in enumerate(shot.decided):
            if entry.part not in firing.held:
                self._cache.put_back(entry, at=entry.due)
                fired.stale.add(entry.part)
                continue
            verdict = firing.verdicts.get(n)
            if verdict is None:
                self._not_found(entry, moment)
                continue
            self._cache.forget(entry)
            if verdict == 0 and n in shot.gates:
                fired.waiting = True
            elif verdict == 0:
                fired.readied += 1
                fired.queues.add(entry.definition.queue)
            if decision.following is not None:
                self._plan(
                    entry, decision.following, shot.next_dues[n], verdict, moment
                )

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
        if not self._cache.covers(entry.part, due):
            return  # A read will bring it.
        if verdict == 0 and entry.remaining == 1:
            return  # That was the last.
        if verdict == 0:
            entry.prev = entry.run_id
            entry.remaining = entry.remaining and entry.remaining - 1
        entry.bucket = bucket_name(due) if due < moment.horizon else FAR
        entry.due = due
        entry.scheduled_for = following
        entry.run_id = run_id(entry.job_id, following, 0, entry.part)
        entry.put_back = 0
        entry.old_prev_live = entry.prev_ended = None
        self._cache.put(entry)


def gate_of(
    entry: Entry, decision: Decision, shares: Mapping[int, Share]
) -> tuple[str, int, str] | None:
    """Return the key and the reason of the gate behind which a run waits.

    And those behind that, as one text. Who lets in by the gate of one job adds those of
    its limits. ``shares`` are those of the tenants whose share is not the usual one.
    """
    if decision.gate is not None:
        return decision.gate.label, int(decision.gate), ""
    gates: tuple[Gate, ...] = () if decision.held is None else (decision.held,)
    share = shares.get(entry.tenant)
    if entry.definition.limited or share is not None:
        policy = entry.definition.policy
        gates += limits_of(policy, tenant=entry.tenant, job=entry.job_id, share=share)
    if not gates:
        return None
    return gates[0].key, int(gates[0].reason), written(gates[1:])


def is_missed(entry: Entry, now: Millis) -> bool:
    """Return whether a schedule's occurrence is so late that catch-up decides.

    What is counted from the end of a run is late, but nothing was missed. A single
    instant that lay back when its job was made is due since then.
    """
    definition = entry.definition
    if (
        entry.scheduled_for > missed_until(now, definition.offset)
        or entry.kind != TimerKind.SCHEDULE
    ):
        return False  # So is nearly every one. Nothing is due before its instant.
    if isinstance(definition.schedule, FixedDelay):
        return False
    return not isinstance(definition.schedule, Once) or (
        entry.due <= missed_until(now, 0)
    )


def decide(entry: Entry, now: Millis) -> Decision:
    """Return what to do with a due entry, whatever runs of its job are live.

    Of a paused job every retry is held back here, that of a manual run too.
    """
    if entry.kind == TimerKind.SCHEDULE:
        schedule = entry.definition.schedule
        if isinstance(schedule, FixedDelay):
            return _decide_delay(entry, schedule, now)
        return _decide_occurrence(entry, next_after(schedule, entry.scheduled_for), now)
    match TimerKind(entry.kind):
        case TimerKind.LATE if entry.job_deleted:
            return Decision(following=None, skip=Reason.ENDED)
        case TimerKind.LATE if entry.job_paused:
            return Decision(following=None, skip=Reason.PAUSED)
        case TimerKind.LATE:
            return _decide_late(entry, now)
        case TimerKind.RETRY if entry.job_paused and not entry.job_deleted:
            return Decision(following=None, gate=Reason.PAUSED)
        case _:
            return Decision(following=None)


def _decide_occurrence(entry: Entry, following: Millis | None, now: Millis) -> Decision:
    if entry.old_prev_live and is_bounded(entry):
        return Decision(following=following, skip=Reason.OVERLAP)
    late = is_past_deadline(
        entry.definition.policy,
        entry.scheduled_for,
        offset=entry.definition.offset,
        now=now,
    )
    return Decision(following=following, skip=Reason.PAST_DEADLINE if late else None)


def _decide_late(entry: Entry, now: Millis) -> Decision:
    """Decide an occurrence that an edit left to be run, missed ones in their lane."""
    decision = _decide_occurrence(entry, None, now)
    missed = entry.scheduled_for <= missed_until(now, entry.definition.offset)
    if missed and decision.skip is None:
        return replace(decision, gate=Reason.CATCH_UP)
    return decision


def _decide_delay(entry: Entry, schedule: FixedDelay, now: Millis) -> Decision:
    """Decide a delay counted from the end of a run.

    While that run is live its timer comes again after another delay; the run can't end
    before, so it never comes too late. Then it is moved to the very instant. Where that
    lies after the schedule's end, there is no more timer.
    """
    if entry.prev is not None and entry.prev_ended is None:
        return Decision(following=next_after(schedule, now), skip=MOVED)
    if entry.prev_ended is not None:
        nominal = next_after(schedule, entry.prev_ended)
        if nominal is None or nominal > entry.scheduled_for:
            return Decision(following=nominal, skip=MOVED)
    return Decision(following=next_after(schedule, now))


def needs_place(entry: Entry, decision: Decision, *, beside_late: bool) -> bool:
    """Return whether slots have to be asked whether an entry may run.

    A late one knows no last run, and the schedule's next timer knows nothing of it: it
    has a slot under every bound.
    """
    check = entry.definition.check
    return (
        (check is Check.SLOTS or (check is Check.LAST and beside_late))
        and entry.kind in OF_SCHEDULE
        and decision.skip is None
        and decision.gate is None
    )


def settle_place(decision: Decision, place: Place | Reason) -> Decision:
    """Return the decision on an entry whose place was asked for."""
    match place:
        case Place.READY:
            return replace(decision, slot=True)
        case Place.BUFFER:
            return replace(decision, gate=Reason.OVERLAP)
        case reason:
            return replace(decision, skip=reason)


def is_bounded(entry: Entry) -> bool:
    """Return whether the statement asks for the schedule's last run."""
    return entry.definition.check is Check.LAST and entry.kind in OF_SCHEDULE
