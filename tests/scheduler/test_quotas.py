"""A tenant's quotas: how many of all its runs may be under way, and begin."""

from apps.queue.store import purge_passes
from apps.tenants.actor import Actor
from apps.tenants.directory import change_share
from chrono.rules.fairness import Share
from chrono.rules.instants import DAY, MINUTE, SECOND, format_instant
from chrono.rules.keys import run_id
from chrono.rules.partitions import partition_of
from chrono.rules.states import Reason
from tests.scheduler.conftest import NOON, Leader

ACTOR = Actor.command("tests")
KEY = {"concurrency_key": "provider"}


def grant(leader: Leader, **quotas):
    """Give the tenant these quotas and have the leader know them."""
    change_share(1, Share(**quotas), actor=ACTOR)
    leader.begin_anew()
    leader.step()


def once(leader: Leader, key: str, **fields):
    at = format_instant(leader.clock.moment + SECOND)
    return leader.create(key, run_at=at, **fields)


def busy(leader: Leader):
    return leader.count("chrono_ready") + leader.count("chrono_lease")


def held(leader: Leader):
    rows = leader.conn.execute(
        "SELECT gate, reason, count(*) FROM chrono_blocked GROUP BY 1, 2 ORDER BY 1"
    )
    return rows.fetchall()


def test_no_more_of_a_tenants_runs_are_under_way_than_may_whatever_their_job(
    leader: Leader,
):
    grant(leader, max_running=2)
    for n in range(5):
        once(leader, f"job-{n}")
    leader.run_to(NOON + 3 * SECOND)
    assert busy(leader) == 2
    assert held(leader) == [("concurrency_limit/1/2/", Reason.CONCURRENCY_LIMIT, 3)]
    ended = 0
    while leases := leader.claim():
        assert len(leases) <= 2
        ended += len(leases)
        leader.settle(*leases)
        leader.run_to(leader.clock.moment + SECOND)
    assert ended == 5


def test_another_tenant_has_no_part_in_it(leader: Leader):
    grant(leader, max_running=1)
    [(other,)] = leader.conn.execute(
        "INSERT INTO chrono_tenant (name, created_at) VALUES ('b', now()) RETURNING id"
    ).fetchall()
    jobs = [once(leader, f"job-{n}") for n in range(3)]
    leader.conn.execute("UPDATE chrono_job SET tenant = %s", [other])
    leader.begin_anew()
    leader.run_to(NOON + 3 * SECOND)
    assert busy(leader) == len(jobs)


def test_a_run_keeps_the_place_of_its_key_while_it_waits_for_its_tenant(leader: Leader):
    """Else its key would let in another, and both would be under way in the end."""
    grant(leader, max_running=1)
    once(leader, "hog")
    leader.run_to(NOON + 2 * SECOND)
    [hog] = leader.claim()
    for n in range(3):
        once(leader, f"job-{n}", **KEY)
    leader.run_to(NOON + 10 * SECOND)
    assert held(leader) == [
        ("concurrency_limit/1/1/", Reason.CONCURRENCY_LIMIT, 1),
        ("concurrency_limit/1/1/provider", Reason.CONCURRENCY_LIMIT, 2),
    ]
    later = leader.clock.moment + 2 * DAY
    purge_passes(leader.conn, before=later)
    leader.run_to(NOON + 15 * SECOND)
    assert [count for _, _, count in held(leader)] == [1, 2]
    leader.settle(hog)
    for _ in range(3):
        leader.run_to(leader.clock.moment + SECOND)
        [lease] = leader.claim()
        leader.settle(lease)
    assert held(leader) == []


def test_a_retry_gives_the_place_of_its_key_back(leader: Leader):
    grant(leader, max_running=5)
    once(leader, "fails", **KEY)
    leader.run_to(NOON + 2 * SECOND)
    [lease] = leader.claim()
    once(leader, "next", **KEY)
    leader.settle(
        lease, state=0, reason=30, due=leader.clock.moment + MINUTE, error="no"
    )
    leader.run_to(NOON + 5 * SECOND)
    [other] = leader.claim()
    assert other.job_id != lease.job_id


def test_so_many_begin_in_any_second(leader: Leader):
    grant(leader, max_starts=3)
    for n in range(10):
        once(leader, f"job-{n}")
    begun = []
    for _ in range(60):
        leader.run_to(leader.clock.moment + 100, every=100)
        leases = leader.claim()
        begun += [leader.clock.moment] * len(leases)
        leader.settle(*leases)
    assert len(begun) == 10
    assert all(begun[n + 3] - begun[n] >= SECOND - 200 for n in range(7))


def test_what_was_missed_is_caught_up_within_the_quota(leader: Leader):
    job = leader.create(
        "late", cron="* * * * *", catchup_policy="run_all", overlap_policy="allow_all"
    )
    change_share(1, Share(max_running=1), actor=ACTOR)
    leader.clock.moment = NOON + 5 * MINUTE
    leader.begin_anew()
    for _ in range(8):
        leader.run_to(leader.clock.moment + 2 * SECOND)
        assert busy(leader) <= 1
        leader.settle(*leader.claim())
    assert len(leader.ended(job)) >= 5


def test_who_has_a_gate_ahead_again_holds_no_place_of_it_whatever_the_quota_was(
    leader: Leader,
):
    """Or one waits for the tenant's place and has the key's, and one the other way."""
    jobs = [leader.create(f"job-{n}", cron="0 0 1 1 *", **KEY) for n in range(2)]
    tenant, key = "concurrency_limit/1/1/", "concurrency_limit/1/1/provider"
    # The first has the key's place; the second had one of two of the tenant.
    lying = [(tenant, None, key), (key, [tenant], "concurrency_limit/1/2/")]
    for n, (job, (gate, ahead, passed)) in enumerate(zip(jobs, lying, strict=True)):
        run, part = run_id(job, NOON, 1, partition_of(job)), partition_of(job)
        leader.conn.execute(
            """
            INSERT INTO chrono_blocked (due_at, dispatched_at, run_id, job_id, tag,
                fence, revision, tenant, part, priority, attempt, queue, gate, reason,
                gates_left)
            VALUES (to_timestamp(%s / 1000.0), now(), %s, %s, 0, 1, 1, 1, %s, 2, 2,
                'default', %s, 33, %s)
            """,
            [NOON + n, run, job, part, gate, ahead],
        )
        leader.conn.execute(
            "INSERT INTO chrono_pass (gate, admitted_at, run_id, part) "
            "VALUES (%s, now(), %s, %s)",
            [passed, run, part],
        )
    grant(leader, max_running=1)
    for job in jobs:
        leader.run_to(leader.clock.moment + SECOND)
        [lease] = leader.claim()
        assert lease.job_id == job
        leader.settle(lease)
