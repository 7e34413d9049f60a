"""The circuit of a target: what comes due is held, probed, and let in by a ramp."""

import uuid

import pytest

from apps.jobs.commands import delete_job
from apps.runs import pauses, targets
from apps.runs.targets import Told
from apps.scheduler.dispatcher import Dispatcher
from apps.tenants.actor import Actor
from chrono.rules.instants import DAY, SECOND, format_instant
from chrono.rules.retry import RetryPolicy
from tests.scheduler.conftest import NOON, Leader

SICK = "sick"
DURATION = 30 * SECOND


def create(leader: Leader, key: str, *, task: str = SICK, **fields):
    """Create a job that fires once, a second from now, unless told otherwise."""
    when = {"run_at": format_instant(leader.clock.moment + SECOND)}
    if "cron" in fields or "interval" in fields:
        when = {}
    target = {"kind": "task", "name": task}
    return leader.create(key, target=target, **{**when, **fields})


def tenant_of(leader: Leader) -> int:
    [(tenant,)] = leader.conn.execute("SELECT min(id) FROM chrono_tenant").fetchall()
    return int(tenant)


def tell(leader: Leader, *calls, name: str = SICK):
    """Report calls of runs, each (run, good), as a worker does."""
    told = [
        Told(
            key=(tenant_of(leader), name),
            run=run,
            token=uuid.uuid4(),
            good=good,
            policy=RetryPolicy(),
        )
        for run, good in calls
    ]
    return targets.report(leader.conn, told, firsts={}, now=leader.clock.moment)


def open_circuit(leader: Leader):
    """Have twenty calls fail, and the leader hear of it."""
    tell(leader, *[(uuid.uuid4(), False)] * 20)
    leader.run_to(leader.clock.moment + SECOND)


def circuit(leader: Leader):
    """Return (state, probes, let in) of the target."""
    rows = leader.conn.execute(
        "SELECT state, probes, let_in FROM chrono_target WHERE name = %s", [SICK]
    ).fetchall()
    return rows[0] if rows else None


def serve(leader: Leader):
    """Register a worker that asks for the default queue."""
    leader.conn.execute(
        "INSERT INTO chrono_worker (id, host, pid, concurrency, queues, beat_at) "
        "VALUES (gen_random_uuid(), 't', 1, 1, '{default}', 'infinity')"
    )


def attempts(leader: Leader):
    rows = leader.conn.execute(
        "SELECT attempt, reason, gate FROM chrono_blocked ORDER BY run_id"
    ).fetchall()
    return rows


def test_what_comes_due_while_a_circuit_is_open_waits_unspent(leader: Leader):
    open_circuit(leader)
    job = create(leader, "sick-job")
    well = create(leader, "well-job", task="well")
    leader.run_to(leader.clock.moment + 2 * SECOND)
    gate = f"circuit_open/{tenant_of(leader)}/sick"
    assert leader.ready(job) == []
    assert len(leader.ready(well)) == 1
    assert attempts(leader) == [(1, 11, gate)]


def test_a_circuit_that_is_closed_costs_a_fire_no_statement(
    leader: Leader, monkeypatch
):
    asked = []
    monkeypatch.setattr(
        "apps.scheduler.store.load_target_names",
        lambda conn, *, revisions: asked.append(revisions) or {},
    )
    job = create(leader, "plain")
    leader.run_to(NOON + 3 * SECOND)
    assert len(leader.ready(job)) == 1
    assert asked == []


def test_overlap_is_decided_before_the_gate_holds(leader: Leader):
    open_circuit(leader)
    job = create(leader, "every-second", interval="1s")
    leader.run_to(leader.clock.moment + 4 * SECOND)
    assert len(leader.blocked(job)) == 1
    assert {reason for _, outcome, reason, _ in leader.ledger(job) if outcome == 2} == {
        2
    }


