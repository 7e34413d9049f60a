"""A small model of how occurrences are fired, and a walk through all that can happen.

One job of one partition, a few leaders, a few instants. Every step of a leader, every
edit, a neighbour's edit, a manual run and a crash may come at any moment; what a leader
sent may arrive after it died. `explore` visits every state there is and finds:

- safety: no run twice, none by a deposed leader, none early, none of a paused or
  deleted job, none that no definition asked for;
- liveness: from each state the leaders alone can come to one in which all that is due
  has been decided. What is lost can't be decided, so nothing is lost.

`Rules` has a switch for each rule of the product that this rests on. With one of them
off the walk must find what it was there for.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

SCHEDULES = (frozenset({1, 2, 3}), frozenset({2}))
"""The instants of the two definitions between which an edit changes."""
NEXT, LATE, MANUAL = range(3)
"""What a timer is for: the plan's next occurrence, a late one, a manual run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the product does; each change is a fault, unless another rule covers it."""

    fence: bool = True
    """A fire compares its fence with the partition's, which each takeover raises."""
    epoch: bool = True
    """A fire compares its epoch with the partition's."""
    edits_raise_epoch: bool = True
    """Every edit raises the partition's epoch."""
    one_statement: bool = True
    """The run is made and the plan advanced at once, else one after the other."""
    run_first: bool = True
    """Where these are two statements: the run is made first."""
    unique_key: bool = True
    """The ledger takes one decision of an occurrence."""
    reads_carry_epochs: bool = True
    """What was read before an edit that the leader knows of by now is thrown away."""
    looks_drop_changed: bool = True
    """A look drops the timers of jobs that changed."""
    edits_decide_past: bool = True
    """An edit decides what the old plan left open."""
    plans_begin_now: bool = True
    """A new plan begins at its edit, else after the last decision."""
    deletes_cancel: bool = True
    """A delete cancels the runs that wait in timers."""
    groups_apart: bool = True
    """A manual run has an attempt group of its own."""


class Timer(NamedTuple):
    """A row of the timer table, or a leader's copy of it."""

    kind: int
    instant: int
    group: int
    version: int


class Fire(NamedTuple):
    """A statement on its way to the server."""

    leads: bool
    """Whether its fence is still the partition's."""
    epoch: int
    timer: Timer
    half: bool = False
    """Whether the first of two statements was carried out."""


class Leader(NamedTuple):
    """What a scheduler believes."""

    leads: bool | None = None
    """True for the last one to take over, False for a deposed one, None for others."""
    epoch: int = 0
    wheel: frozenset[Timer] = frozenset()
    read: tuple[int, frozenset[Timer]] | None = None
    """What was read and is not in the wheel yet, with its epoch."""
    fire: Fire | None = None


class Tables(NamedTuple):
    """What the database holds, what is asked of it, and what was done wrong."""

    now: int = 0
    epoch: int = 1
    changed: int = 1
    """The epoch of the job's last change."""
    version: int = 1
    schedule: int = 0
    active: bool = True
    deleted: bool = False
    activated: int = 0
    timers: frozenset[Timer] = frozenset({Timer(NEXT, 1, 0, 1)})
    ledger: frozenset[tuple[int, int]] = frozenset()
    """What was decided: instant and attempt group."""
    runs: frozenset[tuple[int, int]] = frozenset()
    owed: frozenset[tuple[int, int]] = frozenset()
    """What is due by a definition in force, or by a person's wish."""
    edits_left: int = 0
    triggers_left: int = 0
    wrong: str = ""


