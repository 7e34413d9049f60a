"""Clocks that jump and drift: those of one machine, and the server's."""

import time

from tests.rigs import tables, takeovers
from tests.rigs.check import percentile
from tests.rigs.faults.fault import Fault
from tests.rigs.faults.field import SECOND, Field, as_load, every_second
from tests.rigs.faults.leaders import judge
from tests.rigs.oracle import iso
from tests.rigs.stack import sleep_until, wait_for
from tests.support import skewed

HOUR = 3_600.0
BACK, DRIFT = -3.0, 0.04
DRIFTED_S = 12.0
CALM_S = 3.0
GONE_S = 6.0
"""Within this a clock is probed, five seconds after the last time at most."""
P99_MS = 1_000.0
EARLIER_S, LATER_S = 22.0, 12.0
LATE_S = 60.0
"""What is late by less than this fires as usual."""
FEW, LONG, LONG_S = 10, 6, 30

# What the product asks for the time is answered from here, by `DEFAULT`s too: these
# names are found before the server's own.
SERVER_CLOCK = """
    CREATE SCHEMA rig;
    CREATE TABLE rig.shift (since timestamptz NOT NULL, by interval NOT NULL);
    CREATE FUNCTION rig.shift_at(timestamptz) RETURNS interval STABLE LANGUAGE sql AS
        'SELECT coalesce((SELECT by FROM rig.shift WHERE since <= $1
            ORDER BY since DESC LIMIT 1), ''0'')';
    CREATE FUNCTION rig.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql AS
        'SELECT m + rig.shift_at(m) FROM pg_catalog.clock_timestamp() AS m';
    CREATE FUNCTION rig.now() RETURNS timestamptz STABLE LANGUAGE sql AS
        'SELECT m + rig.shift_at(m) FROM pg_catalog.now() AS m';
    CREATE FUNCTION rig.pg_xact_commit_timestamp(xid) RETURNS timestamptz
        VOLATILE LANGUAGE sql AS
        'SELECT m + rig.shift_at(m) FROM pg_catalog.pg_xact_commit_timestamp($1) AS m';
    ALTER DATABASE chrono SET search_path = public, rig, pg_catalog;
"""


def skew(field: Field) -> str:
    """F22: move the clocks of one machine with a scheduler and a worker."""
    file = field.stack.folder / "clocks"
    worker_file = field.stack.folder / "worker-clocks"
    skewed.write(file)
    skewed.write(worker_file)
    by = ("-m", "tests.support.skewed")
    leader = field.swap(field.pick(), by=(*by, str(file)))
    worker = field.swap_worker(by=(*by, str(worker_file)))
    figures = []
    begun = time.time()
    skewed.write(file, wall=HOUR)
    time.sleep(CALM_S)
    taken = takeovers.read_taken(field.conn, begun)
    field.findings.require(not taken, "a wall clock made leaders change")
    for what, seconds in (("+1 h", HOUR), ("-3 s", HOUR + BACK)):
        case = field.case(what, leader)
        field.wait_a_moment()
        case.at = time.time()
        # What a task notes is the machine's time, so the worker's wall clock stays.
        skewed.write(file, wall=seconds, monotonic=seconds)
        skewed.write(worker_file, monotonic=seconds)
        field.recover(case)
        judge(field, case)
        field.wait_even()
        back = time.time() - case.at
        figures.append(
            f"{what} others fired after {case.seconds:.2f} s, back {back:.0f} s"
        )
    begun = time.time()
    moved = {"wall": HOUR + BACK, "monotonic": HOUR + BACK, "pace": DRIFT}
    skewed.write(file, **moved)
    skewed.write(worker_file, monotonic=HOUR + BACK, pace=DRIFT)
    time.sleep(DRIFTED_S)
    over = time.time()
    taken = takeovers.read_taken(field.conn, begun)
    late = sorted(
        d.decided_at * 1000 - d.scheduled_for
        for d in tables.read_decisions(field.conn, field.prefix)
        if begun <= d.scheduled_for / 1000 < over - 1
    )
    p99 = percentile(late, 0.99)
    field.findings.require(not taken, "a drift made leaders change")
    field.findings.require(p99 <= P99_MS, f"p99 is {p99:.0f} ms with a drift")
    field.findings.require(worker.alive and leader.alive, "a process has ended")
    said = leader.said().count("the clock jumped")
    field.findings.require(said == 2, f"the leader noticed {said} of 2 jumps")
    field.swap(leader)
    field.swap_worker(worker)
    return f"{', '.join(figures)}, drift p99 {p99:.0f} ms"


def jump(field: Field) -> str:
    """F23: move the server's clock back an hour, and forward again."""
    # The audit sorts commits by the server's clock, which goes back here.
    field.unaudited.add("fences")
    wait_for(lambda: tables.count_live(field.conn) == 0, seconds=10, what="no run")
    field.wait_for_quiet()
    move(field, -HOUR)
    back = time.time()
    # What comes due from here on belongs to the hour that is there again.
    field.since = back - HOUR
    now = int(back - HOUR) + 1
    fresh = every_second(f"{field.prefix}again-", FEW)
    for job in fresh.values():
        job["starts_at"] = iso(now)
    for number in range(LONG):
        key = f"{field.prefix}long-{number}"
        fresh |= as_load([{"key": key, "run_at": iso(now + 14 + number)}])
        fresh[key]["target"]["name"] = "rig.linger"
        fresh[key]["payload"]["seconds"] = LONG_S
    field.add(fresh)
    field.wait_first_fires(f"{field.prefix}again-{SECOND}")
    resumed = time.time() - back
    sleep_until(back + EARLIER_S)
    before = tables.count_workers(field.conn)
    move(field, 0.0)
    forward = time.time()
    field.since = forward
    field.with_jobs = takeovers.read_parts_with_jobs(field.conn, field.prefix + SECOND)
    caught_up = field.wait_fired(forward)
    time.sleep(LATER_S)
    missed = sum(
        decision.fired and back < decision.scheduled_for / 1000 < forward - LATE_S
        for decision in tables.read_decisions(field.conn, f"{field.prefix}again-")
    )
    field.findings.require(missed <= FEW, f"{missed} missed occurrences fired")
    field.findings.require(
        tables.count_workers(field.conn) == before, "a worker was taken for dead"
    )
    return (
        f"back: new jobs fired {resumed:.1f} s later; forward: all fired "
        f"{caught_up:.1f} s later, {missed} fires for the hour that {FEW} jobs missed"
    )


def move(field: Field, seconds: float) -> None:
    """Set the server's clock ahead by so much."""
    field.skips.add(tables.COLLAPSED)
    field.shifts.append((time.time(), seconds))
    field.conn.execute(
        "INSERT INTO rig.shift SELECT pg_catalog.clock_timestamp(), "
        "%s * interval '1 s'",
        [seconds],
    )


FAULTS = [
    Fault(
        name="F22",
        title="the clocks of one machine jump and drift",
        bar="others within 10 s, none early, p99 1 s",
        strike=skew,
    ),
    Fault(
        name="F23",
        title="the server's clock goes back an hour, and forward again",
        bar="none twice, no burst, no worker lost",
        strike=jump,
        prepare=SERVER_CLOCK,
    ),
]
