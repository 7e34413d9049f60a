"""Networks that are cut, slow, broken and deaf, and a pooler in the way."""

import re
import time
from collections.abc import Sequence
from contextlib import ExitStack

from tests.rigs import tables, takeovers
from tests.rigs.check import percentile
from tests.rigs.faults import crowded, pooler, veth
from tests.rigs.faults.fault import Fault
from tests.rigs.faults.field import Field, Load, as_load, every_second
from tests.rigs.faults.leaders import figure, judge
from tests.rigs.faults.servers import asking
from tests.rigs.oracle import iso
from tests.rigs.squad import FIRE, Case
from tests.rigs.stack import (
    NOTHING,
    Environment,
    Process,
    RigError,
    sleep_until,
    wait_for,
)
from tests.support.network import Network

LATE_S, SETTLED_LATE_S = 12.0, 45.0
TROUBLE_S = 10.0
DELAY_S = 0.2
RESET_SHARE = 0.05
MODEM = 56_000 / 8
FEW = 40
SINGLY, SINGLY_AFTER_S, SINGLY_EVERY_S = 6, 6.0, 1.7
SETTLED_S = 2.0
ASKED_S, REFUSED_S = 5.0, 20.0
SETTLE = "chrono worker settle"
FIRE_BYTES, SETTLE_BYTES, TRAPPED_S = 1_000, 300, 5.0
WORST_S = 10.0


def act_late(field: Field) -> str:
    """F4: what a leader decided and a worker settled arrives long after.

    The network keeps a leader's fire for 12 s and a worker's settle for 45 s, and
    delivers them when others have taken their place.
    """
    with Network(field.stack.url) as one, Network(field.stack.url) as other:
        leader = field.swap(field.pick(), env={"DATABASE_URL": one.url})
        worker = field.swap_worker(env={"DATABASE_URL": other.url})
        case = field.case("act late", leader)
        field.wait_for_quiet()
        one.trap(FIRE, FIRE_BYTES)
        other.trap(SETTLE, SETTLE_BYTES, later=False)
        if not (one.wait_trapped(TRAPPED_S) and other.wait_trapped(TRAPPED_S)):
            raise RigError("neither a fire nor a settle came by")
        case.at = time.time()
        field.recover(case)
        judge(field, case)
        sleep_until(case.at + LATE_S)
        fires = deliver(one, FIRE, FIRE_BYTES)
        field.note_end(leader)
        field.replace(leader)
        sleep_until(case.at + SETTLED_LATE_S)
        settles = deliver(other, SETTLE, SETTLE_BYTES)
        field.findings.require(
            worker.alive and "worker lost its leases" in worker.said(),
            "the worker ended, or kept its leases",
        )
        # It returns the runs that it settled.
        field.findings.require(settles == "SELECT 0", f"settled late: {settles}")
        field.swap_worker(worker)
    return (
        f"{figure(case)}; a fire answered {fires} and a settle answered {settles} "
        "when they came late"
    )


def deliver(network: Network, name: str, size: int) -> str:
    """Release what was held; return what the server said to the last that was sent."""
    [link] = [one for one in network.links(name) if one.to_server.held >= size]
    before = link.to_client.passed
    network.release()

    def answer() -> list[bytes]:
        fresh = link.to_client.passed - before
        return re.findall(
            rb"SELECT \d+|ERROR", link.to_client.last[-fresh:] if fresh else b""
        )

    said = wait_for(answer, seconds=20, what=f"an answer to what {name} sent late")
    return said[-1].decode()


def cut(field: Field) -> str:
    """F19: cut the network of a leader: between its statements, within one, half."""
    figures = []
    with Network(field.stack.url) as network:
        for what, sever in (
            ("at any moment", cut_off),
            ("in mid-statement", cut_in_statement),
            ("one way", cut_answers),
        ):
            leader = field.swap(field.pick(), env={"DATABASE_URL": network.url})
            case = field.case(f"cut {what}", leader)
            sever(field, network, case)
            field.recover(case)
            judge(field, case)
            figures.append(f"{what} {case.seconds:.2f} s")
            # Nothing but the watchdog frees a client that waits for an answer.
            field.note_end(leader)
            network.release()
            field.replace(leader)
    return ", ".join(figures) + "; " + cut_veth(field)


