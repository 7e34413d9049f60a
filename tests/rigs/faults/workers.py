"""Workers killed, stopped, told to go, out of memory, and without connections."""

import random
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from chrono.rules.lease import SESSIONS_BACK_AFTER
from chrono.rules.states import Reason, RunState
from tests.rigs import tables, takeovers
from tests.rigs.faults.fault import Fault
from tests.rigs.faults.field import Field, Load, as_load, everyday
from tests.rigs.oracle import iso
from tests.rigs.stack import Environment, Process, Stack, sleep_until, wait_for

MODULES = {"CHRONO_TASK_MODULES": "tests.rigs.tasks,tests.rigs.worker_tasks"}
SLOW, SLOW_AFTER_S, SLOW_S = 24, 4.0, 14.0
KILLED_S, EXPIRED_S, STOPPED_S = 10.0, 40.0, 45.0
TOLD_S = 10.0
DRAINED_S = 28.0
LONG_S = 35.0
CROWDED_S = 12.0
"""With the ten seconds between two beats less than a worker trusts its leases."""
BACK_S = 6.0
DEATHS = 3
BURIED_S = 90.0


class WorkerField(Field):
    """A field whose workers know the tasks of these faults."""

    def __init__(self, stack: Stack, chance: random.Random) -> None:
        super().__init__(stack, chance)
        self._names = iter(range(1, 1_000))

    def start(self) -> None:
        """Start schedulers and workers, and wait until they share the partitions."""
        takeovers.log_takeovers(self.conn)
        self.schedulers = [self.stack.scheduler(f"scheduler-{n}") for n in "ab"]
        self.workers = [self.hire(), self.hire()]
        self.wait_even()
        self.wait_workers()
        self.wait_up()

    def hire(self, *, processes: int = 1, env: Environment = MODULES) -> Process:
        """Start a worker."""
        return self.stack.worker(
            f"worker-{next(self._names)}", processes=processes, env=env
        )

    def equip(self, env: Environment) -> None:
        """Have as many workers, in this environment, in place of all."""
        old, self.workers = self.workers, [self.hire(env=env) for _ in self.workers]
        self.stack.stop(*old)
        self.wait_forked(len(self.workers))

    def busiest(self) -> tuple[Process, uuid.UUID]:
        """Return the worker that holds most of the slow runs, and its id."""
        pids = {process.pid: process for process in self.workers}

        def look() -> list[tuple[int, uuid.UUID]]:
            rows = self.conn.execute(
                """
                SELECT w.pid, w.id, count(*) OVER () FROM chrono_lease l
                JOIN chrono_worker w ON w.id = l.worker AND NOT w.dead
                JOIN chrono_job j ON j.id = l.job_id
                WHERE j.key LIKE %s
                """,
                [f"{self.prefix}slow-%"],
            ).fetchall()
            if not rows or rows[0][2] < SLOW:
                return []
            found = [(pid, worker) for pid, worker, _ in rows]
            return [max(found, key=found.count)]

        [(pid, worker)] = wait_for(look, seconds=20, what="the slow runs to begin")
        return pids[pid], worker

    def held_by(self, worker: uuid.UUID) -> list[uuid.UUID]:
        """Return the slow runs that a worker holds."""
        rows = self.conn.execute(
            "SELECT l.run_id FROM chrono_lease l JOIN chrono_job j ON j.id = l.job_id"
            " WHERE l.worker = %s AND j.key LIKE %s",
            [worker, f"{self.prefix}slow-%"],
        ).fetchall()
        return [run for (run,) in rows]

    def started_again(self, runs: list[uuid.UUID], worker: uuid.UUID) -> list[float]:
        """Return when others than this worker began these runs."""
        rows = self.conn.execute(
            """
            SELECT extract(epoch FROM min(started_at))::float8 FROM (
                SELECT run_id, started_at, worker FROM chrono_lease
                UNION ALL SELECT id, started_at, worker FROM chrono_run
            ) r WHERE run_id = ANY(%s) AND worker <> %s GROUP BY run_id
            """,
            [runs, worker],
        ).fetchall()
        return [at for (at,) in rows]

    def wait_again(
        self, runs: list[uuid.UUID], worker: uuid.UUID, *, since: float, bar: float
    ) -> float:
        """Wait until others began all of these runs; return after how many seconds."""
        wait_for(
            lambda: len(self.started_again(runs, worker)) == len(runs),
            seconds=bar + 30,
            what=f"{len(runs)} runs to be begun again",
            every=0.05,
        )
        took = max(self.started_again(runs, worker)) - since
        self.findings.require(took <= bar, f"they were begun again after {took:.1f} s")
        return took

    def is_marked_dead(self, worker: uuid.UUID) -> bool:
        """Return whether a worker was taken for dead."""
        rows = self.conn.execute(
            "SELECT dead FROM chrono_worker WHERE id = %s", [worker]
        ).fetchall()
        return rows == [(True,)]

    def dismiss(self, process: Process) -> None:
        """Have another worker in place of one that has ended."""
        self.workers.remove(process)
        self.workers.append(self.hire())
        self.wait_workers_alive()

    def wait_up(self) -> None:
        """Wait until the server has been up for as long as sessions need to be back."""
        up = "SELECT now() - pg_postmaster_start_time() > %s * interval '1 ms'"
        wait_for(
            lambda: self.conn.execute(up, [SESSIONS_BACK_AFTER]).fetchone() == (True,),
            seconds=SESSIONS_BACK_AFTER / 1000 + 5,
            what="the server to have been up for a while",
            every=0.1,
        )

    def wait_forked(self, count: int) -> None:
        """Wait until so many processes of workers beat."""
        wait_for(
            lambda: tables.count_workers(self.conn) == count,
            seconds=60,
            what=f"{count} worker processes",
        )

    def wait_workers_alive(self) -> None:
        """Wait until all workers of this field beat."""
        pids = {process.pid for process in self.workers}

        def there() -> bool:
            rows = self.conn.execute(
                "SELECT pid FROM chrono_worker WHERE NOT dead AND stopped_at IS NULL"
            ).fetchall()
            return pids <= {pid for (pid,) in rows}

        wait_for(there, seconds=20, what="the workers")


