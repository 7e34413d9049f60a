"""Servers that crash, restart, stand still, and what somebody locks on them."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from dataclasses import field as of

import psutil

from tests.rigs import tables
from tests.rigs.acks import (
    CREATE,
    TRIGGER,
    Operation,
    check_acks,
    read_events_there,
    read_jobs_there,
    read_log,
)
from tests.rigs.client import Client
from tests.rigs.faults.fault import Fault
from tests.rigs.faults.field import Field
from tests.rigs.squad import Case
from tests.rigs.stack import NOTHING, Environment, Stack, sleep_until
from tests.rigs.web_kill import GIVE_UP_S, Asker, definition
from tests.support.network import Network

WORST_S = 10.0
DOWN_S = 5.0
BEFORE_S = 2.0
ROUNDS, ROUND_S = 10, 6.0
MOST_CONNECTIONS = 2.0
PAUSED_S, HUNG_S, HUNG_EXIT = 15.0, 5.0, 75
FIRST_NUMBER, LAST_NUMBER = 100, 1_000_000


# Crashes


def crash(field: Field) -> str:
    """F12: SIGKILL every process of the server; start it again 5 s later."""
    with asking(field) as clients:
        time.sleep(BEFORE_S)
        field.wait_a_moment()
        case = everybody(field, "crash")
        field.stack.server.kill()
        time.sleep(DOWN_S)
        field.stack.server.start()
        case.at = time.time()
        field.reconnect()
        field.recover(case)
        field.wait_even()
        time.sleep(BEFORE_S)
    judge(field, case)
    answered = sum(client.answered for client in clients.askers)
    met = sum(client.broken + client.asked_again for client in clients.askers)
    field.findings.require(met > 0, "the crash met no client")
    return (
        f"fired everywhere {case.seconds:.2f} s after it was ready; "
        f"{answered} requests acknowledged, {clients.lost} lost"
    )


def stop_again_and_again(field: Field) -> str:
    """F13: ten immediate stops within a minute."""
    # On a busy machine nothing may fire between two of them, and then is a minute late.
    field.skips.add(tables.COLLAPSED)
    with ExitStack() as closing:
        count = len(field.schedulers) + len(field.workers)
        networks = [
            closing.enter_context(Network(field.stack.url)) for _ in range(count)
        ]
        field.swap_all([{"DATABASE_URL": network.url} for network in networks])
        begun, started = time.time(), time.monotonic()
        case = everybody(field, "stop")
        for number in range(ROUNDS):
            case.old = field.led_all()
            field.stack.server.stop(mode="immediate")
            field.stack.server.start()
            case.at = time.time()
            field.reconnect()
            sleep_until(begun + (number + 1) * ROUND_S)
        field.recover(case)
        judge(field, case)
        field.wait_even()
        minute = ROUNDS * ROUND_S
        asked = [
            [moment for moment in network.asked if moment < started + minute]
            for network in networks
        ]
        asked = [[m for m in moments if m >= started] for moments in asked]
        mean = max(len(moments) / minute for moments in asked)
        alive = sum(p.alive for p in [*field.schedulers, *field.workers])
        field.findings.require(
            mean <= MOST_CONNECTIONS,
            f"a process asked for {mean:.2f} connections a second",
        )
        field.findings.require(
            alive == count, f"{alive} of {count} processes are alive"
        )
        figure = (
            f"{alive} of {count} processes alive, at most {mean:.2f} new connections a "
            f"second and process, {max(map(peak, asked))} in the worst second; fired "
            f"everywhere {case.seconds:.2f} s after the last"
        )
        field.swap_all()
    return figure


def peak(moments: Sequence[float]) -> int:
    """Return the most of these that lie within one second."""
    return max((sum(m <= at < m + 1 for at in moments) for m in moments), default=0)


def stand_still(field: Field) -> str:
    """F18: SIGSTOP every process of the server for 15 s."""
    workers = [worker.pid for worker in field.workers]
    leading = {process.name for process in field.schedulers}
    field.wait_a_moment()
    with field.supervised():
        case = everybody(field, "stand still")
        family = server_family(field.stack)
        stopped = time.time()
        for process in family:
            process.suspend()
        sleep_until(stopped + PAUSED_S)
        case.at = time.time()
        for process in family:
            process.resume()
        field.reconnect()
        field.recover(case)
    field.wait_even()
    judge(field, case)
    hung = {
        end.name: end.at - stopped
        for end in field.ends
        if end.name in leading and end.code == HUNG_EXIT
    }
    field.findings.require(
        set(hung) == leading, f"the watchdog ended {sorted(hung)} of {sorted(leading)}"
    )
    field.findings.require(
        max(hung.values(), default=0) <= HUNG_S, f"leaders hung for {hung}"
    )
    field.findings.require(
        [worker.pid for worker in field.workers] == workers, "a worker was replaced"
    )
    first, last = min(hung.values(), default=0), max(hung.values(), default=0)
    return (
        f"leaders ended after {first:.2f} to {last:.2f} s; fired everywhere "
        f"{case.seconds:.2f} s after the server went on"
    )


def server_family(stack: Stack) -> list[psutil.Process]:
    """Return the server's processes, the one that makes the others first."""
    postmaster = psutil.Process(stack.server.pid)
    return [postmaster, *postmaster.children(recursive=True)]


