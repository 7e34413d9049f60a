"""Runs executed at random by the product's own statements, beside a model of a dict.

The model knows of each run where it lies, with which attempt, and what became of it. A
step is one statement of a worker, a sweeper, a leader or a person. After it each run is
where the model has it and nowhere else, and nothing is there that the model does not
know. Two workers, one that executes what was set aside, and the dead, whose answers
still come. One target whose circuit opens, is probed, and closes.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from apps.jobs.audit import audit
from apps.jobs.commands import create_job
from apps.jobs.manual import run_now
from apps.jobs.rerun import Wanted, redrive, retry_run
from apps.queue import store as queues
from apps.runs import pauses, targets, worker_store
from apps.runs import store as runs
from apps.runs.cancel import cancel_by, terminate_by
from apps.runs.errors import (
    RunFinished,
    RunNotFinished,
    RunNotResolvable,
    RunRerunAlready,
    RunResolved,
)
from apps.runs.resolve import resolve
from apps.runs.settle import settle
from apps.runs.store import Lease, Settlement
from apps.runs.sweep import rescue_all
from apps.runtime.clock import ManualClock
from apps.runtime.sessions import Connection, connect_hot
from apps.runtime.store import read_clock
from apps.scheduler import store as scheduler
from apps.scheduler.dispatcher import Dispatcher
from apps.tenants.actor import Actor
from apps.timers.store import read_dispatch_state
from apps.worker.execution import (
    AGAIN,
    Cancelled,
    Execution,
    HandBack,
    Prepared,
    Success,
    settlement_of,
)
from apps.worker.execution import Outcome as Ending
from apps.worker.gates import Gates
from chrono.rules import retry
from chrono.rules.breaker import BreakerPolicy, BreakerState
from chrono.rules.budget import BudgetPolicy
from chrono.rules.instants import MINUTE, Millis
from chrono.rules.lease import LEASE_TTL
from chrono.rules.retry import Failure
from chrono.rules.states import RunState
from tests.models.circuit import FAILURES, HOUR_S, Circuit
from tests.races import invariants
from tests.support.definitions import definition

ATTEMPTS = 3
OF_KEY = 2
OF_RATE = 2
MOST_RUNS = 8
JOBS: dict[str, dict[str, Any]] = {
    "plain": {},
    "once": {"delivery": "at_most_once"},
    "key a": {"concurrency_key": "k", "concurrency_limit": OF_KEY},
    "key b": {"concurrency_key": "k", "concurrency_limit": OF_KEY},
    "rate": {"rate_limit": {"limit": OF_RATE, "period": "1h"}},
    "sick": {"target": {"kind": "task", "name": "sick"}},
}
SICK = "sick"
"""The job, and the target, whose circuit is watched."""
POLICY = retry.RetryPolicy(
    max_attempts=ATTEMPTS,
    circuit_breaker=BreakerPolicy(failure_threshold=FAILURES, open_duration_s=HOUR_S),
    # The budget of retries is another matter: it never refuses one here.
    budget=BudgetPolicy(min_concurrent=1000),
)
PERSON = Actor.command("test")
ENDINGS: dict[str, Ending] = {
    "success": Success(result=1),
    "plain success": Success(),
    "failure": Failure("exception", "no"),
    "not begun": HandBack(),
    "interrupted": HandBack(begun=True),
    "called off": Cancelled(),
}
HOLDING = (
    "timer",
    "ready",
    "blocked",
    "pass",
    "lease",
    "lease_end",
    "occurrence",
    "run",
    "attempt",
    "dead_letter",
    "withdrawn",
    "death",
    "target",
    "rerun",
    "resolution",
    "queue_pause",
    "worker",
)
"""Tables with what is left of runs."""
PLACES = """
    SELECT ref, 'waiting', attempt FROM chrono_timer WHERE kind <> 1
    UNION ALL
    SELECT ref, 'waiting', attempt FROM chrono_timer_far WHERE kind <> 1
    UNION ALL
    SELECT run_id, CASE WHEN gate = 'process_crash' THEN 'aside'
        WHEN gate LIKE 'circuit_open/%' THEN 'parked' ELSE 'waiting' END,
        attempt FROM chrono_blocked
    UNION ALL
    SELECT run_id, 'ready', attempt FROM chrono_ready r WHERE NOT EXISTS (
        SELECT FROM chrono_withdrawn w WHERE w.run_id = r.run_id)
    UNION ALL
    SELECT run_id, CASE WHEN cancel THEN 'told' ELSE 'leased' END, attempt
    FROM chrono_lease
    UNION ALL
    SELECT id, 'over', state FROM chrono_run