class Model:
    """What may happen under some rules, up to an instant."""

    def __init__(self, rules: Rules, *, until: int) -> None:
        self.rules = rules
        self.until = until

    def lead(self, t: Tables, leader: Leader) -> Iterator[tuple[str, Tables, Leader]]:
        """Iterate over what a leader does next, or what becomes of what it sent."""
        if leader.fire is not None:
            yield "arrive", *self._arrive(t, leader, leader.fire)
            return
        if leader.leads is None:
            return
        if not leader.leads or leader.epoch != t.epoch:
            yield "look", t, self._look(t, leader)
        if leader.read is not None:
            epoch, rows = leader.read
            fresh = epoch >= leader.epoch or not self.rules.reads_carry_epochs
            wheel = leader.wheel | rows if fresh else leader.wheel
            yield "load", t, leader._replace(read=None, wheel=wheel)
            return
        rows = frozenset(
            row for row in t.timers if row.kind != NEXT or row.version == t.version
        )
        if rows - leader.wheel:
            yield "read", t, leader._replace(read=(t.epoch, rows))
        for timer in leader.wheel:
            if timer.instant <= t.now:
                fire = Fire(leader.leads, leader.epoch, timer)
                yield "send", t, leader._replace(fire=fire)

    def carry_out(self, t: Tables, fire: Fire) -> tuple[Tables, bool]:
        """Return what a statement makes of the tables, and whether its guard held."""
        if self.rules.fence and not fire.leads:
            return t, False
        if self.rules.epoch and fire.epoch != t.epoch:
            return t, False
        there = fire.timer in t.timers or fire.half
        if self.rules.one_statement:
            return (self._advance(self._run(t, fire), fire) if there else t), True
        if fire.half == self.rules.run_first:
            return self._advance(t, fire), True
        return (self._run(t, fire) if there else t), True

    def people(self, t: Tables) -> Iterator[tuple[str, Tables]]:
        """Iterate over time's next step and what people may do."""
        if t.now < self.until:
            now = t.now + 1
            due = t.active and now in SCHEDULES[t.schedule]
            owed = t.owed | {(now, 0)} if due else t.owed
            yield "time", t._replace(now=now, owed=owed)
        if t.triggers_left and not t.deleted:
            yield "trigger", self._trigger(t)
        if not t.edits_left:
            return
        t = t._replace(edits_left=t.edits_left - 1)
        yield "neighbour's edit", t._replace(epoch=t.epoch + 1)
        if t.deleted:
            yield "restore", self._edit(t._replace(deleted=False), active=False)
            return
        yield "delete", self._delete(t)
        yield "edit", self._edit(t, active=t.active, schedule=1 - t.schedule)
        yield ("pause" if t.active else "resume"), self._edit(t, active=not t.active)

    def _look(self, t: Tables, leader: Leader) -> Leader:
        if not leader.leads:
            return Leader()
        changed = t.changed > leader.epoch and self.rules.looks_drop_changed
        wheel = frozenset[Timer]() if changed else leader.wheel
        return leader._replace(epoch=t.epoch, wheel=wheel)

    def _arrive(self, t: Tables, leader: Leader, fire: Fire) -> tuple[Tables, Leader]:
        t, held = self.carry_out(t, fire)
        if held and not self.rules.one_statement and not fire.half:
            return t, leader._replace(fire=fire._replace(half=True))
        wheel = leader.wheel - {fire.timer} if held else leader.wheel
        return t, leader._replace(fire=None, wheel=wheel)

    def _run(self, t: Tables, fire: Fire) -> Tables:
        key = (fire.timer.instant, fire.timer.group)
        if self.rules.unique_key and key in t.ledger:
            return t
        t = t._replace(ledger=t.ledger | {key})
        if fire.timer.kind == LATE and not t.active:
            return t
        return t._replace(runs=t.runs | {key}, wrong=_fault(t, fire))

    def _advance(self, t: Tables, fire: Fire) -> Tables:
        timer, timers = fire.timer, t.timers - {fire.timer}
        if timer.kind == NEXT and timer in t.timers:
            timers |= _planned(t.schedule, timer.instant, timer.version)
        return t._replace(timers=timers)

    def _trigger(self, t: Tables) -> Tables:
        group = 1 if self.rules.groups_apart else 0
        return t._replace(
            timers=t.timers | {Timer(MANUAL, t.now, group, 0)},
            owed=t.owed | {(t.now, group)},
            triggers_left=t.triggers_left - 1,
        )

    def _edit(self, t: Tables, *, active: bool, schedule: int | None = None) -> Tables:
        known = max([t.activated, *(at for at, group in t.ledger if group == 0)])
        timers, ledger = t.timers, t.ledger
        if t.active and self.rules.edits_decide_past:
            past = [at for at in SCHEDULES[t.schedule] if known < at <= t.now]
            if active:
                timers |= {Timer(LATE, at, 0, t.version) for at in past}
            else:
                ledger |= {(at, 0) for at in past}
        begin = max(t.now, known) if self.rules.plans_begin_now else known
        schedule = t.schedule if schedule is None else schedule
        if active:
            timers |= _planned(schedule, begin, t.version + 1)
        epoch = t.epoch + self.rules.edits_raise_epoch
        return t._replace(
            epoch=epoch,
            changed=epoch,
            version=t.version + 1,
            schedule=schedule,
            active=active,
            activated=begin,
            timers=timers,
            ledger=ledger,
        )

    def _delete(self, t: Tables) -> Tables:
        t = self._edit(t, active=False)._replace(deleted=True)
        if not self.rules.deletes_cancel:
            return t
        waiting = {row for row in t.timers if row.kind != NEXT}
        decided = {(row.instant, row.group) for row in waiting}
        return t._replace(timers=t.timers - waiting, ledger=t.ledger | decided)


