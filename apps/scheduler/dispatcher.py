"""The leader's work on the partitions it holds: look, load, fire, catch up, let in.

One session: a read is applied before the next statement is sent, so nothing is ever in
flight over an edit and its delta. Only of a herd one batch is aimed while the server
fires the one before; nothing is read meanwhile.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from apps.runtime.clock import Clock
from apps.runtime.sessions import Connection
from apps.scheduler import store
from apps.scheduler.batches import BUSY, Fired, Moment, Tags
from apps.scheduler.cache import Cache
from apps.scheduler.fire import Gun, Tell, is_missed
from apps.scheduler.gates import Gatekeeper, Gates
from apps.scheduler.lane import Lane
from apps.scheduler.load import Loader
from apps.scheduler.missed import Misser
from apps.scheduler.store import Term
from apps.tenants.store import list_shares
from chrono.rules.buckets import bucket_name
from chrono.rules.instants import Millis

log = logging.getLogger("chrono.scheduler")

LOOK_EVERY: Millis = 500
HEADS_EVERY: Millis = 5_000
SHARES_EVERY: Millis = 30_000
COLD_AFTER: Millis = 5_000
"""What was not fired for so long is rehearsed first."""
IDLE: Millis = 500
CATCHUP_RATE = 50.0
"""How many catch-up runs a second are let in, by all leaders together."""


@dataclass(slots=True, kw_only=True)
class Step:
    """What one step did, and how long the caller may wait for the next."""

    readied: int
    held: bool = False
    """Whether runs were put behind gates by which another process lets in."""
    queues: set[str] = field(default_factory=set)
    """In which runs became ready that nobody was told of yet."""
    wait: Millis = 0


class Dispatcher:
    """Fires the partitions it was given; :meth:`step` is one round."""

    def __init__(
        self,
        conn: Connection,
        clock: Clock,
        *,
        progress: Callable[[], None] = lambda: None,
        tell: Tell = lambda _: None,
        catchup_rate: float = CATCHUP_RATE,
    ) -> None:
        self._clock = clock
        self._progress = progress
        self.cache = Cache(clock.now())
        self._loader = Loader(conn, self.cache, progress)
        self._conn = conn
        self._tags = tags = Tags()
        self._gates = Gates(conn)
        self._gatekeeper = Gatekeeper(conn, self.cache, self._gates)
        self._gun = Gun(conn, self.cache, tags, self._gates, tell)
        self._misser = Misser(conn, self.cache, tags)
        self._lane = Lane(conn, self.cache, self._loader, rate=catchup_rate)
        self._lost: list[Term] = []
        self._slice = 0
        self._horizon: Millis = 0
        self._next_look: Millis = 0
        self._next_heads: Millis = 0
        self._next_shares: Millis = 0
        # The tables from which a fire was made lately, until when that is lately.
        self._warm: dict[str, Millis] = {}

    def close(self) -> None:
        """Let go of its thread; nothing may be fired any more."""
        self._gun.close()

    def adopt(self, terms: Iterable[Term]) -> None:
        """Lead these partitions from now on; what is due comes with the next step."""
        terms = list(terms)
        for term in terms:
            self.cache.adopt(term)
        if terms:
            self._next_look = 0
            self._lane.notice()
            self._gatekeeper.notice()

    def resign(self, parts: Iterable[int]) -> None:
        """Stop leading these partitions."""
        for part in parts:
            self.cache.drop(part)

    def take_lost(self) -> list[Term]:
        """Return, once, the terms found over because another one has begun."""
        lost, self._lost = self._lost, []
        return lost

    def notice(self) -> None:
        """Look at once: somebody said that jobs changed."""
        self._next_look = 0
        self._lane.notice()
        self._gatekeeper.notice()

    def notice_gates(self) -> None:
        """Look at the gates at once: somebody said that runs wait."""
        self._gatekeeper.notice()

    def step(self) -> Step:
        """Look, read and let in where it is time, fire what is due; return the outcome.

        What is due fires between all of these, so it waits for one of them, however
        slow the network is. What was missed comes after it, a bounded piece at a time.
        """
        now = self._clock.now()
        if not self.cache.held:
            return Step(readied=0, wait=IDLE)
        fired = self._fire()
        if now >= self._next_look:
            self._look(now)
            fired += self._fire()
            self._weigh(now)
            fired += self._fire()
        if now >= self._loader.ahead_due():
            self._loader.load_ahead(now)
            fired += self._fire()
        if self._rehearse(now):
            fired += self._fire()
        if now >= self._loader.overdue_due() and not self.cache.has_aside():
            self._loader.load_overdue(now)
            fired += self._fire()
        if self.cache.has_aside():
            fired.append(self._misser.step(self._moment(), self._progress))
            fired += self._fire()
        if any(one.waiting for one in fired):
            self._lane.notice()
            self._gatekeeper.notice()
        fired += self._let_in(now)
        if any(one.readied for one in fired):
            self._next_heads = 0
        self._lead_anew({part for one in fired for part in one.stale})
        return Step(
            readied=sum(one.readied for one in fired),
            held=0 not in self.cache.held and any(one.waiting for one in fired),
            queues={queue for one in fired for queue in one.queues},
            wait=self._wait(),
        )

    def _let_in(self, now: Millis) -> list[Fired]:
        """Let in what waits behind gates, where it is time to look; fire in between."""
        fired = []
        if now >= self._lane.due():
            fired.append(self._lane.step(self._moment()))
            if fired[0].waiting:
                self._gatekeeper.notice()
            fired += self._fire()
        if now >= self._gatekeeper.due():
            fired.append(self._gatekeeper.step(self._moment()))
            fired += self._fire()
        return fired

    def _fire(self) -> list[Fired]:
        """Fire what is due by now, and set aside what was missed."""
        now = self._clock.now()
        due = []
        for entry in self.cache.take_due(now):
            if is_missed(entry, now):
                self.cache.set_aside(entry)
            else:
                due.append(entry)
        if not due:
            return []
        for bucket in {due[0].bucket, due[-1].bucket}:
            self._warm[bucket] = now + COLD_AFTER
        return [self._gun.fire(due, self._moment(), self._progress)]

    def _rehearse(self, now: Millis) -> bool:
        """Rehearse what fires within a second, where nothing like it fired lately.

        One table a step, since what is due waits for it; return whether there was one.
        """
        soon = now + 2 * LOOK_EVERY
        if not self.cache.has_before(soon):
            return False
        self._warm = {name: until for name, until in self._warm.items() if until > now}
        for bucket in (bucket_name(now), bucket_name(soon)):
            if bucket not in self._warm:
                self._warm[bucket] = now + COLD_AFTER
                self._gun.rehearse(bucket, self._moment())
                return True
        return False

    def _moment(self) -> Moment:
        return Moment(
            now=self._clock.now(),
            override=self._clock.override(),
            slice=self._slice,
            horizon=self._horizon,
        )

    def _lead_anew(self, stale: set[int]) -> None:
        """Follow what has moved in the partitions that refused."""
        if not stale:
            return
        lost = self._loader.catch_up(stale)
        if lost:
            log.warning("%s partitions refused to be fired: led anew", len(lost))
        self._lost += lost
        self._next_look = 0

    def _look(self, now: Millis) -> None:
        seen = self._loader.look(now)
        self._slice, self._horizon = seen.slice, seen.horizon
        if seen.lost:
            log.warning("%s partitions are led anew", len(seen.lost))
        self._lost += seen.lost
        self._gates.follow(seen.gates)
        self._next_look = now + LOOK_EVERY

    def _weigh(self, now: Millis) -> None:
        """Follow what is next in the queues, and what each tenant may have.

        The first time before anything is loaded, so no quota is ever unknown. While
        nothing is due and nothing waits, nobody needs a tag.
        """
        due = self.cache.next_due()
        soon = due is not None and due < now + 2 * LOOK_EVERY
        if soon or self._tags.any_waits or now >= self._next_heads:
            self._next_heads = now + HEADS_EVERY
            try:
                self._tags.follow(store.list_heads(self._conn))
            except BUSY:
                log.debug("a slice is being emptied: the tags go by what was next")
        if now >= self._next_shares:
            self.cache.shares = shares = list_shares(self._conn)
            self._tags.weigh({tenant: one.weight for tenant, one in shares.items()})
            self._next_shares = now + SHARES_EVERY

    def _wait(self) -> Millis:
        now = self._clock.now()
        if self.cache.has_aside():
            return 0
        wake = min(
            self._next_look,
            self._loader.ahead_due(),
            self._loader.overdue_due(),
            self._lane.due(),
            self._gatekeeper.due(),
        )
        due = self.cache.next_due()
        if due is not None:
            wake = min(wake, due)
        return max(0, wake - now)
