"""One tenant's burst does not make the others wait."""

import time
import uuid
from collections import Counter
from collections.abc import Iterator

import pytest

from apps.jobs.commands import create_job
from apps.runs import store as runs
from apps.runs import worker_store
from apps.runs.store import Lease
from apps.tenants.actor import Actor
from apps.tenants.directory import change_share, create_tenant
from chrono.rules.fairness import Share
from chrono.rules.instants import SECOND, Millis, format_instant
from chrono.rules.keys import run_id
from chrono.rules.partitions import partition_of
from tests.scheduler.conftest import Leader
from tests.support.definitions import definition

ACTOR = Actor.command("tests")
BACKLOG = 100_000


def backlog(leader: Leader, *, count: int, tenant: int = 1) -> uuid.UUID:
    """Write so many ready runs of a tenant, as one fire after the other made them."""
    job = uuid.uuid4()
    part = partition_of(job)
    now = leader.clock.moment
    ids = [run_id(job, now - n, 0, part) for n in range(count)]
    leader.conn.execute(
        """
        INSERT INTO chrono_ready (due_at, dispatched_at, run_id, job_id, tag, fence,
            revision, tenant, part, priority, attempt, slice, queue)
        SELECT now(), now(), run, %s, %s::bigint * 1000 + n * 1000, 1, 1, %s, %s, 2, 1,
            n %% 2, 'default'
        FROM unnest(%s::uuid[]) WITH ORDINALITY AS r (run, n)
        """,
        [job, now, tenant, part, ids],
    )
    return job


def every_second(leader: Leader, key: str, tenant: int) -> uuid.UUID:
    job = create_job(
        definition(key=key, interval="1s", overlap_policy="allow_all"),
        tenant=tenant,
        now=leader.clock.moment,
    ).job_id
    assert job is not None
    return job


def once(leader: Leader, key: str, tenant: int) -> uuid.UUID:
    job = create_job(
        definition(key=key, run_at=format_instant(leader.clock.moment + SECOND)),
        tenant=tenant,
        now=leader.clock.moment,
    ).job_id
    assert job is not None
    return job


class Workers:
    """Workers that take so many runs at once, and as many again when those are done."""

    def __init__(self, leader: Leader, *, seats: int) -> None:
        self.conn = leader.conn
        self.seats = seats
        self.worker = uuid.uuid4()
        self.slowest = 0.0
        worker_store.register_worker(
            self.conn,
            worker=self.worker,
            host="t",
            pid=1,
            concurrency=seats,
            queues=["default"],
        )

    def claim(self) -> list[Lease]:
        began = time.perf_counter()
        leases = runs.claim_ready(
            self.conn, queue="default", limit=self.seats, worker=self.worker
        )
        self.slowest = max(self.slowest, time.perf_counter() - began)
        return leases

    def serve(self, leader: Leader, until: Millis) -> Iterator[tuple[Millis, Lease]]:
        """Take runs every tenth of a second up to an instant; give each with its."""
        while leader.clock.moment < until:
            leader.run_to(min(until, leader.clock.moment + SECOND // 10), every=100)
            for lease in self.claim():
                yield leader.clock.moment, lease


@pytest.mark.timeout(120)
def test_g04_a_single_run_starts_within_a_second_beside_a_hundred_thousand(
    leader: Leader,
) -> None:
    """Ten workers, a tenth of a second a run: the backlog lasts for twenty minutes.

    Also when the backlog has lain there for a minute, and is older than what comes.
    """
    other = create_tenant("Globex", actor=ACTOR).pk
    backlog(leader, count=BACKLOG)
    workers = Workers(leader, seats=10)
    for wait in (0, 60):
        for _ in workers.serve(leader, leader.clock.moment + wait * SECOND):
            pass
        job = once(leader, f"after-{wait}", other)
        due = leader.clock.moment + SECOND
        started = [
            moment
            for moment, lease in workers.serve(leader, due + 3 * SECOND)
            if lease.job_id == job
        ]
        assert len(started) == 1
        assert started[0] - due <= SECOND
    assert workers.slowest < 1.0


@pytest.mark.timeout(120)
def test_g04_weights_of_three_to_one_share_three_to_one(leader: Leader) -> None:
    """Two tenants want ten times what there is; a lone one gets all of it."""
    heavy = create_tenant("Heavy", actor=ACTOR).pk
    light = create_tenant("Light", actor=ACTOR).pk
    assert change_share(heavy, Share(weight=3.0), actor=ACTOR, reason="they pay for it")
    leader.begin_anew()
    tenants = {heavy: 20, light: 20}
    for tenant, count in tenants.items():
        for n in range(count):
            every_second(leader, f"{tenant}-{n}", tenant)
    workers = Workers(leader, seats=1)
    leader.run_to(leader.clock.moment + 30 * SECOND)
    began = leader.clock.moment
    served = Counter(
        lease.tenant for _, lease in workers.serve(leader, began + 40 * SECOND)
    )
    assert sum(served.values()) == 400
    assert served[heavy] / served[light] == pytest.approx(3.0, rel=0.1)
    leader.conn.execute("DELETE FROM chrono_ready WHERE tenant = %s", [light])
    alone = [lease.tenant for lease in workers.claim() + workers.claim()]
    assert alone == [heavy, heavy]
