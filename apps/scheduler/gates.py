"""Gates that hold the runs of many jobs: what is shut, and who is let in.

Every leader knows which gates are shut and puts what comes due behind them. The leader
of partition 0, the keeper, lets in what waits; each of its statements is guarded by the
gate's own row, so a second keeper does no harm.
"""

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from apps.queue.store import list_pauses
from apps.runs.target_store import Key, Shut, list_shut_circuits
from apps.runtime.sessions import Connection
from apps.scheduler import store
from apps.scheduler.batches import BUSY, Fired, Moment
from apps.scheduler.cache import Cache, Entry
from apps.scheduler.fire import Decision
from apps.scheduler.store import Ripe
from chrono.rules import breaker
from chrono.rules.breaker import Breaker, BreakerState
from chrono.rules.gates import LIMITS, Gate, limit_of, parse_gate
from chrono.rules.instants import SECOND, Millis
from chrono.rules.lease import LEASE_TTL
from chrono.rules.states import Reason
from chrono.rules.targets import identity

log = logging.getLogger("chrono.scheduler")

STEP: Millis = 250
LOOK_EVERY: Millis = 30_000
WALK_EVERY: Millis = 5_000
"""How often it looks whether something waits that nobody told of."""
LIMITS_EVERY: Millis = 100
"""How often it looks whether a run has ended that others wait for."""
ALERT: Millis = 3 * SECOND
"""So long after a gate was opened a leader may still put runs behind it."""
MOST_GATES = 500
MOST_RUNS = 500
MOST_AT_ONCE = 50
"""How many gates a step looks at: what is due now fires in between."""
NAMES = 50_000
_ADMIT = {
    Reason.CIRCUIT_OPEN: store.admit_freed,
    Reason.QUEUE_PAUSED: store.admit_resumed,
}


class Gates:
    """Which gates are shut, as far as this leader knows."""

    def __init__(self, conn: Connection) -> None:
        self.circuits: Mapping[Key, Shut] = {}
        self.paused: frozenset[Key] = frozenset()
        """Queues, by tenant."""
        self._conn = conn
        self._number: int | None = None
        self._names: dict[tuple[uuid.UUID, int], str] = {}

    @property
    def any_shut(self) -> bool:
        """Whether any gate is shut."""
        return bool(self.circuits or self.paused)

    def follow(self, number: int) -> None:
        """Look at the gates where their number has moved since the last time."""
        if number != self._number:
            self.look()
            self._number = number

    def look(self) -> None:
        """Read which gates are shut."""
        self.circuits = list_shut_circuits(self._conn)
        paused = list_pauses(self._conn)
        self.paused = frozenset((one.tenant, one.queue) for one in paused)
        if not self.circuits:
            self._names.clear()

    def hold(
        self, decided: Sequence[tuple[Entry, Decision]]
    ) -> list[tuple[Entry, Decision]]:
        """Return the decisions with those held whose gate is shut.

        While a circuit is open, this reads what is called by jobs that it has not seen
        since the first was.
        """
        if self.circuits:
            self._learn([e for e, d in decided if d.skip is None and d.gate is None])
        return [
            (entry, replace(decision, held=gate))
            if decision.skip is None
            and decision.gate is None
            and (gate := self._gate_of(entry)) is not None
            else (entry, decision)
            for entry, decision in decided
        ]

    def is_shut(self, gate: Gate) -> bool:
        """Return whether a gate is shut."""
        if gate.reason is Reason.QUEUE_PAUSED:
            return (gate.tenant, gate.name) in self.paused
        return (gate.tenant, gate.name) in self.circuits

    def _gate_of(self, entry: Entry) -> Gate | None:
        queue = entry.definition.queue
        if (entry.tenant, queue) in self.paused:
            return Gate(Reason.QUEUE_PAUSED, entry.tenant, queue)
        name = self._names.get((entry.job_id, entry.revision), "")
        if name and (entry.tenant, name) in self.circuits:
            return Gate(Reason.CIRCUIT_OPEN, entry.tenant, name)
        return None

    def _learn(self, entries: Sequence[Entry]) -> None:
        wanted = {(entry.job_id, entry.revision) for entry in entries}
        unknown = [key for key in wanted if key not in self._names]
        if not unknown:
            return
        if len(self._names) > NAMES:
            self._names.clear()
            unknown = list(wanted)
        found = store.load_target_names(self._conn, revisions=unknown)
        self._names |= {key: identity(target) for key, target in found.items()}