def with_slow(seconds: float, prefix: str, *, once: bool = False) -> Load:
    """Return the everyday load and runs that take a while, begun at one time."""
    load = everyday(prefix)
    begin = time.time() + SLOW_AFTER_S
    slow = as_load(
        {"key": f"{prefix}slow-{number:02}", "run_at": iso(begin)}
        for number in range(SLOW)
    )
    for key, job in slow.items():
        job["target"] = {"kind": "task", "name": "rig.finish"}
        job["payload"] = {"job": key, "seconds": seconds}
        job["retry_policy"] = {"max_attempts": 1} if once else {}
    return load | slow


def some_slow(prefix: str) -> Load:
    """Return runs of twelve seconds besides the everyday load."""
    return with_slow(SLOW_S, prefix)


def some_for_once(prefix: str) -> Load:
    """Return the same with one attempt each: the death of a process takes none."""
    return with_slow(SLOW_S, prefix, once=True)


def some_long(prefix: str) -> Load:
    """Return runs that outlast a drain besides the everyday load."""
    return with_slow(LONG_S, prefix)


def kill(field: Field) -> str:
    """F6: SIGKILL a worker in the middle of its runs."""
    assert isinstance(field, WorkerField)
    process, worker = field.busiest()
    field.wait_a_moment()
    runs = field.held_by(worker)
    at = process.send(signal.SIGKILL)
    took = field.wait_again(runs, worker, since=at, bar=KILLED_S)
    process.wait(5)
    field.dismiss(process)
    return f"{len(runs)} runs began again within {took:.1f} s"


