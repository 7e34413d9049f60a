"""Lets in what waits behind a gate: when there is a place, and at what rate.

Catch-up and backfill have a rate of their own, so that live runs keep their second;
runs behind others of their job are let in when one of those has ended; retries of its
schedule's runs when their job is resumed. Nobody is let in while the job is paused.
"""

import logging
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from apps.runs import cancel
from apps.runs import store as runs
from apps.runs.errors import RunNotFound
from apps.runtime.sessions import Connection
from apps.scheduler import store
from apps.scheduler.batches import BUSY, Fired, Moment, guards
from apps.scheduler.cache import Cache, Definition
from apps.scheduler.load import Loader
from apps.scheduler.places import Places
from apps.scheduler.store import Live, Waiting
from chrono.rules.gates import limits_of, written
from chrono.rules.instants import SECOND, Millis
from chrono.rules.overlap import Check
from chrono.rules.partitions import PARTITIONS
from chrono.rules.states import Reason

log = logging.getLogger("chrono.scheduler")

STEP: Millis = 250
LOOK_EVERY: Millis = 30_000
"""How often it looks whether something waits that nobody told of."""
REST: Millis = 1_000
MOST_JOBS = 200
KEY = "\t"
"""Stands for a run's concurrency key in the gates of its job: no key has it in it."""
TURNS = 16
"""How many jobs that catch up are looked at in a step: it is a rate's worth."""
EVERYTHING = 1_000_000
NOBODY = uuid.UUID(int=0)
START = (-1, NOBODY)
REPLACING = ("cancel_other", "terminate_other")


@dataclass(slots=True)
class _Gate:
    """One gate, and where the walk along its jobs stands."""

    reason: Reason
    after: tuple[int, uuid.UUID] = START
    awake: bool = True
    """Whether the walk has met a job that may run."""
    next: Millis = 0


