"""Concurrency keys that payloads fill: each run has that of its own payload."""

import json
from itertools import count

import pytest

from apps.jobs import audit
from apps.jobs.backfill import Range, backfill_job
from apps.jobs.commands import patch_job
from apps.jobs.manual import run_now
from apps.jobs.public import definition_fields
from apps.jobs.rerun import Wanted, redrive, retry_run
from apps.jobs.store import load_jobs
from apps.runs.letters import LetterFilter
from apps.tenants.actor import Actor
from chrono.rules.errors import BadValue
from chrono.rules.instants import MINUTE, SECOND, format_instant
from chrono.rules.partitions import partition_of
from tests.scheduler.conftest import NOON, Leader
from tests.support.seed import SeededJob, make_ended

KEY = "of {payload.employer.id}"
BOSS = Actor.command("the boss")
number = count()


def of(employer, **more):
    return {"employer": {"id": employer}, **more}


def once(leader: Leader, employer, **fields):
    """Create a job that fires a second from now, with a key that its payload fills."""
    at = format_instant(leader.clock.moment + SECOND)
    fields = {"concurrency_key": KEY, "payload": of(employer), "run_at": at, **fields}
    return leader.create(f"job-{next(number)}", **fields)


def by_hand(leader: Leader, **fields):
    """Create a job that fires by hand alone, for all that this matters."""
    fields = {"concurrency_key": KEY, "payload": of(1), **fields}
    return leader.create(f"job-{next(number)}", cron="0 0 1 1 *", **fields)


def behind(leader: Leader):
    """Return how many runs wait behind each gate."""
    rows = leader.conn.execute(
        "SELECT gate, count(*) FROM chrono_blocked GROUP BY 1 ORDER BY 1"
    )
    return dict(rows.fetchall())


def gate(employer):
    return f"concurrency_limit/1/1/of {employer}"


def test_runs_share_a_place_where_their_payloads_fill_the_key_alike(leader: Leader):
    for employer in (1, "1", 2, 1.0):
        once(leader, employer)
    leader.run_to(NOON + 3 * SECOND)
    assert leader.count("chrono_ready") == 2
    assert behind(leader) == {gate(1): 2}
    leader.settle(*leader.claim())
    leader.run_to(NOON + 5 * SECOND)
    assert leader.count("chrono_ready") == 1


def test_a_run_by_hand_has_the_key_of_its_own_payload(leader: Leader):
    job = by_hand(leader)
    other = by_hand(leader)
    for payload in (of(1), of(2), of(2)):
        run_now(job, payload=payload, now=leader.clock.moment)
    run_now(other, now=leader.clock.moment)
    run_now(other, payload=of(3), now=leader.clock.moment)
    leader.run_to(NOON + 2 * SECOND)
    assert leader.count("chrono_ready") == 3
    assert behind(leader) == {gate(1): 1, gate(2): 1}


def test_a_retry_of_a_run_by_hand_keeps_its_key(leader: Leader):
    job = by_hand(leader)
    run_now(job, payload=of(2), now=leader.clock.moment)
    leader.run_to(NOON + SECOND)
    [lease] = leader.claim()
    again = leader.clock.moment + 3 * SECOND
    leader.settle(lease, state=0, reason=30, due=again, error="no")
    once(leader, 2)
    leader.run_to(NOON + 3 * SECOND)
    [other] = leader.claim()
    assert other.run_id != lease.run_id
    leader.run_to(again + SECOND)
    assert leader.claim() == []
    assert behind(leader) == {gate(2): 1}


def test_another_payload_of_the_job_is_another_key_from_then_on(leader: Leader):
    job = leader.create(
        "job",
        interval="2s",
        overlap_policy="allow_all",
        concurrency_key=KEY,
        payload=of(1),
    )
    leader.run_to(NOON + 5 * SECOND)
    assert (leader.count("chrono_ready"), behind(leader)) == (1, {gate(1): 1})
    patch_job(job, {"payload": of(2)}, now=leader.clock.moment)
    leader.run_to(NOON + 9 * SECOND)
    assert (leader.count("chrono_ready"), behind(leader)) == (
        2,
        {
            gate(1): 1,
            gate(2): 1,
        },
    )


