"""What the actors act in: jobs and timers laid into tables, and their statements."""

import itertools
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from apps.runs import store as runs
from apps.runs import worker_store
from apps.runs.settle import settle
from apps.runtime.sessions import connect_hot, connect_upkeep
from apps.scheduler import fire
from apps.scheduler import store as scheduler
from apps.scheduler.store import Firing, Missing, Term, TimerRow
from apps.timers import store as timers
from chrono.rules.instants import Millis
from chrono.rules.keys import run_id
from chrono.rules.partitions import partition_of
from chrono.rules.states import Priority, Reason, RunState, TimerKind
from tests.races import invariants
from tests.races.harness import Actor, Stage
from tests.support.pg import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as laid into the tables; each has a queue of its own."""

    id: uuid.UUID
    part: int
    queue: str
    bounded: bool

    def run(self, scheduled_for: Millis, group: int = 0) -> uuid.UUID:
        """Return the id of its run of an instant."""
        return run_id(self.id, scheduled_for, group, self.part)


@dataclass(slots=True)
class Leader:
    """A scheduler's hands: the terms it believes to hold, and a firing session."""

    name: str
    actor: Actor
    world: "World"
    terms: dict[int, Term] = field(default_factory=dict)

    @property
    def conn(self) -> Connection:
        """Its session."""
        return self.actor.conn

    def take_over(self, *parts: int) -> None:
        """Begin a term in these partitions and believe in it."""
        for term in scheduler.take_over(self.conn, parts=parts, owner=self.name):
            self.terms[term.part] = term

    def load(self, *parts: int, before: Millis | None = None) -> list[TimerRow]:
        """Return what is due in these partitions, now unless told, earliest first."""
        # What is due in this very millisecond is due.
        until = self.world.now() + 1 if before is None else before
        rows = scheduler.load_timers(
            self.conn,
            after=dict.fromkeys(parts, scheduler.cursor_at(0)),
            before=until,
            each=100_000,
        )
        return sorted(rows, key=lambda row: (row.due_at, row.kind))

    def fire(self, rows: Sequence[TimerRow], **options: Any) -> Firing:
        """Fire rows under the terms believed to be held, a statement for each bucket.

        Verdicts are by the position in ``rows``.
        """
        held: set[int] = set()
        verdicts: dict[int, int] = {}
        for bucket in sorted({row.bucket for row in rows}):
            places = [n for n, row in enumerate(rows) if row.bucket == bucket]
            batch = self.aim([rows[n] for n in places], **options)
            firing = self.shoot(batch, bucket)
            held |= firing.held
            verdicts |= {places[n]: verdict for n, verdict in firing.verdicts.items()}
        return Firing(held=frozenset(held), verdicts=verdicts)

    def shoot(self, batch: dict[str, Any], bucket: int) -> Firing:
        """Send a batch that was aimed before, as the product does."""
        table = self.world.table(bucket)
        shoot = scheduler.fire_if_held if self.world.row_by_row else fire.send
        return shoot(self.conn, bucket=table, batch=batch)

    def aim(
        self,
        rows: Sequence[TimerRow],
        *,
        every: Millis = 0,
        skip: int = 0,
        number: int = 0,
        next_due: Millis | None = None,
    ) -> dict[str, Any]:
        """Return the batch of these rows; ``every`` plans the next timers."""
        jobs = [self.world.jobs[row.job_id] for row in rows]
        schedule = [row.kind == TimerKind.SCHEDULE for row in rows]
        following = [
            row.scheduled_for + every if every and planned else 0
            for row, planned in zip(rows, schedule, strict=True)
        ]
        return {
            **self.guards(row.part for row in rows),
            "ns": list(range(len(rows))),
            "part": [row.part for row in rows],
            "due": [row.due_at for row in rows],
            "ref": [row.ref for row in rows],
            "kind": [row.kind for row in rows],
            "version": [row.version for row in rows],
            "scheduled_for": [row.scheduled_for for row in rows],
            "run_id": [
                job.run(row.scheduled_for, row.attempt_group) if planned else row.ref
                for row, job, planned in zip(rows, jobs, schedule, strict=True)
            ],
            "revision": [row.revision for row in rows],
            "tenant": [row.tenant for row in rows],
            "queue": [job.queue for job in jobs],
            "priority": [2 for _ in rows],
            "tag": [row.due_at for row in rows],
            "fence": [self.terms[row.part].fence for row in rows],
            "skip": [skip for _ in rows],
            "bounded": [
                job.bounded and row.kind in (TimerKind.SCHEDULE, TimerKind.LATE)
                for row, job in zip(rows, jobs, strict=True)
            ],
            "next_for": following,
            "next_due": [
                0
                if not at
                else max(at, row.due_at + 1)
                if next_due is None
                else next_due
                for at, row in zip(following, rows, strict=True)
            ],
            "gated_n": [],
            "gate": [],
            "gate_reason": [],
            "gates_left": [],
            "slot_n": [],
            "now": None,
            "slice": number,
            "horizon": self.world.horizon,
        }

    def guards(self, parts: Iterable[int]) -> dict[str, Any]:
        """Return what a statement compares with these partitions."""
        terms = [self.terms[part] for part in sorted(set(parts))]
        return {
            "parts": [term.part for term in terms],
            "fences": [term.fence for term in terms],
            "terms": [term.term for term in terms],
            "epochs": [term.epoch for term in terms],
        }

    def miss(
        self,
        rows: Sequence[TimerRow],
        *,
        every: Millis,
        next_due: Millis | None = None,
    ) -> Missing:
        """Decide what schedules missed: three are given up, two run, one is planned.

        The rows are of one bucket.
        """
        [bucket] = {row.bucket for row in rows}
        batch = self.aim_missed(rows, every=every, next_due=next_due)
        return scheduler.miss_if_held(
            self.conn, bucket=self.world.table(bucket), batch=batch
        )

    def aim_missed(
        self, rows: Sequence[TimerRow], *, every: Millis, next_due: Millis | None = None
    ) -> dict[str, Any]:
        """Return the batch of :meth:`miss`."""
        jobs = [self.world.jobs[row.job_id] for row in rows]
        pieces = [
            (n, first, count, reason)
            for n, row in enumerate(rows)
            for first, count, reason in (
                (row.scheduled_for, 3, int(Reason.MISSED_SKIP)),
                (row.scheduled_for + 3 * every, 1, 0),
                (row.scheduled_for + 4 * every, 1, 0),
            )
        ]
        following = [row.scheduled_for + 5 * every for row in rows]
        return {
            **self.guards(row.part for row in rows),
            "ns": list(range(len(rows))),
            "part": [row.part for row in rows],
            "due": [row.due_at for row in rows],
            "ref": [row.ref for row in rows],
            "version": [row.version for row in rows],
            "scheduled_for": [row.scheduled_for for row in rows],
            "revision": [row.revision for row in rows],
            "tenant": [row.tenant for row in rows],
            "queue": [job.queue for job in jobs],
            "tag": [row.due_at for row in rows],
            "fence": [self.terms[row.part].fence for row in rows],
            "shift": [0 for _ in rows],
            "next_for": following,
            "next_due": [at if next_due is None else next_due for at in following],
            "p_n": [n for n, *_ in pieces],
            "p_first": [first for _, first, _, _ in pieces],
            "p_run_id": [jobs[n].run(first) for n, first, _, _ in pieces],
            "p_reason": [reason for *_, reason in pieces],
            "p_count": [count for _, _, count, _ in pieces],
            "p_last": [first + (count - 1) * every for _, first, count, _ in pieces],
            "priority": int(Priority.BULK),
            "gate": Reason.CATCH_UP.label,
            "gate_reason": int(Reason.CATCH_UP),
            "now": None,
            "horizon": self.world.horizon,
        }

    def admit(
        self, *jobs: Job, count: int = 1, gate: Reason = Reason.OVERLAP
    ) -> tuple[frozenset[int], list[str]]:
        """Let so many runs of jobs in from behind a gate, into slots."""
        return scheduler.admit_if_held(
            self.conn,
            batch={
                **self.guards(job.part for job in jobs),
                "gate": gate.label,
                "part": [job.part for job in jobs],
                "job": [job.id for job in jobs],
                "count": [count for _ in jobs],
                "slot": [True for _ in jobs],
                "max_delay": [0 for _ in jobs],
                "gates": ["" for _ in jobs],
                "key": ["" for _ in jobs],
                "filled": [False for _ in jobs],
                "slice": 0,
                "now": None,
            },
        )


