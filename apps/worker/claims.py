"""Claiming: whenever there are free seats and something may lie in a queue."""

import asyncio
import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import psycopg

from apps.runs import store, worker_store
from apps.runs.store import Lease, Missed, Target, Written
from apps.runtime.clock import Clock
from apps.runtime.sessions import Connection
from apps.worker.execute import Executor
from apps.worker.gates import Gates
from apps.worker.lines import Line
from apps.worker.pauses import Pauses, wait_within
from apps.worker.seats import Seats
from apps.worker.starts import Starts
from apps.worker.targets import UNREADABLE, Key, New, Targets, is_task, read, with_own
from chrono.rules.catchup import may_stand_for_others
from chrono.rules.instants import MINUTE, Millis
from chrono.rules.keys import is_extra

log = logging.getLogger("chrono.worker")

BATCH = 200
LARGEST = 400
"""Most runs of a claim, where a worker runs so many that these are half of them: while
one half is executed, the other is claimed."""
SHORTEST_REST: Millis = 5
LONGEST_REST: Millis = 1_000
LOOK_EVERY: Millis = MINUTE
TO_ONE_BY_AGE = 19
"""So many runs are taken by priority to one that is taken by age."""

type Own = dict[uuid.UUID, Target]
"""Runs with a payload of their own, each with its target and that payload."""


def load_own(conn: Connection, leases: Sequence[Lease]) -> Own:
    """Return the targets of those runs that have a payload of their own, with it.

    Only runs besides their schedule's can have one: the others cost nothing here.
    """
    extra = [lease for lease in leases if is_extra(lease.run_id)]
    payloads = _load_payloads(conn, extra) if extra else {}
    if not payloads:
        return {}
    having = [lease for lease in extra if lease.run_id in payloads]
    keys = list(dict.fromkeys((lease.job_id, lease.revision) for lease in having))
    found = store.load_targets(conn, revisions=keys)
    targets = {key: read(key, written) for key, written in found.items()}
    return {
        lease.run_id: with_own(target, payloads[lease.run_id])
        for lease in having
        if (target := targets.get((lease.job_id, lease.revision))) is not None
    }


def load_missed(
    conn: Connection, leases: Sequence[Lease], *, now: Millis
) -> dict[uuid.UUID, Missed]:
    """Return what those of these runs stand for that stand for missed ones besides.

    Only a run that begins late can: while none does, this costs nothing.
    """
    late = [
        (lease.run_id, lease.job_id)
        for lease in leases
        if may_stand_for_others(lease.run_id, begun=now)
    ]
    return store.load_missed(conn, runs=late) if late else {}


def load_deaths(conn: Connection, leases: Sequence[Lease]) -> dict[uuid.UUID, int]:
    """Return how often a process died under these runs, where one did.

    Only a run that was begun before can have seen that: first attempts cost nothing.
    """
    again = [(lease.part, lease.run_id) for lease in leases if lease.attempt > 1]
    return worker_store.load_deaths(conn, runs=again) if again else {}


def load_checkpoints(
    conn: Connection, runs: Sequence[uuid.UUID]
) -> dict[uuid.UUID, object]:
    """Return what earlier attempts of these runs told, where they told something.

    What Python cannot read counts for nothing told: the run begins from its beginning.
    """
    if not runs:
        return {}
    try:
        return store.load_checkpoints(conn, runs=runs)
    except (ValueError, RecursionError):
        if len(runs) > 1:
            return {
                k: v for one in runs for k, v in load_checkpoints(conn, [one]).items()
            }
        log.warning("the checkpoint of run %s cannot be read", runs[0])
        return {}


def _load_payloads(
    conn: Connection, leases: Sequence[Lease]
) -> dict[uuid.UUID, object]:
    try:
        return store.load_run_inputs(conn, runs=[(x.part, x.run_id) for x in leases])
    except (ValueError, RecursionError):
        if len(leases) > 1:
            return {
                run: payload
                for one in leases
                for run, payload in _load_payloads(conn, [one]).items()
            }
        log.warning("the payload of run %s cannot be read", leases[0].run_id)
        return {leases[0].run_id: UNREADABLE}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claimed:
    """What a claim brought, and what is needed to execute it."""

    leases: list[Lease]
    targets: dict[Key, New]
    own: Own
    missed: dict[uuid.UUID, Missed]
    checkpoints: dict[uuid.UUID, object]
    deaths: dict[uuid.UUID, int]