def test_what_waited_for_its_job_goes_on_by_the_payload_that_it_runs_with(
    leader: Leader,
):
    job = leader.create(
        "job",
        interval="2s",
        overlap_policy="buffer_all",
        concurrency_key=KEY,
        payload=of(1),
    )
    leader.run_to(NOON + 3 * SECOND)
    [lease] = leader.claim()
    hog = once(leader, 1)
    leader.run_to(NOON + 5 * SECOND)
    assert behind(leader) == {"overlap": 1, gate(1): 1}
    patch_job(job, {"payload": of(2)}, now=leader.clock.moment)
    leader.settle(lease)
    leader.run_to(NOON + 6 * SECOND - 100, every=100)
    # It was fired before the edit: it is of the first employer, and one of two.
    first = {(one.job_id, one.revision) for one in leader.claim()}
    assert first < {(job, 1), (hog, 1)}
    assert len(first) == 1
    assert behind(leader) == {gate(1): 1}


def test_a_backfill_passes_the_key_of_the_job_s_payload(leader: Leader):
    job = leader.create(
        "job",
        cron="* * * * *",
        overlap_policy="allow_all",
        concurrency_key=KEY,
        payload=of(1),
    )
    leader.run_to(NOON + 3 * MINUTE, every=10 * SECOND)
    while leases := leader.claim():
        leader.settle(*leases)
        leader.run_to(leader.clock.moment + SECOND)
    wanted = Range(start=NOON + MINUTE, end=NOON + 3 * MINUTE, reprocess="completed")
    assert len(backfill_job(job, wanted, now=leader.clock.moment).occurrences) == 2
    leader.dispatcher.notice()
    leader.run_to(leader.clock.moment + 3 * SECOND)
    assert (leader.count("chrono_ready"), behind(leader)) == (1, {gate(1): 1})


def died(leader: Leader, job, at, payload):
    run = make_ended(
        leader.conn,
        SeededJob(id=job, part=partition_of(job), queue="default"),
        at,
        state=3,
    )
    leader.conn.execute(
        "UPDATE chrono_dead_letter SET payload = %s WHERE run_id = %s",
        [json.dumps(payload), run],
    )
    leader.conn.execute(
        "INSERT INTO chrono_run_input (part, run_id, payload) VALUES (%s, %s, %s)",
        [partition_of(job), run, json.dumps(payload)],
    )
    return run


def test_dead_letters_run_again_by_the_payloads_that_they_keep(leader: Leader):
    job = by_hand(leader, overlap_policy="allow_all")
    runs = [
        died(leader, job, NOON - (n + 1) * MINUTE, of(employer))
        for n, employer in enumerate([1, 2, 2, 3])
    ]
    made = redrive(Wanted(ids=runs), tenant=1, actor=BOSS, now=leader.clock.moment).runs
    assert len(made) == 4
    leader.dispatcher.notice()
    leader.run_to(NOON + 4 * SECOND)
    assert (leader.count("chrono_ready"), behind(leader)) == (3, {gate(2): 1})


@pytest.mark.parametrize(
    ("key", "ready", "gates"),
    [(KEY, 3, {gate(1): 1}), ("plain", 1, {"concurrency_limit/1/1/plain": 3})],
)
def test_a_key_that_a_job_gets_is_not_for_other_payloads_that_wait(
    leader: Leader, key, ready, gates
):
    job = by_hand(leader, overlap_policy="allow_all", concurrency_key=None)
    runs = [
        died(leader, job, NOON - (n + 1) * MINUTE, of(employer))
        for n, employer in enumerate([1, 1, 2, 2])
    ]
    redrive(Wanted(ids=runs), tenant=1, actor=BOSS, now=leader.clock.moment)
    patch_job(job, {"concurrency_key": key}, now=leader.clock.moment)
    leader.dispatcher.notice()
    leader.run_to(NOON + 4 * SECOND)
    assert (leader.count("chrono_ready"), behind(leader)) == (ready, gates)