def _fault(t: Tables, fire: Fire) -> str:
    """Return what is wrong about a run that is made just now, or nothing."""
    timer = fire.timer
    key = (timer.instant, timer.group)
    faults = {
        "a run was made twice": key in t.runs,
        "a deposed leader fired": not fire.leads,
        "a run was early": timer.instant > t.now,
        "a deleted job ran": t.deleted,
        "a paused job ran": timer.kind != MANUAL and not t.active,
        "a run that nothing asked for": key not in t.owed,
    }
    return next((text for text, holds in faults.items() if holds), t.wrong)


def _planned(schedule: int, after: int, version: int) -> frozenset[Timer]:
    following = min((at for at in SCHEDULES[schedule] if at > after), default=None)
    if following is None:
        return frozenset()
    return frozenset({Timer(NEXT, following, 0, version)})


@dataclass(frozen=True, slots=True)
class Found:
    """What a walk through all states came to."""

    states: int
    fault: str = ""
    """What is wrong, empty where nothing is."""
    steps: tuple[str, ...] = ()
    """The steps that lead there, as few as there are."""


type State = tuple[int, tuple[int, ...], int]
"""Tables, leaders and a dead leader's statement, each by its number."""


class _Numbers[T: Hashable]:
    """Values by number, so that states are compared by numbers alone."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}

    def __call__(self, value: T) -> int:
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class _Walk:
    """The steps from one state to the next, each worked out once."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.tables = _Numbers[Tables]()
        self.leaders = _Numbers[Leader]()
        self.fires = _Numbers[Fire | None]()
        self.nobody = self.leaders(Leader())
        self.nothing = self.fires(None)
        self._lead: Callable[[int, int], list[tuple[str, int, int]]]
        self._lead = cache(self._find_lead)
        self._people: Callable[[int], list[tuple[str, int]]]
        self._people = cache(self._find_people)
        self._depose: Callable[[int], int] = cache(self._find_deposed)
        self._outdate: Callable[[int], int] = cache(self._find_outdated)
        self._arrive: Callable[[int, int], int] = cache(self._find_arrival)

    def helpful(self, state: State) -> Iterator[tuple[str, State]]:
        """Iterate over what leaders do, and statements that arrive."""
        tables, leaders, orphan = state
        for leader, others in _each(leaders):
            for name, after, led in self._lead(tables, leader):
                yield name, (after, _joined(others, led), orphan)
            epoch = self.tables.values[tables].epoch
            led = self.leaders(Leader(leads=True, epoch=epoch))
            deposed = tuple(map(self._depose, others))
            yield "take over", (tables, _joined(deposed, led), self._outdate(orphan))
        if orphan != self.nothing:
            arrived = self._arrive(tables, orphan)
            yield "arrive late", (arrived, leaders, self.nothing)

    def harmful(self, state: State) -> Iterator[tuple[str, State]]:
        """Iterate over time, people and crashes."""
        tables, leaders, orphan = state
        for name, after in self._people(tables):
            yield name, (after, leaders, orphan)
        for leader, others in _each(leaders):
            if leader != self.nobody:
                sent = self.fires(self.leaders.values[leader].fire)
                left = orphan if sent == self.nothing else sent
                yield "crash", (tables, _joined(others, self.nobody), left)

    def _find_lead(self, tables: int, leader: int) -> list[tuple[str, int, int]]:
        steps = self._model.lead(
            self.tables.values[tables], self.leaders.values[leader]
        )
        return [(name, self.tables(t), self.leaders(led)) for name, t, led in steps]

    def _find_people(self, tables: int) -> list[tuple[str, int]]:
        steps = self._model.people(self.tables.values[tables])
        return [(name, self.tables(t)) for name, t in steps]

    def _find_deposed(self, leader: int) -> int:
        old = self.leaders.values[leader]
        leads = None if old.leads is None else False
        return self.leaders(old._replace(leads=leads, fire=_outdated(old.fire)))

    def _find_outdated(self, fire: int) -> int:
        return self.fires(_outdated(self.fires.values[fire]))

    def _find_arrival(self, tables: int, orphan: int) -> int:
        fire = self.fires.values[orphan]
        assert fire is not None
        after, _ = self._model.carry_out(self.tables.values[tables], fire)
        return self.tables(after)


