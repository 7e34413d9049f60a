"""Everything at once: leaders, workers, editors, a canceller, upkeep and an assassin.

    python -m tests.races --seed 1 --seconds 60

All act on the product's own statements, in threads of one process with sessions of
their own, in an order that the seed and the machine draw. An auditor looks at one
snapshot after the other; at the end the ledger is compared with an oracle that knows
nothing but each job's definitions, as a trigger wrote them down. The last line says
`hammer: ok`, or what is wrong.
"""

import contextlib
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, ClassVar
from unittest import mock

import django.db
import psycopg

from apps.jobs import commands
from apps.jobs.definition import Definition
from apps.jobs.editing import Edit
from apps.jobs.errors import JobNotFound, JobsBusy
from apps.queue import rotation, withdrawals
from apps.queue.rotation import Rotation
from apps.runs import days, worker_store
from apps.runs import store as runs
from apps.runs.cancel import RunNotFound, cancel
from apps.runs.settle import settle
from apps.runs.store import Lease, Settlement
from apps.runs.sweep import rescue
from apps.runtime.arrays import int8s
from apps.runtime.clock import DatabaseClock
from apps.runtime.sessions import connect_hot, connect_upkeep
from apps.runtime.store import read_clock
from apps.scheduler import fire
from apps.scheduler import store as scheduler
from apps.scheduler.dispatcher import Dispatcher
from apps.timers import buckets
from apps.timers import store as timers
from chrono.rules import catchup
from chrono.rules.instants import Millis, format_instant
from chrono.rules.partitions import PARTITIONS
from chrono.rules.states import Reason, RunState
from tests.races import invariants, verdict
from tests.races.verdict import Seen
from tests.support.definitions import definition
from tests.support.pg import Connection

JOBS = 250
BATCH = 12
"""So many timers are fired by a statement: most of what is due takes several."""
FULL = int8s(range(BATCH))
QUEUES = ("left", "right")
INTERVALS = (1, 1, 2, 3, 5)
DEAD_AFTER: Millis = 900
LATE: Millis = 700
"""How late is missed; nobody leads for longer where a leader falls silent."""
CATCHUP_RATE = 400.0
OVERLAPS = (
    "skip",
    "allow_all",
    "buffer_one",
    "buffer_all",
    "cancel_other",
    "terminate_other",
)
CATCHUPS = ("run_once", "run_all", "skip", "deadline")
DRAIN_S = 30.0

# What a kill, a wait given up or a thread that got no turn looks like; all else is a
# fault.
BORNE = {None, "57P01", "55P03", "57014", "25P03"}


@dataclass(slots=True)
class Shared:
    """What the actors know of each other: where to act, when to stop, what was seen."""

    url: str
    seed: int
    upset: threading.Event = field(default_factory=threading.Event)
    """Set when editors, canceller and assassin shall stop."""
    ended: threading.Event = field(default_factory=threading.Event)
    seen: Seen = field(default_factory=Seen)


class Actor(threading.Thread):
    """A thread that takes one turn after the other and survives its sessions."""

    role: ClassVar[str]
    stops_early: ClassVar[bool] = False

    def __init__(self, shared: Shared, number: int = 1) -> None:
        super().__init__(name=f"{self.role}{number}", daemon=True)
        self.shared = shared
        self.lot = random.Random(f"{shared.seed}/{self.name}")
        self.over = shared.upset if self.stops_early else shared.ended

    def run(self) -> None:
        """Take turns until it is over; begin anew after a session's end."""
        while not self.over.is_set():
            try:
                with contextlib.ExitStack() as stack:
                    self.begin(stack)
                    while not self.over.is_set():
                        self.turn()
            except psycopg.Error as error:
                self.bear(error)
            except Exception as error:  # noqa: BLE001 (whatever it is, it is a finding)
                self.shared.seen.wrong.append(
                    f"{self.name}: {type(error).__name__} {error}"
                )
                self.nap(0.1)

    def begin(self, stack: contextlib.ExitStack) -> None:
        """Open what the turns need."""
        raise NotImplementedError

    def turn(self) -> None:
        """Do one thing."""
        raise NotImplementedError

    def bear(self, error: psycopg.Error) -> None:
        """Count an error; it is wrong unless a kill or a wait given up explains it."""
        self.count(f"error {error.sqlstate}")
        if error.sqlstate not in BORNE:
            self.shared.seen.wrong.append(f"{self.name}: {error.sqlstate} {error}")

    def count(self, what: str, by: int = 1) -> None:
        self.shared.seen.counts[f"{self.role}: {what}"] += by

    def nap(self, most: float) -> None:
        """Wait for a while drawn by lot, or until it is over."""
        self.over.wait(self.lot.random() * most)

    def hot(self, stack: contextlib.ExitStack) -> Connection:
        conn = connect_hot(self.shared.url, name=self.name)
        stack.callback(conn.close)
        return conn

    def hesitant(self, conn: Connection, words: tuple[str, ...], chance: float) -> None:
        """Have a session, at times, stop between such a statement and its commit."""
        execute = conn.execute

        def hesitate(text: Any, *args: Any, **options: Any) -> Any:
            if threading.current_thread() is not self and args[0]["ns"] == FULL:
                self.count("full batches sent by another thread")
            if self.lot.random() > chance or not any(w in str(text) for w in words):
                return execute(text, *args, **options)
            execute("BEGIN")
            try:
                cursor = execute(text, *args, **options)
                self.nap(0.06)
            except psycopg.Error:
                if not conn.closed:
                    execute("ROLLBACK")
                raise
            execute("COMMIT")
            return cursor

        conn.execute = hesitate  # type: ignore[method-assign]


