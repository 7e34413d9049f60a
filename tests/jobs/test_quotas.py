"""A tenant's quotas of jobs and payloads: refused whole, and never by two at once."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from apps.jobs import store
from apps.jobs.applying import Removal, apply, apply_each, put_job
from apps.jobs.commands import (
    COMMAND,
    change_job,
    create_job,
    create_jobs,
    delete_job,
    delete_jobs,
    patch_job,
    pause_job,
    restore_job,
)
from apps.jobs.errors import JobsBusy, KeyTaken, QuotaExceeded
from apps.jobs.manual import run_now
from apps.jobs.quotas import MOST_BYTES, MOST_JOBS, Quotas, change_quotas
from apps.runtime.django_session import enclose
from apps.tenants import keys
from apps.tenants.directory import create_tenant
from apps.tenants.errors import Forbidden, TenantNotFound
from chrono.rules.errors import BadValue
from chrono.rules.instants import parse_instant
from chrono.rules.partitions import partition_of
from tests.jobs.sessions import in_thread
from tests.support.definitions import definition
from tests.support.pg import wait_until_blocked

NOON = parse_instant("2054-11-30T12:00:00Z")
LONG = {"text": "x" * 100}
HURRY = store.hurry


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Setting a quota waits as long as it takes, but where a test is about that."""
    monkeypatch.setattr(store, "hurry", lambda conn: None)


def grant(**quotas: int | None) -> bool:
    return change_quotas(1, Quotas(**quotas), actor=COMMAND)


def make(key: str, **fields):
    return create_job(definition(key=key, interval="1h", **fields), now=NOON).job_id


def several(count: int, **fields):
    return [definition(key=f"k{n}", interval="1h", **fields) for n in range(count)]


def living(ledger) -> int:
    [(count,)] = ledger.rows(
        "SELECT count(*) FROM chrono_job WHERE deleted_at IS NULL AND tenant = 1"
    )
    return int(count)


def counted(ledger):
    return ledger.rows("SELECT tenant, jobs FROM chrono_job_count")


def test_no_more_jobs_are_made_than_may_be(ledger):
    make("old")
    grant(max_jobs=2)
    make("new")
    with pytest.raises(QuotaExceeded, match="max_jobs of this tenant is 2,") as refused:
        make("third")
    assert (refused.value.code, refused.value.field) == ("quota", "max_jobs")
    assert living(ledger) == 2
    assert counted(ledger) == [(1, 2)]
    tenant = create_tenant("acme", actor=COMMAND).pk
    create_job(definition(interval="1h"), tenant=tenant, now=NOON)


def test_a_deleted_job_gives_its_place_and_wants_one_to_come_back(ledger):
    grant(max_jobs=1)
    first = make("first")
    delete_job(first, now=NOON)
    second = make("second")
    with pytest.raises(QuotaExceeded):
        restore_job(first, now=NOON)
    assert ledger.job(first)["deleted"]
    delete_job(second, now=NOON)
    restore_job(first, now=NOON)
    assert counted(ledger) == [(1, 1)]


def test_what_a_tenant_has_beyond_a_quota_stays_and_can_be_changed(ledger):
    jobs = [one.job_id for one in create_jobs(several(3), now=NOON)]
    grant(max_jobs=1)
    pause_job(jobs[0], now=NOON)
    patch_job(jobs[0], {"interval": "2h"}, now=NOON)
    put_job(definition(key="k1", interval="3h"), now=NOON)
    assert [one.actions for one in apply(several(3), now=NOON)] == [
        ("changed",),
        ("changed",),
        ("unchanged",),
    ]
    delete_jobs(jobs[:2], now=NOON)
    with pytest.raises(QuotaExceeded):
        make("new")


def test_several_are_made_all_or_none(ledger):
    grant(max_jobs=3)
    with pytest.raises(QuotaExceeded, match="would make it 4"):
        create_jobs(several(4), now=NOON)
    assert living(ledger) == 0
    for dry_run in (True, False):
        with pytest.raises(QuotaExceeded):
            apply([*several(4), Removal(key="none")], dry_run=dry_run, now=NOON)
    assert living(ledger) == 0
    create_jobs(several(3), now=NOON)


def test_each_for_itself_takes_the_places_that_there_are(ledger):
    grant(max_jobs=3)
    found = apply_each(several(5), now=NOON)
    assert [isinstance(one, QuotaExceeded) for one in found] == [
        *[False] * 3,
        *[True] * 2,
    ]
    assert living(ledger) == 3


@pytest.mark.parametrize("commits", [True, False])
def test_of_two_creates_at_the_last_place_one_is_made(
    ledger, background, connect, commits
):
    grant(max_jobs=2)
    make("there")
    future = None
    try:
        with enclose():
            make("one")
            # It sees the number as it was before, so it begins as if there were room.
            future, pid = in_thread(background, make, "two")
            wait_until_blocked(connect(), pid)
            if not commits:
                raise InterruptedError
    except InterruptedError:
        pass
    if commits:
        with pytest.raises(QuotaExceeded):
            future.result(timeout=5)
    else:
        assert future.result(timeout=5)
    assert living(ledger) == 2
    assert counted(ledger) == [(1, 2)]