def test_when_the_time_is_over_one_run_probes_and_no_second(leader: Leader):
    serve(leader)
    open_circuit(leader)
    jobs = [create(leader, f"sick-{n}") for n in range(5)]
    leader.run_to(leader.clock.moment + 25 * SECOND)
    assert leader.count("chrono_ready") == 0
    leader.run_to(leader.clock.moment + 20 * SECOND)
    assert leader.count("chrono_ready") == 1
    assert leader.count("chrono_blocked") == 4
    state, probes, _ = circuit(leader)
    assert state == 3
    [lease] = leader.claim()
    assert probes == [lease.run_id]
    assert lease.job_id in jobs
    assert lease.attempt == 1


def test_nobody_probes_whose_queue_no_worker_asks_for(leader: Leader):
    serve(leader)
    open_circuit(leader)
    create(leader, "a-first", queue="nobody")
    leader.run_to(leader.clock.moment + 2 * SECOND)
    served = create(leader, "b-second")
    leader.run_to(leader.clock.moment + 40 * SECOND)
    assert len(leader.ready(served)) == 1
    assert leader.count("chrono_blocked") == 1


def test_a_probe_that_fails_opens_it_for_as_long_again(leader: Leader):
    serve(leader)
    open_circuit(leader)
    for n in range(3):
        create(leader, f"sick-{n}")
    leader.run_to(leader.clock.moment + 31 * SECOND)
    [lease] = leader.claim()
    tell(leader, (lease.run_id, False))
    assert circuit(leader)[0] == 2
    leader.run_to(leader.clock.moment + 25 * SECOND)
    assert leader.claim() == []
    leader.run_to(leader.clock.moment + 10 * SECOND)
    assert len(leader.claim()) == 1


def test_a_probe_in_execution_has_no_successor_and_a_lost_one_has(leader: Leader):
    serve(leader)
    open_circuit(leader)
    for n in range(3):
        create(leader, f"sick-{n}")
    leader.run_to(leader.clock.moment + 31 * SECOND)
    [lease] = leader.claim()
    leader.run_to(leader.clock.moment + 100 * SECOND)
    assert leader.claim() == []
    leader.settle(lease, state=0, spent=0, due=leader.clock.moment)
    leader.run_to(leader.clock.moment + 2 * SECOND)
    [successor] = leader.claim()
    assert successor.run_id != lease.run_id
    assert circuit(leader)[1] == [successor.run_id]


def test_a_probe_that_succeeds_begins_a_ramp_that_ends_closed(leader: Leader):
    serve(leader)
    open_circuit(leader)
    for n in range(101):
        create(leader, f"sick-{n}", overlap_policy="allow_all")
    leader.run_to(leader.clock.moment + 31 * SECOND)
    [lease] = leader.claim()
    tell(leader, (lease.run_id, True))
    began = leader.clock.moment
    let_in = {}
    while leader.count("chrono_blocked"):
        leader.run_to(leader.clock.moment + SECOND)
        let_in[(leader.clock.moment - began) // SECOND] = 100 - leader.count(
            "chrono_blocked"
        )
        assert leader.clock.moment < began + 60 * SECOND
    assert 10 <= let_in[1] <= 15
    assert 25 <= let_in[4] <= 30
    assert 30 <= let_in[5] <= 40
    assert let_in[max(let_in)] == 100
    leader.run_to(leader.clock.moment + 2 * SECOND)
    assert circuit(leader)[0] == 1
    plain = create(leader, "afterwards")
    leader.run_to(leader.clock.moment + 2 * SECOND)
    assert len(leader.ready(plain)) == 1


def test_what_comes_due_in_a_ramp_stands_behind_what_waits(leader: Leader):
    serve(leader)
    open_circuit(leader)
    for n in range(40):
        create(leader, f"sick-{n}")
    leader.run_to(leader.clock.moment + 31 * SECOND)
    [lease] = leader.claim()
    tell(leader, (lease.run_id, True))
    leader.run_to(leader.clock.moment + SECOND)
    late = create(leader, "late")
    leader.run_to(leader.clock.moment + 2 * SECOND)
    assert len(leader.blocked(late)) == 1
    leader.run_to(leader.clock.moment + 10 * SECOND)
    assert len(leader.ready(late)) == 1