class Leader(Actor):
    """Fires, takes partitions from the other leader, and falls silent at times."""

    role = "leader"

    def begin(self, stack: contextlib.ExitStack) -> None:
        self.conn = self.hot(stack)
        self.dispatcher = Dispatcher(
            self.conn, DatabaseClock(self.conn), catchup_rate=CATCHUP_RATE
        )
        stack.callback(self.dispatcher.close)
        self.hesitant(
            self.conn,
            (
                "fire_undecided",
                "fire_if_held",
                "miss_if_held",
                "admit_if_held",
                "delete_stale",
            ),
            0.15,
        )
        self.next_coup = 0.0

    def turn(self) -> None:
        if time.monotonic() >= self.next_coup:
            self.next_coup = time.monotonic() + self.lot.uniform(0.3, 2.0)
            parts = self.lot.sample(range(PARTITIONS), self.lot.randint(8, PARTITIONS))
            self.dispatcher.adopt(
                scheduler.take_over(self.conn, parts=parts, owner=self.name)
            )
            self.count("takeovers", len(parts))
            if self.lot.random() < 0.25:
                self.count("silences")
                self.nap(2.0)
        step = self.dispatcher.step()
        self.count("fired", step.readied)
        self.count("terms found over", len(self.dispatcher.take_lost()))
        self.over.wait(min(step.wait, 20) / 1_000)