def test_of_a_create_and_a_restore_at_the_last_place_one_is_done(
    ledger, background, connect
):
    grant(max_jobs=1)
    gone = make("gone")
    delete_job(gone, now=NOON)
    with enclose():
        restore_job(gone, now=NOON)
        future, pid = in_thread(background, make, "new")
        wait_until_blocked(connect(), pid)
    with pytest.raises(QuotaExceeded):
        future.result(timeout=5)
    assert living(ledger) == 1


@pytest.mark.parametrize("command", [delete_job, restore_job])
def test_what_waits_for_a_create_of_its_tenant_holds_no_partition(
    ledger, background, connect, command
):
    job = make("old")
    if command is restore_job:
        delete_job(job, now=NOON)
    grant(max_jobs=5)
    look = connect()
    with enclose():
        make("new")
        future, pid = in_thread(background, command, job, now=NOON)
        wait_until_blocked(look, pid)
        look.execute(
            "SELECT FROM chrono_partition WHERE id = %s FOR SHARE NOWAIT",
            [partition_of(job)],
        )
    assert future.result(timeout=5)
    assert counted(ledger) == [(1, 1 if command is delete_job else 2)]


def test_a_restore_and_a_create_of_one_key_do_not_wait_for_each_other(
    ledger, background, connect
):
    grant(max_jobs=5)
    job = make("same")
    delete_job(job, now=NOON)
    look = connect()
    with enclose():
        make("before both")
        restored, pid = in_thread(background, restore_job, job, now=NOON)
        wait_until_blocked(look, pid)
        created, pid = in_thread(background, make, "same")
        wait_until_blocked(look, pid)
    assert restored.result(timeout=5)
    with pytest.raises(KeyTaken):
        created.result(timeout=5)
    assert counted(ledger) == [(1, 2)]


def test_creates_without_a_quota_wait_for_nobody(ledger, background):
    other = create_tenant("acme", actor=COMMAND).pk
    change_quotas(other, Quotas(max_jobs=5), actor=COMMAND)
    with enclose():
        make("one")
        create_job(definition(interval="1h"), tenant=other, now=NOON)
        future, _ = in_thread(background, make, "two")
        assert future.result(timeout=5)
    assert counted(ledger) == [(other, 1)]


def test_a_create_under_way_is_counted_when_the_quota_comes(
    ledger, background, connect
):
    with enclose():
        make("under way")
        future, pid = in_thread(background, grant, max_jobs=5)
        wait_until_blocked(connect(), pid)
    assert future.result(timeout=5)
    assert counted(ledger) == [(1, 1)]


def test_a_create_that_began_before_the_quota_is_counted(ledger, background, connect):
    with enclose():
        grant(max_jobs=5)
        future, pid = in_thread(background, make, "began before")
        wait_until_blocked(connect(), pid)
    assert future.result(timeout=5)
    assert counted(ledger) == [(1, 1)]


def test_a_create_that_began_before_the_quota_is_refused_by_it(
    ledger, background, connect
):
    make("there")
    with enclose():
        grant(max_jobs=1)
        future, pid = in_thread(background, make, "began before")
        wait_until_blocked(connect(), pid)
    with pytest.raises(QuotaExceeded):
        future.result(timeout=5)
    assert living(ledger) == 1
    assert counted(ledger) == [(1, 1)]


def test_a_restore_that_began_before_the_quota_is_refused_by_it(
    ledger, background, connect
):
    gone = make("gone")
    delete_job(gone, now=NOON)
    make("there")
    with enclose():
        grant(max_jobs=1)
        future, pid = in_thread(background, restore_job, gone, now=NOON)
        wait_until_blocked(connect(), pid)
    with pytest.raises(QuotaExceeded):
        future.result(timeout=5)
    assert ledger.job(gone)["deleted"]
    assert counted(ledger) == [(1, 1)]


def test_who_sets_a_quota_holds_nobody_up_for_long(ledger, background, monkeypatch):
    monkeypatch.setattr(store, "hurry", HURRY)
    with enclose():
        make("under way")
        future, _ = in_thread(background, grant, max_jobs=5)
        with pytest.raises(JobsBusy, match="VACUUM, an ANALYZE or a new index"):
            future.result(timeout=5)
    assert counted(ledger) == []
    assert ledger.rows("SELECT max_jobs FROM chrono_tenant") == [(None,)]


def test_jobs_that_take_long_to_count_hold_nobody_up_either(ledger, monkeypatch):
    monkeypatch.setattr(store, "hurry", HURRY)
    ledger.conn.execute(
        "CREATE FUNCTION be_long() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(3); RETURN NEW; END $$;"
        "CREATE TRIGGER be_long BEFORE INSERT ON chrono_job_count "
        "FOR EACH ROW EXECUTE FUNCTION be_long()"
    )
    with pytest.raises(JobsBusy, match="counted in a quarter") as refused:
        grant(max_jobs=5)
    assert refused.value.field == "max_jobs"
    assert counted(ledger) == []
    assert ledger.rows("SELECT max_jobs FROM chrono_tenant") == [(None,)]