def cut_off(field: Field, network: Network, case: Case) -> None:
    """Stop everything, both ways, and close nothing."""
    field.wait_a_moment()
    case.at = time.time()
    network.hold()


def cut_in_statement(field: Field, network: Network, case: Case) -> None:
    """Stop everything while the server carries out a fire, whose answer is lost."""
    field.wait_for_quiet()
    with field.holding(case.old):
        wait_for(
            lambda: tables.count_blocked(field.conn, FIRE),
            seconds=5,
            what="a fire that is blocked",
            every=0.005,
        )
        case.at = time.time()
        network.hold()


def cut_answers(field: Field, network: Network, case: Case) -> None:
    """Let requests pass and no answers: to the server the leader is well."""
    field.wait_a_moment()
    case.at = time.time()
    network.hold(to_server=False)


def cut_veth(field: Field) -> str:
    """Cut a real link, so that the server's own timeouts have to notice."""
    if why := veth.lacks():
        print(f"F19 a real link: SKIPPED, {why}", flush=True)
        return "a real link SKIPPED"
    with veth.Link(field.stack) as link:
        leader = field.swap(field.pick(), before=link.inside, env=link.env)
        case = field.case("cut a real link", leader)
        field.wait_for_quiet()
        with field.holding(case.old):
            wait_for(
                lambda: tables.count_blocked(field.conn, FIRE),
                seconds=5,
                what="a fire that is blocked",
                every=0.005,
            )
            case.at = time.time()
            link.cut()
        field.recover(case)
        judge(field, case)
        field.note_end(leader)
        field.replace(leader)
    return f"a real link in mid-statement {case.seconds:.2f} s"


def slow(field: Field) -> str:
    """F20: delay, break and narrow the networks of all schedulers."""
    with ExitStack() as closing:
        networks = [
            closing.enter_context(Network(field.stack.url)) for _ in field.schedulers
        ]
        ways: list[Environment] = [{"DATABASE_URL": n.url} for n in networks]
        field.swap_all([*ways, *(NOTHING for _ in field.workers)])
        # What a leader has to read when it takes over is not to be measured here.
        field.wait_fired(time.time())
        figures = []
        for what, trouble in (
            ("200 ms more", delay),
            ("5 % reset a second", reset),
            ("56 kbit/s", narrow),
        ):
            begun = time.time()
            trouble(field, networks)
            over = time.time()
            taken = len(takeovers.read_taken(field.conn, begun))
            late = [
                d.decided_at * 1000 - d.scheduled_for
                for d in tables.read_decisions(field.conn, field.prefix)
                if begun + 1 <= d.scheduled_for / 1000 < over - 1
            ]
            p99 = percentile(sorted(late), 0.99)
            figures.append(f"{what}: p99 {p99:.0f} ms, {taken} takeovers")
            if trouble is delay:
                field.findings.require(taken == 0, f"{taken} takeovers at 200 ms")
                field.findings.require(
                    p99 < (1 + DELAY_S) * 1000, f"p99 is {p99:.0f} ms at 200 ms"
                )
            recovered = field.wait_fired(over)
            field.findings.require(
                recovered < WORST_S, f"{what}: fired {recovered:.1f} s later"
            )
        field.swap_all()
    return "; ".join(figures)


def delay(_: Field, networks: Sequence[Network]) -> None:
    """Have every answer come 200 ms later."""
    for network in networks:
        network.delay_s = DELAY_S / 2
    time.sleep(TROUBLE_S)
    for network in networks:
        network.delay_s = 0.0


def reset(field: Field, networks: Sequence[Network]) -> None:
    """Break off 5 % of all connections each second."""
    until = time.time() + TROUBLE_S
    while time.time() < until:
        time.sleep(1)
        for network in networks:
            network.reset(RESET_SHARE, field.chance)


def narrow(_: Field, networks: Sequence[Network]) -> None:
    """Carry 56 kbit/s for each scheduler."""
    for network in networks:
        network.bytes_a_second = MODEM
    time.sleep(TROUBLE_S)
    for network in networks:
        network.bytes_a_second = 0.0


def few(prefix: str) -> Load:
    """Return some jobs of every second: as many as a modem carries."""
    return every_second(prefix, FEW)