class Worker(Actor):
    """Claims and settles; dies, wakes as a zombie, hands back, repeats its settles."""

    role = "worker"

    def begin(self, stack: contextlib.ExitStack) -> None:
        self.conn = self.hot(stack)
        self.hesitant(
            self.conn, ("claim_ready", "settle_successes", "settle_if_leased"), 0.15
        )
        if not hasattr(self, "id"):
            self.repeats: list[tuple[float, list[Settlement], bool]] = []
            self.unsure: list[Settlement] = []
            self.be_born()
            return
        # What was under way when the session ended may have been done or not.
        if self.unsure:
            self.repeats.append((0.0, self.unsure, True))
        for lease in runs.list_leases(self.conn, worker=self.id):
            if lease.run_id not in self.running:
                self.count("leases found again")
            self.running[lease.run_id] = (lease, 0.0)

    def be_born(self) -> None:
        self.id = uuid.uuid4()
        self.running: dict[uuid.UUID, tuple[Lease, float]] = {}
        self.cancelled: set[uuid.UUID] = set()
        self.next_beat = 0.0
        self.dies_at = time.monotonic() + self.lot.uniform(1, 8)
        worker_store.register_worker(
            self.conn,
            worker=self.id,
            host="here",
            pid=1,
            concurrency=30,
            queues=list(QUEUES),
        )

    def turn(self) -> None:
        now = time.monotonic()
        if now >= self.dies_at:
            self.die()
            return
        if now >= self.next_beat:
            self.next_beat = now + 0.25
            told = worker_store.beat_if_alive(self.conn, worker=self.id)
            if told is None:
                self.count("told to be dead")
                self.be_born()
                return
            self.cancelled.update(told.cancelled)
        if len(self.running) < 30:
            self.claim()
        self.settle(
            [lease for lease, at in self.running.values() if self.done(lease, at)]
        )
        self.repeat()
        self.over.wait(0.005)

    def done(self, lease: Lease, at: float) -> bool:
        return at <= time.monotonic() or lease.run_id in self.cancelled

    def claim(self) -> None:
        sent = time.monotonic()
        leases = runs.claim_ready(
            self.conn,
            queue=self.lot.choice(QUEUES),
            limit=self.lot.randint(1, 20),
            worker=self.id,
        )
        self.count("claimed", len(leases))
        for lease in leases:
            if not lease.job_deleted:
                self.shared.seen.claims.append((sent, lease.run_id))
            long = self.lot.random() < 0.05
            lasts = self.lot.random() * (1.5 if long else 0.04)
            self.running[lease.run_id] = (lease, sent + lasts)

    def settle(self, leases: list[Lease]) -> None:
        if not leases:
            return
        batch = [self.outcome(lease) for lease in leases]
        for lease in leases:
            del self.running[lease.run_id]
        self.unsure = batch
        self.send(batch)
        self.unsure = []
        if self.lot.random() < 0.3:
            self.repeats.append((time.monotonic() + self.lot.random(), batch, False))

    def send(self, batch: list[Settlement]) -> set[uuid.UUID]:
        horizon = timers.read_dispatch_state(self.conn).horizon
        held = settle(self.conn, batch, horizon=horizon)
        self.count("settled", len(held))
        self.count("leases lost", len(batch) - len(held))
        self.shared.seen.results.extend(
            s.run_id for s in batch if s.state and s.run_id in held
        )
        return held

    def outcome(self, lease: Lease) -> Settlement:
        ids = {"run_id": lease.run_id, "token": lease.token}
        if lease.job_deleted or lease.run_id in self.cancelled:
            return Settlement(**ids, state=RunState.CANCELLED, reason=Reason.OPERATOR)
        drawn = self.lot.random()
        if drawn < 0.75:
            return Settlement(**ids)
        if drawn < 0.80:
            return Settlement(**ids, state=0, spent=0)
        if drawn < 0.95 and lease.attempt < 5:
            soon = int(read_clock(self.conn)) + self.lot.randint(1, 600)
            return Settlement(
                **ids, state=0, due=soon, reason=Reason.NON_RETRYABLE, error="again"
            )
        return Settlement(
            **ids,
            state=RunState.DEAD,
            reason=Reason.ATTEMPTS_EXHAUSTED,
            error="no",
        )

    def repeat(self) -> None:
        for entry in [e for e in self.repeats if e[0] <= time.monotonic()]:
            self.repeats.remove(entry)
            _, batch, unsure = entry
            held = self.send(batch)
            self.count("settles repeated")
            if held and not unsure:
                self.shared.seen.wrong.append(f"a repeated settle took {held}")

    def die(self) -> None:
        """Fall silent with what it holds; wake up as another, or as a zombie first."""
        self.count("deaths")
        if self.lot.random() < 0.5:
            batch = [self.outcome(lease) for lease, _ in self.running.values()]
            wakes = time.monotonic() + self.lot.uniform(0.3, 2.5)
            self.repeats.append((wakes, batch, True))
        self.be_born()


class Editor(Actor):
    """Creates, changes, pauses, resumes and deletes jobs, one or many at a time."""

    role = "editor"
    stops_early = True

    def begin(self, stack: contextlib.ExitStack) -> None:
        stack.callback(django.db.connections["default"].close)
        self.look = psycopg.connect(
            self.shared.url, autocommit=True, application_name="editor"
        )
        stack.callback(self.look.close)

    def turn(self) -> None:
        jobs = self.look.execute(
            "SELECT id, key FROM chrono_job WHERE deleted_at IS NULL"
        ).fetchall()
        change = self.lot.choices(
            ["schedule", "payload", "pause", "resume", "delete", "create"],
            [8, 3, 4, 8, 0.4, 0.6],
        )[0]
        many = self.lot.randint(2, 12) if self.lot.random() < 0.15 else 1
        chosen = self.lot.sample(jobs, min(many, len(jobs)))
        try:
            self.change(change, chosen)
            self.count(change, len(chosen))
        except JobNotFound:
            self.count("job gone")
        except JobsBusy as busy:
            self.bear_busy(busy)
        except django.db.Error as error:
            django.db.connections["default"].close()
            if isinstance(error.__cause__, psycopg.Error):
                self.bear(error.__cause__)
            else:
                raise
        self.nap(0.05)

    def bear_busy(self, busy: JobsBusy) -> None:
        cause = busy.__cause__
        if isinstance(cause, psycopg.Error):
            self.bear(cause)

    def change(self, change: str, jobs: list[tuple[uuid.UUID, str]]) -> None:
        ids = [job for job, _ in jobs]
        match change:
            case "create":
                commands.create_job(draw(self.lot, uuid.uuid4().hex))
            case "pause":
                commands.pause_jobs(ids)
            case "resume":
                commands.resume_jobs(ids)
            case "delete":
                commands.delete_job(ids[0])
            case _:
                payload = time.monotonic() if change == "payload" else None
                commands.edit_jobs(
                    [
                        Edit(job_id=job, definition=draw(self.lot, key, payload))
                        for job, key in jobs
                    ]
                )