def stop(field: Field) -> str:
    """F7: SIGSTOP a worker for longer than its lease."""
    assert isinstance(field, WorkerField)
    process, worker = field.busiest()
    field.wait_a_moment()
    runs = field.held_by(worker)
    said = len(process.said())
    at = process.send(signal.SIGSTOP)
    took = field.wait_again(runs, worker, since=at, bar=EXPIRED_S)
    sleep_until(at + STOPPED_S)
    again = process.send(signal.SIGCONT)
    wait_for(
        lambda: "lost its leases" in process.said()[said:],
        seconds=TOLD_S,
        what="the worker to hear that it lost its leases",
    )
    told = time.time() - again
    field.wait_workers_alive()
    [(stale,)] = field.conn.execute(
        """
        SELECT count(*) FROM (
            SELECT worker, finished_at FROM chrono_run
            UNION ALL SELECT worker, finished_at FROM chrono_attempt WHERE reason <> %s
        ) r WHERE worker = %s AND finished_at > to_timestamp(%s)
        """,
        [Reason.WORKER_LOST, worker, again],
    ).fetchall()
    field.findings.require(stale == 0, f"{stale} stale writes")
    return (
        f"{len(runs)} runs began again within {took:.1f} s, {stale} stale writes, "
        f"told after {told:.1f} s"
    )


def roll(field: Field) -> str:
    """F8: replace one worker after the other by SIGTERM."""
    assert isinstance(field, WorkerField)
    field.busiest()
    slowest = 0.0
    for process in list(field.workers):
        field.workers.remove(process)
        field.workers.append(field.hire())
        field.wait_workers_alive()
        begun = process.send(signal.SIGTERM)
        code = process.wait(60)
        slowest = max(slowest, time.time() - begun)
        field.findings.require(code == 0, f"{process.name} ended with {code}")
    field.findings.require(
        slowest <= DRAINED_S, f"a worker took {slowest:.1f} s to end"
    )
    [(charged,)] = field.conn.execute(
        """
        SELECT count(*) FROM (
            SELECT run_id, attempt FROM chrono_lease UNION ALL
            SELECT id, attempt FROM chrono_run UNION ALL
            SELECT ref, attempt FROM chrono_timer WHERE kind = 4
        ) r WHERE attempt > 1 AND run_id IN (
            SELECT o.run_id FROM chrono_occurrence o JOIN chrono_job j
            ON j.id = o.job_id WHERE j.key LIKE %s)
        """,
        [f"{field.prefix}%"],
    ).fetchall()
    field.findings.require(charged == 0, f"{charged} runs were charged an attempt")
    # Those that were handed back begin anew, and outlast the quiet.
    wait_for(
        lambda: (
            not field.conn.execute(
                "SELECT FROM chrono_lease l JOIN chrono_job j ON j.id = l.job_id"
                " WHERE j.key LIKE %s LIMIT 1",
                [f"{field.prefix}slow-%"],
            ).fetchall()
        ),
        seconds=90,
        what="the slow runs to end",
        every=0.2,
    )
    return f"two workers ended within {slowest:.1f} s, {charged} runs charged"


