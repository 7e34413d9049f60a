"""A long outage: much is missed, and what is due afterwards has its second."""

import signal
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from tests.rigs import tables, takeovers
from tests.rigs.check import percentile
from tests.rigs.faults.clocks import SERVER_CLOCK, move
from tests.rigs.faults.fault import Fault
from tests.rigs.faults.field import Field, Load, as_load, every_second
from tests.rigs.faults.leaders import judge
from tests.rigs.ledger import Millis, to_millis
from tests.rigs.oracle import Era, instants, iso
from tests.rigs.squad import Case
from tests.rigs.stack import PARTITIONS, wait_for
from tests.rigs.tables import Decision

OUTAGE_S = 7_200
SECONDS, LIVE, EACH = 12, 60, 10
LEFT_OUT, WANTED = 10_000, 400
"""Jobs for once that are left out, and others that run late."""
RUN_ALL = 6
"""Jobs that run all that they missed, of each of which four a second are let in."""
BEFORE_S, AFTER_S = 300.0, 90.0
"""No job for once is due so soon after the outage began, or before it ended."""
LATE: Millis = 60_000
"""What is late by no more than this fires as usual."""
BEARABLE: Millis = 600_000
SINCE_S = 1
"""The last minute began so long before the return: it is merely late, and for nearly a
minute nothing passes from one side of a policy's border to the other."""
KILLED_AT = 2 / 3
"""The share of what is overdue that is still undecided when a leader is killed."""
RATE, WINDOW_S = 50.0, 10.0
"""Missed runs that are let in each second, and over how long they are counted."""
LIVE_MS = 1_000.0
DECIDED_S, SLACK_S = 40.0, 20.0
LEAD_S, CAUGHT_UP_S = 30.0, 90.0

LIVE_JOB, FOR_ONCE = "live-", "once-"
RAN_LATE = -1
"""Stands among reasons for runs that catch-up made."""


def stay_away(field: Field) -> str:
    """F30: everything is down for two hours; a leader is killed in the catch-up."""
    field.skips |= {tables.COLLAPSED, tables.MISSED_SKIP, tables.PAST_DEADLINE}
    back = to_millis(field.jobs[f"{field.prefix}{LIVE_JOB}00"]["starts_at"]) / 1000
    go_down(field)
    ahead = back - time.time()
    move(field, ahead)
    overdue = count_overdue(field, back)
    field.since = back
    led = come_up(field) + ahead
    case, left = kill_in_the_middle(field, back, overdue)
    wait_for(
        lambda: not count_overdue(field, back) and not tables.count_gated(field.conn),
        seconds=CAUGHT_UP_S,
        what="the end of the catch-up",
        every=0.5,
    )
    over = time.time() + ahead
    decisions = tables.read_decisions(field.conn, field.prefix)
    missed = compare(field, decisions, back)
    stretches = [(led, case.at + ahead - 1), (case.at + ahead + case.seconds, over - 1)]
    return (
        f"{missed.total()} occurrences missed, {missed[RAN_LATE]} of them run; "
        f"{judge_lane(field, decisions, led, over)}; {judge_live(field, stretches)}; "
        f"a leader killed with {left} of {overdue} timers overdue, fired everywhere "
        f"{case.seconds:.2f} s later"
    )


def go_down(field: Field) -> None:
    """End every process, the schedulers at once."""
    for process in field.schedulers:
        process.send(signal.SIGKILL)
        field.note_end(process)
    field.stack.drain()
    field.stack.stop(*field.workers)


def come_up(field: Field) -> float:
    """Start everybody again; return when every partition was led and served."""
    field.schedulers = [
        field.stack.scheduler(process.name + "'") for process in field.schedulers
    ]
    field.workers = [
        field.stack.worker(process.name + "'") for process in field.workers
    ]
    live = {process.pid for process in field.schedulers}

    def all_led() -> bool:
        led = [led.pid for led in takeovers.read_led(field.conn)]
        return len(led) == PARTITIONS and set(led) <= live

    wait_for(all_led, seconds=LEAD_S, what="leaders of all partitions")
    field.wait_workers()
    return time.time()


def kill_in_the_middle(field: Field, back: float, overdue: int) -> tuple[Case, int]:
    """Kill a leader while much is still undecided; return how much of it is.

    Its partitions count by the live jobs in them, all of which are to fire again.
    """
    field.with_jobs = takeovers.read_parts_with_jobs(
        field.conn, field.prefix + LIVE_JOB
    )
    wait_for(
        lambda: count_overdue(field, back) <= KILLED_AT * overdue,
        seconds=DECIDED_S,
        what="a part of what was missed to be decided",
        every=0.05,
    )
    case = field.case("a kill in the catch-up", field.pick())
    case.at = case.process.send(signal.SIGKILL)
    left = count_overdue(field, back)
    field.findings.require(left > 0, "the kill came after the catch-up")
    field.recover(case)
    judge(field, case)
    field.note_end(case.process)
    field.replace(case.process)
    return case, left


def count_overdue(field: Field, back: float) -> int:
    """Return how many timers are left of what was missed when all came back."""
    return tables.count_timers(field.conn, to_millis(iso(back)) - LATE)


# What is judged