class Canceller(Actor):
    """Cancels runs wherever it finds them; notes what it was answered."""

    role = "canceller"
    stops_early = True
    PLACES = (
        "SELECT ref FROM chrono_timer WHERE kind <> 1",
        "SELECT ref FROM chrono_timer_far WHERE kind <> 1",
        "SELECT run_id FROM chrono_ready",
        "SELECT run_id FROM chrono_lease",
        "SELECT run_id FROM chrono_blocked",
    )
    SKIPPED = "SELECT FROM chrono_occurrence WHERE run_id = %s AND outcome = 2"

    def begin(self, stack: contextlib.ExitStack) -> None:
        self.conn = self.hot(stack)
        self.hesitant(self.conn, ("cancel_if_",), 0.2)

    def turn(self) -> None:
        found = self.conn.execute(self.lot.choice(self.PLACES)).fetchall()
        if found:
            [run] = self.lot.choice(found)
            self.nap(0.01)
            try:
                answer = cancel(self.conn, run)
            except RunNotFound:
                # A late or asked-for run may be skipped meanwhile, and never be one.
                if not self.conn.execute(self.SKIPPED, [run]).fetchall():
                    raise
                self.count("skipped before")
            else:
                self.shared.seen.cancels.append((time.monotonic(), run, answer))
                self.count(answer.label)
        self.nap(0.03)


class Upkeep(Actor):
    """Turns the ring, moves far timers, buries workers, forgets withdrawn runs."""

    role = "upkeep"

    def begin(self, stack: contextlib.ExitStack) -> None:
        self.conn = connect_upkeep(self.shared.url, name=self.name)
        stack.callback(self.conn.close)
        self.sweeper = connect_hot(self.shared.url, name="sweeper")
        stack.callback(self.sweeper.close)
        self.ring = Rotation()
        self.begun = time.monotonic()

    def turn(self) -> None:
        now = int(read_clock(self.conn))
        state = timers.read_dispatch_state(self.conn)
        if time.monotonic() > self.begun + 2:
            # Until then everything planned lies in the far table.
            horizon = buckets.ensure_buckets(self.conn, now=now)
            self.count(
                "far moved", buckets.move_far(self.conn, now=now, horizon=horizon)
            )
        current = self.ring.step(self.conn, current=state.slice, now=now)
        self.count("turns of the ring", current != state.slice)
        look = worker_store.look_at_workers(self.sweeper, quiet=DEAD_AFTER)
        if look.silent:
            stale = sorted(look.silent)
            worker_store.mark_dead_if_stale(self.sweeper, workers=stale, ttl=DEAD_AFTER)
        if orphans := worker_store.list_orphans(self.sweeper, limit=500):
            rescued = rescue(self.sweeper, orphans, now=now, horizon=state.horizon)
            self.count("rescued", rescued)
        self.count("withdrawn forgotten", withdrawals.clear(self.conn))
        self.count("slots forgotten", runs.forget_settled_slots(self.sweeper))
        self.nap(0.3)


class Assassin(Actor):
    """Ends sessions of the others."""

    role = "assassin"
    stops_early = True

    def begin(self, stack: contextlib.ExitStack) -> None:
        self.conn = psycopg.connect(self.shared.url, autocommit=True)
        stack.callback(self.conn.close)

    def turn(self) -> None:
        killed = self.conn.execute(
            """
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()
                AND application_name NOT IN ('judge', 'auditor', 'upkeep1', 'sweeper')
            ORDER BY random() LIMIT 1
            """
        ).fetchall()
        self.count("kills", len(killed))
        self.nap(0.4)


class Auditor(Actor):
    """Looks at one snapshot after the other."""

    role = "auditor"

    def begin(self, stack: contextlib.ExitStack) -> None:
        self.conn = psycopg.connect(
            self.shared.url, autocommit=True, application_name="auditor"
        )
        stack.callback(self.conn.close)

    def turn(self) -> None:
        found = invariants.violations(self.conn) + invariants.unplanned(self.conn)
        self.shared.seen.wrong.extend(f"audit: {what} {whose}" for what, whose in found)
        self.count("snapshots")
        self.over.wait(0.2)