def _outdated(fire: Fire | None) -> Fire | None:
    return None if fire is None else fire._replace(leads=False)


def _each(leaders: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Iterate over leaders that differ, each with the others: they have no names."""
    for n, leader in enumerate(leaders):
        if not n or leader != leaders[n - 1]:
            yield leader, leaders[:n] + leaders[n + 1 :]


def _joined(others: tuple[int, ...], leader: int) -> tuple[int, ...]:
    return tuple(sorted((*others, leader)))


def explore(model: Model, first: Tables, *, leaders: int) -> Found:
    """Visit every state that can be come to; stop at the first wrong one."""
    walk = _Walk(model)
    begin = (walk.tables(first), (walk.nobody,) * leaders, walk.nothing)
    came: _Came = {begin: None}
    helped: _Helped = defaultdict(list)
    queue = deque([begin])
    while queue:
        state = queue.popleft()
        wrong = walk.tables.values[state[0]].wrong
        if wrong:
            return Found(len(came), wrong, _steps(came, state))
        for helps, steps in ((True, walk.helpful), (False, walk.harmful)):
            for name, following in steps(state):
                if helps:
                    helped[following].append(state)
                if following not in came:
                    came[following] = (state, name)
                    queue.append(following)
    good = {n for n, t in enumerate(walk.tables.values) if t.owed <= t.ledger}
    lost = _without_way_to(good, came, helped)
    if lost is None:
        return Found(len(came))
    return Found(len(came), "what is due is never decided", _steps(came, lost))


type _Came = dict[State, tuple[State, str] | None]
"""Each state with the one before it, and the step in between."""
type _Helped = defaultdict[State, list[State]]
"""Each state with those from which leaders alone come to it."""


def _without_way_to(good: set[int], came: _Came, helped: _Helped) -> State | None:
    """Return the first state from which leaders alone come to no good tables."""
    live = {state for state in came if state[0] in good}
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