@dataclass(slots=True)
class Worker:
    """A worker's hands: its id and a session."""

    id: uuid.UUID
    actor: Actor
    world: "World"

    @property
    def conn(self) -> Connection:
        """Its session."""
        return self.actor.conn

    def claim(self, job: Job, limit: int = 10) -> list[runs.Lease]:
        """Claim from the queue of a job."""
        return runs.claim_ready(self.conn, queue=job.queue, limit=limit, worker=self.id)

    def settle(self, *leases: runs.Lease, **outcome: Any) -> set[uuid.UUID]:
        """Settle leases, all in one way; return those that held."""
        return settle(
            self.conn,
            [
                runs.Settlement(run_id=lease.run_id, token=lease.token, **outcome)
                for lease in leases
            ],
            horizon=self.world.horizon,
        )

    def retry(self, *leases: runs.Lease, due: Millis = 0) -> set[uuid.UUID]:
        """Settle leases as failed, to be tried again at ``due`` or at once."""
        return self.settle(*leases, state=0, error="no", reason=16, due=due)


class World:
    """One database with its upkeep done, and whoever acts in it."""

    def __init__(self, url: str, observer: Connection) -> None:
        self.url = url
        self.observer = observer
        self.stage = Stage(observer)
        self.jobs: dict[uuid.UUID, Job] = {}
        self.horizon = timers.read_dispatch_state(observer).horizon
        self.row_by_row = False
        """Whether leaders fire by fire_if_held alone, as after a conflict."""
        self._parts = itertools.cycle(range(64))

    def now(self) -> Millis:
        """Return the database's time."""
        return self.value(
            "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        )

    def value(self, text: str, params: Sequence[Any] = ()) -> Any:
        """Return the one value that a question of the observer has for an answer."""
        rows = self.observer.execute(text, params).fetchall()
        assert len(rows) == 1
        return rows[0][0]

    def rows(self, text: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a question of the observer."""
        return self.observer.execute(text, params).fetchall()

    def table(self, oid: int) -> str:
        """Return the name of a table."""
        return str(self.value("SELECT relname FROM pg_class WHERE oid = %s", [oid]))

    def session(self, name: str) -> Actor:
        """Put an actor with a hot session on the stage."""
        return self.stage.enter(name, partial(connect_hot, self.url, name=name))

    def keeper(self, name: str = "upkeep") -> Actor:
        """Put an actor with an upkeep session on the stage."""
        return self.stage.enter(name, partial(connect_upkeep, self.url, name=name))

    def leader(self, name: str, *parts: int) -> Leader:
        """Put a leader on the stage, which begins a term in these partitions."""
        leader = Leader(name=name, actor=self.session(name), world=self)
        if parts:
            leader.take_over(*parts)
        return leader

    def worker(self, name: str) -> Worker:
        """Put a registered worker on the stage."""
        worker = Worker(id=uuid.uuid4(), actor=self.session(name), world=self)
        worker_store.register_worker(
            self.observer,
            worker=worker.id,
            host="here",
            pid=1,
            concurrency=10,
            queues=["default"],
        )
        return worker

    def job(self, *, part: int | None = None, bounded: bool = False) -> Job:
        """Lay a job with its first revision, in a given partition or the next."""
        wanted = next(self._parts) if part is None else part
        one = next(u for u in iter(uuid.uuid4, None) if partition_of(u) == wanted)
        job = Job(id=one, part=wanted, queue=f"q{one.hex}", bounded=bounded)
        self.observer.execute(
            """
            INSERT INTO chrono_job (id, tenant, key, name, part, version, revision,
                epoch, activated_at, paused, pause_note, created_at, updated_at)
            VALUES (%s, 1, %s, '', %s, 1, 1, 0, now() - interval '1 h', false, '',
                now(), now())
            """,
            [one, str(one), wanted],
        )
        self.revision(job, 1)
        self.jobs[one] = job
        return job

    def revision(self, job: Job, number: int) -> None:
        """Lay one more revision of a job."""
        self.observer.execute(
            """
            INSERT INTO chrono_job_revision (job_id, revision, schedule, jitter_window,
                overlap_policy, queue, priority, target, payload, retry_policy,
                created_at)
            VALUES (%s, %s, '{}', 0, %s, %s, 2, '{}', NULL, '{}', now())
            """,
            [job.id, number, "skip" if job.bounded else "allow_all", job.queue],
        )

    def timer(
        self,
        job: Job,
        due: Millis,
        *,
        kind: int = TimerKind.SCHEDULE,
        scheduled_for: Millis | None = None,
        version: int | None = None,
        prev: uuid.UUID | None = None,
        group: int = 0,
        attempt: int = 1,
        remaining: int | None = None,
        table: str = "chrono_timer",
    ) -> uuid.UUID:
        """Lay a timer; return the id of the run it is for."""
        instant = due if scheduled_for is None else scheduled_for
        run = job.run(instant, group)
        schedule = kind == TimerKind.SCHEDULE
        self.observer.execute(
            f"""
            INSERT INTO {table} (due_at, scheduled_for, ref, job_id, prev, version,
                revision, attempt_group, part, kind, attempt, remaining)
            VALUES (to_timestamp(%s / 1000.0::float8),
                to_timestamp(%s / 1000.0::float8), %s, %s, %s, %s, 1, %s, %s, %s, %s,
                %s)
            """,
            [
                due,
                instant,
                job.id if schedule else run,
                job.id,
                prev,
                (1 if schedule else 0) if version is None else version,
                group,
                job.part,
                int(kind),
                attempt,
                remaining,
            ],
        )
        return run

    def ready(
        self,
        job: Job,
        *scheduled_for: Millis,
        number: int = 0,
        priority: int = 2,
        tag: int | None = None,
    ) -> list[uuid.UUID]:
        """Lay fired occurrences of a job into ready; return their runs."""
        made = [job.run(instant) for instant in scheduled_for]
        for instant, run in zip(scheduled_for, made, strict=True):
            self.observer.execute(
                """
                WITH o AS (
                    INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence,
                        version, revision, part, outcome, kind)
                    VALUES (to_timestamp(%(at)s / 1000.0::float8), %(job)s, %(run)s, 0,
                        1, 1, %(part)s, 1, 1)
                )
                INSERT INTO chrono_ready (due_at, dispatched_at, run_id, job_id, tag,
                    fence, revision, tenant, part, priority, attempt, slice, queue)
                VALUES (to_timestamp(%(at)s / 1000.0::float8), now(), %(run)s, %(job)s,
                    %(tag)s, 0, 1, 1, %(part)s, %(priority)s, 1, %(slice)s, %(queue)s)
                """,
                {
                    "at": instant,
                    "job": job.id,
                    "run": run,
                    "part": job.part,
                    "tag": instant if tag is None else tag,
                    "priority": priority,
                    "slice": number,
                    "queue": job.queue,
                },
            )
        return made

    def blocked(
        self, job: Job, *scheduled_for: Millis, gate: Reason = Reason.OVERLAP
    ) -> list[uuid.UUID]:
        """Lay fired occurrences of a job behind a gate; return their runs."""
        made = self.ready(job, *scheduled_for)
        self.observer.execute(
            """
            WITH moved AS (
                DELETE FROM chrono_ready WHERE run_id = ANY(%s) RETURNING *
            )
            INSERT INTO chrono_blocked (due_at, dispatched_at, run_id, job_id, tag,
                fence, revision, tenant, part, priority, attempt, queue, gate, reason)
            SELECT due_at, dispatched_at, run_id, job_id, tag, fence, revision, tenant,
                part, priority, attempt, queue, %s, %s FROM moved
            """,
            [made, gate.label, int(gate)],
        )
        return made

    def moments(self, count: int, *, ago: Millis = 1_000) -> list[Millis]:
        """Return instants of the last second, apart by a millisecond, all different."""
        start = self.now() - ago
        return [start + n for n in range(count)]

    def places(self, run: uuid.UUID, part: int) -> list[str]:
        """Return where a run is, ``run:state`` for the history."""
        found = runs.locate_run(self.observer, run=run, part=part)
        return sorted(
            f"run:{RunState(place.detail).label}"
            if place.table == "run" and place.detail is not None
            else place.table
            for place in found
        )

    def ledger(self, job: Job) -> list[tuple[Any, ...]]:
        """Return (outcome, reason, kind, version, revision) of a job's occurrences."""
        return self.rows(
            """
            SELECT outcome, reason, kind, version, revision FROM chrono_occurrence
            WHERE job_id = %s ORDER BY scheduled_for, attempt_group
            """,
            [job.id],
        )

    def check(self, context: object = "") -> None:
        """Fail if the audit finds anything."""
        found = invariants.violations(self.observer)
        assert not found, f"{context}: {found}"

    def close(self) -> None:
        """End all sessions."""
        self.stage.close()