class Claimer:
    """Claims from the queues in the order given, into free seats."""

    def __init__(
        self,
        *,
        line: Line,
        worker: uuid.UUID,
        queues: Sequence[str],
        seats: Seats,
        targets: Targets,
        gates: Gates,
        executor: Executor,
        wake: asyncio.Event,
        clock: Clock,
        monotonic: Callable[[], Millis],
        is_fit: Callable[[], bool],
        alone: Callable[[], None] | None = None,
    ) -> None:
        """``alone`` makes it claim what was set aside; it is called when that is all
        done."""
        self._alone = alone
        self._line = line
        self._worker = worker
        self._queues = queues
        self._seats = seats
        self._most = min(LARGEST, max(BATCH, seats.capacity // 2))
        self._targets = targets
        self._gates = gates
        self._executor = executor
        self._wake = wake
        self._clock = clock
        self._monotonic = monotonic
        self._is_fit = is_fit
        self._stopping = asyncio.Event()
        self._doubt = False
        self._looked = monotonic()
        self._rest = SHORTEST_REST
        self._by_priority: defaultdict[str, int] = defaultdict(int)
        """How many runs of a queue were taken for which none was by age yet."""
        self._starts = Starts(monotonic)
        self._pauses = Pauses()

    def stop(self) -> None:
        """Claim no more; what an open claim brings is handed back."""
        self._stopping.set()
        self._wake.set()

    async def run(self) -> None:
        """Claim until stopped."""
        while not self._stopping.is_set():
            try:
                rest = await self.step()
            except psycopg.Error as error:
                # It may have been made all the same: its leases would stand for ever.
                self._doubt = True
                await self._pauses.wait(f"claim failed: {error}", log)
                continue
            self._pauses.reset()
            if rest:
                await wait_within(self._wake, rest / 1000)
            elif not self._seats.free:
                await self._seats.wait_free()

    async def step(self) -> Millis:
        """Claim once from each queue; return how long to rest, 0 being not at all."""
        if self._doubt or self._monotonic() - self._looked >= LOOK_EVERY:
            await self._look_at_leases()
        self._wake.clear()
        if not self._is_fit():
            return LONGEST_REST
        found = full = False
        for queue in self._queues:
            limit = min(self._seats.free, self._most)
            if limit <= 0 or self._stopping.is_set():
                full = True
                break
            leases = await self._claim(queue, limit)
            found = found or bool(leases)
            full = full or len(leases) == limit
        if full:
            self._rest = SHORTEST_REST
            return 0
        if self._alone is not None and not found and not len(self._seats):
            self._alone()
        rest = SHORTEST_REST if found else self._rest
        self._rest = min(LONGEST_REST, rest * 2)
        return rest

    async def _claim(self, queue: str, limit: int) -> list[Lease]:
        def claim(conn: Connection) -> _Claimed:
            leases = self._take(conn, queue, limit)
            if leases:
                self._gates.look(conn, leases)
            own = load_own(conn, leases)
            missing = self._targets.missing(
                [lease for lease in leases if lease.run_id not in own]
                if own
                else leases
            )
            targets = store.load_targets(conn, revisions=missing) if missing else {}
            return _Claimed(
                leases=leases,
                targets=self._targets.read(targets),
                own=own,
                missed=load_missed(conn, leases, now=self._clock.now()),
                checkpoints=load_checkpoints(
                    conn, self._resumable(leases, targets, own)
                ),
                deaths=load_deaths(conn, leases),
            )

        found = await self._line.call(claim)
        if self._stopping.is_set():
            self._executor.return_unstarted(found.leases)
            return found.leases
        self._targets.learn(found.targets)
        self._executor.start(
            found.leases,
            {run: self._targets.prepare(target) for run, target in found.own.items()},
            found.missed,
            found.checkpoints,
            found.deaths,
            queue=queue,
        )
        return found.leases

    def _take(self, conn: Connection, queue: str, limit: int) -> list[Lease]:
        """Claim, once in a while by age, so that no priority starves."""
        if self._alone is not None:
            return store.claim_set_aside(
                conn, queue=queue, limit=limit, worker=self._worker
            )
        by_age = self._by_priority[queue] >= limit * TO_ONE_BY_AGE
        if by_age:
            oldest = store.find_oldest_priority(conn, queue=queue)
            start = (oldest, store.FRONT[1])
        else:
            start = self._starts.of(queue)
        begun = self._monotonic()
        leases = store.claim_ready(
            conn, queue=queue, limit=limit, worker=self._worker, start=start
        )
        if by_age:
            self._by_priority[queue] -= limit * TO_ONE_BY_AGE
        elif len(leases) == limit:  # Else nothing was left to starve.
            self._by_priority[queue] += limit
            self._starts.note(queue, leases, start=start, begun=begun)
        else:
            self._starts.forget(queue)
        return leases

    def _resumable(
        self, leases: Sequence[Lease], targets: Mapping[Key, Written], own: Own
    ) -> list[uuid.UUID]:
        """Return the runs whose handler may have told something in another attempt."""
        told = self._targets.may_take_context
        new = {key for key, written in targets.items() if told(written)}
        if not (new or own or self._targets.any_takes_context):
            return []
        return [
            lease.run_id
            for lease in leases
            if (key := (lease.job_id, lease.revision)) in new
            or self._targets.take_context(key)
            or (lease.run_id in own and is_task(own[lease.run_id]))
        ]

    async def _look_at_leases(self) -> None:
        """Hand back what the database says is ours and no seat knows.

        Who has left its seat while the answer travelled is none of them.
        """
        seated = {execution.lease.token for execution in self._seats}
        held = await self._line.call(
            lambda conn: store.list_leases(conn, worker=self._worker)
        )
        lost = [lease for lease in held if lease.token not in seated]
        if lost:
            log.warning("handing back %d runs whose claim got no answer", len(lost))
            self._executor.return_unstarted(lost)
        self._doubt = False
        self._looked = self._monotonic()