class Gatekeeper:
    """Lets in what waits behind the gates, where this process leads partition 0."""

    def __init__(self, conn: Connection, cache: Cache, gates: Gates) -> None:
        self._conn = conn
        self._cache = cache
        self._gates = gates
        self._next: Millis = 0
        self._next_walk: Millis = 0
        self._alert_until: Millis = 0
        self._after = ""
        """Where the walk along the gates stands."""
        self._limits = False
        """Whether it has met the gate of a limit."""
        self._met: dict[str, set[str]] = {}
        self._known: dict[str, set[str]] = {}
        """The gates of limits met on this walk and on the last, by what they share."""

    def notice(self) -> None:
        """Look with the next step: something waits, or may go on."""
        self._next = self._next_walk = 0

    def due(self) -> Millis:
        """Return when the next step is due."""
        return self._next

    def step(self, moment: Moment) -> Fired:
        """Let in what may go; return what came of it."""
        fired = Fired()
        self._next = moment.now + LOOK_EVERY
        if 0 not in self._cache.held:
            self._after = ""
            return fired
        if self._gates.any_shut:
            self._alert_until = moment.now + ALERT
        try:
            if self._gates.circuits:
                self._let_in(moment, fired)
            if moment.now >= self._next_walk or moment.now < self._alert_until:
                self._walk(moment, fired)
        except BUSY as error:
            log.warning("gates wait: %s", str(error).partition("\n")[0])
        self._next = self._next_walk
        if self._gates.any_shut or fired.readied or moment.now < self._alert_until:
            self._next = min(self._next, moment.now + STEP)
        if fired.waiting:
            self._next = self._next_walk = moment.now
        return fired

    def _let_in(self, moment: Moment, fired: Fired) -> None:
        ripe = store.list_ripe_circuits(
            self._conn, now=moment.override, limit=MOST_GATES
        )
        for one in ripe:
            gate = Gate(Reason.CIRCUIT_OPEN, one.tenant, one.name)
            if one.state is BreakerState.CLOSING:
                self._ramp(gate, one, moment, fired)
                continue
            queues = store.admit_probes(
                self._conn,
                gate=gate,
                ttl=LEASE_TTL,
                into=moment.slice,
                now=moment.override,
            )
            fired.count(queues)

    def _ramp(self, gate: Gate, ripe: Ripe, moment: Moment, fired: Fired) -> None:
        circuit = Breaker(
            state=ripe.state, changed_at=ripe.changed_at, let_in=ripe.let_in
        )
        most = min(MOST_RUNS, breaker.ramp(circuit, moment.now))
        queues: list[str | None] = []
        if most:
            queues = store.admit_ramp(
                self._conn,
                gate=gate,
                ripe=ripe,
                count=most,
                into=moment.slice,
                now=moment.override,
            )
            fired.count(queues)
        drained = len(queues) < most and breaker.may_close(circuit, moment.now)
        if drained and store.close_circuit(self._conn, gate=gate, now=moment.override):
            facts = {"tenant": gate.tenant, "target": gate.name}
            log.warning("circuit is closed", extra={"facts": facts})
            self._gates.look()

    def _walk(self, moment: Moment, fired: Fired) -> None:
        """Let in what lies behind gates that are open, and behind those of limits.

        Some of the gates that hold anything, and the next ones with the next step.
        """
        keys = store.list_gates(self._conn, after=self._after, limit=MOST_AT_ONCE)
        gates = [gate for gate in map(parse_gate, keys) if gate is not None]
        for gate in gates:
            self._met.setdefault(gate.shared, set()).add(gate.key)
        limits = [gate for gate in gates if gate.reason in LIMITS]
        for gate in gates:
            if gate.reason not in LIMITS and not self._gates.is_shut(gate):
                fired.count(
                    _ADMIT[gate.reason](
                        self._conn,
                        gate=gate,
                        limit=MOST_RUNS,
                        into=moment.slice,
                        now=moment.override,
                    )
                )
        if limits:
            fired.count(self._admit(limits, moment))
            self._limits = True
        if len(keys) == MOST_AT_ONCE:
            self._after, self._next_walk = keys[-1], moment.now
            return
        # While runs wait for a limit somebody has to look whether others have ended.
        self._next_walk = moment.now + (LIMITS_EVERY if self._limits else WALK_EVERY)
        self._after, self._limits = "", False
        self._known, self._met = self._met, {}

    def _admit(self, gates: Sequence[Gate], moment: Moment) -> list[str | None]:
        """Let in by gates of limits, in one transaction: a commit each would cost more.

        Each is counted in a statement of its own, whose snapshot is younger than all
        their locks.
        """
        queues: list[str | None] = []
        with self._conn.transaction():
            for gate in store.try_gates(self._conn, gates=gates):
                queues += self._admit_by(gate, moment)
        return queues

    def _admit_by(self, gate: Gate, moment: Moment) -> list[str | None]:
        into, now, limit = moment.slice, moment.override, limit_of(gate)
        if gate.reason is Reason.RATE_LIMIT:
            return store.admit_rate(
                self._conn, gate=gate, limit=limit, into=into, now=now
            )
        alike = self._met[gate.shared] | self._known.get(gate.shared, set())
        return store.admit_concurrency(
            self._conn,
            gate=gate,
            limit=limit.limit,
            rivals=alike - {gate.key},
            into=into,
            now=now,
        )
