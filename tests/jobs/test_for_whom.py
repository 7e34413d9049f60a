"""Who changes a job: what the audit keeps of it, and whose jobs are not there."""

import ast

import pytest

from apps.jobs import commands
from apps.jobs.applying import Removal, apply, put_job
from apps.jobs.commands import (
    change_job,
    create_job,
    create_jobs,
    delete_job,
    patch_job,
    pause_job,
    restore_job,
    resume_job,
    skip_next,
)
from apps.jobs.editing import Edit
from apps.jobs.errors import JobNotFound
from apps.jobs.manual import run_now
from apps.jobs.public import HIDDEN
from apps.runtime.django_session import enclose
from apps.tenants.actor import Actor, ActorKind, Scope
from apps.tenants.directory import create_tenant
from apps.tenants.errors import Forbidden, TenantNotFound
from chrono.rules.errors import BadValue
from chrono.rules.instants import HOUR, MINUTE, format_instant, parse_instant
from tests.architecture.sources import name_of, tree, within
from tests.support.definitions import definition

NOON = parse_instant("2054-11-30T12:00:00Z")
BOSS = Actor.command("test")


def actor(*scopes: Scope, tenant: int | None = 1, name: str = "key 1") -> Actor:
    return Actor(
        kind=ActorKind.KEY,
        name=name,
        tenant=tenant,
        scopes=frozenset(scopes or {Scope.WRITE, Scope.OPERATE}),
        request_id="req-1",
    )


@pytest.fixture
def other(ledger):
    """A second tenant."""
    return create_tenant("other", actor=BOSS).pk


def events(ledger, job=None):
    """Return (action, before, after, reason) of a job's changes, oldest first."""
    return ledger.rows(
        "SELECT action, before, after, reason FROM chrono_audit_event "
        "WHERE object_kind = 'job' AND object_id = coalesce(%s, object_id) ORDER BY id",
        None if job is None else str(job),
    )


def test_each_change_of_a_job_is_one_event(ledger):
    who = actor()
    job = create_job(definition(interval="1m"), actor=who, reason="new", now=NOON)
    job = job.job_id
    steps = [
        ("job.change", lambda: patch_job(job, {"payload": 1}, actor=who, reason="r")),
        ("job.change", lambda: patch_job(job, {"name": "N"}, actor=who, reason="r")),
        ("job.pause", lambda: pause_job(job, actor=who, note="n", reason="r")),
        ("job.resume", lambda: resume_job(job, actor=who, reason="r")),
        ("job.skip_next", lambda: skip_next(job, actor=who, reason="r")),
        ("job.delete", lambda: delete_job(job, actor=who, reason="r")),
        ("job.restore", lambda: restore_job(job, actor=who, reason="r")),
        ("job.run", lambda: run_now(job, actor=who, reason="r")),
    ]
    for number, (action, step) in enumerate(steps):
        step()
        found = events(ledger, job)
        assert len(found) == number + 2
        assert (found[-1][0], found[-1][3]) == (action, "r")
    [(action, before, after, reason), changed, *_] = events(ledger, job)
    assert (action, before, reason) == ("job.create", None, "new")
    assert (after["interval"], after["version"]) == ("1m", 1)
    assert (changed[1]["payload"], changed[2]["payload"]) == (None, 1)
    assert (changed[1]["revision"], changed[2]["revision"]) == (1, 2)
    who_and_what = ledger.rows(
        "SELECT DISTINCT tenant_id, actor, actor_kind, request_id "
        "FROM chrono_audit_event WHERE object_kind = 'job'"
    )
    assert who_and_what == [(1, "key 1", "key", "req-1")]


def test_what_changes_nothing_leaves_no_event(ledger):
    job = create_job(definition(interval="1m"), now=NOON).job_id
    change_job(job, definition(interval="1m"))
    resume_job(job)
    delete_job(job)
    delete_job(job)
    assert [event[0] for event in events(ledger)] == ["job.create", "job.delete"]


def test_a_refused_change_leaves_no_event(ledger):
    job = create_job(definition(interval="1m"), now=NOON).job_id
    ledger.conn.execute(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'no'; END $$;"
        "CREATE TRIGGER no BEFORE INSERT ON chrono_timer_far "
        "EXECUTE FUNCTION no()"
    )
    with pytest.raises(Exception, match="no"):
        change_job(job, definition(interval="2m"))
    assert [event[0] for event in events(ledger)] == ["job.create"]
    assert ledger.job(job)["version"] == 1