def starve(field: Field) -> str:
    """F9: a run whose process is killed for want of memory, each time it is begun."""
    assert isinstance(field, WorkerField)
    old = list(field.workers)
    field.workers = [field.hire(processes=2)]
    field.stack.stop(*old)
    field.wait_forked(2)
    key = f"poison-{field.prefix}"
    target = {"kind": "task", "name": "rig.die"}
    poison = {
        "key": key,
        "run_at": iso(time.time() + 2),
        "target": target,
        "payload": {"job": key, "seconds": 0.5},
    }
    field.stack.apply([poison])
    begun = time.time()
    wait_for(
        lambda: field.conn.execute(
            "SELECT FROM chrono_dead_letter d JOIN chrono_job j ON j.id = d.job_id"
            " WHERE j.key = %s",
            [key],
        ).fetchall(),
        seconds=BURIED_S,
        what="the run that kills its process to be dead",
        every=0.1,
    )
    took = time.time() - begun
    [(reason, state)] = field.conn.execute(
        "SELECT reason, state FROM chrono_run WHERE job_id = ("
        "SELECT id FROM chrono_job WHERE key = %s)",
        [key],
    ).fetchall()
    deaths = len((field.stack.folder / "deaths.txt").read_text().splitlines())
    [(others,)] = field.conn.execute(
        "SELECT count(*) FROM chrono_dead_letter d JOIN chrono_job j ON j.id = d.job_id"
        " WHERE j.key LIKE %s",
        [f"{field.prefix}%"],
    ).fetchall()
    findings = field.findings
    findings.require(
        (state, reason) == (RunState.DEAD, Reason.PROCESS_CRASH),
        f"it ended in state {state} for {reason}",
    )
    findings.require(deaths == DEATHS, f"it killed {deaths} processes")
    findings.require(others == 0, f"{others} others are dead letters")
    field.wait_forked(2)
    return f"dead by {deaths} deaths in {took:.0f} s, {others} others harmed"


def crowd_out(field: Field) -> str:
    """F26: nobody gets a connection any more, and beats lose theirs."""
    assert isinstance(field, WorkerField)
    alive = field.conn.execute("SELECT id FROM chrono_worker WHERE NOT dead").fetchall()
    observer = field.conn
    with hogging(field.stack.url) as hogs:
        wait_for(lambda: hogs.full.is_set(), seconds=20, what="the server to be full")
        observer.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'chrono worker beat'"
        )
        time.sleep(CROWDED_S)
    time.sleep(BACK_S)
    dead = observer.execute(
        "SELECT count(*) FROM chrono_worker WHERE id = ANY(%s) AND dead",
        [[worker for (worker,) in alive]],
    ).fetchall()
    field.findings.require(dead == [(0,)], f"{dead[0][0]} workers were taken for dead")
    return (
        f"{hogs.most} connections held for {CROWDED_S:g} s, {dead[0][0]} taken for dead"
    )


class Hogs:
    """Takes every connection that there is, and each that becomes free."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._over = threading.Event()
        self.full = threading.Event()
        self.most = 0
        self._held: list[psycopg.Connection[tuple[object, ...]]] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._held.append(psycopg.connect(self._url, connect_timeout=2))
                self.most = max(self.most, len(self._held))
            except psycopg.OperationalError:
                self.full.set()
                self._over.wait(0.01)

    def end(self) -> None:
        """Let go of all."""
        self._over.set()
        self._thread.join()
        for conn in self._held:
            conn.close()


@contextmanager
def hogging(url: str) -> Iterator[Hogs]:
    """Have a server whose connections are all taken."""
    hogs = Hogs(url)
    try:
        yield hogs
    finally:
        hogs.end()


FAULTS = [
    Fault(
        name="F6",
        title="a worker gets SIGKILL in the middle of its runs",
        bar=f"{KILLED_S:g} s",
        strike=kill,
        load=some_for_once,
    ),
    Fault(
        name="F7",
        title=f"a worker is stopped for {STOPPED_S:g} s",
        bar=f"{EXPIRED_S:g} s, no stale write",
        strike=stop,
        load=some_slow,
    ),
    Fault(
        name="F8",
        title="workers are replaced by SIGTERM",
        bar=f"{DRAINED_S:g} s, exit 0, none charged",
        strike=roll,
        load=some_long,
    ),
    Fault(
        name="F9",
        title="a run whose processes are killed for want of memory",
        bar=f"dead by {DEATHS} deaths, no other harmed",
        strike=starve,
    ),
    Fault(
        name="F26",
        title="no connection is to be had",
        bar="none taken for dead",
        strike=crowd_out,
    ),
]
