"""Leaders killed, stopped, told to go, deposed; at rest and in the middle of things."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.rigs import tables, takeovers
from tests.rigs.faults.fault import Fault
from tests.rigs.faults.field import Field, Load, as_load, every_second
from tests.rigs.ledger import to_millis
from tests.rigs.oracle import iso
from tests.rigs.squad import FIRE, Case
from tests.rigs.stack import Process, RigError, sleep_until, wait_for
from tests.support.network import Network

WORST_S = 10.0
PLANNED_S = 2.0
EXIT_S = 10.0
STOPPED_S = 12.0
SHORT_STOP_S = 2.5
"""Less than the four seconds after which the server ends a silent leader's session."""
TRIES = 8
UPKEEP = "chrono upkeep"
CROWDED, ROOM = 1_200, 8_000
FLAPPING_S, FLAPPED_EVERY_S = 120.0, 3.0
HERD, HERD_AFTER_S, FEW = 10_000, 20, 60
TRAMPLED_AFTER_S = 0.2

# A fire of that term sleeps in its middle.
DAWDLE = """
    CREATE FUNCTION rig_dawdle() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_sleep(30);
        RETURN NEW;
    END $$;
    CREATE TRIGGER rig_dawdle BEFORE INSERT ON chrono_occurrence FOR EACH ROW
        WHEN (NEW.part = {part} AND NEW.fence = {fence}) EXECUTE FUNCTION rig_dawdle();
"""
# Retries that are gone long before they come due.
CROWD = """
    INSERT INTO chrono_timer (due_at, scheduled_for, ref, job_id, version, revision,
        part, kind, attempt)
    SELECT date_trunc('second', now()) + interval '50 s', date_trunc('second', now()),
        overlay(gen_random_uuid()::text PLACING '0' FROM 36)::uuid, j.id, 0, j.revision,
        j.part, 4, 99
    FROM generate_series(1, %(count)s), (
        SELECT DISTINCT ON (part) id, revision, part FROM chrono_job
        WHERE deleted_at IS NULL
    ) j
"""
DISPERSE = "DELETE FROM chrono_timer WHERE kind = 4 AND attempt = 99"


def kill(field: Field) -> str:
    """F1: SIGKILL a leader at any part of a second."""
    case = field.case("kill", field.pick())
    field.wait_a_moment()
    case.at = case.process.send(signal.SIGKILL)
    field.recover(case)
    judge(field, case)
    field.note_end(case.process)
    field.replace(case.process)
    return figure(case)


def stop(field: Field) -> str:
    """F2: SIGSTOP a leader for 12 s at any part of a second."""
    case = field.case("stop", field.pick())
    field.wait_a_moment()
    case.at = case.process.send(signal.SIGSTOP)
    come_back(field, case)
    return figure(case)


def term(field: Field) -> str:
    """F5: SIGTERM a leader."""
    case = field.case("term", field.pick())
    field.wait_a_moment()
    case.at = case.process.send(signal.SIGTERM)
    code = case.process.wait(EXIT_S)
    gone = time.time() - case.at
    field.recover(case)
    judge(field, case, PLANNED_S)
    field.findings.require(code == 0, f"it ended with {code}")
    field.replace(case.process)
    return f"{figure(case)}; exit {code} after {gone:.2f} s"


def depose(field: Field) -> str:
    """F2b: begin terms in nobody's name under a leader that keeps all its sessions.

    Once while it is well, and once while it is stopped for less time than the server
    takes to end a session. What refuses its batches then is the fence alone.
    """
    well = field.case("deposed", field.pick())
    with field.holding(well.old) as holder:
        well.old = takeovers.raise_fences(holder, well.old)
        well.sends = field.wait_until_blocked(well.process)
        well.at = time.time()
    field.recover(well)
    field.wait_even()
    stopped = field.case("deposed while stopped", field.pick())
    before = {session.pid for session in field.sessions(stopped.process)}
    field.wait_for_quiet()
    with field.holding(stopped.old) as holder:
        stopped.sends = field.wait_until_blocked(stopped.process)
        stopped.at = stopped.process.send(signal.SIGSTOP)
        stopped.old = takeovers.raise_fences(holder, stopped.old)
    sleep_until(stopped.at + SHORT_STOP_S)
    stopped.process.send(signal.SIGCONT)
    field.recover(stopped)
    after = {session.pid for session in field.sessions(stopped.process)}
    field.findings.require(before <= after, "one of its sessions was ended meanwhile")
    for case in (well, stopped):
        case.count_refused()
        field.findings.require(
            case.sends and case.refused > 0,
            f"{case.name}: no batch was on the way, or none was refused",
        )
    return (
        f"{well.refused} partitions refused its batches, led anew {well.seconds:.2f} s "
        f"later; {stopped.refused} after a stop, led anew {stopped.seconds:.2f} s later"
    )


