"""Limits of keys and rates: who is let in, how many, in which order, and once."""

import threading
import uuid

import pytest

from apps.jobs.commands import delete_job, pause_job, resume_job
from apps.queue.store import purge_passes
from apps.runs import cancel, pauses, worker_store
from apps.runs import store as store_of_runs
from apps.runs.store import Lease
from apps.runtime.sessions import connect_hot
from apps.scheduler import store
from apps.scheduler.batches import Fired
from apps.scheduler.dispatcher import Dispatcher
from apps.scheduler.gates import Gatekeeper
from apps.tenants.actor import Actor
from chrono.rules.gates import limit_of, parse_gate
from chrono.rules.instants import MINUTE, SECOND, format_instant
from chrono.rules.keys import scheduled_for_of
from chrono.rules.states import Reason, RunState
from tests.scheduler.conftest import NOON, Leader

KEY = {"concurrency_key": "provider"}


def once(leader: Leader, key: str, **fields):
    """Create a job that fires a second from now."""
    at = format_instant(leader.clock.moment + SECOND)
    return leader.create(key, run_at=at, **fields)


def gates(leader: Leader):
    return [
        gate
        for (gate,) in leader.conn.execute(
            "SELECT DISTINCT gate FROM chrono_blocked ORDER BY 1"
        ).fetchall()
    ]


def busy(leader: Leader):
    """Return how many runs are ready or leased."""
    return leader.count("chrono_ready") + leader.count("chrono_lease")


def test_of_a_key_so_many_are_let_in_and_the_next_when_one_has_ended(leader: Leader):
    for n in range(5):
        once(leader, f"job-{n}", **KEY, concurrency_limit=2)
    leader.run_to(NOON + 3 * SECOND)
    assert gates(leader) == ["concurrency_limit/1/2/provider"]
    assert (leader.count("chrono_ready"), leader.count("chrono_blocked")) == (2, 3)
    reasons = leader.conn.execute("SELECT DISTINCT reason FROM chrono_blocked")
    assert reasons.fetchall() == [(Reason.CONCURRENCY_LIMIT,)]
    first, second = leader.claim()
    leader.run_to(NOON + 10 * SECOND)
    assert busy(leader) == 2
    leader.settle(first)
    leader.run_to(NOON + 11 * SECOND)
    assert busy(leader) == 2
    [third] = leader.claim()
    leader.settle(second, third)
    leader.run_to(NOON + 12 * SECOND)
    leader.settle(*leader.claim())
    leader.run_to(NOON + 13 * SECOND)
    assert (busy(leader), leader.count("chrono_blocked")) == (0, 0)
    assert leader.count("chrono_run") == 5


def test_a_key_without_a_limit_lets_one_in_and_keeps_the_order(leader: Leader):
    jobs = []
    for n in range(4):
        jobs.append(once(leader, f"job-{9 - n}", **KEY))
        leader.run_to(leader.clock.moment + 2 * SECOND)
    seen = []
    for _ in jobs:
        [lease] = leader.claim()
        seen.append(lease.job_id)
        leader.settle(lease)
        leader.run_to(leader.clock.moment + SECOND)
    assert seen == jobs


def test_other_keys_have_places_of_their_own(leader: Leader):
    once(leader, "a", **KEY)
    once(leader, "b", concurrency_key="other")
    once(leader, "c", concurrency_key="3/provider", concurrency_limit=3)
    leader.run_to(NOON + 3 * SECOND)
    assert (leader.count("chrono_ready"), leader.count("chrono_blocked")) == (3, 0)


def test_jobs_with_other_limits_of_a_key_count_together(leader: Leader):
    for n in range(3):
        once(leader, f"two-{n}", **KEY, concurrency_limit=2)
    leader.run_to(NOON + 2 * SECOND)
    assert busy(leader) == 2
    once(leader, "one", **KEY)
    once(leader, "three", **KEY, concurrency_limit=3)
    leader.run_to(NOON + 4 * SECOND)
    # The third of two, which was due before, keeps the one of three behind it.
    assert (busy(leader), leader.count("chrono_blocked")) == (2, 3)
    assert gates(leader) == [
        f"concurrency_limit/1/{limit}/provider" for limit in (1, 2, 3)
    ]