def test_a_run_that_is_run_again_has_the_key_of_the_payload_it_gets(leader: Leader):
    job = by_hand(leader, overlap_policy="allow_all")
    runs = [died(leader, job, NOON - n * MINUTE, of(2)) for n in (1, 2, 3)]
    retry_run(runs[0], now=leader.clock.moment)
    retry_run(runs[1], payload=of(3), now=leader.clock.moment)
    redrive(
        Wanted(ids=runs[2:], payload=of(3)),
        tenant=1,
        actor=BOSS,
        now=leader.clock.moment,
    )
    leader.dispatcher.notice()
    leader.run_to(NOON + 4 * SECOND)
    keys = leader.conn.execute(
        "SELECT concurrency_key, count(*) FROM chrono_run_input GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert keys == [("of 2", 1), ("of 3", 2), (None, 3)]
    assert leader.count("chrono_ready") == 2
    assert behind(leader) == {gate(3): 1}


def test_a_rate_is_of_the_key_as_it_is_filled(leader: Leader):
    for employer in (1, 1, 2):
        once(
            leader,
            employer,
            concurrency_limit=5,
            rate_limit={"limit": 1, "period": "1m"},
        )
    leader.run_to(NOON + 3 * SECOND)
    assert leader.count("chrono_ready") == 2
    assert behind(leader) == {"rate_limit/1/1/60000/wait/key of 1": 1}


def test_a_payload_that_does_not_fill_the_key_is_refused(leader: Leader):
    for payload in (None, {}, {"employer": 1}, {"employer": {"id": [1]}}):
        with pytest.raises(BadValue) as refused:
            by_hand(leader, payload=payload)
        assert refused.value.field == "concurrency_key"
    job = by_hand(leader)
    for patch in ({"payload": {"employer": 2}}, {"concurrency_key": "{payload.who}"}):
        with pytest.raises(BadValue) as refused:
            patch_job(job, patch, now=leader.clock.moment)
        assert refused.value.field == "concurrency_key"
    with pytest.raises(BadValue, match=r"payload\.employer\.id") as refused:
        run_now(job, payload={"employer": 2}, now=leader.clock.moment)
    assert refused.value.field == "payload"
    run = died(leader, job, NOON - MINUTE, {"old": True})
    for attempt in (
        lambda: retry_run(run, now=leader.clock.moment),
        lambda: redrive(Wanted(ids=(run,)), tenant=1, now=leader.clock.moment),
    ):
        with pytest.raises(BadValue, match=r"payload\.employer\.id"):
            attempt()
    assert leader.count("chrono_run_input") == 1
    assert leader.count("chrono_timer") + leader.count("chrono_blocked") == 0
    retry_run(run, payload=of(5), now=leader.clock.moment)


def test_a_letter_that_does_not_fill_the_key_keeps_no_other_back(leader: Leader):
    job = by_hand(leader, overlap_policy="allow_all")
    old, good = (
        died(leader, job, NOON - n * MINUTE, payload)
        for n, payload in ((1, {"old": True}), (2, of(2)))
    )

    def again(*, dry_run=False, **wanted):
        return redrive(
            Wanted(**wanted),
            tenant=1,
            dry_run=dry_run,
            actor=BOSS,
            now=leader.clock.moment,
        )

    with pytest.raises(BadValue, match=str(old)) as refused:
        again(ids=(good, old), dry_run=True)
    assert refused.value.field == "ids.1"
    with pytest.raises(BadValue) as refused:
        again(ids=(old,), payload={"old": 2})
    assert refused.value.field == "payload"
    for dry_run in (True, False):
        found = again(filter=LetterFilter(), dry_run=dry_run)
        assert [letter.run_id for letter in found.letters] == [good]
    # Or who repeats a filter while there is more would do so for ever.
    died(leader, job, NOON - 3 * MINUTE, {"old": True})
    found = again(filter=LetterFilter(), limit=1)
    assert (found.letters, found.more) == ((), False)
    assert len(again(ids=(old,), payload=of(3)).runs) == 1


def test_a_job_shows_its_key_as_it_was_written(leader: Leader):
    job = by_hand(leader)
    [found] = load_jobs(leader.conn, jobs=[job])
    fields = definition_fields(found)
    assert fields["concurrency_key"] == KEY
    assert "filled_key" not in fields
    assert patch_job(job, {"payload": of(1)}).actions == ("unchanged",)
    assert patch_job(job, {"name": "Other"}).revision == 1


def test_a_number_fills_a_key_alike_when_it_comes_back_from_the_database(
    leader: Leader,
):
    job = by_hand(leader, payload=of(1e23))
    done = patch_job(job, {"concurrency_key": KEY}, now=leader.clock.moment)
    assert done.actions == ("unchanged",)


def test_the_audit_counts_by_the_key_that_a_run_had(leader: Leader):
    job = by_hand(leader, overlap_policy="allow_all")
    for employer in (1, 2, 3):
        run_now(job, payload=of(employer), now=leader.clock.moment)
    leader.run_to(NOON + SECOND)
    leases = leader.claim()
    assert len(leases) == 3
    leader.settle(*leases)
    leader.clock.moment += 10 * MINUTE
    found = [one for one in audit.audit(leader.conn) if one.check.name == "limits"]
    assert found == []
    leader.conn.execute("UPDATE chrono_run_input SET concurrency_key = 'of 1'")
    found = [one for one in audit.audit(leader.conn) if one.check.name == "limits"]
    assert found
    assert "key of 1 of tenant 1" in found[0].detail