def stop_in_the_middle(field: Field) -> str:
    """F3: stop a leader inside a transaction, a statement, and a long answer."""
    figures = []
    for what, halt in (
        ("a transaction", halt_in_transaction),
        ("a statement", halt_in_statement),
        ("a long answer", halt_in_answer),
    ):
        with halt(field) as case:
            come_back(field, case)
        figures.append(f"in {what} {case.seconds:.2f} s")
        field.wait_a_moment()
    return ", ".join(figures)


@contextmanager
def halt_in_transaction(field: Field) -> Iterator[Case]:
    """Stop the keeper while it has a slice of the ready rows for itself.

    The only transactions of several statements are the keeper's. It waits for a slice
    that is held here; stopped, it is given the slice and cannot go on.
    """
    slices = ", ".join(f"chrono_ready_{number}" for number in range(8))
    for _ in range(TRIES):
        case = field.case("stop in a transaction", field.leader_of(0))
        with psycopg.connect(field.stack.url) as holder:
            holder.execute(f"LOCK TABLE {slices} IN ACCESS SHARE MODE")
            wait_to_find(field, case.process, UPKEEP, seconds=30, waits_by="Lock")
            case.at = case.process.send(signal.SIGSTOP)
        if find(field, case.process, UPKEEP, state="idle in transaction"):
            yield case
            return
        case.process.send(signal.SIGCONT)
        field.wait_even()
    raise RigError("the keeper was never stopped inside a transaction")


@contextmanager
def halt_in_statement(field: Field) -> Iterator[Case]:
    """Stop a leader whose fire does not end: a trigger makes it sleep."""
    case = field.case("stop in a statement", field.pick())
    led = field.chance.choice(case.old)
    field.conn.execute(DAWDLE.format(part=led.part, fence=led.fence))
    try:
        wait_to_find(field, case.process, FIRE, waits_for="PgSleep")
        case.at = case.process.send(signal.SIGSTOP)
        yield case
    finally:
        field.conn.execute("DROP FUNCTION rig_dawdle() CASCADE")


@contextmanager
def halt_in_answer(field: Field) -> Iterator[Case]:
    """Stop a leader that reads more timers than its network takes in."""
    with Network(field.stack.url) as network:
        process = field.swap(field.pick(), env={"DATABASE_URL": network.url})
        # It begins anew, and reads what is to come, whichever partitions it gets.
        field.conn.execute(CROWD, {"count": CROWDED})
        network.choke(FIRE, room=ROOM)
        wait_for(
            lambda: tables.count_sessions(field.conn, FIRE, "ClientWrite"),
            seconds=10,
            what="an answer that gets stuck",
        )
        case = field.case("stop in a long answer", process)
        case.at = process.send(signal.SIGSTOP)
        field.conn.execute(DISPERSE)
        yield case
        network.release()
        field.swap(process)


def wait_to_find(
    field: Field, process: Process, name: str, *, seconds: float = 10, **how: str
) -> None:
    """Wait until the process has a session of this name in such a state."""
    wait_for(
        lambda: find(field, process, name, **how),
        seconds=seconds,
        what=f"a session {name} with {how}",
        every=0.001,
    )


def find(field: Field, process: Process, name: str, says: str = "", **how: str) -> bool:
    """Return whether the process has a session of this name in such a state."""
    return any(
        session.name == name
        and (not says or (says in session.statement and session.state == "active"))
        and all(getattr(session, key) == value for key, value in how.items())
        for session in field.sessions(process)
    )