def deafen(field: Field) -> str:
    """F34: lose all notices; then fill the server's queue of them."""
    with ExitStack() as closing:
        count = len(field.schedulers) + len(field.workers)
        networks = [
            closing.enter_context(Network(field.stack.url)) for _ in range(count)
        ]
        field.swap_all([{"DATABASE_URL": network.url} for network in networks])
        for network in networks:
            make_deaf(network)
        lost = come_singly(field, "deaf")
        field.swap_all()
    if why := crowded.lacks():
        print(f"F34 a full queue of notices: SKIPPED, {why}", flush=True)
        return f"{lost}; a full queue SKIPPED"
    fences = takeovers.read_led(field.conn)
    with crowded.Queue(field.stack.url):
        full = come_singly(field, "full")
    field.findings.require(
        takeovers.read_led(field.conn) == fences, "leaders changed while it was full"
    )
    return f"notices lost: {lost}; queue full: {full}"


def make_deaf(network: Network) -> None:
    """Throw away what the process behind this network hears; wait until it listens."""
    wait_for(
        lambda: network.deafen("chrono ear") + network.deafen("listen"),
        seconds=20,
        what="a process that listens",
    )


def come_singly(field: Field, word: str) -> str:
    """Make one-shots that come one by one, so that nobody is awake for another's sake;
    return how late they were started at most."""
    first = time.time() + SINGLY_AFTER_S
    load = as_load(
        {
            "key": f"{field.prefix}{word}-{number:02}",
            "run_at": iso(first + number * SINGLY_EVERY_S + field.chance.random() / 4),
        }
        for number in range(SINGLY)
    )
    field.add(load)
    if time.time() > first - 1:
        raise RigError("the jobs were made too late")
    sleep_until(first + SINGLY * SINGLY_EVERY_S + SETTLED_S)
    lags = sorted(
        run.started_at * 1000 - run.scheduled_for
        for run in tables.read_runs(field.conn, f"{field.prefix}{word}")
    )
    field.findings.require(len(lags) == SINGLY, f"{len(lags)} of {SINGLY} ran")
    p50, most = percentile(lags, 0.5), percentile(lags, 1.0)
    return f"started {p50:.0f} ms late, {most:.0f} at most"


def nothing(_: str) -> Load:
    """Return no jobs: those of the fault come alone."""
    return {}


def pool(field: Field) -> str:
    """F21: a pooler in transaction mode where the address of the server is wanted."""
    with pooler.Pooler(field.stack) as pgbouncer:
        alone = {"DATABASE_URL": pgbouncer.url}
        refusals = [
            refuse(field, field.stack.scheduler("pooled scheduler", env=alone)),
            refuse(field, field.stack.worker("pooled worker", env=alone)),
        ]
        both = {**alone, "CHRONO_DIRECT_DATABASE_URL": field.stack.url}
        field.swap_all([both] * (len(field.schedulers) + len(field.workers)))
        with asking(field, env=both) as clients:
            time.sleep(ASKED_S)
            pgbouncer.restart()
            time.sleep(ASKED_S)
        field.swap_all()
    answered = sum(client.answered for client in clients.askers)
    return (
        f"refused within {max(refusals):.1f} s; {answered} requests acknowledged "
        f"through it, {clients.lost} lost over its restart"
    )


def refuse(field: Field, process: Process) -> float:
    """Wait for the end of a process that must refuse a pooler; return the seconds."""
    begun = time.time()
    code = process.wait(REFUSED_S)
    lines = process.said().strip().splitlines()
    field.findings.require(
        code != 0 and "CHRONO_DIRECT_DATABASE_URL" in lines[-1],
        f"{process.name} ended with {code} and said {lines}",
    )
    return time.time() - begun


FAULTS = [
    Fault(
        name="F4",
        title="what was decided arrives 12 s late, what was settled 45 s",
        bar="10 s, no stale row",
        strike=act_late,
    ),
    Fault(
        name="F19",
        title="the network of a leader is cut",
        bar="10 s each",
        strike=cut,
    ),
    Fault(
        name="F20",
        title="the networks of schedulers are bad",
        bar="no takeover and p99 1.2 s at 200 ms",
        strike=slow,
        load=few,
    ),
    Fault(
        name="F21",
        title="a pooler is in the way",
        bar="refused in one line, none lost",
        strike=pool,
        load=few,
        lacks=pooler.lacks,
    ),
    Fault(
        name="F34",
        title="notices are lost",
        bar="1 s",
        strike=deafen,
        load=nothing,
        slowest_s=1.1,
    ),
]