def test_what_lies_behind_a_gate_that_is_open_is_let_in(leader: Leader):
    """A leader that had not heard, or died half-way, left it there."""
    open_circuit(leader)
    job = create(leader, "sick-job")
    leader.run_to(leader.clock.moment + 2 * SECOND)
    leader.conn.execute("DELETE FROM chrono_target")
    leader.conn.execute("UPDATE chrono_dispatch_state SET gates = gates + 1")
    leader.run_to(leader.clock.moment + 2 * SECOND)
    assert len(leader.ready(job)) == 1


def test_a_new_keeper_goes_on_where_the_old_one_died(leader: Leader):
    serve(leader)
    open_circuit(leader)
    for n in range(3):
        create(leader, f"sick-{n}")
    leader.run_to(leader.clock.moment + 31 * SECOND)
    [lease] = leader.claim()
    tell(leader, (lease.run_id, True))
    leader.begin_anew()
    leader.run_to(leader.clock.moment + 8 * SECOND)
    assert leader.count("chrono_blocked") == 0
    assert circuit(leader)[0] == 1


def test_who_does_not_lead_partition_0_lets_nobody_in(leader: Leader):
    serve(leader)
    open_circuit(leader)
    create(leader, "sick-job")
    leader.run_to(leader.clock.moment + 2 * SECOND)
    leader.dispatcher.resign([0])
    leader.run_to(leader.clock.moment + 60 * SECOND)
    assert leader.count("chrono_ready") == 0


def test_a_person_shuts_a_target_and_opens_it_again(leader: Leader):
    serve(leader)
    actor, tenant = Actor.system("test"), tenant_of(leader)
    targets.open_circuit(
        leader.conn, SICK, tenant=tenant, actor=actor, reason="maintenance"
    )
    leader.run_to(leader.clock.moment + SECOND)
    job = create(leader, "sick-job")
    leader.run_to(leader.clock.moment + 10 * 60 * SECOND, every=5 * SECOND)
    assert len(leader.blocked(job)) == 1
    assert circuit(leader)[0] == 2
    targets.close_circuit(leader.conn, SICK, tenant=tenant, actor=actor, reason="done")
    leader.conn.execute(
        "UPDATE chrono_target SET changed_at = to_timestamp(%s / 1000.0)",
        [leader.clock.moment],
    )
    leader.run_to(leader.clock.moment + 8 * SECOND)
    assert len(leader.ready(job)) == 1
    assert circuit(leader)[0] == 1
    events = leader.conn.execute(
        "SELECT action, object_id, reason FROM chrono_audit_event "
        "WHERE object_kind = 'target' ORDER BY id"
    ).fetchall()
    assert events == [
        ("target.open", SICK, "maintenance"),
        ("target.close", SICK, "done"),
    ]


def test_another_tenants_runs_go_on(leader: Leader):
    leader.conn.execute(
        "INSERT INTO chrono_target (tenant, name, state, changed_at, seen_at, probe_at,"
        " failure_threshold, open_duration_s, half_open_probes, ratio, min_concurrent)"
        " VALUES (%s, %s, 2, now(), now(), 'infinity', 20, 30, 1, 0.1, 5)",
        [tenant_of(leader) + 1, SICK],
    )
    leader.conn.execute("UPDATE chrono_dispatch_state SET gates = gates + 1")
    leader.run_to(leader.clock.moment + SECOND)
    job = create(leader, "mine")
    leader.run_to(leader.clock.moment + 2 * SECOND)
    assert len(leader.ready(job)) == 1


def test_a_deleted_job_leaves_nothing_behind_a_gate(leader: Leader):
    open_circuit(leader)
    job = create(leader, "sick-job")
    leader.run_to(leader.clock.moment + 2 * SECOND)
    delete_job(job)
    assert leader.blocked(job) == []


def test_targets_that_are_well_are_forgotten_after_a_day(leader: Leader):
    tell(leader, (uuid.uuid4(), False))
    assert not targets.purge(leader.conn, now=leader.clock.moment + DAY - 1)
    assert circuit(leader) is not None
    targets.purge(leader.conn, now=leader.clock.moment + DAY + 1)
    assert circuit(leader) is None
    open_circuit(leader)
    targets.purge(leader.conn, now=leader.clock.moment + 10 * DAY)
    assert circuit(leader) is not None