"""


@dataclass(slots=True)
class Run:
    """What the model knows of a run."""

    job: str
    place: str = "waiting"
    """waiting, parked by a circuit, ready, leased, told to stop, set aside or over."""
    attempt: int = 1
    lease: Lease | None = None
    worker: uuid.UUID | None = None
    deaths: int = 0
    state: RunState | None = None
    verdict: RunState | None = None
    """A person's."""
    followed: bool = False
    """Whether it was run again."""
    in_lane: bool = False
    """Whether it is let in by a rate of its own."""
    behind_queue: bool = False
    """Whether it waits for its queue: then nothing asks for its circuit."""

    @property
    def shown(self) -> tuple[str, int]:
        """Return where it is, with its attempt, or its state once it is over."""
        number = self.attempt if self.state is None else int(self.state)
        return self.place, number

    @property
    def is_leased(self) -> bool:
        """Whether an execution of it holds a lease."""
        return self.place in ("leased", "told")

    def wait(self, *, attempt: int) -> None:
        """Have it wait for an attempt."""
        self.place, self.attempt, self.lease = "waiting", attempt, None

    def end(self, state: RunState) -> None:
        """Have it be over."""
        self.place, self.state, self.lease = "over", state, None

    def fail(self, *, spent: bool = True) -> None:
        """Have an attempt fail: what follows is another one, or its end."""
        charged = self.attempt - self.deaths
        if self.place == "told":
            self.end(RunState.CANCELLED)
        elif spent and (self.job == "once" or charged >= ATTEMPTS):
            self.end(RunState.DEAD)
        else:
            self.wait(attempt=self.attempt + 1)

    def hand_back(self, *, begun: bool) -> None:
        """Have an execution stop that had not ended."""
        if begun and self.job == "once":
            self.end(RunState.UNKNOWN)
        elif self.place == "told":
            self.end(RunState.CANCELLED)
        else:
            self.wait(attempt=self.attempt)

    def lose_worker(self, *, crashed: bool, alone: bool) -> None:
        """Have the sweeper find its worker dead."""
        if self.job == "once":
            self.end(RunState.UNKNOWN)
        elif self.place == "told":
            self.end(RunState.CANCELLED)
        elif crashed and alone:
            self.end(RunState.DEAD)
        elif crashed and self.deaths >= 1:
            self.place, self.attempt, self.lease = "aside", self.attempt + 1, None
        else:
            self.fail(spent=not crashed)
        self.deaths += crashed


@dataclass(slots=True)
class Worker:
    """What the model knows of a worker."""

    alone: bool
    gates: Gates = field(default_factory=Gates)
    """The product's own: what a worker knows of circuits is a part of the rules."""
    dead: bool = False
    crashed: bool = False
    ended: set[uuid.UUID] = field(default_factory=set)
    """Runs whose execution somebody ended."""


def make_jobs() -> dict[str, uuid.UUID]:
    """Make a job of each kind, which comes due long after the test."""
    return {
        job: create_job(
            definition(
                key=job,
                run_at="2100-01-01T00:00:00Z",
                overlap_policy="allow_all",
                retry_policy=retry.to_json(POLICY),
                **fields,
            )
        ).job_id
        for job, fields in JOBS.items()
    }


def some(*places: str) -> Callable[[Any], Any]:
    """Return a precondition: there is a run in one of these places."""
    return precondition(lambda self: bool(self.at(*places)))