def test_no_change_is_there_without_its_event(ledger):
    job = create_job(definition(interval="1m"), now=NOON).job_id
    ledger.conn.execute(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'no'; END $$;"
        "CREATE TRIGGER no BEFORE INSERT ON chrono_audit_event EXECUTE FUNCTION no()"
    )
    for change in (
        lambda: pause_job(job),
        lambda: delete_job(job),
        lambda: run_now(job),
        lambda: create_job(definition(key="other", interval="1m")),
    ):
        with pytest.raises(Exception, match="no"):
            change()
    row = ledger.job(job)
    assert (row["version"], row["paused"], row["deleted"]) == (1, False, False)
    assert ledger.timers(job, kind=3) == []
    assert ledger.rows("SELECT count(*) FROM chrono_job") == [(1,)]


def test_no_event_has_what_headers_hold(ledger):
    target = {
        "kind": "http",
        "url": "https://example.org/?token=s3cret",
        "headers": {"Authorization": "Bearer s3cret"},
    }
    job = create_job(definition(interval="1m", target=target)).job_id
    patch_job(job, {"target": {"headers": {"Authorization": "Bearer s3cret2"}}})
    pause_job(job)
    delete_job(job)
    kept = ledger.rows("SELECT before::text || after::text FROM chrono_audit_event")
    assert "s3cret" not in str(kept)
    assert HIDDEN in str(ledger.rows("SELECT after::text FROM chrono_audit_event"))


def test_a_bulk_change_is_an_event_for_each_job(ledger):
    definitions = [definition(key=f"k{n}", interval="1m") for n in range(5)]
    jobs = [outcome.job_id for outcome in create_jobs(definitions)]
    commands.pause_jobs(jobs, note="why")
    actions = [event[0] for event in events(ledger)]
    assert actions == ["job.create"] * 5 + ["job.pause"] * 5
    assert {event[3] for event in events(ledger)[5:]} == {"why"}


STRANGERS = {
    "change": lambda job, who: change_job(job, definition(interval="2m"), actor=who),
    "patch": lambda job, who: patch_job(job, {"name": "x"}, actor=who),
    "pause": lambda job, who: pause_job(job, actor=who),
    "resume": lambda job, who: resume_job(job, actor=who),
    "delete": lambda job, who: delete_job(job, actor=who),
    "restore": lambda job, who: restore_job(job, actor=who),
    "skip": lambda job, who: skip_next(job, actor=who),
    "run": lambda job, who: run_now(job, actor=who),
    "pause many": lambda job, who: commands.pause_jobs([job], actor=who),
    "resume many": lambda job, who: commands.resume_jobs([job], actor=who),
    "delete many": lambda job, who: commands.delete_jobs([job], actor=who),
    "edit": lambda job, who: commands.edit_jobs([Edit(job_id=job, skip=1)], actor=who),
}


@pytest.mark.parametrize("change", STRANGERS.values(), ids=STRANGERS)
def test_a_stranger_s_job_is_not_found_and_stays_as_it_is(ledger, other, change):
    job = create_job(definition(interval="1m"), now=NOON).job_id
    before = ledger.rows("SELECT * FROM chrono_job")
    with pytest.raises(JobNotFound) as refused:
        change(job, actor(tenant=other))
    assert refused.value.code == "job_not_found"
    assert ledger.rows("SELECT * FROM chrono_job") == before
    assert ledger.timers(job, kind=3) == []
    assert len(events(ledger)) == 1


def test_a_stranger_does_not_even_wait_for_the_row(ledger, other, connect):
    job = create_job(definition(interval="1m"), now=NOON).job_id
    holder = connect(autocommit=False)
    holder.execute("SELECT FROM chrono_job FOR UPDATE")
    with pytest.raises(JobNotFound):
        pause_job(job, actor=actor(tenant=other))


def test_keys_of_two_tenants_do_not_meet(ledger, other):
    mine = create_job(definition(interval="1m"), actor=actor()).job_id
    theirs = put_job(definition(interval="2m"), actor=actor(tenant=other))
    assert theirs.actions == ("created",)
    tenants = ledger.rows("SELECT id, tenant FROM chrono_job")
    assert dict(tenants) == {mine: 1, theirs.job_id: other}
    [done] = apply([Removal(key="nightly")], actor=actor(tenant=other))
    assert done.job_id == theirs.job_id
    assert not ledger.job(mine)["deleted"]


