"""A stage for races: actors with a session and a thread each, one step at a time.

A step is one call on the actor's session. After every step the stage waits until each
actor is either idle or blocked on another's lock, as the server tells; nothing is
timed. So a statement can be held at three places: before it is sent, while it waits
for a lock, and, inside an explicit transaction, before its commit.
"""

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Semaphore
from typing import Any

import psycopg

from tests.support.pg import Connection

LIMIT_S = 15.0
POLL_S = 0.002

BLOCKED = """
    SELECT pid, pg_blocking_pids(pid) FROM pg_stat_activity
    WHERE pid = ANY(%s) AND wait_event_type = 'Lock'
        AND cardinality(pg_blocking_pids(pid)) > 0
"""


class Stuck(Exception):
    """An actor neither came back nor waits for a lock: the stage itself is broken."""


class Actor:
    """A named session on a thread of its own."""

    def __init__(
        self, stage: "Stage", name: str, connect: Callable[[], Connection]
    ) -> None:
        self.name = name
        self._stage = stage
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._aside = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-prompter")
        # On its own thread: a session of Django's belongs to the thread it began on.
        self.conn = self._thread.submit(connect).result(timeout=LIMIT_S)
        self.call: Future[Any] | None = None

    def start(self, step: Callable[..., Any], *args: Any, **options: Any) -> bool:
        """Begin a step; return whether it came back, False meaning that it waits."""
        assert self.idle, f"{self.name} is in the middle of a step"
        self.call = self._thread.submit(step, *args, **options)
        self._stage.wait_until_quiet()
        return self.idle

    def prompt(self, step: Callable[[], Any]) -> None:
        """Begin a step of a call that stands still on the actor's own thread."""
        assert self.idle, f"{self.name} is in the middle of a step"
        self.call = self._aside.submit(step)
        self._stage.wait_until_quiet()

    def hand(self, call: Callable[[], Any]) -> Future[Any]:
        """Run a call on the actor's own thread, and watch it no further."""
        return self._thread.submit(call)

    def do(self, step: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Take a step that must not wait; return its value."""
        assert self.start(step, *args, **options), f"{self.name} waits for a lock"
        return self.value()

    def begin(self) -> None:
        """Open a transaction, so that what follows is held before its commit."""
        self.do(self.conn.execute, "BEGIN")

    def commit(self) -> None:
        """Commit what was held."""
        self.do(self.conn.execute, "COMMIT")

    @property
    def idle(self) -> bool:
        """Whether no step is under way."""
        return self.call is None or self.call.done()

    def value(self) -> Any:
        """Return what the last step returned, once it is free to; raise what it did."""
        assert self.call is not None
        return self.call.result(timeout=LIMIT_S)

    def close(self) -> None:
        """End the session and with it whatever step is under way."""
        if not self.idle:
            self.conn.cancel_safe(timeout=LIMIT_S)
        self._thread.submit(self.conn.close).result(timeout=LIMIT_S)
        self._thread.shutdown()
        self._aside.shutdown()


class Paced:
    """A call of many statements on an actor's session, let through step by step.

    What the call is made of is the product's. The session stops before each commit and
    before each statement whose text has one of the words ``stops``; no words, before
    every one.
    """

    def __init__(
        self, actor: Actor, call: Callable[[], Any], stops: Sequence[str] = ()
    ) -> None:
        self._conn = actor.conn
        self._arrivals: SimpleQueue[None] = SimpleQueue()
        self._permits = Semaphore(0)
        execute, commit = actor.conn.execute, actor.conn.commit

        def stop() -> None:
            self._arrivals.put(None)
            self._permits.acquire()

        def gated_execute(text: Any, *args: Any, **options: Any) -> Any:
            if not stops or any(word in str(text) for word in stops):
                stop()
            return execute(text, *args, **options)

        def gated_commit() -> None:
            stop()
            commit()

        self._conn.execute = gated_execute  # type: ignore[method-assign]
        self._conn.commit = gated_commit  # type: ignore[method-assign]
        self._call = actor.hand(call)
        self._call.add_done_callback(lambda _: self._arrivals.put(None))
        self._arrivals.get(timeout=LIMIT_S)

    def step(self) -> None:
        """Let one statement through and return before the next, or at the end."""
        if not self._call.done():
            self._permits.release()
            self._arrivals.get(timeout=LIMIT_S)

    def rest(self) -> Any:
        """Let all that is left through; return what the call returned."""
        while not self._call.done():
            self.step()
        del self._conn.execute, self._conn.commit
        return self._call.result()


class Stage:
    """All actors of a scenario, watched through a session of its own."""

    def __init__(self, observer: Connection) -> None:
        self._observer = observer
        self._actors: list[Actor] = []

    def enter(self, name: str, connect: Callable[[], Connection]) -> Actor:
        """Put an actor on the stage, with the session that ``connect`` opens."""
        self._actors.append(Actor(self, name, connect))
        return self._actors[-1]

    def close(self) -> None:
        """End all sessions."""
        for actor in self._actors:
            actor.close()

    def wait_until_quiet(self) -> None:
        """Return once every actor is idle or waits for a lock of somebody else.

        Actors that wait for each other are a deadlock: the server ends one of them.
        """
        deadline = time.monotonic() + LIMIT_S
        while True:
            busy = [actor for actor in self._actors if not actor.idle]
            calls = [actor.call for actor in busy if actor.call is not None]
            wait(calls, timeout=POLL_S, return_when=FIRST_COMPLETED)
            busy = [actor for actor in busy if not actor.idle]
            if not busy:
                return
            pids = {actor.conn.info.backend_pid for actor in busy}
            blocked = dict(self._observer.execute(BLOCKED, [list(pids)]).fetchall())
            # Blocked by each other alone is a deadlock, which does not last.
            held = any(set(blockers) - pids for blockers in blocked.values())
            if blocked.keys() == pids and held and not any(a.idle for a in busy):
                return
            if time.monotonic() > deadline:
                raise Stuck(f"{[actor.name for actor in busy]}, blocked {blocked}")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do, by name."""

    name: str
    do: Callable[[], Any]
    prompted: bool = False
    """Whether it lets a call go on that stands still on the actor's thread."""


@dataclass(slots=True)
class Trace:
    """What happened in one order: steps as they came to their end."""

    order: str
    ends: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, psycopg.Error] = field(default_factory=dict)
    waited: set[str] = field(default_factory=set)

    def before(self, first: str, second: str) -> bool:
        """Return whether one step ended before another one did."""
        return self.ends.index(first) < self.ends.index(second)

    def __str__(self) -> str:
        """Return the order and what became of it, for a failure's message."""
        waited = f"; {', '.join(sorted(self.waited))} waited" if self.waited else ""
        failed = f"; failed {self.errors}" if self.errors else ""
        return f"order {self.order}: {', '.join(self.ends)}{waited}{failed}"


