"""Locks that somebody holds on the tables of leaders: a row, a table, a rewrite."""

import signal
import time
from collections.abc import Callable

import psycopg

from tests.rigs import tables
from tests.rigs.faults.fault import Fault
from tests.rigs.faults.field import Field
from tests.rigs.ledger import to_millis
from tests.rigs.squad import Case
from tests.rigs.stack import Process, sleep_until
from tests.rigs.tables import Decision

FORGETFUL = "forgetful"
"""What the session calls itself that holds a lock and does nothing."""
ROW_S, LED_S, TABLE_S = 60.0, 15.0, 20.0
ON_TIME_S = 1.0
NAMED_S = 5.0
WORST_S = 10.0
REWRITTEN = ("run", "occurrence", "ready", "timer", "partition")


def lock(field: Field) -> str:
    """F27: hold a partition's row for 60 s and the history for 20 s; rewrite tables."""
    figures = [hold_row(field), hold_table(field), rewrite(field)]
    return "; ".join(figures)


def hold_row(field: Field) -> str:
    """Hold the row of a partition that is led, and kill its leader in the middle."""
    # What is not fired within a minute is missed.
    field.skips.add(tables.COLLAPSED)
    case = field.case("hold", field.pick())
    held = field.chance.choice(case.old)
    others = [led for led in case.old if led.part != held.part]
    with psycopg.connect(field.stack.url, application_name=FORGETFUL) as holder:
        holder.execute(
            "UPDATE chrono_partition SET owner = owner WHERE id = %s", [held.part]
        )
        begun = time.time()
        pid = holder.info.backend_pid
        sleep_until(begun + LED_S)
        field.findings.require(
            case.process.alive, "its leader ended while a row was held"
        )
        case.old = others
        case.at = case.process.send(signal.SIGKILL)
        field.recover(case)
        field.note_end(case.process)
        field.schedulers.remove(case.process)
        left = list(field.schedulers)
        field.schedulers.append(field.stack.scheduler(case.process.name + "'"))
        sleep_until(begun + ROW_S)
        decisions = tables.read_decisions(field.conn, field.prefix)
        holder.rollback()
        freed = Case(name="free", process=case.process, old=[held], at=time.time())
    field.recover(freed)
    field.wait_even()
    parts = {led.part for led in others}
    led_late = late(decisions, begun, case.at - 1, lambda d: d.part in parts)
    left_late = late(
        decisions, case.at + WORST_S, begun + ROW_S - 1, lambda d: d.part != held.part
    )
    who = f"pid {pid} ({FORGETFUL})"
    alarm = said_at([*left, case.process], who) - begun
    named = said_at(left, f"partition {held.part} waits for a leader: held by {who}")
    named -= case.at
    for what, seconds, worst in (
        ("its leader fired the others late", led_late, ON_TIME_S),
        ("those left fired the others late", left_late, ON_TIME_S),
        ("the others were fired after the kill", case.seconds, WORST_S),
        ("it was fired after its release", freed.seconds, WORST_S),
        ("who keeps sessions waiting was named", alarm, NAMED_S),
        ("who holds the partition was named", named, NAMED_S),
    ):
        field.findings.require(seconds < worst, f"{what}: {seconds:.2f} s")
    return (
        f"a row held 60 s: the others late {led_late:.2f} s under its leader, fired "
        f"{case.seconds:.2f} s after a kill, then late {left_late:.2f} s; itself fired "
        f"{freed.seconds:.2f} s after the release; holder named after {alarm:.1f} s, "
        f"and {named:.1f} s after the kill"
    )


def hold_table(field: Field) -> str:
    """Lock the whole history for 20 s."""
    before = {process.pid for process in field.schedulers}
    with (
        field.supervised(),
        psycopg.connect(field.stack.url, application_name=FORGETFUL) as holder,
    ):
        holder.execute("LOCK TABLE chrono_run IN ACCESS EXCLUSIVE MODE")
        begun = time.time()
        pid = holder.info.backend_pid
        said_by = list(field.schedulers)
        sleep_until(begun + TABLE_S)
        holder.rollback()
        fires = field.wait_fired(time.time())
    field.wait_even()
    alarm = said_at(said_by, f"pid {pid} ({FORGETFUL})") - begun
    field.findings.require(alarm < NAMED_S, f"the holder was named after {alarm:.1f} s")
    field.findings.require(fires < WORST_S, f"fired after {fires:.2f} s")
    lost = len(before - {process.pid for process in field.schedulers})
    field.findings.require(not lost, f"{lost} leaders ended while a table was locked")
    return (
        f"the history held 20 s: fired everywhere {fires:.2f} s after the release, "
        f"{lost} leaders ended, holder named after {alarm:.1f} s"
    )


def rewrite(field: Field) -> str:
    """Rewrite tables, each of which is locked meanwhile."""
    begun = time.time()
    for table in REWRITTEN:
        field.conn.execute(f"VACUUM FULL chrono_{table}")
    took = time.time() - begun
    fires = field.wait_fired(time.time())
    field.findings.require(fires < WORST_S, f"fired {fires:.2f} s after VACUUM FULL")
    return f"VACUUM FULL of {len(REWRITTEN)} tables took {took:.2f} s"


def late(
    decisions: list[Decision],
    since: float,
    until: float,
    which: Callable[[Decision], bool],
) -> float:
    """Return by how many seconds the latest of these was decided, due in that time."""
    return max(
        (
            decision.decided_at - decision.scheduled_for / 1000
            for decision in decisions
            if since <= decision.scheduled_for / 1000 < until and which(decision)
        ),
        default=0.0,
    )


def said_at(processes: list[Process], words: str) -> float:
    """Return when one of these first logged such words; infinity where none did."""
    return min(
        (
            to_millis(line.split()[0]) / 1000
            for process in processes
            for line in process.said().splitlines()
            if words in line
        ),
        default=float("inf"),
    )


FAULTS = [
    Fault(
        name="F27",
        title="somebody holds locks",
        bar="others 1 s, 10 s after the release, named within 5 s",
        strike=lock,
    ),
]