def test_nobody_creates_for_a_tenant_that_they_do_not_see(ledger, other):
    for make in (
        lambda: create_job(definition(interval="1m"), tenant=other, actor=actor()),
        lambda: put_job(definition(interval="1m"), tenant=other, actor=actor()),
        lambda: apply([definition(interval="1m")], tenant=other, actor=actor()),
    ):
        with pytest.raises(TenantNotFound):
            make()
    created = create_job(definition(interval="1m"), tenant=other, actor=BOSS)
    assert ledger.rows("SELECT id, tenant FROM chrono_job") == [(created.job_id, other)]
    assert ledger.rows(
        "SELECT DISTINCT tenant_id FROM chrono_audit_event WHERE object_kind = 'job'"
    ) == [(other,)]


def test_reading_is_not_writing_and_writing_not_running(ledger):
    job = create_job(definition(interval="1m")).job_id
    with pytest.raises(Forbidden):
        create_job(definition(key="x", interval="1m"), actor=actor(Scope.READ))
    with pytest.raises(Forbidden):
        pause_job(job, actor=actor(Scope.READ, Scope.OPERATE))
    with pytest.raises(Forbidden):
        run_now(job, actor=actor(Scope.WRITE))
    assert run_now(job, actor=actor(Scope.OPERATE)).created


def test_a_command_joins_the_transaction_that_was_opened_for_it(ledger, connect):
    listener = connect()
    listener.execute("LISTEN chrono_jobs")

    def make_and_fail():
        with enclose():
            create_job(definition(interval="1m"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        make_and_fail()
    assert ledger.rows("SELECT count(*) FROM chrono_job") == [(0,)]
    with enclose():
        job = create_job(definition(interval="1m")).job_id
        run_now(job)
        assert ledger.rows("SELECT count(*) FROM chrono_job") == [(0,)]
    assert len(ledger.timers(job, kind=3)) == 1
    heard = list(listener.notifies(timeout=5, stop_after=2))
    assert {notice.payload for notice in heard} == {str(ledger.job(job)["part"])}


@pytest.mark.parametrize("text", ["\x00", "\ud800", "x" * 1_001, None, 5])
def test_what_somebody_says_of_a_change_is_some_lines_of_text(ledger, text):
    job = create_job(definition(interval="1m")).job_id
    for change in (
        lambda: create_job(definition(key="x", interval="1m"), reason=text),
        lambda: pause_job(job, note=text),
        lambda: delete_job(job, reason=text),
        lambda: run_now(job, reason=text),
    ):
        with pytest.raises(BadValue) as refused:
            change()
        assert refused.value.field in ("reason", "note")
    pause_job(job, note=" one\ntwo ")
    assert ledger.job(job)["pause_note"] == "one\ntwo"
    assert len(events(ledger)) == 2


DOORS = [*within("apps/api", ".py"), *within("apps/console", ".py")]
COMMANDS = {
    *(name for name in dir(commands) if name.endswith(("_job", "_jobs"))),
    "skip_next",
    "run_now",
    "put_job",
}


def calls_without_an_actor(module: ast.Module) -> list[int]:
    """Return the lines that call a command for everybody."""
    return [
        node.lineno
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in COMMANDS
        and not {"actor", None} & {keyword.arg for keyword in node.keywords}
    ]


def test_every_door_says_for_whom_it_acts():
    found = [
        f"{name_of(path)}:{line}"
        for path in DOORS
        for line in calls_without_an_actor(tree(path))
    ]
    assert not found
    planted = ast.parse("commands.pause_job(job, note=note)\nrun_now(job)")
    assert calls_without_an_actor(planted) == [1, 2]


def test_a_skip_names_what_it_skips_in_the_audit(ledger):
    job = create_job(definition(interval="1h"), now=NOON).job_id
    skip_next(job, count=2, now=NOON + MINUTE)
    [_, (action, _, after, _)] = events(ledger, job)
    assert action == "job.skip_next"
    assert after["skipped"] == [format_instant(NOON + n * HOUR) for n in (1, 2)]