@dataclass(frozen=True, slots=True)
class _Limits:
    """The gates of limits that runs of a job have to pass, none where it has none."""

    gates: str = ""
    """With ``KEY`` for the concurrency key of a run."""
    key: str = ""
    """The one of the job as it is; a run's may be another."""
    filled: bool = False
    """Whether the job's payload fills it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Admission:
    """How many runs of a job are let in, and whether they take slots."""

    job: Waiting
    count: int
    slot: bool
    max_delay: Millis = 0
    """How long after its due instant a run may begin; 0 for any time."""
    limits: _Limits


class Lane:
    """The gates of the partitions held; :meth:`step` is one round."""

    def __init__(
        self, conn: Connection, cache: Cache, loader: Loader, *, rate: float
    ) -> None:
        self._conn = conn
        self._cache = cache
        self._loader = loader
        self._places = Places(conn)
        self._rate = rate
        self._tokens = 0.0
        self._filled: Millis | None = None
        # Runs in execution that were called off, and when.
        self._told: dict[uuid.UUID, Millis] = {}
        self._resting: dict[uuid.UUID, Millis] = {}
        self._gates = [
            _Gate(Reason.OVERLAP),
            _Gate(Reason.PAUSED),
            _Gate(Reason.CATCH_UP),
        ]

    def notice(self) -> None:
        """Look with the next step: something waits, or may go on."""
        for gate in self._gates:
            gate.next = 0

    def due(self) -> Millis:
        """Return when the next step is due."""
        return min(gate.next for gate in self._gates)

    def step(self, moment: Moment) -> Fired:
        """Let in what may go from behind one gate; return what came of it."""
        fired = Fired()
        self._resting = {
            job: until for job, until in self._resting.items() if until > moment.now
        }
        gate = min(self._gates, key=lambda gate: gate.next)
        try:
            self._walk(gate, moment, fired)
        except BUSY:
            gate.next = moment.now + STEP
        return fired

    def _walk(self, gate: _Gate, moment: Moment, fired: Fired) -> None:
        """Look at the next jobs behind a gate; at the end of the walk begin anew."""
        most = EVERYTHING
        if gate.reason is Reason.CATCH_UP and not (most := self._fill(moment.now)):
            gate.next = moment.now + STEP
            return
        found = store.list_waiting(
            self._conn, gate=gate.reason.label, after=gate.after, limit=MOST_JOBS
        )
        here = [
            one
            for one in found
            if one.part in self._cache.held
            and (one.deleted or not one.paused)
            and one.job_id not in self._resting
        ]
        gate.awake |= bool(here)
        # A look at a job with much to catch up costs some milliseconds.
        turns = here[: min(most, TURNS)] if most < EVERYTHING else here
        before = fired.readied
        seen = self._admit(gate, turns, most, moment, fired)
        if seen < len(here) or len(found) == MOST_JOBS:
            last = here[seen - 1] if seen < len(here) else found[-1]
            gate.after = (last.part, last.job_id)
            # What is due now fires in between; where nobody may go there is no hurry.
            gate.next = moment.now + (0 if fired.readied > before else STEP)
            return
        # Those that rest have kept nobody awake: their turn comes when it is over.
        idle = min([moment.now + LOOK_EVERY, *self._resting.values()])
        gate.next = moment.now + STEP if gate.awake else idle
        gate.after, gate.awake = START, False

    def _admit(
        self,
        gate: _Gate,
        jobs: list[Waiting],
        most: int,
        moment: Moment,
        fired: Fired,
    ) -> int:
        """Let runs of these jobs in; return how many of the jobs had their turn."""
        wanted, seen = self._choose(gate, jobs, most, moment)
        if wanted:
            self._let_in(gate, wanted, moment, fired)
        return seen

    def _let_in(
        self, gate: _Gate, wanted: list[_Admission], moment: Moment, fired: Fired
    ) -> None:
        batch = self._batch(gate, wanted, moment)
        try:
            held, queues = store.admit_if_held(self._conn, batch=batch)
        except BUSY:
            self._let_in_apart(gate, wanted, moment, fired)
            return
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            self._let_in_halves(gate, wanted, moment, fired, error)
            return
        if gate.reason is Reason.CATCH_UP:
            self._tokens -= len(queues)
        fired.count(queues)
        fired.stale |= {one.job.part for one in wanted} - held

    def _let_in_apart(
        self, gate: _Gate, wanted: list[_Admission], moment: Moment, fired: Fired
    ) -> None:
        """One partition is locked by somebody: the others must not wait for it."""
        by_part: defaultdict[int, list[_Admission]] = defaultdict(list)
        for one in wanted:
            by_part[one.job.part].append(one)
        if len(by_part) == 1:
            log.warning("partition %s is locked by another session", *by_part)
            self._rest(wanted, moment.now + REST)
            return
        for of_part in by_part.values():
            self._let_in(gate, of_part, moment, fired)

    def _let_in_halves(
        self,
        gate: _Gate,
        wanted: list[_Admission],
        moment: Moment,
        fired: Fired,
        error: psycopg.Error,
    ) -> None:
        """One bad row must not stop the others: find its job, leave it out, say so."""
        if len(wanted) == 1:
            log.error("job %s can't be let in: %s", wanted[0].job.job_id, error)
            self._rest(wanted, moment.now + 60 * REST)
            return
        middle = len(wanted) // 2
        self._let_in(gate, wanted[:middle], moment, fired)
        self._let_in(gate, wanted[middle:], moment, fired)

    def _rest(self, admissions: Iterable[_Admission], until: Millis) -> None:
        self._resting |= {one.job.job_id: until for one in admissions}

    def _choose(
        self, gate: _Gate, jobs: list[Waiting], most: int, moment: Moment
    ) -> tuple[list[_Admission], int]:
        """Return how many runs of which jobs are let in, and how many jobs were asked.

        At the first one that is not, the runs that may be let in were used up.
        """
        definitions = self._loader.definitions({(j.job_id, j.revision) for j in jobs})
        if gate.reason is Reason.PAUSED:
            # They have their place already: they were running before.
            every = [
                _Admission(
                    job=job,
                    count=MOST_JOBS,
                    slot=False,
                    limits=self._limits(
                        job, definitions.get((job.job_id, job.revision))
                    ),
                )
                for job in jobs
            ]
            return every, len(jobs)
        known = [
            (job, definitions[job.job_id, job.revision])
            for job in jobs
            if (job.job_id, job.revision) in definitions
        ]
        bounded = [
            (job.part, job.job_id)
            for job, definition in known
            if definition.check is not Check.NOTHING
        ]
        live = self._places.live(bounded, moment.now) if bounded else {}
        if gate.reason is Reason.OVERLAP:
            self._replace(known, live, moment.now)
        admissions: list[_Admission] = []
        for job, definition in known:
            if not most:
                return admissions, jobs.index(job)
            slot = definition.check is not Check.NOTHING
            # Of one job no more than a share, so that others have a turn.
            free = definition.bound - len(live[job.job_id].runs) if slot else MOST_JOBS
            free = min(free, most, max(1, most // 4))
            if free > 0:
                most -= free
                late = definition.policy.max_delay or 0
                admissions.append(
                    _Admission(
                        job=job,
                        count=free,
                        slot=slot,
                        max_delay=late,
                        limits=self._limits(job, definition),
                    )
                )
        return admissions, len(jobs)

    def _fill(self, now: Millis) -> int:
        """Return how many catch-up runs may go, of a second's worth at most."""
        share = self._rate * len(self._cache.held) / PARTITIONS
        passed = 0 if self._filled is None else max(0, now - self._filled)
        self._tokens = min(max(1.0, share), self._tokens + passed * share / SECOND)
        self._filled = now
        return int(self._tokens)

    def _replace(
        self,
        known: Iterable[tuple[Waiting, Definition]],
        live: Mapping[uuid.UUID, Live],
        now: Millis,
    ) -> None:
        """Call off what newer runs of a job replace; they come in when it has ended.

        A run in execution is told once, not with every look: it may go on for hours.
        """
        self._told = {
            run: at for run, at in self._told.items() if at + LOOK_EVERY > now
        }
        for job, definition in known:
            if definition.overlap not in REPLACING:
                continue
            seen = live[job.job_id]
            older = (*seen.runs, *seen.buffered)[: -definition.bound]
            for run in older:
                if run in self._told:
                    continue
                self._told[run] = now
                end = definition.overlap == "terminate_other"
                self._call_off(run, job.part, end=end)

    def _call_off(self, run: uuid.UUID, part: int, *, end: bool) -> None:
        try:
            cancel.cancel(self._conn, run, reason=Reason.REPLACED)
            if end:
                runs.end_lease(self._conn, run=run, part=part, reason=Reason.REPLACED)
        except RunNotFound:
            log.warning("run %s is to be replaced, but is nowhere", run)
        except BUSY:
            log.warning("run %s is to be replaced, but locked by another session", run)
            del self._told[run]

    def _batch(
        self, gate: _Gate, wanted: list[_Admission], moment: Moment
    ) -> dict[str, Any]:
        parts = {one.job.part for one in wanted}
        return {
            **guards(self._cache.held[part].term for part in parts),
            "gate": gate.reason.label,
            "part": [one.job.part for one in wanted],
            "job": [one.job.job_id for one in wanted],
            "count": [one.count for one in wanted],
            "slot": [one.slot for one in wanted],
            "max_delay": [one.max_delay for one in wanted],
            "gates": [one.limits.gates for one in wanted],
            "key": [one.limits.key for one in wanted],
            "filled": [one.limits.filled for one in wanted],
            "slice": moment.slice,
            "now": moment.override,
        }

    def _limits(self, job: Waiting, definition: Definition | None) -> _Limits:
        share = self._cache.shares.get(job.tenant)
        if definition is None or not (definition.limited or share):
            return _Limits()
        policy, key = definition.policy, definition.policy.concurrency_key
        if key is not None:
            policy = replace(policy, concurrency_key=KEY)
        gates = limits_of(policy, tenant=job.tenant, job=job.job_id, share=share)
        return _Limits(written(gates), key or "", definition.filled)