class Executions(RuleBasedStateMachine):
    """Runs, workers, a sweeper, a leader and people."""

    url: ClassVar[str]
    upkeep: ClassVar[Connection]
    jobs: ClassVar[dict[str, uuid.UUID]]

    def __init__(self) -> None:
        super().__init__()
        for table in HOLDING:
            self.upkeep.execute(f"DELETE FROM chrono_{table}")
        self.conn = connect_hot(self.url, name="test hot")
        self.clock = ManualClock(self.now())
        self.dispatcher = Dispatcher(self.conn, self.clock)
        self.dispatcher.adopt(
            scheduler.take_over(self.conn, parts=range(64), owner="test")
        )
        self.horizon = read_dispatch_state(self.conn).horizon
        self.runs: dict[uuid.UUID, Run] = {}
        self.workers: dict[uuid.UUID, Worker] = {}
        self.stale: list[tuple[uuid.UUID, Lease]] = []
        """Every lease there ever was."""
        self.paused = False
        self.of_rate = 0
        """How many were let in within the present hour."""
        self.circuit = Circuit()
        for alone in (False, False, True):
            self.register(alone=alone)

    def teardown(self) -> None:
        """Have the audit look at all that there is."""
        try:
            assert [str(found) for found in audit(self.upkeep)] == []
        finally:
            self.conn.close()

    def now(self) -> Millis:
        """Return the database's time."""
        return int(read_clock(self.upkeep))

    def at(self, *places: str) -> list[uuid.UUID]:
        """Return the runs in these places."""
        return [run for run, known in self.runs.items() if known.place in places]

    def pick(self, data: st.DataObject, *places: str) -> tuple[uuid.UUID, Run]:
        """Draw a run in one of these places, or any."""
        some = self.at(*places) if places else list(self.runs)
        run = some[data.draw(st.integers(0, len(some) - 1))]
        return run, self.runs[run]

    def register(self, *, alone: bool) -> None:
        """Have another worker begin."""
        worker = uuid.uuid4()
        worker_store.register_worker(
            self.conn,
            worker=worker,
            host="here",
            pid=1,
            concurrency=1,
            queues=["default"],
            alone=alone,
        )
        self.workers[worker] = Worker(alone=alone)

    def living(self, data: st.DataObject, *, alone: bool = False) -> uuid.UUID:
        """Draw a living worker of a kind."""
        some = [
            worker
            for worker, known in self.workers.items()
            if known.alone is alone and not known.dead
        ]
        return some[data.draw(st.integers(0, len(some) - 1))]

    # People

    @precondition(lambda self: len(self.runs) < MOST_RUNS)
    @rule(data=st.data(), job=st.sampled_from(list(JOBS)), far=st.integers(1, 3))
    def have_a_run(self, data: st.DataObject, job: str, far: int) -> None:
        self.runs[run_now(self.jobs[job]).run_id] = Run(job)
        if far > 1:
            self.leader_works()
        if far > 2:
            self.claim(data, limit=3)

    @some("waiting", "parked", "ready", "leased", "told", "aside")
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.ask_to_cancel(
            *self.pick(data, "waiting", "parked", "ready", "leased", "told", "aside")
        )

    @some("over")
    @rule(data=st.data())
    def cancel_too_late(self, data: st.DataObject) -> None:
        self.ask_to_cancel(*self.pick(data, "over"))

    def ask_to_cancel(self, run: uuid.UUID, known: Run) -> None:
        """Have a person cancel a run, wherever it is."""
        try:
            state = cancel_by(self.upkeep, run, tenant=1, actor=PERSON)
        except RunFinished:
            assert known.state not in (None, RunState.CANCELLED)
            return
        if known.is_leased:
            assert state is RunState.RUNNING
            known.place = "told"
        elif known.state is None:
            known.end(RunState.CANCELLED)
        assert known.is_leased or state is known.state is RunState.CANCELLED

    @some("told")
    @rule(data=st.data())
    def terminate(self, data: st.DataObject) -> None:
        run, known = self.pick(data, "told")
        self.upkeep.execute(
            "UPDATE chrono_lease SET cancel_at = cancel_at - interval '2 min' "
            "WHERE run_id = %s",
            [run],
        )
        terminate_by(self.upkeep, run, tenant=1, actor=PERSON)
        assert known.worker is not None
        self.workers[known.worker].ended.add(run)
        known.end(RunState.CANCELLED)

    @some("over")
    @rule(data=st.data(), outcome=st.sampled_from([RunState.SUCCESS, RunState.FAILED]))
    def resolve(self, data: st.DataObject, outcome: RunState) -> None:
        run, known = self.pick(data, "over")
        try:
            resolve(
                self.upkeep, run, outcome=outcome, tenant=1, actor=PERSON, reason="so"
            )
        except RunResolved:
            assert known.verdict not in (None, outcome)
        except RunNotResolvable:
            assert known.state not in (RunState.UNKNOWN, RunState.DEAD)
        else:
            assert known.state in (RunState.UNKNOWN, RunState.DEAD)
            assert known.verdict in (None, outcome)
            known.verdict = outcome

    @precondition(lambda self: 0 < len(self.runs) < MOST_RUNS)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        run, known = self.pick(data)
        try:
            made = retry_run(run, actor=PERSON)
        except RunNotFinished:
            assert known.state is None
        except RunRerunAlready:
            assert known.followed
        else:
            assert known.state is not None
            assert not known.followed
            known.followed = True
            self.runs[made] = Run(known.job)

    @precondition(lambda self: self.letters())
    @rule()
    def redrive(self) -> None:
        done = redrive(Wanted(ids=tuple(self.letters())), tenant=1, actor=PERSON)
        for letter, made in zip(done.letters, done.runs, strict=True):
            known = self.runs[letter.run_id]
            known.followed = True
            self.runs[made] = Run(known.job, in_lane=True)

    def letters(self) -> list[uuid.UUID]:
        """Return the dead runs that nothing was done about."""
        return [
            run
            for run, known in self.runs.items()
            if known.state is RunState.DEAD
            and not known.followed
            and known.verdict is None
            # A rate of its own would hide what its circuit lets in.
            and known.job != SICK
        ]

    def pause_or_resume_the_queue(self) -> None:
        change = pauses.resume if self.paused else pauses.pause
        change(self.upkeep, "default", tenant=1, actor=PERSON, reason="")
        self.paused = not self.paused

    # The circuit

    @precondition(lambda self: len(self.runs) < MOST_RUNS - 2)
    @rule(data=st.data())
    def target_fails(self, data: st.DataObject) -> None:
        for _ in range(FAILURES):
            self.runs[run_now(self.jobs[SICK]).run_id] = Run(SICK)
        self.leader_works()
        self.claim(data, limit=3)
        for run in self.at("leased", "told"):
            if self.runs[run].job == SICK:
                self.settle_run(run, "failure")

    @precondition(lambda self: self.circuit.state in ("open", "half_open"))
    @rule(data=st.data(), ending=st.sampled_from(["success", "failure", *ENDINGS]))
    def a_probe_goes(self, data: st.DataObject, ending: str) -> None:
        self.an_hour_passes_for_the_circuit()
        self.leader_works()
        probe = self.circuit.probe
        if probe in self.at("ready"):
            self.claim(data, limit=len(self.at("ready")))
        if probe is not None and self.runs[probe].is_leased:
            self.settle_run(probe, ending)

    @rule(what=st.sampled_from(["hour", "hour", "open", "close", "well"]))
    def somebody_turns_the_circuit(self, what: str) -> None:
        if what == "hour":
            self.an_hour_passes_for_the_circuit()
        elif what == "well":
            self.the_target_is_well_again()
        elif what == "open":
            self.by_hand(targets.open_circuit)
            self.circuit.open(by_hand=True)
        elif self.circuit.state in ("open", "half_open"):
            self.circuit.begin_to_close(*self.by_hand(targets.close_circuit))
        else:
            self.by_hand(targets.close_circuit)
            self.circuit.failures = 0

    def the_target_is_well_again(self) -> None:
        """Have a person close it, and each run go on that it held."""
        if self.circuit.state != "closed":
            self.somebody_turns_the_circuit("close")
            self.an_hour_passes_for_the_circuit()
            self.leader_works()
        assert self.circuit.state == "closed"
        assert not self.at("parked"), "what was parked never runs"

    def by_hand(self, turn: Any) -> tuple[Millis, Millis]:
        """Have a person open or close it; return between when and when it was done."""
        before = self.now()
        turn(self.upkeep, SICK, tenant=1, actor=PERSON, reason="")
        return before, self.now()

    def an_hour_passes_for_the_circuit(self) -> None:
        self.upkeep.execute(
            "UPDATE chrono_target SET probe_at = probe_at - interval '61 min', "
            "changed_at = changed_at - interval '61 min'"
        )
        self.circuit.pass_an_hour()

    def let_in_by_circuit(self, began: Millis, seen: dict[uuid.UUID, str]) -> None:
        """Say of each run of the target where a leader has to have put it by now.

        ``began`` is when the leader looked first, ``seen`` where each run lies.
        """
        circuit = self.circuit
        for known in self.runs.values():
            if known.job != SICK or known.place != "waiting":
                continue
            if known.behind_queue and not self.paused:
                known.place, known.behind_queue = "ready", False
            elif self.paused:
                known.behind_queue = True
            else:
                known.place = "ready" if circuit.state == "closed" else "parked"
        parked = set(self.at("parked"))
        let_in = {run for run in parked if seen.get(run) == "ready"}
        for run in let_in:
            self.runs[run].place = "ready"
        if circuit.state == "closing":
            circuit.ramp(
                len(let_in),
                left=len(parked - let_in),
                began=began,
                ended=self.clock.moment,
                closed=self.stands()[0] == "closed",
            )
        elif parked and circuit.may_probe(busy=self.at("leased", "told")):
            assert len(let_in) == 1, "a circuit is probed by one run"
            circuit.begin_to_probe(*let_in)
        else:
            assert not let_in, "nothing goes through a circuit that is not closed"

    # The leader

    @rule()
    def leader_works(self) -> None:
        before = {run for run in self.at("waiting") if self.runs[run].job != SICK}
        began = max(self.clock.moment + 1, self.now())
        for _ in range(3):
            # What is fired may have to pass two gates, and is told of by a notice.
            self.clock.moment = max(self.clock.moment + 1, self.now())
            self.dispatcher.notice()
            while not self.dispatcher.step().wait:
                pass
        seen = {run: place for run, place, _ in self.seen()}
        self.let_in_by_circuit(began, seen)
        let_in = {run for run in before if seen.get(run) == "ready"}
        for run in let_in:
            self.runs[run].place = "ready"
        self.of_rate += sum(self.runs[run].job == "rate" for run in let_in)
        left = Counter(
            self.runs[run].job.split()[0]
            for run in before - let_in
            if not self.runs[run].in_lane
        )
        if not self.paused:
            assert not left["plain"] + left["once"]
            assert not left["key"] or self.of_key() == OF_KEY
            assert not left["rate"] or self.of_rate == OF_RATE

    def an_hour_passes_for_the_rate(self) -> None:
        self.upkeep.execute(
            "UPDATE chrono_pass SET admitted_at = admitted_at - interval '61 min' "
            "WHERE gate LIKE 'rate_limit/%'"
        )
        self.of_rate = 0

    def upkeep_works(self) -> None:
        for number in range(8):
            queues.take_out_withdrawn(self.upkeep, number=number)
        queues.forget_withdrawn(self.upkeep)
        runs.forget_settled_slots(self.upkeep)
        runs.forget_lost_slots(self.upkeep)

    # Workers

    @rule(data=st.data(), limit=st.integers(1, 3))
    def claim(self, data: st.DataObject, limit: int) -> None:
        worker = self.living(data)
        there = self.at("ready")
        leases = runs.claim_ready(
            self.conn, queue="default", limit=limit, worker=worker
        )
        assert len(leases) == min(limit, len(there))
        self.begin(worker, there, leases)

    @some("aside")
    @rule(data=st.data())
    def claim_what_was_set_aside(self, data: st.DataObject) -> None:
        worker = self.living(data, alone=True)
        there = self.at("aside")
        leases = runs.claim_set_aside(
            self.conn, queue="default", limit=1, worker=worker
        )
        assert len(leases) == 1
        self.begin(worker, there, leases)

    def begin(
        self, worker: uuid.UUID, there: Sequence[uuid.UUID], leases: Sequence[Lease]
    ) -> None:
        """Take note of a claim of some of the runs that are there."""
        for lease in leases:
            assert lease.run_id in there, "it was claimed from elsewhere"
            known = self.runs[lease.run_id]
            known.place, known.lease, known.worker = "leased", lease, worker
            self.stale.append((lease.run_id, lease))
        if any(self.runs[lease.run_id].job == SICK for lease in leases):
            self.workers[worker].gates.look(self.conn, leases)
        for lease in leases:
            if self.runs[lease.run_id].job == SICK:
                self.begin_if_it_may(worker, lease)

    def begin_if_it_may(self, worker: uuid.UUID, lease: Lease) -> None:
        """Have a worker begin a run of the target, or hand it back where it's shut."""
        known, gates = self.runs[lease.run_id], self.workers[worker].gates
        prepared = self.prepared(known)
        held = gates.held_by(lease, prepared, "default")
        may = not self.paused and self.circuit.lets_through(lease.run_id)
        assert may == (held is None), "who may call the target begins, and nobody else"
        if held is None:
            gates.begin(lease, prepared, self.now())
            return
        back = self.settlement(known, lease, HandBack(reason=held))
        assert self.send(back) == {lease.run_id}
        known.wait(attempt=known.attempt)

    @some("leased", "told")
    @rule(data=st.data(), ending=st.sampled_from(list(ENDINGS)), twice=st.booleans())
    def settle(self, data: st.DataObject, ending: str, twice: bool) -> None:
        run, _ = self.pick(data, "leased", "told")
        self.settle_run(run, ending, twice=twice)

    def settle_run(self, run: uuid.UUID, ending: str, *, twice: bool = False) -> None:
        """Have an execution come to an end."""
        known = self.runs[run]
        assert known.lease is not None
        settlement = self.settlement(known, known.lease, ENDINGS[ending])
        if known.job == SICK:
            self.tell(run, ending, again=settlement.state == AGAIN)
        assert self.send(settlement) == {run}
        if twice:
            # The answer was lost.
            assert self.send(settlement) == set()
        if ending in {"success", "plain success"}:
            known.end(RunState.SUCCESS)
        elif ending == "failure":
            known.fail()
        elif ending == "called off":
            known.end(RunState.CANCELLED)
        else:
            known.hand_back(begun=ending == "interrupted")

    def tell(self, run: uuid.UUID, ending: str, *, again: bool) -> None:
        """Have a worker tell of a call of the target, as far as it does."""
        known = self.runs[run]
        assert known.lease is not None
        assert known.worker is not None
        gates = self.workers[known.worker].gates
        execution = Execution(known.lease, self.prepared(known))
        told = gates.told_of(execution, ENDINGS[ending], retry=again)
        good = {"success": True, "plain success": True, "failure": False}.get(ending)
        if told is None:
            # Who has seen no failure has nothing to tell of a success.
            assert good is None or (good and run != self.circuit.probe)
            return
        assert told.good is good
        before = self.now()
        assert gates.tell(self.conn, [told]) == set()
        if good is not None:
            self.circuit.hear(run, good, before, self.now())

    @precondition(lambda self: self.stale)
    @rule(data=st.data(), ending=st.sampled_from(list(ENDINGS)))
    def settle_what_was_lost(self, data: st.DataObject, ending: str) -> None:
        run, lease = self.stale[data.draw(st.integers(0, len(self.stale) - 1))]
        known = self.runs[run]
        if known.lease is None or known.lease.token != lease.token:
            assert self.send(self.settlement(known, lease, ENDINGS[ending])) == set()

    def settlement(self, known: Run, lease: Lease, ending: Ending) -> Settlement:
        """Return what a worker makes of an ending."""
        execution = Execution(lease, self.prepared(known))
        execution.spared = known.deaths
        return settlement_of(execution, ending, now=self.now(), draw=0.0)

    def prepared(self, known: Run) -> Prepared:
        """Return what a worker has made ready for a run."""
        once = known.job == "once"
        call: Any = None
        return Prepared(
            call=call,
            policy=replace(POLICY, max_attempts=1) if once else POLICY,
            payload=None,
            weight=0,
            once=once,
            target=SICK if known.job == SICK else "",
        )

    def send(self, settlement: Settlement) -> set[uuid.UUID]:
        """Return the run if its settlement was accepted."""
        if settlement.is_plain:
            return settle(self.conn, [settlement], horizon=self.horizon)
        return runs.settle_if_leased(self.conn, [settlement], horizon=self.horizon)

    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        workers = list(self.workers)
        worker = workers[data.draw(st.integers(0, len(workers) - 1))]
        self.fall_silent(worker)
        told = worker_store.beat_if_alive(self.conn, worker=worker)
        known = self.workers[worker]
        if known.dead:
            assert told is None
            return
        flagged = {run for run in self.at("told") if self.runs[run].worker == worker}
        assert told is not None
        assert set(told.cancelled) == flagged | known.ended
        assert self.bury_the_silent(worker) == []

    # What befalls them

    @some("leased", "told")
    @rule(data=st.data(), crashed=st.booleans(), swept=st.booleans())
    def die(self, data: st.DataObject, crashed: bool, swept: bool) -> None:
        _, known = self.pick(data, "leased", "told")
        worker = known.worker
        assert worker is not None
        if self.workers[worker].dead:
            return
        if crashed:
            assert worker_store.mark_dead(self.conn, workers=[worker]) == 1
        else:
            self.fall_silent(worker)
            assert self.bury_the_silent(worker) == [worker]
        self.workers[worker].dead, self.workers[worker].crashed = True, crashed
        self.register(alone=self.workers[worker].alone)
        if swept:
            self.sweep()

    def fall_silent(self, worker: uuid.UUID) -> None:
        """Have a worker not beat for a minute."""
        self.upkeep.execute(
            "UPDATE chrono_worker SET beat_at = clock_timestamp() - "
            "%s * interval '1 ms' WHERE id = %s",
            [MINUTE, worker],
        )

    def bury_the_silent(self, worker: uuid.UUID) -> list[uuid.UUID]:
        """Return the worker if it was marked dead."""
        return worker_store.mark_dead_if_stale(
            self.conn, workers=[worker], ttl=LEASE_TTL
        )

    @rule()
    def sweep(self) -> None:
        orphans = [
            known
            for known in self.runs.values()
            if known.worker is not None
            and known.is_leased
            and self.workers[known.worker].dead
        ]
        rescued = rescue_all(self.conn, now=self.now(), horizon=lambda: self.horizon)
        assert rescued == len(orphans)
        for known in orphans:
            assert known.worker is not None
            worker = self.workers[known.worker]
            known.lose_worker(crashed=worker.crashed, alone=worker.alone)

    @rule(what=st.sampled_from(["pause", "hour", "upkeep"]))
    def something_else_happens(self, what: str) -> None:
        if what == "pause":
            self.pause_or_resume_the_queue()
        elif what == "hour":
            self.an_hour_passes_for_the_rate()
        else:
            self.upkeep_works()

    # What holds after each step

    def stands(self) -> tuple[str, int, list[uuid.UUID], int, bool]:
        """Return the circuit's state, failures, probes, how many were let in, and
        whether no probe ever goes by itself."""
        rows = self.upkeep.execute(
            "SELECT state, failures, probes, let_in, probe_at IS NULL "
            "FROM chrono_target WHERE name = %s",
            [SICK],
        ).fetchall()
        if not rows:
            return "closed", 0, [], 0, True
        [(state, *others)] = rows
        return (BreakerState(state).label, *others)

    def seen(self) -> list[tuple[uuid.UUID, str, int]]:
        """Return every place of every run, with its attempt or state."""
        return [(run, place, n) for run, place, n in self.upkeep.execute(PLACES)]

    def of_key(self) -> int:
        """Return how many runs of the key have been let in and are not over."""
        let_in = ("ready", "leased", "told", "aside")
        return sum(self.runs[run].job.startswith("key") for run in self.at(*let_in))

    @invariant()
    def each_run_is_where_the_model_has_it(self) -> None:
        expected = [(run, *known.shown) for run, known in self.runs.items()]
        assert sorted(self.seen()) == sorted(expected)
        assert invariants.violations(self.upkeep) == []

    @invariant()
    def no_more_are_let_in_than_may_be(self) -> None:
        assert self.of_key() <= OF_KEY
        assert self.of_rate <= OF_RATE

    @invariant()
    def the_circuit_stands_as_the_model_has_it(self) -> None:
        state, failures, probes, let_in, never = self.stands()
        circuit = self.circuit
        assert (state, failures) == (circuit.state, circuit.failures)
        if state == "half_open":
            assert probes == [circuit.probe]
        if state == "closing":
            assert let_in == circuit.let_in
        if state == "open":
            assert never is circuit.by_hand