def test_the_lowest_limit_of_a_key_has_its_turn_in_the_order_of_due_instants(
    leader: Leader,
):
    for n in range(3):
        once(leader, f"early-{n}", **KEY, concurrency_limit=2)
    leader.run_to(NOON + 2 * SECOND)
    alone = once(leader, "alone", **KEY)
    leader.run_to(NOON + 4 * SECOND)
    for n in range(3):
        once(leader, f"late-{n}", **KEY, concurrency_limit=2)
    leader.run_to(NOON + 6 * SECOND)
    begun: list[uuid.UUID] = []
    held = leader.claim()
    begun += [one.job_id for one in held]
    while held:
        assert len(held) <= 2
        leader.settle(held.pop(0))
        leader.run_to(leader.clock.moment + SECOND)
        fresh = leader.claim()
        if alone in {one.job_id for one in fresh}:
            assert held == [], "it found nobody under way"
        held += fresh
        begun += [one.job_id for one in fresh]
    assert len(begun) == 7
    assert begun.index(alone) == 3, "in its turn, by when it was due"


def test_a_retry_with_another_limit_by_now_counts_once(leader: Leader):
    job = leader.create(
        "job", interval="1h", starts_at=format_instant(NOON + SECOND), **KEY
    )
    leader.run_to(NOON + 2 * SECOND)
    [lease] = leader.claim()
    again = leader.clock.moment + 3 * SECOND
    leader.settle(lease, state=0, reason=30, due=again, error="no")
    for n in range(3):
        once(leader, f"job-{n}", **KEY, concurrency_limit=2)
    leader.run_to(again + SECOND)
    assert busy(leader) == 2
    assert leader.blocked(job) != []
    for _ in range(3):
        leader.settle(*leader.claim())
        leader.run_to(leader.clock.moment + SECOND)
    assert (busy(leader), leader.count("chrono_blocked")) == (0, 0)


def test_a_run_that_waits_to_be_tried_again_holds_no_place(leader: Leader):
    once(leader, "fails", **KEY)
    leader.run_to(NOON + SECOND)
    once(leader, "next", **KEY)
    leader.run_to(NOON + 3 * SECOND)
    [lease] = leader.claim()
    again = leader.clock.moment + 10 * SECOND
    leader.settle(lease, state=0, reason=30, due=again, error="no")
    leader.run_to(NOON + 5 * SECOND)
    [other] = leader.claim()
    assert other.job_id != lease.job_id
    leader.run_to(again + 5 * SECOND)
    # Its retry is due, and stands behind the other.
    assert leader.claim() == []
    assert leader.count("chrono_blocked") == 1
    leader.settle(other)
    leader.run_to(again + 6 * SECOND)
    [retry] = leader.claim()
    assert (retry.run_id, retry.attempt) == (lease.run_id, 2)


def test_overlap_and_a_key_are_both_kept(leader: Leader):
    job = leader.create("every", interval="1s", **KEY)
    once(leader, "other", **KEY)
    leader.run_to(NOON + 5 * SECOND)
    assert busy(leader) == 1
    assert leader.count("chrono_blocked") <= 1
    skips = [reason for _, outcome, reason, _ in leader.ledger(job) if outcome == 2]
    assert set(skips) == {Reason.OVERLAP}