def everybody(field: Field, name: str) -> Case:
    """Return a case about all leaders at once."""
    case = field.case(name, field.schedulers[0])
    case.old = field.led_all()
    return case


def judge(field: Field, case: Case) -> None:
    """Note a fire that came too late."""
    field.findings.require(
        case.seconds < WORST_S, f"{case.name}: fired after {case.seconds:.2f} s"
    )


# Clients that note what was acknowledged


@dataclass(slots=True)
class Clients:
    """What clients of the API ask with, and who they are."""

    stack: Stack
    key: str
    targets: list[str] = of(default_factory=list)
    over: threading.Event = of(default_factory=threading.Event)
    askers: list[Asker] = of(default_factory=list)
    lost: int = 0


@contextmanager
def asking(field: Field, env: Environment = NOTHING) -> Iterator[Clients]:
    """Let clients create and trigger meanwhile; check what was acknowledged.

    They ask a web in this environment, under names of this fault's own.
    """
    web = field.stack.web(env=env)
    clients = Clients(stack=field.stack, key=field.stack.key("operate", "write"))
    key = f"ack-{field.prefix}target"
    headers = {"X-Request-Id": f"{key}:1"}
    with Client(field.stack.web_url, clients.key) as client:
        body = definition(key, number=0)
        made = client.done("POST", "/jobs", body, headers).body["id"]
    clients.targets.append(made)
    target = Operation(name=key, kind=CREATE, key=key, tries=1, answered=made)
    seed = field.chance.randrange(FIRST_NUMBER, LAST_NUMBER)
    clients.askers = [
        Asker(clients, kind=kind, number=seed + number, seed=seed)
        for kind in (CREATE, TRIGGER)
        for number in range(2)
    ]
    for asker in clients.askers:
        asker.start()
    try:
        yield clients
    finally:
        clients.over.set()
        for asker in clients.askers:
            asker.join(GIVE_UP_S)
    for asker in clients.askers:
        field.findings.require(not asker.failure, asker.failure)
    field.stack.stop(web)
    field.stack.drain()
    clients.lost = check_asked(field, clients, target)


def check_asked(field: Field, clients: Clients, target: Operation) -> int:
    """Compare what clients were told with what is there; return how much is lost."""
    lost = field.findings.lost
    operations = [target]
    for asker in clients.askers:
        operations += read_log(asker.path)
    ours = (target.key, *(f"{asker.label}-" for asker in clients.askers))
    conn = field.conn
    check_acks(
        field.findings,
        operations,
        jobs=[job for job in read_jobs_there(conn) if job.key.startswith(ours)],
        events=[e for e in read_events_there(conn) if e.request_id.startswith(ours)],
        effects=[e for e in field.stack.effects(TRIGGER) if e.job.startswith(ours)],
        runs=[str(run.id) for run in tables.read_runs(conn, target.key)],
        lost=tables.read_lost(conn),
    )
    return field.findings.lost - lost


FAULTS = [
    Fault(
        name="F12",
        title="the server is killed and started 5 s later",
        bar="10 s, none lost",
        strike=crash,
    ),
    Fault(
        name="F13",
        title="ten immediate stops of the server in a minute",
        bar="all alive, 2 connections a second and process",
        strike=stop_again_and_again,
    ),
    Fault(
        name="F18",
        title="the server stands still for 15 s",
        bar="leaders end within 5 s",
        strike=stand_still,
    ),
]
