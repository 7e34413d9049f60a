"""The life of jobs, lived at random on a real server beside a model of a few lines.

The model knows of each job from when to when which schedule was in force, what was
skipped ahead and how often somebody asked for a run. After each step the audit has
nothing to say, and nothing was decided that the model does not know; once the leader
came to rest, nothing is left undecided either.

`LONG_MODELS=10` lives ten times as many lives, and longer ones.
"""

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from apps.jobs import commands
from apps.jobs.audit import Scope, audit
from apps.jobs.definition import Definition
from apps.jobs.manual import run_now
from apps.runs import store as runs
from apps.runs import worker_store
from apps.runs.store import Settlement
from apps.runtime.clock import ManualClock
from apps.runtime.sessions import Connection, connect_hot, connect_upkeep
from apps.runtime.store import read_clock
from apps.scheduler import store as scheduler
from apps.scheduler.dispatcher import Dispatcher
from apps.timers.store import read_dispatch_state
from chrono.rules import oracle
from chrono.rules.instants import (
    HOUR,
    LATEST,
    MINUTE,
    SECOND,
    Millis,
    format_instant,
    to_millis,
)
from chrono.rules.states import Outcome
from tests.races.conftest import WIPE
from tests.scheduler.conftest import Leader, prepare
from tests.support.definitions import definition

TIMES = int(os.environ.get("LONG_MODELS", "1"))
SIZE = settings(
    max_examples=30 * TIMES,
    stateful_step_count=16 if TIMES == 1 else 40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
    # Every step is some statements: to make a failure shorter takes many minutes.
    phases=[Phase.generate],
)
MOST_JOBS = 4
BEFORE: Millis = 20 * HOUR
"""How far back a life begins, so that all of it is over for the server's clock."""

type Schedule = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Era:
    """What was in force after an instant, up to the next era's."""

    begin: Millis
    schedule: Schedule
    state: str
    """active, paused or deleted."""

    def occurrences(self, until: Millis) -> set[Millis]:
        """Return the occurrences of its schedule from its begin on."""
        return set(oracle.fires(self.schedule, self.begin, until))


@dataclass(slots=True)
class Life:
    """What the model knows of one job; each era is a plan of another version."""

    key: str
    policies: dict[str, str]
    eras: list[Era]
    ahead: set[Millis] = field(default_factory=set)
    """What was skipped before its time."""
    asked: int = 0

    @property
    def state(self) -> str:
        """Return whether it is active, paused or deleted."""
        return self.eras[-1].state

    @property
    def schedule(self) -> Schedule:
        """Return the schedule in force, or to be when it is resumed."""
        return self.eras[-1].schedule

    def begin(self, now: Millis, **changes: Any) -> None:
        """Begin another era, now or after what was skipped ahead."""
        self.eras.append(
            replace(self.eras[-1], begin=self.decided_until(now), **changes)
        )

    def decided_until(self, now: Millis) -> Millis:
        """Return the instant after which an edit's plan begins."""
        return max([now, *self.ahead])

    def may_run(self, now: Millis) -> set[Millis]:
        """Return every occurrence up to now that came while the job was active."""
        return self._of(now, {"active"}) - self.ahead

    def due(self, now: Millis) -> set[Millis]:
        """Return every occurrence that has to be decided by now.

        What a pause held back is, once something else is planned.
        """
        held = self._of(now, {"paused"})
        if self.state == "paused":
            held -= self.eras[-1].occurrences(now)
        return self._of(now, {"active"}) | held | self.ahead

    def _of(self, now: Millis, states: set[str]) -> set[Millis]:
        found: set[Millis] = set()
        ends = [era.begin for era in self.eras[1:]] + [now]
        for era, end in zip(self.eras, ends, strict=True):
            if era.state in states:
                found |= era.occurrences(min(end, now))
        return found


schedules = st.one_of(
    st.sampled_from(["20s", "1m", "7m", "1h"]).map(
        lambda every: {"interval": every, "starts_at": "2020-01-01T00:00:00Z"}
    ),
    st.sampled_from(["* * * * *", "*/10 * * * *", "5 * * * *", "0 3,9 * * *"]).map(
        lambda cron: {"cron": cron, "timezone": "Australia/Lord_Howe"}
    ),
)
"""What a job is made or changed to."""
policies = st.fixed_dictionaries(
    {
        "overlap_policy": st.sampled_from(
            ["skip", "allow_all", "buffer_one", "buffer_all"]
        ),
        "catchup_policy": st.sampled_from(["skip", "run_once", "run_all"]),
    }
)
lengths = st.sampled_from([SECOND, 19 * SECOND, MINUTE, 3 * MINUTE, 20 * MINUTE, HOUR])