@pytest.mark.parametrize("policy", ["buffer_one", "buffer_all"])
def test_what_waited_for_its_job_goes_on_to_the_key(leader: Leader, policy):
    job = leader.create("buffers", interval="2s", overlap_policy=policy, **KEY)
    leader.run_to(NOON + 3 * SECOND)
    [lease] = leader.claim()
    assert lease.job_id == job
    leader.run_to(NOON + 5 * SECOND)
    assert "overlap" in gates(leader)
    other = once(leader, "other", **KEY)
    leader.run_to(NOON + 7 * SECOND)
    leader.settle(lease)
    leader.run_to(NOON + 9 * SECOND)
    [next_one] = leader.claim()
    # What was due first: the one that waited for its job.
    assert next_one.job_id == job
    assert len(leader.blocked(other)) == 1
    leader.settle(next_one)
    leader.run_to(NOON + 11 * SECOND)
    assert busy(leader) == 1


def test_what_was_missed_and_caught_up_passes_the_key(leader: Leader):
    job = leader.create(
        "caught-up",
        cron="* * * * *",
        catchup_policy="run_all",
        **KEY,
        overlap_policy="allow_all",
    )
    leader.clock.moment = NOON + 10 * MINUTE
    leader.begin_anew()
    leader.run_to(NOON + 10 * MINUTE + 20 * SECOND)
    assert busy(leader) == 1
    for _ in range(12):
        leader.settle(*leader.claim())
        leader.run_to(leader.clock.moment + SECOND)
        assert busy(leader) <= 1
    assert len(leader.ended(job)) >= 9


def test_a_retry_of_a_paused_job_passes_the_key_after_the_resume(leader: Leader):
    job = leader.create(
        "paused", interval="1h", starts_at=format_instant(NOON + SECOND), **KEY
    )
    leader.run_to(NOON + 2 * SECOND)
    [lease] = leader.claim()
    pause_job(job, now=leader.clock.moment)
    leader.settle(lease, state=0, reason=30, due=NOON + 4 * SECOND, error="no")
    hog = once(leader, "hog", **KEY)
    leader.run_to(NOON + 8 * SECOND)
    [other] = leader.claim()
    assert other.job_id == hog
    resume_job(job, now=leader.clock.moment)
    leader.dispatcher.notice()
    leader.run_to(NOON + 12 * SECOND)
    assert leader.claim() == []
    leader.settle(other)
    leader.run_to(NOON + 14 * SECOND)
    assert [one.run_id for one in leader.claim()] == [lease.run_id]


def test_a_cancelled_run_frees_its_place(leader: Leader):
    once(leader, "a", **KEY)
    leader.run_to(NOON + SECOND)
    once(leader, "b", **KEY)
    leader.run_to(NOON + 3 * SECOND)
    [(run,)] = leader.conn.execute("SELECT run_id FROM chrono_ready").fetchall()
    cancel.cancel(leader.conn, run)
    leader.run_to(NOON + 4 * SECOND)
    [lease] = leader.claim()
    assert lease.run_id != run


def test_a_run_that_is_set_aside_keeps_its_place(leader: Leader):
    for n in range(2):
        once(leader, f"job-{n}", **KEY)
    leader.run_to(NOON + 3 * SECOND)
    [lease] = leader.claim()
    aside = [(lease.run_id, lease.token)]
    assert worker_store.set_aside_if_leased(leader.conn, aside, error="no")
    leader.run_to(NOON + 6 * SECOND)
    assert leader.claim() == []
    [alone] = store_of_runs.claim_set_aside(
        leader.conn, queue="default", limit=1, worker=uuid.uuid4()
    )
    leader.run_to(NOON + 9 * SECOND)
    assert leader.claim() == []
    leader.settle(alone)
    leader.run_to(NOON + 12 * SECOND)
    assert len(leader.claim()) == 1


def test_a_deleted_job_leaves_the_gate_of_its_key(leader: Leader):
    once(leader, "a", **KEY)
    leader.run_to(NOON + SECOND)
    job = once(leader, "b", **KEY)
    leader.run_to(NOON + 3 * SECOND)
    assert len(leader.blocked(job)) == 1
    delete_job(job)
    assert leader.blocked(job) == []


