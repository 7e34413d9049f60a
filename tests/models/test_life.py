"""The life of jobs, lived at random on a real server beside a model of a few lines.

The model knows of each job from when to when which schedule was in force, what was
skipped ahead and how often somebody asked for a run. After each step the audit has
nothing to say, and nothing was decided that the model does not know; once the leader
came to rest, nothing is left undecided either.

`LONG_MODELS=1` lives many more lives, and longer ones.
"""

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
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
from apps.jobs.manual import run_now
from apps.runs import store as runs
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

LONG = bool(os.environ.get("LONG_MODELS"))
SIZE = settings(
    max_examples=1_000 if LONG else 30,
    stateful_step_count=60 if LONG else 16,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
    # Every step is some statements: to make a failure shorter takes many minutes.
    phases=[Phase.generate, Phase.shrink] if LONG else [Phase.generate],
)
MOST_JOBS = 4
BEFORE: Millis = 20 * HOUR
"""How far back a life begins, so that all of it is over for the server's clock."""

type Schedule = dict[str, Any]


@dataclass(slots=True)
class Era:
    """What was in force after an instant, up to the next era's."""

    begin: Millis
    schedule: Schedule | None
    """None while the job was paused or deleted."""


@dataclass(slots=True)
class Life:
    """What the model knows of one job."""

    key: str
    schedule: Schedule
    eras: list[Era]
    paused: bool = False
    deleted: bool = False
    ahead: set[Millis] = field(default_factory=set)
    """What was skipped before its time."""
    asked: int = 0

    def begin(self, now: Millis, **changes: Any) -> None:
        """Begin another era, now or after what was skipped ahead."""
        for name, value in changes.items():
            setattr(self, name, value)
        stopped = self.paused or self.deleted
        begin = max([now, *self.ahead])
        self.eras.append(Era(begin, None if stopped else self.schedule))

    def next_after(self, now: Millis, count: int) -> list[Millis]:
        """Return the next occurrences of the schedule."""
        return list(islice(oracle.fires(self.schedule, now, LATEST - 1), count))

    def due(self, now: Millis) -> set[Millis]:
        """Return every occurrence up to now that a definition in force asked for."""
        found = set(self.ahead)
        ends = [era.begin for era in self.eras[1:]] + [now]
        for era, end in zip(self.eras, ends, strict=True):
            if era.schedule is not None:
                found |= set(oracle.fires(era.schedule, era.begin, min(end, now)))
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
lengths = st.sampled_from([SECOND, 19 * SECOND, MINUTE, 3 * MINUTE, 20 * MINUTE, HOUR])


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
        runs.register_worker(
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

    def pick(self, data: st.DataObject) -> tuple[uuid.UUID, Life]:
        """Draw one of the jobs."""
        job = data.draw(st.sampled_from(list(self.lives)))
        return job, self.lives[job]

    @initialize(schedule=schedules)
    def first_job(self, schedule: Schedule) -> None:
        self.create(schedule, overlap="allow_all", paused=False)

    @precondition(lambda self: len(self.lives) < MOST_JOBS)
    @rule(
        schedule=schedules,
        overlap=st.sampled_from(["skip", "allow_all"]),
        paused=st.booleans(),
    )
    def create(self, schedule: Schedule, overlap: str, paused: bool) -> None:
        key = f"job {len(self.lives)}"
        made = commands.create_job(
            self._defined(key, schedule, overlap=overlap, paused=paused), now=self.now
        )
        assert made.job_id is not None
        era = Era(self.now, None if paused else schedule)
        self.lives[made.job_id] = Life(key, schedule, [era], paused=paused)

    @precondition(lambda self: self.lives)
    @rule(data=st.data(), schedule=schedules)
    def edit(self, data: st.DataObject, schedule: Schedule) -> None:
        job, life = self.pick(data)
        if life.deleted:
            return
        made = commands.change_job(job, self._defined(life.key, schedule), now=self.now)
        if schedule != life.schedule:
            assert "changed" in made.actions
            life.begin(self.now, schedule=schedule)

    @precondition(lambda self: self.lives)
    @rule(data=st.data(), payload=st.integers())
    def edit_payload(self, data: st.DataObject, payload: int) -> None:
        job, life = self.pick(data)
        if not life.deleted:
            commands.patch_job(job, {"payload": payload}, now=self.now)

    @precondition(lambda self: self.lives)
    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        job, life = self.pick(data)
        if life.deleted:
            return
        commands.pause_job(job, now=self.now)
        if not life.paused:
            life.begin(self.now, paused=True)

    @precondition(lambda self: self.lives)
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        job, life = self.pick(data)
        if life.deleted:
            return
        commands.resume_job(job, now=self.now)
        if life.paused:
            life.begin(self.now, paused=False)

    @precondition(lambda self: self.lives)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        job, life = self.pick(data)
        commands.delete_job(job, now=self.now)
        if not life.deleted:
            life.begin(self.now, deleted=True)

    @precondition(lambda self: any(life.deleted for life in self.lives.values()))
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        deleted = [job for job, life in self.lives.items() if life.deleted]
        job = data.draw(st.sampled_from(deleted))
        commands.restore_job(job, now=self.now)
        self.lives[job].begin(self.now, deleted=False, paused=True)

    @precondition(lambda self: self.lives)
    @rule(data=st.data())
    def trigger(self, data: st.DataObject) -> None:
        job, life = self.pick(data)
        if not life.deleted:
            run_now(job, now=self.now)
            life.asked += 1

    @precondition(lambda self: self.lives)
    @rule(data=st.data(), count=st.integers(1, 3))
    def skip_next(self, data: st.DataObject, count: int) -> None:
        job, life = self.pick(data)
        if life.deleted or life.paused:
            return
        expected = life.next_after(max([self.now, *life.ahead]), count)
        made = commands.skip_next(job, count=count, now=self.now)
        assert list(made.skipped) == expected
        # What is due up to now is the era's before; what is skipped is nobody's else.
        life.begin(self.now)
        life.ahead |= set(expected)
        life.begin(self.now)

    @rule(length=lengths)
    def time_passes(self, length: Millis) -> None:
        if self.now + length < self.begin + BEFORE:
            self.leader.clock.moment += length

    @rule()
    def leader_works(self) -> None:
        self.leader.dispatcher.notice()
        self.leader.step()
        for job, life in self.lives.items():
            missing = life.due(self.now) - set(self.decided(job))
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

    def decided(self, job: uuid.UUID) -> list[Millis]:
        """Return every occurrence that the ledger decides, earliest first."""
        return list(self._decided(job))

    def _decided(self, job: uuid.UUID) -> Iterator[Millis]:
        rows = self.upkeep.execute(
            "SELECT scheduled_for, last_scheduled_for, version, outcome "
            "FROM chrono_occurrence WHERE job_id = %s AND attempt_group = 0 ORDER BY 1",
            [job],
        ).fetchall()
        for first, last, version, outcome in rows:
            if last is None:
                yield to_millis(first)
                continue
            assert outcome == Outcome.SKIPPED
            schedule = self.lives[job].eras[version - 1].schedule
            assert schedule is not None
            yield from oracle.fires(schedule, to_millis(first) - 1, to_millis(last))

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

    def _defined(self, key: str, schedule: Schedule, **fields: Any) -> Any:
        overlap = fields.pop("overlap", "allow_all")
        return definition(
            key=key, jitter_window="0s", overlap_policy=overlap, **schedule, **fields
        )


@pytest.mark.slow
@pytest.mark.timeout(7_200 if LONG else 180)
def test_jobs_live_as_the_model_says_and_the_audit_finds_nothing(dsn: str) -> None:
    with connect_upkeep(dsn, name="test upkeep") as upkeep:
        Lives.url, Lives.upkeep = dsn, upkeep
        now = int(read_clock(upkeep))
        Lives.begin = now - now % HOUR - BEFORE
        prepare(upkeep, Lives.begin)
        run_state_machine_as_test(Lives, settings=SIZE)