living = precondition(lambda self: self.in_state("active", "paused"))


class Lives(RuleBasedStateMachine):
    """Jobs, people, a leader, and time that stands still until it is moved."""

    url: ClassVar[str]
    upkeep: ClassVar[Connection]
    begin: ClassVar[Millis]

    def __init__(self) -> None:
        super().__init__()
        self.upkeep.execute(WIPE)
        self.lives: dict[uuid.UUID, Life] = {}
        self.conn = connect_hot(self.url, name="test leader")
        self.worker = uuid.uuid4()
        worker_store.register_worker(
            self.upkeep,
            worker=self.worker,
            host="here",
            pid=1,
            concurrency=1,
            queues=["default"],
        )
        clock = ManualClock(self.begin)
        self.leader = Leader(
            conn=self.conn, clock=clock, dispatcher=Dispatcher(self.conn, clock)
        )
        self._lead()

    def teardown(self) -> None:
        """Let the leader do all that is due, and look for the last time."""
        try:
            self.leader_works()
            self.the_audit_has_nothing_to_say()
        finally:
            self.conn.close()

    @property
    def now(self) -> Millis:
        """Return the instant at which time stands."""
        return self.leader.clock.moment

    def in_state(self, *states: str) -> list[uuid.UUID]:
        """Return the jobs that are in one of these states."""
        return [job for job, life in self.lives.items() if life.state in states]

    def pick(self, data: st.DataObject, *states: str) -> tuple[uuid.UUID, Life]:
        """Draw one of the jobs in these states, or of those that are there at all."""
        jobs = self.in_state(*(states or ("active", "paused")))
        number = data.draw(st.integers(0, len(jobs) - 1))
        return jobs[number], self.lives[jobs[number]]

    @initialize(schedule=schedules, policies=policies)
    def first_job(self, schedule: Schedule, policies: dict[str, str]) -> None:
        self.create(schedule, policies, paused=False)

    @precondition(lambda self: len(self.lives) < MOST_JOBS)
    @rule(schedule=schedules, policies=policies, paused=st.booleans())
    def create(
        self, schedule: Schedule, policies: dict[str, str], paused: bool
    ) -> None:
        state = "paused" if paused else "active"
        life = Life(
            f"job {len(self.lives)}", policies, [Era(self.now, schedule, state)]
        )
        defined = self._defined(life, schedule, paused=paused)
        made = commands.create_job(defined, now=self.now)
        assert made.job_id is not None
        self.lives[made.job_id] = life

    @living
    @rule(data=st.data(), schedule=schedules)
    def edit(self, data: st.DataObject, schedule: Schedule) -> None:
        job, life = self.pick(data)
        made = commands.change_job(job, self._defined(life, schedule), now=self.now)
        if schedule != life.schedule:
            assert "changed" in made.actions
            life.begin(self.now, schedule=schedule)

    @living
    @rule(data=st.data(), payload=st.integers())
    def edit_payload(self, data: st.DataObject, payload: int) -> None:
        job, _ = self.pick(data)
        commands.patch_job(job, {"payload": payload}, now=self.now)

    @living
    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        job, life = self.pick(data)
        commands.pause_job(job, now=self.now)
        if life.state == "active":
            life.begin(self.now, state="paused")

    @living
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        job, life = self.pick(data)
        commands.resume_job(job, now=self.now)
        if life.state == "paused":
            life.begin(self.now, state="active")

    @living
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        job, life = self.pick(data)
        commands.delete_job(job, now=self.now)
        life.begin(self.now, state="deleted")

    @precondition(lambda self: self.in_state("deleted"))
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        job, life = self.pick(data, "deleted")
        commands.delete_job(job, now=self.now)  # Once more changes nothing.
        commands.restore_job(job, now=self.now)
        life.begin(self.now, state="paused")

    @living
    @rule(data=st.data())
    def trigger(self, data: st.DataObject) -> None:
        job, life = self.pick(data)
        run_now(job, now=self.now)
        life.asked += 1

    @precondition(lambda self: self.in_state("active"))
    @rule(data=st.data(), count=st.integers(1, 3))
    def skip_next(self, data: st.DataObject, count: int) -> None:
        job, life = self.pick(data, "active")
        after = life.decided_until(self.now)
        expected = list(islice(oracle.fires(life.schedule, after, LATEST - 1), count))
        made = commands.skip_next(job, count=count, now=self.now)
        assert list(made.skipped) == expected
        life.ahead |= set(expected)
        life.begin(self.now)

    @rule(length=lengths)
    def time_passes(self, length: Millis) -> None:
        if self.now + length < self.begin + BEFORE:
            self.leader.clock.moment += length

    @rule()
    def leader_works(self) -> None:
        due_by = self.now
        self.leader.dispatcher.notice()
        self.leader.step()
        # Of occurrences in a row that are late, each is due a millisecond later.
        self.leader.clock.moment += SECOND
        self.leader.step()
        for job, life in self.lives.items():
            missing = life.due(due_by) - set(self.decided(job))
            assert not missing, f"undecided {sorted(map(format_instant, missing))}"
            assert self._asked(job) == life.asked

    @rule(length=lengths)
    def leader_works_on(self, length: Millis) -> None:
        self.time_passes(length)
        self.leader_works()

    @rule()
    def another_takes_over(self) -> None:
        old = self.leader.dispatcher
        self.leader.dispatcher = Dispatcher(self.conn, self.leader.clock)
        self._lead()
        old.step()

    @rule(fail=st.booleans())
    def worker_works(self, fail: bool) -> None:
        leases = runs.claim_ready(
            self.upkeep, queue="default", limit=100, worker=self.worker
        )
        outcome = (
            {"state": 0, "error": "no", "reason": 30, "due": self.now} if fail else {}
        )
        runs.settle_if_leased(
            self.upkeep,
            [
                Settlement(run_id=lease.run_id, token=lease.token, **outcome)
                for lease in leases
            ],
            horizon=read_dispatch_state(self.upkeep).horizon,
        )

    @invariant()
    def the_audit_has_nothing_to_say(self) -> None:
        scope = Scope(jobs=tuple(self.lives))
        assert [str(found) for found in audit(self.upkeep, scope)] == []

    @invariant()
    def nothing_was_decided_that_nobody_asked_for(self) -> None:
        for job, life in self.lives.items():
            decided = self.decided(job)
            assert all(earlier < later for earlier, later in pairwise(decided))
            surplus = set(decided) - life.due(self.now)
            assert not surplus, f"decided {sorted(map(format_instant, surplus))}"
            ran = {moment for moment, ran in self._decided(job) if ran}
            wrong = ran - life.may_run(self.now)
            assert not wrong, f"ran {sorted(map(format_instant, wrong))}"

    def decided(self, job: uuid.UUID) -> list[Millis]:
        """Return every occurrence that the ledger decides, earliest first."""
        return [moment for moment, _ in self._decided(job)]

    def _decided(self, job: uuid.UUID) -> Iterator[tuple[Millis, bool]]:
        """Iterate over each decided occurrence and whether it runs."""
        rows = self.upkeep.execute(
            "SELECT scheduled_for, last_scheduled_for, version, outcome "
            "FROM chrono_occurrence WHERE job_id = %s AND attempt_group = 0 ORDER BY 1",
            [job],
        ).fetchall()
        for first, last, version, outcome in rows:
            runs_now = outcome == Outcome.FIRED
            if last is None:
                yield to_millis(first), runs_now
                continue
            assert not runs_now
            schedule = self.lives[job].eras[version - 1].schedule
            stretch = oracle.fires(schedule, to_millis(first) - 1, to_millis(last))
            yield from ((moment, False) for moment in stretch)

    def _asked(self, job: uuid.UUID) -> int:
        [(number,)] = self.upkeep.execute(
            "SELECT count(*) FROM chrono_occurrence "
            "WHERE job_id = %s AND attempt_group > 0",
            [job],
        ).fetchall()
        return int(number)

    def _lead(self) -> None:
        terms = scheduler.take_over(self.conn, parts=range(64), owner="test")
        self.leader.dispatcher.adopt(terms)

    def _defined(self, life: Life, schedule: Schedule, **fields: Any) -> Definition:
        return definition(
            key=life.key, jitter_window="0s", **life.policies, **schedule, **fields
        )


@pytest.mark.slow
@pytest.mark.timeout(180 * TIMES)
def test_jobs_live_as_the_model_says_and_the_audit_finds_nothing(dsn: str) -> None:
    with connect_upkeep(dsn, name="test upkeep") as upkeep:
        Lives.url, Lives.upkeep = dsn, upkeep
        now = int(read_clock(upkeep))
        Lives.begin = now - now % HOUR - BEFORE
        prepare(upkeep, Lives.begin)
        run_state_machine_as_test(Lives, settings=SIZE)