def started(leases: list[Lease]):
    return [scheduled_for_of(lease.run_id) for lease in leases]


def test_a_rate_lets_so_many_in_within_any_such_time(leader: Leader):
    rate = {"limit": 3, "period": "10s"}
    job = leader.create(
        "often", interval="1s", overlap_policy="allow_all", rate_limit=rate
    )
    begun = []
    for _ in range(400):
        leader.run_to(leader.clock.moment + 100, every=100)
        leases = leader.claim()
        begun += [leader.clock.moment] * len(leases)
        leader.settle(*leases)
    assert len(begun) == 12
    for n in range(len(begun) - 3):
        assert begun[n + 3] - begun[n] >= 10 * SECOND - 200
    # In their order: what came first was let in first.
    instants = [at for at, _, _ in leader.ended(job)]
    assert instants == [NOON + n * SECOND for n in range(1, 13)]
    assert gates(leader) == [f"rate_limit/1/3/10000/wait/job {job}"]


def test_a_rate_that_drops_skips_what_is_above_it(leader: Leader):
    job = leader.create(
        "often",
        interval="1s",
        overlap_policy="allow_all",
        rate_limit={"limit": 3, "period": "10s"},
        on_limit="drop",
    )
    leader.run_to(NOON + 10 * SECOND)
    assert len(leader.ready(job)) == 3
    ended = leader.ended(job)
    assert {(state, reason) for _, state, reason in ended} == {
        (RunState.SKIPPED, Reason.RATE_DROP)
    }
    assert len(ended) >= 6
    leases = leader.claim()
    leader.settle(*leases[:-1])
    # A retry is not dropped: it has begun.
    leader.settle(
        leases[-1], state=0, reason=30, due=leader.clock.moment + SECOND, error="no"
    )
    leader.run_to(NOON + 13 * SECOND)
    waiting = leader.conn.execute("SELECT attempt FROM chrono_blocked").fetchall()
    assert (2,) in waiting or any(lease.attempt == 2 for lease in leader.claim())


def test_a_rate_and_a_key_are_passed_one_after_the_other(leader: Leader):
    fields = {**KEY, "concurrency_limit": 1, "rate_limit": {"limit": 2, "period": "1m"}}
    for n in range(4):
        once(leader, f"job-{n}", **fields)
    leader.run_to(NOON + 3 * SECOND)
    assert busy(leader) == 1
    assert gates(leader) == [
        "concurrency_limit/1/1/provider",
        "rate_limit/1/2/60000/wait/key provider",
    ]
    leader.settle(*leader.claim())
    leader.run_to(NOON + 5 * SECOND)
    leader.settle(*leader.claim())
    leader.run_to(NOON + 50 * SECOND)
    assert leader.claim() == []
    leader.run_to(NOON + 65 * SECOND)
    assert len(leader.claim()) == 1


def test_a_run_of_a_paused_queue_passes_its_key_after_the_resume(leader: Leader):
    actor = Actor.system("test")
    pauses.pause(leader.conn, "default", tenant=1, actor=actor, reason="")
    leader.run_to(NOON + SECOND)
    for n in range(3):
        once(leader, f"job-{n}", **KEY)
    leader.run_to(NOON + 3 * SECOND)
    assert gates(leader) == ["queue_paused/1/default"]
    pauses.resume(leader.conn, "default", tenant=1, actor=actor, reason="")
    leader.run_to(NOON + 5 * SECOND)
    assert busy(leader) == 1
    assert gates(leader) == ["concurrency_limit/1/1/provider"]


def test_a_new_keeper_counts_what_the_old_one_let_in(leader: Leader):
    for n in range(3):
        once(leader, f"job-{n}", **KEY)
    leader.run_to(NOON + 3 * SECOND)
    leader.begin_anew()
    leader.run_to(NOON + 10 * SECOND)
    assert busy(leader) == 1


