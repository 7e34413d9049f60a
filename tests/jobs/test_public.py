"""The public form: it gives the same job back, and says what the plan has before it."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.jobs import commands
from apps.jobs.definition import FIELDS, parse_definition
from apps.jobs.editing import create
from apps.jobs.errors import JobNotFound
from apps.jobs.json_value import same_json
from apps.jobs.public import CHANGED, HIDDEN, READ_ONLY, audited, definition_fields
from apps.jobs.selectors import get_job, read_jobs
from apps.runtime.django_session import raw_connection
from apps.tenants.actor import Actor, ActorKind, Scope
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND, format_instant
from chrono.rules.instants import parse_instant as instant
from chrono.rules.policy import OVERLAP_POLICIES, POLICY_FIELDS
from chrono.rules.schedule import SCHEDULE_FIELDS
from tests.support.definitions import TASK, definition

NOON = instant("2054-11-30T12:00:00Z")
JOB = uuid.UUID("01940000-0000-7000-8000-000000000001")
HTTP = {"kind": "http", "url": "https://example.org/hook?token=s3cret"}
ANYBODY = Actor.command("test")


def of_tenant(tenant: int, *scopes: Scope) -> Actor:
    return Actor(
        kind=ActorKind.KEY,
        name="key",
        tenant=tenant,
        scopes=frozenset(scopes or {Scope.ADMIN}),
    )


texts = st.text("abcdefghij .-_äß0123456789", min_size=1, max_size=20).map(
    lambda text: f"x{text}x"
)
schedules = st.one_of(
    st.builds(
        lambda cron, zone, gap, fold: {
            "cron": cron,
            "timezone": zone,
            "dst_gap": gap,
            "dst_fold": fold,
        },
        st.sampled_from(
            ["* * * * *", "H H * * *", "30 1 * * *", "0 9 * * 1-5", "H/5 * * * *"]
        ),
        st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
        st.sampled_from(["shift", "skip"]),
        st.sampled_from(["first", "second", "both"]),
    ),
    st.builds(
        lambda cron: {"cron": cron, "seconds": True},
        st.sampled_from(["*/10 * * * * *", "H * * * * *"]),
    ),
    st.builds(lambda s: {"interval": f"{s}s"}, st.integers(1, 100_000)),
    st.builds(
        lambda s, at: {"interval": f"{s}s", "starts_at": format_instant(at)},
        st.integers(1, 100_000),
        st.integers(0, 2**41),
    ),
    st.builds(
        lambda ahead: {"run_at": format_instant(NOON + ahead)},
        st.integers(0, DAY * 999),
    ),
    st.builds(
        lambda s, bounds: {"fixed_delay": f"{s}s", **bounds},
        st.integers(1, 100_000),
        st.sampled_from([{}, {"starts_at": "2055-01-01T00:00:00.250Z"}]),
    ),
    st.builds(
        lambda kind, bounds: {**kind, **bounds},
        st.sampled_from([{"cron": "0 9 * * *"}, {"interval": "1h"}]),
        st.sampled_from(
            [
                {"starts_at": "2055-01-01T00:00:00Z"},
                {"ends_at": "2056-01-01T00:00:00Z"},
                {"starts_at": "2055-01-01T00:00:00Z", "ends_at": "2055-06-01T00:00Z"},
            ]
        ),
    ),
    st.just({"cron": "@every 90s"}),
    st.just({"cron": "@daily"}),
).filter(lambda fields: fields.get("run_at", "2") < "9")
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | texts,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
    ),
    max_leaves=8,
)
tags = st.text("abyz059_.:/-", min_size=1, max_size=50)
targets = st.one_of(
    st.just(TASK),
    st.builds(
        lambda method, value, timeout: {
            **HTTP,
            "method": method,
            "headers": {"X-One": value},
            "timeout": timeout,
        },
        st.sampled_from(["POST", "get"]),
        st.sampled_from(["a", "Bearer b"]),
        st.sampled_from(["30s", "PT2M"]),
    ),
)
rest = st.fixed_dictionaries(
    {"key": texts, "target": targets, "payload": values},
    optional={
        "name": texts,
        "tags": st.lists(tags, max_size=4, unique=True),
        "time_critical": st.just(True),
        "delivery": st.sampled_from(["at_least_once", "at_most_once"]),
        "overlap_policy": st.sampled_from([*OVERLAP_POLICIES, "Forbid"]),
        "max_concurrent_runs": st.integers(1, 1_000),
        "pause_on_failure": st.integers(1, 100),
        "concurrency_key": st.sampled_from(["provider", "a/b c"]),
        "rate_limit": st.just({"limit": 3, "period": "90s"}),
        "late_after": st.sampled_from(["90s", "PT1H"]),
        "max_runtime": st.just("1500ms"),
        "max_time_since_success": st.just("2d"),
        "queue": st.sampled_from(["default", "slow"]),
        "priority": st.sampled_from(["critical", "high", "normal", "low", "bulk"]),
        "retry_policy": st.sampled_from(
            [{}, {"max_attempts": 2}, {"backoff": {"base_ms": 5}, "retry_on": ["5xx"]}]
        ),
        "paused": st.booleans(),
    },
)


not_of_a_delay = st.sampled_from(
    [{}, {"catchup_policy": "run_all"}, {"catchup_policy": "deadline"}]
).flatmap(
    lambda fields: st.sampled_from(
        [
            {**fields, "max_delay": "2h"},
            *([] if "deadline" in fields.values() else [{}]),
        ]
    ).map(lambda delay: {**fields, **delay})
)


@given(schedules, rest, not_of_a_delay, st.none() | st.integers(1, 1_000_000))
def test_the_fields_of_a_job_give_the_same_job_again(schedule, others, missed, runs):
    if "fixed_delay" not in schedule:
        others = {**others, **missed}
    if "run_at" not in schedule:
        others = {**others, "remaining_runs": runs}
    made = parse_definition({**schedule, **others})
    job = create(made, job_id=JOB, now=NOON).after
    fields = definition_fields(job)
    assert set(fields) <= FIELDS
    again = create(parse_definition(fields), job_id=JOB, now=NOON).after
    assert again.definition == job.definition
    assert same_json(again.definition.payload, job.definition.payload)
    assert (again.key, again.name, again.paused) == (job.key, job.name, job.paused)
    assert again.tags == job.tags
    assert definition_fields(again) == fields


def test_how_h_was_written_is_shown():
    job = create(definition(cron="H H * * *"), job_id=JOB, now=NOON).after
    fields = definition_fields(job)
    assert fields["cron"] == "H H * * *"
    assert "written" not in fields


def test_a_form_has_every_field_and_no_other(database):
    job = commands.create_job(definition(interval="1m"), now=NOON).job_id
    form = get_form(job)
    times = SCHEDULE_FIELDS - {"interval", "starts_at"}
    assert set(form) == (FIELDS - times - {"time_critical"}) | set(READ_ONLY)


def test_policies_are_shown_with_their_defaults(database):
    job = commands.create_job(definition(interval="1m"), now=NOON).job_id
    form = get_form(job)
    assert (form["catchup_policy"], form["delivery"]) == ("run_once", "at_least_once")
    assert form["on_limit"] == "wait"
    off = POLICY_FIELDS - {"catchup_policy", "delivery", "on_limit"}
    assert {form[name] for name in off} == {None}
    commands.patch_job(job, {"max_delay": "90m", "pause_on_failure": 3}, now=NOON)
    form = get_form(job)
    assert (form["max_delay"], form["pause_on_failure"]) == ("90m", 3)


def test_how_many_runs_are_left_is_told_and_what_comes_next_knows(ledger):
    job = commands.create_job(definition(interval="1m", remaining_runs=2), now=NOON)
    form = get_form(job.job_id)
    assert (form["remaining_runs"], form["runs_left"]) == (2, 2)
    assert form["next_runs"] == [
        format_instant(NOON + MINUTE),
        format_instant(NOON + 2 * MINUTE),
    ]
    ledger.conn.execute("UPDATE chrono_timer_far SET remaining = 1")
    form = get_form(job.job_id)
    assert (form["remaining_runs"], form["runs_left"]) == (2, 1)
    assert len(form["next_runs"]) == 1
    ledger.conn.execute("DELETE FROM chrono_timer_far")
    form = get_form(job.job_id)
    assert (form["state"], form["runs_left"], form["next_runs"]) == ("ended", 0, [])
    commands.patch_job(job.job_id, {"remaining_runs": 5}, now=NOON)
    form = get_form(job.job_id)
    assert (form["state"], form["runs_left"]) == ("active", 5)


def test_a_job_has_ended_when_nothing_is_left_before_its_end(ledger):
    end = format_instant(NOON + 2 * HOUR)
    job = commands.create_job(definition(interval="1h", ends_at=end), now=NOON).job_id
    assert get_form(job)["next_runs"] == [format_instant(NOON + HOUR), end]
    ledger.fired(job, NOON + HOUR)
    assert get_form(job, now=NOON + HOUR)["next_runs"] == [end]
    ledger.fired(job, NOON + 2 * HOUR)
    form = get_form(job, now=NOON + 2 * HOUR)
    assert (form["state"], form["next_run_at"]) == ("ended", None)


def test_of_a_fixed_delay_only_the_next_run_can_be_told(database):
    job = commands.create_job(definition(fixed_delay="5m"), now=NOON).job_id
    form = get_form(job)
    assert form["next_runs"] == [format_instant(NOON + 5 * MINUTE)]
    assert form["schedule_text"] == "Each 5 minutes after the end of the run before."


def get_form(job, *, now=NOON, actor=ANYBODY):
    return get_job(raw_connection(), job, actor=actor, now=now)


def test_what_comes_next_is_computed_from_the_last_decision(ledger):
    job = commands.create_job(
        definition(cron="0 * * * *", jitter_window="10m"), now=NOON
    ).job_id
    form = get_form(job)
    hours = [format_instant(NOON + n * HOUR) for n in range(1, 8)]
    assert form["state"] == "active"
    assert form["next_run_at"] == hours[0]
    assert form["next_runs"] == hours[:5]
    due = instant(form["next_due_at"]) - NOON - HOUR
    assert 0 <= due < 10 * MINUTE
    [timer] = ledger.timers(job)
    assert format_instant(timer[4]) == form["next_due_at"]
    ledger.fired(job, NOON + HOUR)
    assert get_form(job, now=NOON + HOUR)["next_run_at"] == hours[1]
    assert "every hour" in form["schedule_text"]


def test_what_is_late_is_still_what_comes_next(ledger):
    job = commands.create_job(definition(interval="1h"), now=NOON).job_id
    form = get_form(job, now=NOON + 2 * HOUR)
    assert form["next_run_at"] == format_instant(NOON + HOUR)


def test_a_job_is_active_paused_ended_or_deleted(ledger):
    once = format_instant(NOON + MINUTE)
    job = commands.create_job(definition(run_at=once), now=NOON).job_id
    assert get_form(job)["state"] == "active"
    commands.pause_job(job, note="wait", until=NOON + HOUR, now=NOON)
    form = get_form(job)
    assert (form["state"], form["next_run_at"], form["next_runs"]) == (
        "paused",
        None,
        [],
    )
    assert form["pause_note"] == "wait"
    assert form["paused_until"] == format_instant(NOON + HOUR)
    assert form["paused_by"] == "chrono"
    commands.resume_job(job, now=NOON)
    ledger.fired(job, NOON + MINUTE)
    assert get_form(job)["state"] == "ended"
    commands.delete_job(job, now=NOON + HOUR)
    form = get_form(job)
    assert form["state"] == "deleted"
    assert form["deleted_at"] == format_instant(NOON + HOUR)


def test_the_last_run_is_that_of_whoever_asked_last(ledger):
    job = commands.create_job(definition(interval="1m"), now=NOON).job_id
    assert get_form(job)["last_run"] is None
    first = ledger.fired(job, NOON + MINUTE)
    ledger.conn.execute(
        "INSERT INTO chrono_run (due_at, finished_at, id, job_id, fence, revision, "
        "tenant, part, state, attempt, reason) SELECT now(), now(), %s, id, 0, 1, 1, "
        "part, 3, 6, 16 FROM chrono_job",
        [first],
    )
    last = get_form(job, now=NOON + MINUTE)["last_run"]
    assert (last["id"], last["status"], last["state"], last["reason"]) == (
        str(first),
        "failed",
        "dead",
        "attempts_exhausted",
    )
    manual = ledger.fired(job, NOON + MINUTE + SECOND, group=1)
    last = get_form(job, now=NOON + MINUTE)["last_run"]
    assert (last["id"], last["status"]) == (str(manual), "pending")


def test_the_version_rises_with_every_change(ledger):
    job = commands.create_job(definition(interval="1m"), now=NOON).job_id
    seen = [get_form(job)["version"]]
    for change in (
        lambda: commands.pause_job(job, now=NOON),
        lambda: commands.pause_job(job, note="why", now=NOON),
        lambda: commands.resume_job(job, now=NOON),
        lambda: commands.patch_job(job, {"payload": 1}, now=NOON),
        lambda: commands.patch_job(job, {"name": "x"}, now=NOON),
        lambda: commands.patch_job(job, {"tags": ["x"]}, now=NOON),
        lambda: commands.skip_next(job, now=NOON),
        lambda: commands.delete_job(job, now=NOON),
        lambda: commands.restore_job(job, now=NOON),
    ):
        outcome = change()
        seen.append(get_form(job)["version"])
        assert outcome.changes == seen[-1]
    assert seen == list(range(1, 11))


def test_only_who_may_write_sees_what_headers_hold(database):
    target = {**HTTP, "headers": {"Authorization": "Bearer s3cret"}}
    job = commands.create_job(definition(interval="1m", target=target)).job_id
    reader = of_tenant(1, Scope.READ)
    shown = get_form(job, actor=reader)["target"]["headers"]
    assert shown == {"Authorization": HIDDEN}
    writer = of_tenant(1, Scope.WRITE)
    shown = get_form(job, actor=writer)["target"]["headers"]
    assert shown == {"Authorization": "Bearer s3cret"}


def test_a_stranger_s_job_is_not_found(database):
    job = commands.create_job(definition(interval="1m")).job_id
    stranger = of_tenant(2)
    assert read_jobs(raw_connection(), [job], actor=stranger) == []
    with pytest.raises(JobNotFound):
        get_form(job, actor=stranger)


def test_what_the_audit_keeps_has_no_secrets():
    def job(token, **fields):
        target = {**HTTP, "headers": {"Authorization": token, "X-Same": "1"}}
        made = definition(cron="@daily", target=target, **fields)
        return create(made, job_id=JOB, now=NOON).after

    before, after = job("Bearer s3cret-1"), job("Bearer s3cret-2", payload="x" * 9_000)
    kept = audited(after, before)
    assert "s3cret" not in repr(audited(before)) + repr(kept)
    assert kept["target"]["headers"] == {"Authorization": CHANGED, "X-Same": HIDDEN}
    assert kept["payload"] == {"bytes": 9_002, "revision": 1}
    assert audited(job("t", payload={"a": 1}))["payload"] == {"a": 1}


def test_a_page_of_jobs_is_read_in_the_order_asked_for(database):
    jobs = [
        commands.create_job(definition(key=f"k{n}", interval="1m")).job_id
        for n in range(3)
    ]
    wanted = [jobs[2], uuid.uuid4(), jobs[0]]
    forms = read_jobs(raw_connection(), wanted, actor=ANYBODY, runs=1)
    assert [form["id"] for form in forms] == [str(jobs[2]), str(jobs[0])]
    assert all(len(form["next_runs"]) == 1 for form in forms)
    assert instant(forms[0]["next_run_at"]) < instant(forms[0]["created_at"]) + DAY