def draw(lot: random.Random, key: str, payload: Any = None) -> Definition:
    """Return a definition drawn by lot for a job of this key."""
    every = lot.choice(INTERVALS)
    catchup = lot.choice(CATCHUPS)
    return definition(
        key=key,
        catchup_policy=catchup,
        max_delay="1s" if catchup == "deadline" else None,
        max_concurrent_runs=lot.choice([None, None, 2]),
        interval=f"{every}s",
        starts_at=format_instant(lot.randrange(every * 1_000)),
        jitter_window="0s",
        overlap_policy=lot.choice(OVERLAPS),
        queue=lot.choice(QUEUES),
        payload=payload,
        paused=None,
    )


def hammer(
    url: str, *, seed: int, seconds: float, wanted: Collection[str] = ()
) -> tuple[list[str], Counter[str]]:
    """Let all act on a migrated database for a while; return findings and counts.

    While what is ``wanted`` has not come about, it goes on for up to three times as
    long: on a slow machine less happens in a second.

    Django's default connection is to the same database.
    """
    shared = Shared(url=url, seed=seed)
    with (
        contextlib.closing(
            psycopg.connect(url, autocommit=True, application_name="judge")
        ) as conn,
        mock.patch.object(rotation, "OLD", 300),
        mock.patch.object(rotation, "BACK_OFF", 500),
        mock.patch.object(catchup, "LATE", LATE),
        mock.patch.object(fire, "BATCH", BATCH),
    ):
        conn.execute(verdict.LOG)
        days.ensure_days(conn, now=int(read_clock(conn)))
        lot = random.Random(seed)
        commands.create_jobs([draw(lot, f"job{n}") for n in range(JOBS)])
        django.db.connections["default"].close()  # Or the assassin finds it idle.
        actors: list[Actor] = [
            Leader(shared, 1),
            Leader(shared, 2),
            Worker(shared, 1),
            Worker(shared, 2),
            Worker(shared, 3),
            Editor(shared, 1),
            Editor(shared, 2),
            Canceller(shared),
            Upkeep(shared),
            Assassin(shared),
            Auditor(shared),
        ]
        for actor in actors:
            actor.start()
        shared.upset.wait(seconds)
        latest = time.monotonic() + 2 * seconds
        while time.monotonic() < latest:
            reasons = verdict.count_reasons(conn)
            if all(shared.seen.counts[what] or reasons[what] for what in wanted):
                break
            shared.upset.wait(0.5)
        shared.upset.set()
        for actor in actors:
            if actor.stops_early:
                actor.join()
        pause_all(conn)
        drained = drain(conn)
        shared.ended.set()
        for actor in actors:
            actor.join()
        if not drained:
            shared.seen.wrong.append(
                "runs are still under way long after the last fire"
            )
        wrong = [*shared.seen.wrong, *verdict.check(conn, shared.seen)]
    django.db.connections["default"].close()
    return wrong, shared.seen.counts


def pause_all(conn: Connection) -> None:
    """End all planning."""
    rows = conn.execute("SELECT id FROM chrono_job WHERE deleted_at IS NULL").fetchall()
    commands.pause_jobs([job for (job,) in rows])


def drain(conn: Connection) -> bool:
    """Wait until no run is under way; return whether that came about.

    What waits behind a gate is called off: nothing of a paused job is let in.
    """
    look = """
        SELECT (SELECT count(*) FROM chrono_ready) + (SELECT count(*) FROM chrono_lease)
            + (SELECT count(*) FROM chrono_timer WHERE kind <> 1)
            + (SELECT count(*) FROM chrono_timer_far WHERE kind <> 1)
            + (SELECT count(*) FROM chrono_withdrawn)
            + (SELECT count(*) FROM chrono_blocked)
    """
    deadline = time.monotonic() + DRAIN_S
    pause = threading.Event()
    while time.monotonic() < deadline:
        waiting = conn.execute("SELECT DISTINCT job_id FROM chrono_blocked").fetchall()
        if jobs := [job for (job,) in waiting]:
            runs.cancel_blocked_of_jobs(
                conn, jobs=jobs, parts=range(PARTITIONS), reason=Reason.OPERATOR
            )
        row = conn.execute(look).fetchone()
        if row is not None and row[0] == 0:
            return True
        pause.wait(0.2)
    return False