@pytest.mark.parametrize("other", [4, 2])
def test_two_keepers_at_once_let_in_no_more_than_may(
    leader: Leader, dsn, background, monkeypatch, other
):
    """While one has the key's lock the other goes by; behind it, it counts anew."""
    monkeypatch.setattr(Gatekeeper, "step", lambda self, moment: Fired())
    monkeypatch.setattr(Gatekeeper, "due", lambda self: NOON + MINUTE)
    for n in range(30):
        limit = other if n % 2 else 4
        once(leader, f"job-{n}", **KEY, concurrency_limit=limit)
    leader.run_to(NOON + 3 * SECOND)
    assert leader.count("chrono_blocked") == 30
    alike = [parse_gate(f"concurrency_limit/1/{n}/provider") for n in {4, other}]

    def admit(conn, gate):
        with conn.transaction():
            if not store.try_gates(conn, gates=[gate]):
                return None
            found = store.admit_concurrency(
                conn,
                gate=gate,
                limit=limit_of(gate).limit,
                rivals={one.key for one in alike} - {gate.key},
                into=0,
                now=leader.clock.moment,
            )
            return len(found)

    def in_turn(conn, gate):
        while (found := admit(conn, gate)) is None:
            pass
        return found

    def often(n):
        with connect_hot(dsn, name="test keeper") as conn:
            together.wait(timeout=20)
            return sum(in_turn(conn, alike[(n + k) % len(alike)]) for k in range(8))

    together = threading.Barrier(6)
    found = [background(often, n) for n in range(6)]
    assert sum(one.result(timeout=20) for one in found) == 4
    assert busy(leader) == 4
    with connect_hot(dsn, name="test keeper") as keeper:
        with leader.conn.transaction():
            assert store.try_gates(leader.conn, gates=alike[:1])
            assert not any(admit(keeper, gate) for gate in alike)
            with keeper.transaction():
                assert not store.try_gates(keeper, gates=alike[-1:])
        assert not any(admit(keeper, gate) for gate in alike)


def test_a_walk_lets_in_by_many_keys_at_once_but_by_those_that_another_has(
    leader: Leader, dsn
):
    """In one transaction: one for each key costs the keeper twice as much."""
    for n in range(5):
        once(leader, f"job-{n}", concurrency_key=f"of {n}")
    held = parse_gate("concurrency_limit/1/1/of 2")
    assert held is not None
    with connect_hot(dsn, name="test keeper") as other, other.transaction():
        assert store.try_gates(other, gates=[held]) == [held]
        leader.run_to(NOON + 1500)
        assert gates(leader) == [held.key]
        assert leader.count("chrono_ready") == 4
    leader.run_to(NOON + 3 * SECOND)
    assert leader.count("chrono_ready") == 5
    found = leader.conn.execute("SELECT count(*) FROM chrono_pass GROUP BY xmin::text")
    assert sorted(found.fetchall()) == [(1,), (4,)]


def test_passes_that_nobody_counts_any_more_are_forgotten(leader: Leader):
    once(leader, "a", **KEY)
    leader.run_to(NOON + 3 * SECOND)
    assert leader.count("chrono_pass") == 1
    assert purge_passes(leader.conn, before=leader.clock.moment + SECOND) == 0
    [lease] = leader.claim()
    assert purge_passes(leader.conn, before=leader.clock.moment + SECOND) == 0
    leader.settle(lease)
    assert purge_passes(leader.conn, before=NOON) == 0
    assert purge_passes(leader.conn, before=leader.clock.moment + SECOND) == 1


def test_a_plain_job_has_no_pass_and_costs_no_look(leader: Leader):
    once(leader, "plain")
    leader.run_to(NOON + 3 * SECOND)
    assert leader.count("chrono_pass") == 0
    assert leader.dispatcher._gatekeeper.due() >= leader.clock.moment + SECOND
    assert isinstance(leader.dispatcher, Dispatcher)
    assert uuid.UUID(int=0) not in {one.job_id for one in leader.claim()}