def compare(field: Field, decisions: Sequence[Decision], back: float) -> Counter[int]:
    """Compare what became of missed occurrences with each job's policy; count it.

    Of jobs of every second the last minute of the outage depends on when they were
    decided. Where the leader was killed after that, what was late by just less than a
    minute is missed by the time of the next one: one run more.
    """
    until = to_millis(iso(back)) - LATE
    rows = tables.read_jobs(field.conn)
    found: defaultdict[str, Counter[int]] = defaultdict(Counter)
    before: defaultdict[str, set[Millis]] = defaultdict(set)
    for decision in decisions:
        if decision.decided_at < back:
            before[decision.job].add(decision.scheduled_for)
        elif decision.late or decision.reason is not None:
            what = RAN_LATE if decision.reason is None else decision.reason
            found[decision.job][what] += decision.occurrences
    total: Counter[int] = Counter()
    for key, job in field.jobs.items():
        era = Era(definition=job, after=rows[key].activated_at, until=until)
        missed = [at for at in instants(era) if at not in before[key]]
        wanted, seen = fate(job, missed, to_millis(iso(back))), found[key]
        if job.get("interval") == "1s":
            wanted[RAN_LATE] += seen[RAN_LATE] == 2
            more = seen[tables.COLLAPSED] - wanted[tables.COLLAPSED]
            wanted[tables.COLLAPSED] += min(max(more, 0), LATE // 1000)
        field.findings.require(
            +wanted == +seen,
            f"{key}: what it missed became {dict(seen)}, not {dict(+wanted)}",
        )
        total += seen
    return total


def fate(
    job: Mapping[str, object], missed: Sequence[Millis], back: Millis
) -> Counter[int]:
    """Return what a job's policy makes of what it missed, by reason."""
    count = len(missed)
    match job.get("catchup_policy", "run_once"):
        case "skip":
            return Counter({tables.MISSED_SKIP: count})
        case "run_all":
            return Counter({RAN_LATE: count})
        case "deadline":
            late = sum(back - at <= BEARABLE for at in missed)
            return Counter({RAN_LATE: late, tables.PAST_DEADLINE: count - late})
        case _:
            runs = min(count, 1)
            return Counter({RAN_LATE: runs, tables.COLLAPSED: count - runs})


def judge_lane(
    field: Field, decisions: Sequence[Decision], led: float, over: float
) -> str:
    """Return how fast what was missed was decided and let in; note what broke a bar."""
    late = {decision.run for decision in decisions if decision.late}
    decided = max(
        (d.decided_at for d in decisions if d.late or d.reason is not None),
        default=led,
    )
    let_in = sorted(
        run.dispatched_at
        for run in tables.read_runs(field.conn, field.prefix)
        if run.id in late
    )
    most = max(
        (sum(at <= other < at + WINDOW_S for other in let_in) for at in let_in),
        default=0,
    )
    took = over - led
    for what, figure, bar in (
        ("seconds until all was decided", decided - led, DECIDED_S),
        ("missed runs let in within 10 s", most, RATE * (WINDOW_S + 1)),
        ("seconds until all was let in", took, len(late) / RATE + SLACK_S),
    ):
        field.findings.require(figure <= bar, f"{figure:.1f} {what}")
    return (
        f"all decided {decided - led:.1f} s after all was led again and let in after "
        f"{took:.1f} s, at most {most} in {WINDOW_S:g} s"
    )


def judge_live(field: Field, stretches: Sequence[tuple[float, float]]) -> str:
    """Return how late live runs were started beside the catch-up.

    Of those due in these stretches of time: while nobody leads a partition, none is.
    """
    lags = sorted(
        run.started_at * 1000 - run.scheduled_for
        for run in tables.read_runs(field.conn, field.prefix + LIVE_JOB)
        if any(since <= run.scheduled_for / 1000 < until for since, until in stretches)
    )
    p99, most = percentile(lags, 0.99), percentile(lags, 1.0)
    field.findings.require(
        bool(lags) and p99 < LIVE_MS, f"p99 of {len(lags)} live runs is {p99:.0f} ms"
    )
    return f"{len(lags)} live runs started p99 {p99:.0f} ms late, most {most:.0f} ms"


# The load


def backlog(prefix: str) -> Load:
    """Return jobs that will miss two hours, by all policies, and jobs that come after.

    Very many are for once: each is a timer of its own that is overdue.
    """
    now = int(time.time())
    back = now + OUTAGE_S + SINCE_S
    first, last = now + BEFORE_S, back - AFTER_S
    policies = [
        ("skip", EACH, {"interval": "1m"}),
        ("run_once", EACH, {"interval": "1m"}),
        ("run_all", RUN_ALL, {"interval": "2m"}),
        ("deadline", EACH, {"interval": "1m", "max_delay": f"{BEARABLE // 1000}s"}),
    ]
    jobs = [
        {
            **how,
            "key": f"{prefix}{policy}-{number}",
            "starts_at": iso(now),
            "catchup_policy": policy,
        }
        for policy, count, how in policies
        for number in range(count)
    ]
    jobs += [
        {
            "key": f"{prefix}{FOR_ONCE}{policy}-{number:05}",
            "run_at": iso(first + number * (last - first) / count),
            "catchup_policy": policy,
        }
        for policy, count in (("skip", LEFT_OUT), ("run_once", WANTED))
        for number in range(count)
    ]
    jobs += [
        {
            "key": f"{prefix}{LIVE_JOB}{number:02}",
            "interval": "1s",
            "starts_at": iso(back + number / LIVE),
        }
        for number in range(LIVE)
    ]
    return every_second(prefix, SECONDS) | as_load(jobs)


FAULTS = [
    Fault(
        name="F30",
        title="everything is down for two hours",
        bar=f"live p99 1 s, {RATE:g} missed a second, each by its policy",
        strike=stay_away,
        load=backlog,
        prepare=SERVER_CLOCK,
    ),
]
