"""A small model of how a run is executed, and a walk through all that can happen.

One run, two workers, a sweeper and a person. Workers claim, beat, end their handler
well, badly or by its timeout, settle, grow silent, lose their sessions and crash; what
they sent may arrive long after. The sweeper looks, marks and rescues, each as a step of
its own, so that all may happen between two of them. `explore` visits every state there
is and finds:

- safety: one lease at a time, one final state, no result but that of the lease that
  holds, no start after a cancel, no second one of a run that may start once, nobody
  healthy taken for dead;
- liveness: from each state workers and sweeper alone can bring the run to its end.

`Rules` has a switch for each rule of the product that this rests on. With one of them
off the walk must find what it was there for.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

SUCCESS, FAILURE, CALLED_OFF = "success", "failure", "called off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the product does; each change is a fault."""

    claims_move: bool = True
    """A claim takes the run out of ready."""
    claims_pass_withdrawn: bool = True
    """A claim leaves out what was cancelled in ready."""
    settles_by_token: bool = True
    """A settle names the token of its lease, else the run alone."""
    rescues_by_token: bool = True
    """A rescue names the token that it read, else the run alone."""
    one_statement: bool = True
    """A lease ends and what became of it is written at once."""
    cancel_outlives: bool = True
    """What ends without success and was cancelled is cancelled."""
    marks_look_again: bool = True
    """A worker is marked dead where it is still silent, or without a session."""
    beats_count: bool = True
    """Who beat since its sessions were missed is not dead for that."""
    only_dead_are_rescued: bool = True
    """A lease is taken from a dead worker, not from one that is only suspected."""
    unknown: bool = True
    """A run that may start once is unknown when its worker died."""
    final_failures: bool = True
    """A run that may start once is not tried again after a failure."""


class Row(NamedTuple):
    """A worker's row, and the sessions of its process."""

    dead: bool = False
    silent: bool = False
    session: bool = True
    beaten: bool = False
    """Whether it has beaten since the sweeper looked."""


class Lease(NamedTuple):
    """A row of the lease table."""

    life: int
    token: int
    attempt: int
    cancel: bool = False


class Settle(NamedTuple):
    """A statement on its way to the server."""

    token: int
    outcome: str
    half: int = 0
    """The attempt of a lease that was ended and of which nothing is written yet."""


class Worker(NamedTuple):
    """What a worker process believes; the life None is that of a dead process."""

    life: int | None = None
    token: int | None = None
    sent: Settle | None = None


class Sweeper(NamedTuple):
    """What the sweeper saw."""

    silent: frozenset[int] = frozenset()
    gone: frozenset[int] = frozenset()
    orphans: frozenset[Lease] = frozenset()


class State(NamedTuple):
    """The tables, the processes, what may still befall them, and what went wrong."""

    ready: int = 1
    """The attempt that waits in ready; 0 where none does."""
    withdrawn: bool = False
    leases: frozenset[Lease] = frozenset()
    finals: tuple[str, ...] = ()
    rows: tuple[Row, ...] = (Row(), Row())
    workers: tuple[Worker, ...] = (Worker(0), Worker(1))
    sweeper: Sweeper = Sweeper()
    late: frozenset[Settle] = frozenset()
    """What was sent by a process that is gone."""
    tokens: int = 0
    cancelled: bool = False
    cancels_left: int = 1
    faults_left: int = 2
    wrong: str = ""