def test_the_number_is_that_of_the_living_whatever_was_done(ledger):
    draw = random.Random(7)
    grant(max_jobs=MOST_JOBS)
    jobs = [one.job_id for one in create_jobs(several(8), now=NOON)]
    gone: set[int] = set()
    for n in range(30):
        which = set(draw.sample(range(8), draw.randint(1, 4)))
        if draw.random() < 0.5:
            delete_jobs([jobs[one] for one in which], now=NOON)
            gone |= which
        else:
            for one in which & gone:
                restore_job(jobs[one], now=NOON)
            gone -= which
        assert counted(ledger) == [(1, 8 - len(gone))], n
    ledger.conn.execute(
        "UPDATE chrono_job SET deleted_at = CASE WHEN deleted_at IS NULL THEN now() END"
    )
    assert counted(ledger) == [(1, len(gone))]
    ledger.conn.execute("DELETE FROM chrono_job_revision")
    ledger.conn.execute("DELETE FROM chrono_job WHERE key IN ('k0', 'k1', 'k2')")
    assert counted(ledger) == [(1, living(ledger))]


def test_a_quota_that_is_gone_counts_nothing_and_counts_anew_when_it_is_back(ledger):
    grant(max_jobs=5)
    make("one")
    grant()
    assert counted(ledger) == []
    make("two")
    grant(max_jobs=2)
    assert counted(ledger) == [(1, 2)]
    assert not grant(max_jobs=2)
    with pytest.raises(QuotaExceeded):
        make("three")


def test_a_payload_longer_than_the_quota_is_refused_where_it_is_given(ledger):
    job = make("job")
    grant(max_payload_bytes=100)
    attempts: list[Callable[[], object]] = [
        lambda: make("new", payload=LONG),
        lambda: patch_job(job, {"payload": LONG}, now=NOON),
        lambda: put_job(definition(key="job", interval="1h", payload=LONG), now=NOON),
        lambda: put_job(definition(key="new", interval="1h", payload=LONG), now=NOON),
        lambda: run_now(job, payload=LONG, now=NOON),
        lambda: change_job(
            job, replace(definition(key="job", interval="1h"), payload=LONG), now=NOON
        ),
    ]
    for attempt in attempts:
        with pytest.raises(QuotaExceeded, match="100 bytes") as refused:
            attempt()
        assert refused.value.field == "max_payload_bytes"
    with pytest.raises(BadValue, match="k0: The quota"):
        apply(several(2, payload=LONG), dry_run=True, now=NOON)
    assert living(ledger) == 1
    assert ledger.job(job)["revision"] == 1
    assert ledger.rows("SELECT count(*) FROM chrono_run_input") == [(0,)]
    # Exactly as many bytes as Postgres' own text of it has.
    exact = {"text": "x" * 88}
    patch_job(job, {"payload": exact}, now=NOON)
    assert ledger.rows(
        "SELECT octet_length(payload::text) FROM chrono_job_revision "
        "WHERE payload IS NOT NULL"
    ) == [(100,)]
    grant(max_payload_bytes=99)
    with pytest.raises(QuotaExceeded):
        make("new", payload=exact)


def test_a_payload_that_is_stored_already_stays_and_runs(ledger):
    job = make("job", payload=LONG)
    grant(max_payload_bytes=10)
    patch_job(job, {"interval": "2h"}, now=NOON)
    assert put_job(definition(key="job", interval="2h", payload=LONG), now=NOON)
    run_now(job, payload=LONG, now=NOON)
    delete_job(job, now=NOON)
    restore_job(job, now=NOON)
    assert make("without")


@pytest.mark.parametrize(
    "quotas",
    [
        {"max_jobs": 0},
        {"max_jobs": MOST_JOBS + 1},
        {"max_payload_bytes": 0},
        {"max_payload_bytes": MOST_BYTES + 1},
    ],
)
def test_quotas_have_bounds(ledger, quotas):
    with pytest.raises(BadValue) as refused:
        grant(**quotas)
    assert [refused.value.field] == [*quotas]


def test_quotas_are_set_by_who_is_of_no_tenant_and_are_in_the_audit(ledger):
    issued = keys.issue(tenant=1, name="a", scopes=["admin"], actor=COMMAND)
    with pytest.raises(Forbidden):
        change_quotas(1, Quotas(max_jobs=3), actor=keys.verify(issued.text).actor())
    with pytest.raises(TenantNotFound):
        change_quotas(77, Quotas(max_jobs=3), actor=COMMAND)
    change_quotas(1, Quotas(max_jobs=3), actor=COMMAND, reason="they pay for three")
    assert ledger.rows(
        "SELECT reason, before, after FROM chrono_audit_event "
        "WHERE action = 'tenant.change'"
    ) == [("they pay for three", {"max_jobs": None}, {"max_jobs": 3})]