def held(name: str, statement: Callable[[], Any], actor: Actor) -> list[Step]:
    """Return a statement as three steps: begin, the statement, commit."""
    return [
        Step(f"{name}.begin", lambda: actor.conn.execute("BEGIN")),
        Step(name, statement),
        Step(f"{name}.commit", lambda: actor.conn.execute("COMMIT")),
    ]


def paced(
    name: str,
    call: Callable[[], Any],
    actor: Actor,
    *,
    steps: int,
    stops: Sequence[str] = (),
) -> list[Step]:
    """Return a call as this many steps; the last one is all that is left of it."""
    made: list[Paced] = []

    def first() -> None:
        made.append(Paced(actor, call, stops))
        made[0].step()

    return [
        Step(f"{name}.1", first, prompted=True),
        *(
            Step(f"{name}.{n}", lambda: made[0].step(), prompted=True)
            for n in range(2, steps)
        ),
        Step(name, lambda: made[0].rest(), prompted=True),
    ]


def orders(first: int, second: int) -> Iterator[str]:
    """Return all ways to merge so many steps of A with so many of B: AAB, ABA, BAA."""
    for chosen in itertools.combinations(range(first + second), first):
        yield "".join("A" if n in chosen else "B" for n in range(first + second))


def play(
    stage: Stage,
    order: str,
    a: tuple[Actor, Sequence[Step]],
    b: tuple[Actor, Sequence[Step]],
) -> Trace:
    """Take the steps of two actors in one order; return what happened.

    A step whose turn comes while its actor waits for a lock is taken as soon as it can
    be, so orders that locks forbid become the nearest one that they allow.
    """
    trace = Trace(order=order)
    roles = {"A": _Role(*a), "B": _Role(*b)}
    owed: list[str] = []
    for letter in order:
        owed.append(letter)
        _take_what_can_be(roles, owed, trace)
    while owed or any(role.running for role in roles.values()):
        stage.wait_until_quiet()
        before = len(trace.ends)
        _take_what_can_be(roles, owed, trace)
        if len(trace.ends) == before:
            raise Stuck(str(trace))
    return trace


class _Role:
    """An actor with what it still has to do."""

    def __init__(self, actor: Actor, steps: Sequence[Step]) -> None:
        self.actor = actor
        self.steps = deque(steps)
        self.running = ""

    def take(self) -> None:
        step = self.steps.popleft()
        self.running = step.name
        if step.prompted:
            self.actor.prompt(step.do)
        else:
            self.actor.start(step.do)

    def collect(self, trace: Trace) -> None:
        """Note what the step under way came to, or that it waits."""
        if not self.running:
            return
        if not self.actor.idle:
            trace.waited.add(self.running)
            return
        name, self.running = self.running, ""
        trace.ends.append(name)
        try:
            trace.values[name] = self.actor.value()
        except psycopg.Error as error:
            trace.errors[name] = error


def _take_what_can_be(roles: dict[str, _Role], owed: list[str], trace: Trace) -> None:
    while True:
        for role in roles.values():
            role.collect(trace)
        ready = next((w for w in owed if not roles[w].running), None)
        if ready is None:
            return
        owed.remove(ready)
        roles[ready].take()