def flap(field: Field) -> str:
    """F32: kill a leader every three seconds for two minutes."""
    begun = time.time()
    kills = 0
    while (now := time.time()) < begun + FLAPPING_S:
        victim = field.pick()
        victim.send(signal.SIGKILL)
        kills += 1
        field.note_end(victim)
        field.schedulers.remove(victim)
        field.schedulers.append(field.stack.scheduler(f"flapping-{kills}"))
        sleep_until(now + FLAPPED_EVERY_S)
    field.wait_even()
    taken = takeovers.read_taken(field.conn, begun)
    return f"{kills} kills, {len(taken)} takeovers, {len(taken) / kills:.0f} a kill"


def trample(field: Field) -> str:
    """F33: a leader is killed while thousands of jobs come due in one second."""
    moment = max(
        to_millis(job["run_at"]) for job in field.jobs.values() if "run_at" in job
    )
    due = moment / 1000 - 1
    if time.time() > due - 1:
        raise RigError("the jobs were made too late")
    process = field.pick()
    sleep_until(due + TRAMPLED_AFTER_S)
    process.send(signal.SIGKILL)
    field.note_end(process)
    fired = wait_for(
        lambda: all_of(tables.read_fired(field.conn, f"{field.prefix}herd"), HERD),
        seconds=60,
        what="the herd to be fired",
        every=0.25,
    )
    field.replace(process)
    return f"all fired within {fired[-1] - due:.2f} s, the kill after 0.2 s"


def all_of(moments: list[float], count: int) -> list[float] | None:
    """Return the moments once there are so many."""
    return moments if len(moments) >= count else None


def herd(prefix: str) -> Load:
    """Return jobs that come due in one second: half at instants all over it, the others
    at its beginning, with jitter."""
    due = int(time.time()) + HERD_AFTER_S
    jobs = [
        {"key": f"{prefix}herd-once-{n:05}", "run_at": iso(due + n * 2 / HERD)}
        for n in range(HERD // 2)
    ]
    jobs += [
        {
            "key": f"{prefix}herd-jitter-{n:05}",
            "interval": "60m",
            "starts_at": iso(due),
            "jitter_window": "1s",
        }
        for n in range(HERD // 2)
    ]
    return every_second(prefix, FEW) | as_load(jobs)


def judge(field: Field, case: Case, worst: float = WORST_S) -> None:
    """Note a successor that came too late, or under no higher fence."""
    field.findings.require(
        case.seconds < worst,
        f"a successor fired after {case.seconds:.2f} s, not within {worst:g} s",
    )
    fences = {led.part: led.fence for led in takeovers.read_led(field.conn)}
    for led in case.old:
        field.findings.require(
            fences[led.part] > led.fence, f"partition {led.part} has its old fence"
        )


def figure(case: Case) -> str:
    """Return how long it took until each partition was fired by a successor."""
    took = f"{case.first:.2f} to {case.seconds:.2f} s"
    return f"{len(case.old)} partitions fired after {took}"


def come_back(field: Field, case: Case) -> None:
    """Wait for the successors of one that is stopped, and continue it after 12 s."""
    field.recover(case)
    judge(field, case)
    sleep_until(case.at + STOPPED_S)
    case.process.send(signal.SIGCONT)
    field.wait_even()


FAULTS = [
    Fault(
        name="F1",
        title="a leader gets SIGKILL",
        bar="10 s",
        strike=kill,
    ),
    Fault(
        name="F2",
        title="a leader is stopped for 12 s",
        bar="10 s, no stale row",
        strike=stop,
    ),
    Fault(
        name="F2b",
        title="a leader is deposed and keeps its sessions",
        bar="no stale row",
        strike=depose,
    ),
    Fault(
        name="F3",
        title="a leader is stopped in the middle of things",
        bar="10 s each",
        strike=stop_in_the_middle,
    ),
    Fault(
        name="F5",
        title="a leader gets SIGTERM",
        bar="2 s, exit 0 within 10 s",
        strike=term,
        latest_s=1.0,
    ),
    Fault(
        name="F32",
        title="a leader is killed every 3 s for 2 min",
        bar="none unled for 10 s",
        strike=flap,
        latest_s=10.0,
    ),
    Fault(
        name="F33",
        title=f"a leader is killed while {HERD} jobs come due in a second",
        bar="none lost, none doubled",
        strike=trample,
        load=herd,
    ),
]