@pytest.mark.parametrize("first", ["probe", "ramp"])
def test_two_keepers_let_in_no_more_than_one(leader: Leader, connect, first):
    """The second one finds the row changed, whatever it has read before."""
    serve(leader)
    open_circuit(leader)
    for n in range(30):
        create(leader, f"sick-{n}")
    leader.run_to(leader.clock.moment + 2 * SECOND)
    leader.clock.moment += 40 * SECOND
    if first == "ramp":
        leader.step()
        [lease] = leader.claim()
        tell(leader, (lease.run_id, True))
    other = Dispatcher(leader.conn, leader.clock)
    other.cache.held = leader.dispatcher.cache.held
    other._gates.follow(-1)
    before = leader.count("chrono_blocked")
    moment = leader.dispatcher._moment()
    leader.dispatcher._gatekeeper.notice()
    one = leader.dispatcher._gatekeeper.step(moment).readied
    two = other._gatekeeper.step(moment).readied
    assert one == (1 if first == "probe" else 5)
    assert two == 0
    assert before - leader.count("chrono_blocked") == one


def switch(leader: Leader, *, paused: bool, queue: str = "default", tenant: int = 0):
    """Pause a queue or resume it, of the first tenant unless told."""
    command = pauses.pause if paused else pauses.resume
    command(
        leader.conn,
        queue,
        tenant=tenant or tenant_of(leader),
        actor=Actor.system("test"),
        reason="test",
    )


def test_a_paused_queue_holds_what_comes_due_and_no_other_queue(leader: Leader):
    switch(leader, paused=True)
    leader.run_to(leader.clock.moment + SECOND)
    held = create(leader, "held")
    other = create(leader, "other", queue="other")
    leader.run_to(leader.clock.moment + 60 * SECOND)
    assert leader.ready(held) == []
    assert attempts(leader) == [(1, 27, f"queue_paused/{tenant_of(leader)}/default")]
    assert len(leader.ready(other)) == 1


def test_a_queue_that_is_resumed_hands_out_the_first_due_first(leader: Leader):
    switch(leader, paused=True)
    leader.run_to(leader.clock.moment + SECOND)
    first = create(leader, "z-first")
    leader.run_to(leader.clock.moment + 3 * SECOND)
    second = create(leader, "a-second")
    leader.run_to(leader.clock.moment + 3 * SECOND)
    assert leader.count("chrono_blocked") == 2
    switch(leader, paused=False)
    leader.run_to(leader.clock.moment + SECOND)
    jobs = [
        job
        for (job,) in leader.conn.execute(
            "SELECT job_id FROM chrono_ready ORDER BY priority, tag"
        ).fetchall()
    ]
    assert jobs == [first, second]
    plain = create(leader, "plain")
    leader.run_to(leader.clock.moment + 2 * SECOND)
    assert len(leader.ready(plain)) == 1


def test_another_tenants_pause_of_the_same_queue_holds_nothing(leader: Leader):
    switch(leader, paused=True, tenant=tenant_of(leader) + 1)
    leader.run_to(leader.clock.moment + SECOND)
    job = create(leader, "mine")
    leader.run_to(leader.clock.moment + 2 * SECOND)
    assert len(leader.ready(job)) == 1


def test_what_a_leader_put_behind_a_pause_too_late_is_let_in(leader: Leader):
    """It had not heard of the resume; nothing is shut any more, and nobody tells."""
    switch(leader, paused=True)
    leader.run_to(leader.clock.moment + SECOND)
    job = create(leader, "held")
    leader.run_to(leader.clock.moment + 2 * SECOND)
    leader.conn.execute("DELETE FROM chrono_queue_pause")
    leader.begin_anew()
    leader.run_to(leader.clock.moment + SECOND)
    assert len(leader.ready(job)) == 1


def test_a_queue_that_is_paused_again_or_resumed_twice_is_told_once(leader: Leader):
    for paused in (True, True, False, False):
        switch(leader, paused=paused)
    actions = leader.conn.execute(
        "SELECT action FROM chrono_audit_event WHERE object_kind = 'queue' ORDER BY id"
    ).fetchall()
    assert actions == [("queue.pause",), ("queue.resume",)]
