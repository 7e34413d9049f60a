"""The leader's work on the partitions it holds: look, load, fire.

One session, one thread: a read is applied before the next statement is sent, so nothing
is ever in flight over an edit and its delta.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from apps.runtime.clock import Clock
from apps.runtime.sessions import Connection
from apps.scheduler.cache import Cache
from apps.scheduler.fire import Gun, Moment
from apps.scheduler.load import Loader
from apps.scheduler.store import Term
from chrono.rules.instants import Millis

log = logging.getLogger("chrono.scheduler")

LOOK_EVERY: Millis = 500
RELOAD_EVERY: Millis = 30_000
IDLE: Millis = 500


@dataclass(slots=True, kw_only=True)
class Step:
    """What one step did, and how long the caller may wait for the next."""

    readied: int
    queues: set[str] = field(default_factory=set)
    wait: Millis = 0


class Dispatcher:
    """Fires the partitions it was given; :meth:`step` is one round."""

    def __init__(
        self,
        conn: Connection,
        clock: Clock,
        *,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._progress = progress
        self.cache = Cache(clock.now())
        self._loader = Loader(conn, self.cache, progress)
        self._gun = Gun(conn, self.cache)
        self._lost: list[Term] = []
        self._slice = 0
        self._horizon: Millis = 0
        self._loaded_until: Millis = 0
        self._next_look: Millis = 0
        self._next_reload: Millis = 0

    def adopt(self, terms: Iterable[Term]) -> None:
        """Lead these partitions from now on; what is due comes with the next step."""
        terms = list(terms)
        for term in terms:
            self.cache.adopt(term)
        if terms:
            self._next_look = self._next_reload = 0

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

    def step(self) -> Step:
        """Look and load where it is time, fire what is due; return what came of it."""
        now = self._clock.now()
        if not self.cache.held:
            return Step(readied=0, wait=IDLE)
        if now >= self._next_look:
            self._look(now)
        if now >= self._next_reload:
            self._loaded_until = self._loader.load_window(self.cache.held, now)
            self._next_reload = now + RELOAD_EVERY
            self._progress()
        due = self.cache.take_due(self._clock.now())
        if not due:
            return Step(readied=0, wait=self._wait())
        moment = Moment(
            now=self._clock.now(),
            override=self._clock.override(),
            slice=self._slice,
            horizon=self._horizon,
            loaded_until=self._loaded_until,
        )
        fired = self._gun.fire(due, moment, self._progress)
        if fired.stale:
            lost = self._loader.catch_up(fired.stale)
            if lost:
                log.warning("%s partitions refused to be fired: led anew", len(lost))
            self._lost += lost
            self._next_look = 0
        return Step(readied=fired.readied, queues=fired.queues, wait=self._wait())

    def _look(self, now: Millis) -> None:
        seen = self._loader.look(now)
        self._slice, self._horizon = seen.slice, seen.horizon
        if seen.lost:
            log.warning("%s partitions are led anew", len(seen.lost))
        self._lost += seen.lost
        self._next_look = now + LOOK_EVERY

    def _wait(self) -> Millis:
        now = self._clock.now()
        wake = min(self._next_look, self._next_reload)
        due = self.cache.next_due()
        if due is not None:
            wake = min(wake, due)
        return max(0, wake - now)