class Model:
    """What may happen under some rules."""

    def __init__(self, rules: Rules, *, attempts: int = 2, once: bool = False) -> None:
        self.rules = rules
        self.attempts = attempts
        self.once = once

    # What brings the run to its end

    def helpful(self, s: State) -> Iterator[tuple[str, State]]:
        """Iterate over what workers and the sweeper do."""
        for n, worker in enumerate(s.workers):
            yield from self._work(s, n, worker)
        for order in s.late:
            yield (
                "arrive late",
                self._settle(s._replace(late=s.late - {order}), order, n=None),
            )
        yield from self._sweep(s)

    def _work(self, s: State, n: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if worker.life is None:
            row = len(s.rows)
            s = s._replace(rows=(*s.rows, Row()))
            yield "start again", _with(s, n, Worker(row))
            return
        yield "beat", self._beat(s, n, worker, worker.life)
        if worker.sent is not None:
            cleared = _with(s, n, worker._replace(token=None, sent=None))
            yield "settle", self._settle(cleared, worker.sent, n=n)
        elif worker.token is not None:
            for outcome in (SUCCESS, FAILURE):
                sent = worker._replace(sent=Settle(worker.token, outcome))
                yield outcome, _with(s, n, sent)
        elif s.ready and not (s.withdrawn and self.rules.claims_pass_withdrawn):
            yield "claim", self._claim(s, n, worker, worker.life)

    def _claim(self, s: State, n: int, worker: Worker, life: int) -> State:
        token = s.tokens + 1
        faults = {
            "two leases at a time": bool(s.leases),
            "a cancelled run was started": s.cancelled,
            "a run that may start once was started again": self.once and token > 1,
            "a run that is over was started": bool(s.finals),
        }
        wrong = next((text for text, holds in faults.items() if holds), s.wrong)
        s = s._replace(
            ready=0 if self.rules.claims_move else s.ready,
            leases=s.leases | {Lease(life, token, s.ready)},
            tokens=token,
            wrong=wrong,
        )
        return _with(s, n, worker._replace(token=token))

    def _beat(self, s: State, n: int, worker: Worker, life: int) -> State:
        row = s.rows[life]
        if row.dead:
            # It has lost its leases: whatever it sent may still arrive.
            late = s.late | ({worker.sent} if worker.sent else set())
            rows = (*s.rows, Row())
            s = s._replace(
                late=late, rows=_but(rows, life, row._replace(session=False))
            )
            return _with(s, n, Worker(len(rows) - 1))
        s = s._replace(rows=_but(s.rows, life, Row(beaten=True)))
        for lease in s.leases:
            if lease.life == life and lease.cancel and worker.sent is None:
                sent = Settle(lease.token, CALLED_OFF)
                return _with(s, n, worker._replace(sent=sent))
        return s

    def _settle(self, s: State, order: Settle, *, n: int | None) -> State:
        if order.half:
            return self._write(s, order.outcome, order.half, cancel=False)
        ended = self._end(s, order.token, by_token=self.rules.settles_by_token)
        if ended is None:
            return s
        lease, s = ended
        if lease.token != order.token:
            s = s._replace(wrong="a stale result was accepted")
        if self.rules.one_statement:
            return self._write(s, order.outcome, lease.attempt, cancel=lease.cancel)
        half = order._replace(half=lease.attempt)
        return s if n is None else _with(s, n, s.workers[n]._replace(sent=half))

    def _end(
        self, s: State, token: int, *, by_token: bool
    ) -> tuple[Lease, State] | None:
        for lease in s.leases:
            if lease.token == token or not by_token:
                return lease, s._replace(leases=s.leases - {lease})
        return None

    def _write(self, s: State, outcome: str, attempt: int, *, cancel: bool) -> State:
        """Write what became of an execution: an end, or another attempt."""
        if outcome == SUCCESS:
            return _final(s, SUCCESS)
        if outcome == CALLED_OFF or (cancel and self.rules.cancel_outlives):
            return _final(s, "cancelled")
        if self.once and self.rules.final_failures:
            return _final(s, "dead")
        if attempt >= self.attempts:
            return _final(s, "dead")
        return s._replace(ready=attempt + 1)

    def _sweep(self, s: State) -> Iterator[tuple[str, State]]:
        living = {n: row for n, row in enumerate(s.rows) if not row.dead}
        seen = s.sweeper._replace(
            silent=frozenset(n for n, row in living.items() if row.silent),
            gone=frozenset(n for n, row in living.items() if not row.session),
        )
        rows = tuple(row._replace(beaten=False) for row in s.rows)
        yield "look", s._replace(sweeper=seen, rows=rows)
        for n in s.sweeper.silent & living.keys():
            if living[n].silent or not self.rules.marks_look_again:
                yield "mark the silent", self._mark(s, n)
        for n in s.sweeper.gone & living.keys():
            back = living[n].session and self.rules.marks_look_again
            if not back and not (living[n].beaten and self.rules.beats_count):
                yield "mark who is gone", self._mark(s, n)
        taken = set(range(len(s.rows))) - living.keys()
        if not self.rules.only_dead_are_rescued:
            taken |= s.sweeper.silent
        orphans = frozenset(lease for lease in s.leases if lease.life in taken)
        if orphans - s.sweeper.orphans:
            found = s.sweeper._replace(orphans=orphans)
            yield "list orphans", s._replace(sweeper=found)
        for orphan in s.sweeper.orphans:
            left = s.sweeper._replace(orphans=s.sweeper.orphans - {orphan})
            yield "rescue", self._rescue(s._replace(sweeper=left), orphan)

    def _mark(self, s: State, life: int) -> State:
        row = s.rows[life]
        seen = s.sweeper._replace(
            silent=s.sweeper.silent - {life}, gone=s.sweeper.gone - {life}
        )
        up = any(worker.life == life for worker in s.workers)
        healthy = up and row.beaten and not row.silent
        wrong = "a healthy worker was taken for dead" if healthy else s.wrong
        rows = _but(s.rows, life, row._replace(dead=True))
        return s._replace(rows=rows, sweeper=seen, wrong=wrong)

    def _rescue(self, s: State, orphan: Lease) -> State:
        ended = self._end(s, orphan.token, by_token=self.rules.rescues_by_token)
        if ended is None:
            return s
        lease, s = ended
        if not s.rows[lease.life].dead:
            return s._replace(wrong="a run was taken from a living worker")
        if lease.cancel and self.rules.cancel_outlives:
            return _final(s, "cancelled")
        if self.once and self.rules.unknown:
            return _final(s, "unknown")
        if lease.attempt >= self.attempts:
            return _final(s, "dead")
        return s._replace(ready=lease.attempt + 1)

    # What befalls it

    def harmful(self, s: State) -> Iterator[tuple[str, State]]:
        """Iterate over faults and what a person does."""
        if s.cancels_left and not s.finals:
            yield "cancel", self._cancel(s._replace(cancels_left=0))
        if not s.faults_left:
            return
        s = s._replace(faults_left=s.faults_left - 1)
        for n, worker in enumerate(s.workers):
            if worker.life is None:
                continue
            row = s.rows[worker.life]
            if not row.silent:
                rows = _but(s.rows, worker.life, row._replace(silent=True))
                yield "fall silent", s._replace(rows=rows)
            if row.session:
                rows = _but(s.rows, worker.life, row._replace(session=False))
                yield "lose the sessions", s._replace(rows=rows)
            rows = _but(s.rows, worker.life, row._replace(session=False, beaten=False))
            # A half of two statements is lost with its process.
            sent = worker.sent if worker.sent and not worker.sent.half else None
            late = s.late | ({sent} if sent else set())
            yield "crash", _with(s._replace(rows=rows, late=late), n, Worker())

    def _cancel(self, s: State) -> State:
        if s.ready:
            return _final(s._replace(withdrawn=True), "cancelled")._replace(
                cancelled=True
            )
        flagged = frozenset(lease._replace(cancel=True) for lease in s.leases)
        return s._replace(leases=flagged, cancelled=bool(flagged))


def _final(s: State, state: str) -> State:
    wrong = "two final states" if s.finals else s.wrong
    return s._replace(finals=(*s.finals, state), wrong=wrong)


def _with(s: State, n: int, worker: Worker) -> State:
    return s._replace(workers=_but(s.workers, n, worker))


def _but[T](values: tuple[T, ...], n: int, value: T) -> tuple[T, ...]:
    return (*values[:n], value, *values[n + 1 :])


@dataclass(frozen=True, slots=True)
class Found:
    """What a walk through all states came to."""

    states: int
    fault: str = ""
    """What is wrong, empty where nothing is."""
    steps: tuple[str, ...] = ()
    """The steps that lead there, as few as there are."""


MOST_ROWS = 5
"""More lives than faults can end; a worker may lose one after the other for ever."""


type _Came = dict[State, tuple[State, str] | None]
"""Each state with the one before it, and the step in between."""
type _Helped = defaultdict[State, list[State]]
"""Each state with those from which workers and sweeper alone come to it."""


def explore(model: Model, first: State) -> Found:
    """Visit every state that can be come to; stop at the first wrong one."""
    came: _Came = {first: None}
    helped: _Helped = defaultdict(list)
    queue = deque([first])
    while queue:
        state = queue.popleft()
        if state.wrong:
            return Found(len(came), state.wrong, _steps(came, state))
        for helps, name, following in _following(model, state):
            if helps:
                helped[following].append(state)
            if following not in came:
                came[following] = (state, name)
                queue.append(following)
    lost = _without_way_out(came, helped)
    if lost is None:
        return Found(len(came))
    return Found(len(came), "the run never ends", _steps(came, lost))


def _following(model: Model, state: State) -> Iterator[tuple[bool, str, State]]:
    for helps, steps in ((True, model.helpful), (False, model.harmful)):
        for name, following in steps(state):
            if len(following.rows) <= MOST_ROWS:
                yield helps, name, following


def _without_way_out(came: _Came, helped: _Helped) -> State | None:
    """Return the first state from which workers and sweeper cannot end the run."""
    live = {state for state in came if state.finals}
    behind = deque(live)
    while behind:
        for before in helped[behind.popleft()]:
            if before not in live:
                live.add(before)
                behind.append(before)
    return next((state for state in came if state not in live), None)


def _steps(came: _Came, state: State) -> tuple[str, ...]:
    steps = []
    while (before := came[state]) is not None:
        state, name = before
        steps.append(name)
    return tuple(reversed(steps))
