"""The form of a job, its preview, and what is done to jobs."""

import json
import uuid
from typing import Any

import pytest
from django.urls import reverse

from apps.jobs import store
from apps.jobs.public import HIDDEN, definition_fields
from apps.jobs.quotas import Quotas, change_quotas
from apps.runtime.django_session import raw_connection
from apps.tenants.directory import change_timezone
from tests.console.conftest import ACTOR
from tests.console.forms import fields_of

HTTP = {
    "kind": "http",
    "url": "https://example.org/hook?token=hush-query",
    "headers": {"Authorization": "Bearer hush-header", "X-Plain": "hush-plain"},
}


def page(name: str, *args: Any) -> str:
    return reverse(f"admin:chrono_jobs_job_{name}", args=args)


def send(client: Any, address: str, button: str = "_save", **changes: Any) -> Any:
    """Open a form, change some of its fields, press a button."""
    opened = client.get(address)
    assert opened.status_code == 200
    fields = fields_of(opened.content.decode())
    assert not {
        one for one in changes if f'name="{one}"' not in opened.content.decode()
    }
    return client.post(address, {**fields, **changes, button: "1"})


def job_at(address: str) -> store.Job:
    ident = address.split("/job/")[1].split("/")[0]
    [job] = store.load_jobs(raw_connection(), jobs=[uuid.UUID(ident)])
    return job


def events(conn: Any, job: Any) -> list[Any]:
    """Return (action, actor, kind, reason) of a job, first to last."""
    return conn.execute(
        "SELECT action, actor, actor_kind, reason FROM chrono_audit_event "
        "WHERE object_id = %s ORDER BY id",
        [str(job)],
    ).fetchall()


NEW = {
    "key": "nightly",
    "name": "Nightly report",
    "cron": "30 2 * * *",
    "timezone": "America/New_York",
    "target_kind": "task",
    "task": "tests.nothing",
    "reason": "the board asked",
}


def test_a_preview_says_what_a_schedule_does_and_saves_nothing(client, conn):
    winter = {"starts_at": "2090-01-01T00:00:00Z"}
    answer = send(client, page("add"), "_preview", **NEW, **winter)
    text = answer.content.decode()
    assert answer.status_code == 200
    assert "At 02:30 every day, America/New_York time, from 2090" in text
    assert "dst-gap" in text
    assert "does not exist" in text
    assert text.count("02:30:00-0") == 10
    assert "07:30:00" in text
    # What was typed is still there.
    assert fields_of(text)["name"] == "Nightly report"
    assert conn.execute("SELECT id FROM chrono_job").fetchall() == []


def test_a_created_job_is_what_was_typed_and_who_did_it_is_known(client, conn):
    answer = send(
        client,
        page("add"),
        **NEW,
        payload='{"n": [1, 2]}',
        priority="high",
        max_attempts="3",
        backoff_base="2s",
        jitter_window="30s",
        tags="payroll, region:eu  a/b",
    )
    assert answer.status_code == 302
    job = job_at(answer.headers["Location"])
    assert (job.key, job.name, job.paused) == ("nightly", "Nightly report", False)
    assert job.tags == ("a/b", "payroll", "region:eu")
    assert job.definition.schedule["cron"] == "30 2 * * *"
    assert job.definition.schedule["timezone"] == "America/New_York"
    assert job.definition.target == {"kind": "task", "name": "tests.nothing"}
    assert job.definition.payload == {"n": [1, 2]}
    assert job.definition.priority == 1
    assert job.definition.jitter_window == 30_000
    assert job.definition.retry_policy["max_attempts"] == 3
    assert job.definition.retry_policy["backoff"]["base_ms"] == 2_000
    assert events(conn, job.id) == [("job.create", "ada", "user", "the board asked")]


def test_the_limits_of_a_task_are_those_that_were_typed(client):
    limits = {"timeout": "2h", "progress_deadline": "90s", "min_items_ok": 3}
    answer = send(client, page("add"), **NEW, **limits)
    assert answer.status_code == 302
    job = job_at(answer.headers["Location"])
    task = {"kind": "task", "name": "tests.nothing"}
    assert job.definition.target == task | limits
    address = page("change", job.id)
    shown = fields_of(client.get(address).content.decode())
    assert {name: shown[name] for name in limits} == {
        name: str(value) for name, value in limits.items()
    }
    # Each is taken back by a blank field, and zero items are none.
    blank = {"timeout": "", "progress_deadline": "", "min_items_ok": "0"}
    assert send(client, address, **blank).status_code == 302
    assert job_at(address).definition.target == task
    assert fields_of(client.get(address).content.decode())["min_items_ok"] == "0"


def test_a_rate_is_typed_and_shown_as_a_number_in_a_time(client):
    rate = {"rate_limit": "10/90s", "on_limit": "drop"}
    answer = send(client, page("add"), **NEW, **rate)
    assert answer.status_code == 302, answer.context_data["form"].errors
    address = answer.headers["Location"]
    found = definition_fields(job_at(address))
    assert found["rate_limit"] == {"limit": 10, "period": "90s"}
    shown = client.get(address).content.decode()
    typed = fields_of(shown)
    assert {name: typed[name] for name in rate} == rate
    assert "10 runs of the job may begin in any 90 seconds" in shown
    refused = send(client, page("add"), **{**NEW, "key": "other"}, rate_limit="x/1m")
    assert list(refused.context_data["form"].errors) == ["rate_limit"]


DELAY = {"cron": "", "timezone": "", "fixed_delay": "5m"}
ONE_RUN = {"remaining_runs": "1"}
POLICIES = {
    "starts_at": "2055-01-01T00:00:00Z",
    "ends_at": "2058-01-01T00:00:00Z",
    "remaining_runs": 40,
    "catchup_policy": "deadline",
    "max_delay": "2h",
    "overlap_policy": "buffer_all",
    "max_concurrent_runs": 3,
    "pause_on_failure": 5,
    "concurrency_key": "payroll provider",
    "concurrency_limit": 3,
    "late_after": "5m",
    "max_runtime": "90m",
    "max_time_since_success": "36h",
}


def test_every_policy_and_bound_is_typed_shown_and_told_in_words(client):
    answer = send(client, page("add"), **NEW, **POLICIES)
    assert answer.status_code == 302, answer.context_data["form"].errors
    address = answer.headers["Location"]
    fields = definition_fields(job_at(address))
    assert {name: fields[name] for name in POLICIES} == POLICIES
    shown = client.get(address).content.decode()
    typed = fields_of(shown)
    assert {name: typed[name] for name in POLICIES} == {
        name: str(value) for name, value in POLICIES.items()
    }
    for said in (
        "until 2058-01-01T00:00:00Z",
        "What is at most 2 hours late runs, oldest first.",
        "While 3 runs are live, all wait for their turn.",
        "It is paused after 5 dead runs in a row.",
        "has not begun 5 minutes after it was due, an attempt of more than 90 minutes",
        "36 hours without a success",
    ):
        assert said in shown, said


def test_a_preview_knows_the_bounds_and_the_fixed_delay(client):
    bounds = {"starts_at": "2090-01-01T00:00:00Z", "ends_at": "2090-01-02T23:00:00Z"}
    text = send(client, page("add"), "_preview", **NEW, **bounds).content.decode()
    assert text.count("02:30:00-05:00") == 2
    delay = {**NEW, "cron": "", "timezone": "", "fixed_delay": "5m"}
    text = send(client, page("add"), "_preview", **delay).content.decode()
    assert "Each 5 minutes after the end of the run before." in text
    assert "fixed-delay" in text
    answer = send(client, page("add"), **delay)
    assert answer.status_code == 302, answer.context_data["form"].errors
    shown = client.get(answer.headers["Location"]).content.decode()
    assert "Nothing is missed" in shown
    assert fields_of(shown)["starts_at"] == "", "nobody chose it"


def test_a_cron_without_a_zone_is_in_its_tenant_s(client):
    change_timezone(1, "Asia/Tokyo", actor=ACTOR)
    new = {**NEW, "timezone": ""}
    text = send(client, page("add"), "_preview", **new).content.decode()
    assert "At 02:30 every day, Asia/Tokyo time." in text
    address = send(client, page("add"), **new).headers["Location"]
    assert job_at(address).definition.schedule["timezone"] == "Asia/Tokyo"
    change_timezone(1, "Europe/Berlin", actor=ACTOR)
    answer = send(client, address, timezone="", cron="30 3 * * *")
    assert answer.status_code == 302
    assert job_at(address).definition.schedule["timezone"] == "Asia/Tokyo"


WRONG: list[tuple[dict[str, str], str, str]] = [
    ({"key": ""}, "key", "key has 1 to 200 characters"),
    ({"key": "a\x07b"}, "key", "no control characters"),
    ({"tags": "eu PayRoll"}, "tags", "payroll, not PayRoll"),
    ({"tags": "a a"}, "tags", "there twice"),
    ({"tags": " ".join(f"t{n}" for n in range(21))}, "tags", "at most 20"),
    ({"tags": "x" * 51}, "tags", "50 characters"),
    ({"cron": "61 * * * *"}, "cron", "minute"),
    ({"cron": "0 0 30 2 *"}, "cron", "never fires"),
    ({"cron": "5-1 * * * *"}, "cron", "5"),
    ({"timezone": "Mars/Olympus"}, "timezone", "time zone"),
    ({"interval": "90s"}, "interval", "exactly one"),
    ({"cron": ""}, "cron", "exactly one"),
    ({"cron": "", "interval": "fast", "timezone": ""}, "interval", "duration"),
    ({"cron": "", "run_at": "tomorrow", "timezone": ""}, "run_at", "ISO 8601"),
    ({"jitter_window": "2h"}, "jitter_window", "at most"),
    ({"task": ""}, "task", "task's name"),
    ({"target_kind": "http", "url": "ftp://a"}, "url", "https://"),
    ({"target_kind": "http", "url": "https://a b/"}, "url", "https://"),
    (
        {"target_kind": "http", "url": "https://a.org", "headers": "Host: b"},
        "headers",
        "written by Chrono",
    ),
    (
        {"target_kind": "http", "url": "https://a.org", "headers": "nonsense"},
        "headers",
        "Name: value",
    ),
    (
        {"target_kind": "http", "url": "https://a.org", "timeout": "9d"},
        "timeout",
        "timeout is between",
    ),
    ({"progress_deadline": "1ms"}, "progress_deadline", "progress_deadline is between"),
    ({"min_items_ok": "-1"}, "min_items_ok", "from 0 to 1000000000"),
    ({"min_items_ok": "1000000001"}, "min_items_ok", "from 0 to 1000000000"),
    ({"min_items_ok": "some"}, "min_items_ok", "whole number"),
    ({"payload": "{oops"}, "payload", "no JSON"),
    ({"payload": "[NaN]"}, "payload", "NaN"),
    ({"payload": "[" * 100_000}, "payload", "nested too deep"),
    ({"payload": "[" * 40 + "]" * 40}, "payload", "nested deeper"),
    ({"payload": "9" * 200}, "payload", "digits"),
    ({"payload": r'"\ud800"'}, "payload", "surrogate"),
    ({"queue": "No Spaces"}, "queue", "queue"),
    ({"priority": "9"}, "priority", "valid choice"),
    ({"max_attempts": "0"}, "max_attempts", "max_attempts"),
    ({"backoff_cap": "soon"}, "backoff_cap", "duration"),
    ({"tenant": "77"}, "tenant", "valid choice"),
    ({"fixed_delay": "5m"}, "fixed_delay", "exactly one"),
    ({**DELAY, "fixed_delay": "0s"}, "fixed_delay", "between"),
    ({**DELAY, "max_delay": "1h"}, "max_delay", "misses nothing"),
    ({**DELAY, "catchup_policy": "skip"}, "catchup_policy", "misses nothing"),
    ({"ends_at": "2001-01-01T00:00:00Z"}, "ends_at", "over before"),
    ({"starts_at": "soon"}, "starts_at", "ISO 8601"),
    ({"ends_at": "9999-12-31T00:00:00Z"}, "ends_at", "1970 to 9998"),
    (
        {"starts_at": "2059-01-01T00:00:00Z", "ends_at": "2058-01-01T00:00:00Z"},
        "ends_at",
        "before starts_at",
    ),
    ({"remaining_runs": "0"}, "remaining_runs", "from 1 to"),
    ({"remaining_runs": "many"}, "remaining_runs", "whole number"),
    (
        {"cron": "", "run_at": "2090-01-01T00:00:00Z", "timezone": "", **ONE_RUN},
        "remaining_runs",
        "one occurrence",
    ),
    ({"catchup_policy": "deadline"}, "max_delay", "needs max_delay"),
    ({"catchup_policy": "never"}, "catchup_policy", "valid choice"),
    ({"max_delay": "soon"}, "max_delay", "duration"),
    ({"overlap_policy": "never"}, "overlap_policy", "valid choice"),
    ({"max_concurrent_runs": "1001"}, "max_concurrent_runs", "from 1 to 1000"),
    ({"max_concurrent_runs": "9" * 5000}, "max_concurrent_runs", "whole number"),
    ({"pause_on_failure": "-1"}, "pause_on_failure", "from 1 to 100"),
    ({"late_after": "0s"}, "late_after", "at least 1s"),
    ({"max_runtime": "60"}, "max_runtime", "duration"),
    ({"max_time_since_success": "x\x00"}, "max_time_since_success", "Null"),
]
"""What is typed in place of what is right, and what is said beside which field."""


def test_what_is_wrong_is_said_beside_its_field(client, conn):
    opened = fields_of(client.get(page("add")).content.decode())
    for changes, field, said in WRONG:
        answer = client.post(page("add"), {**opened, **NEW, **changes, "_save": "1"})
        assert answer.status_code == 422, changes
        errors = answer.context_data["form"].errors
        assert list(errors) == [field], (changes, errors)
        assert said in " ".join(errors[field]), changes
    assert conn.execute("SELECT id FROM chrono_job").fetchall() == []


def test_what_a_quota_refuses_is_said_in_the_form(client, conn, make_job):
    gone = make_job(key="gone").job
    assert client.post(page("delete", gone)).status_code == 302
    address = send(client, page("add"), **NEW).headers["Location"]
    change_quotas(1, Quotas(max_jobs=1, max_payload_bytes=20), actor=ACTOR)
    added = send(client, page("add"), **{**NEW, "key": "second"})
    assert added.status_code == 422
    [said] = added.context_data["form"].errors["__all__"]
    assert "quota max_jobs of this tenant is 1, and this would make it 2" in said
    changed = send(client, address, payload=json.dumps({"text": "x" * 30}))
    assert changed.status_code == 422
    assert list(changed.context_data["form"].errors) == ["payload"]
    restored = client.post(page("restore", gone))
    assert restored.status_code == 422
    assert "max_jobs" in restored.content.decode()
    nightly = job_at(address)
    fields = {"payload": json.dumps({"text": "x" * 30}), "key": "k"}
    ran = client.post(page("run", nightly.id), fields)
    assert ran.status_code == 422
    assert "max_payload_bytes" in ran.content.decode()
    assert conn.execute(
        "SELECT key, changes FROM chrono_job WHERE deleted_at IS NULL"
    ).fetchall() == [("nightly", 1)]


def test_a_changed_job_keeps_what_was_hidden(client, conn, make_job):
    payload = {"password": "hush-payload", "list": [{"api_key": "hush-deep"}], "n": 1}
    seen = make_job(target=HTTP, payload=payload)
    address = page("change", seen.job)
    shown = client.get(address).content.decode()
    assert "hush" not in shown
    assert shown.count(HIDDEN) >= 5
    payload_shown = json.loads(fields_of(shown)["payload"])
    payload_shown["n"] = 2
    answer = send(
        client, address, name="Renamed", payload=json.dumps(payload_shown), reason="why"
    )
    assert answer.status_code == 302, answer.context_data["form"].errors
    job = job_at(address)
    assert job.name == "Renamed"
    assert job.definition.target["headers"] == HTTP["headers"]
    assert job.definition.target["url"] == HTTP["url"]
    assert job.definition.payload == {**payload, "n": 2}
    assert job.revision == 2
    assert events(conn, seen.job)[-1] == ("job.change", "ada", "user", "why")
    [event] = conn.execute(
        "SELECT id FROM chrono_audit_event WHERE action = 'job.change'"
    ).fetchone()
    told = client.get(
        reverse("admin:chrono_tenants_auditevent_change", args=[event])
    ).content.decode()
    assert "Renamed" in told
    assert "hush" not in told


def test_another_host_does_not_get_what_is_hidden(client, make_job):
    seen = make_job(target=HTTP, payload={"password": "hush-payload"})
    address = page("change", seen.job)
    for url in (
        "https://evil.example.org/hook",
        "https://example.org.evil.org/hook",
        "http://example.org/hook",
        "https://example.org:8443/hook",
        "https://example.org@evil.org/hook",
        "https:///example.org/hook",
    ):
        answer = send(client, address, url=url)
        assert answer.status_code == 422, url
        assert {"headers", "payload"} <= answer.context_data["form"].errors.keys(), url
    assert send(client, address, url="https://example.org/other").status_code == 302
    assert job_at(address).definition.target["headers"] == HTTP["headers"]
    clone = f"{page('add')}?clone={seen.job}"
    assert send(client, clone, url="https://evil.org/").status_code == 422


def test_saving_what_is_shown_changes_nothing(client, make_job):
    for number, fields in enumerate(
        (
            {"target": HTTP, "payload": {"token": "hush"}},
            {"cron": "H H * * *", "timezone": "Europe/Berlin"},
            {"cron": None, "interval": "15m"},
            {"cron": None, "run_at": "2090-01-01T00:00:00Z"},
            {"cron": "0 0 3 * * *", "seconds": True, "jitter_window": "7s"},
            {"cron": "@every 90s"},
            {"tags": ["payroll", "region:eu"]},
            POLICIES,
            {"target": {"kind": "task", "name": "tests.nothing", "min_items_ok": 7}},
            {"cron": None, "fixed_delay": "5m", "ends_at": "2090-01-01T00:00:00Z"},
            {"cron": None, "interval": "5m", "starts_at": "2026-01-01T00:00:00Z"},
        )
    ):
        seen = make_job(**{**fields, "key": f"job-{number}"})
        answer = send(client, page("change", seen.job))
        assert answer.status_code == 302, answer.context_data["form"].errors
        said = client.get(answer.headers["Location"]).content.decode()
        assert "unchanged" in said
        assert job_at(page("change", seen.job)).changes == 1


def test_somebody_else_s_change_is_not_overwritten(client, make_job):
    seen = make_job()
    address = page("change", seen.job)
    mine = fields_of(client.get(address).content.decode())
    assert send(client, address, name="Theirs").status_code == 302
    answer = client.post(address, {**mine, "name": "Mine", "_save": "1"})
    assert answer.status_code == 422
    assert "is at version 2 by now" in answer.content.decode()
    assert job_at(address).name == "Theirs"


def test_a_clone_has_all_but_the_key_and_its_secrets_unseen(client, make_job):
    seen = make_job(target=HTTP, payload={"secret": "hush-payload"}, tags=["pay", "eu"])
    address = f"{page('add')}?clone={seen.job}"
    shown = client.get(address).content.decode()
    assert "hush" not in shown
    answer = send(client, address)
    assert answer.status_code == 302, answer.context_data["form"].errors
    clone = job_at(answer.headers["Location"])
    assert clone.id != seen.job
    assert clone.key == "nightly-copy"
    assert clone.definition.target["headers"] == HTTP["headers"]
    assert clone.definition.target["url"] == HTTP["url"]
    assert clone.definition.payload == {"secret": "hush-payload"}
    assert clone.tags == ("eu", "pay")


def test_a_clone_has_the_same_policies_and_bounds(client, make_job):
    started = {"cron": None, "interval": "5m", "starts_at": "2026-01-01T00:00:00Z"}
    for n, made in enumerate((POLICIES, started, {"cron": None, "fixed_delay": "5m"})):
        seen = make_job(**made, key=f"k{n}")
        answer = send(client, f"{page('add')}?clone={seen.job}")
        assert answer.status_code == 302, answer.context_data["form"].errors
        fields = definition_fields(job_at(answer.headers["Location"]))
        old = definition_fields(job_at(page("change", seen.job)))
        differ = {name for name in fields if fields[name] != old[name]}
        assert differ == ({"key"} if n < 2 else {"key", "starts_at"})


@pytest.mark.parametrize("new", ["cron", "fixed_delay"])
def test_another_kind_of_schedule_keeps_no_start_that_nobody_chose(
    client, make_job, new
):
    seen = make_job(cron=None, interval="15m")
    changes = {"interval": "", new: {"cron": "0 9 * * *"}.get(new, "5m")}
    answer = send(client, page("change", seen.job), **changes)
    assert answer.status_code == 302, answer.context_data["form"].errors
    schedule = job_at(page("change", seen.job)).definition.schedule
    assert ("starts_at" in schedule) is (new == "fixed_delay")


def test_a_secret_cannot_be_what_stands_for_one(client):
    answer = send(client, page("add"), **NEW, payload=json.dumps({"token": HIDDEN}))
    assert list(answer.context_data["form"].errors) == ["payload"]
    http = {"target_kind": "http", "url": "https://a.org", "headers": f"A: {HIDDEN}"}
    answer = send(client, page("add"), **{**NEW, **http})
    assert list(answer.context_data["form"].errors) == ["headers"]


def test_each_deed_is_asked_first_done_once_and_written_down(client, conn, make_job):
    seen = make_job()
    deeds = [
        ("pause", {"note": "away", "until": "2090-01-01T00:00"}, "job.pause"),
        ("resume", {}, "job.resume"),
        ("skip", {"count": "2"}, "job.skip_next"),
        ("delete", {}, "job.delete"),
        ("restore", {}, "job.restore"),
    ]
    for number, (verb, fields, action) in enumerate(deeds, start=1):
        address = page(verb, seen.job)
        assert client.get(address).status_code == 200
        assert len(events(conn, seen.job)) == number
        reason = f"because of {verb}"
        answer = client.post(address, {**fields, "reason": reason})
        assert answer.status_code == 302, (verb, answer.content.decode())
        assert answer.headers["Location"] == page("change", seen.job)
        found = events(conn, seen.job)
        assert len(found) == number + 1
        assert found[-1] == (action, "ada", "user", reason)
        shown = client.get(page("change", seen.job)).content.decode()
        if verb == "pause":
            assert "away" in shown
            assert "2090-01-01 00:00:00" in shown
        if verb == "delete":
            assert 'id="job-form"' not in shown
    job = job_at(page("change", seen.job))
    assert job.paused
    assert job.deleted_at is None


def test_a_deed_that_is_refused_says_why(client, make_job):
    seen = make_job()
    for verb, fields, said in (
        ("pause", {"until": "2001-01-01T00:00"}, "until"),
        ("skip", {"count": "0"}, "greater than or equal to 1"),
        ("restore", {}, "not deleted"),
        ("run", {"payload": "{", "key": "a"}, "no JSON"),
    ):
        answer = client.post(page(verb, seen.job), fields)
        assert answer.status_code == 422, verb
        assert said in answer.content.decode(), verb


def test_run_now_makes_one_run_however_often_it_is_sent(client, conn, make_job):
    seen = make_job()
    address = page("run", seen.job)
    fields = fields_of(client.get(address).content.decode())
    fields |= {"payload": '{"n": 5}', "reason": "to see"}
    first = client.post(address, fields)
    again = client.post(address, fields)
    assert first.status_code == again.status_code == 302
    assert first.headers["Location"] == again.headers["Location"]
    shown = client.get(first.headers["Location"]).content.decode()
    assert "scheduled" in shown
    assert "&quot;n&quot;: 5" in shown
    assert [event[0] for event in events(conn, seen.job)] == ["job.create", "job.run"]


def test_many_jobs_are_paused_and_resumed_once_that_is_confirmed(
    client, conn, make_job
):
    jobs = [make_job(key=f"job-{n}").job for n in range(3)]
    listed = page("changelist")
    for verb, paused in (("pause", True), ("resume", False)):
        chosen = {
            "action": f"{verb}_selected",
            "_selected_action": [str(job) for job in jobs[:2]],
            "index": "0",
        }
        asked = client.post(listed, chosen)
        assert asked.status_code == 200
        assert "2 jobs?" in asked.content.decode()
        assert not conn.execute(
            "SELECT id FROM chrono_job WHERE paused = %s AND id = ANY(%s)",
            [paused, jobs[:2]],
        ).fetchall()
        del chosen["index"]
        done = client.post(listed, {**chosen, "confirmed": "yes", "reason": "storm"})
        assert done.status_code == 302
        rows = conn.execute("SELECT id FROM chrono_job WHERE paused").fetchall()
        assert {job for (job,) in rows} == (set(jobs[:2]) if paused else set())
        for job in jobs[:2]:
            assert events(conn, job)[-1] == (f"job.{verb}", "ada", "user", "storm")
    assert len(events(conn, jobs[2])) == 1


def test_a_mutation_needs_a_token(person, make_job, conn):
    from django.test import Client

    client = Client(enforce_csrf_checks=True)
    client.force_login(person)
    seen = make_job()
    for verb in ("pause", "delete", "run", "change"):
        assert client.post(page(verb, seen.job), {}).status_code == 403
    assert client.post(page("add"), NEW).status_code == 403
    assert len(events(conn, seen.job)) == 1


def test_a_job_that_cannot_be_read_does_not_blank_the_list(client, conn, make_job):
    good, bad = make_job(key="good"), make_job(key="bad")
    conn.execute(
        "UPDATE chrono_job_revision SET schedule = '{}' WHERE job_id = %s", [bad.job]
    )
    text = client.get(page("changelist")).content.decode()
    assert "broken" in text
    assert "At 02:30 every day" in text
    assert str(good.job) in text
    assert client.get(page("change", bad.job)).status_code == 200


def test_jobs_are_found_by_what_people_remember(client, make_job):
    make_job(key="alpha", name="The first one", queue="mail", tags=["pay", "eu"])
    make_job(
        key="beta",
        cron="17 4 * * *",
        target={"kind": "http", "url": "https://hooks.example.org/pay"},
        tags=["team/ops", "pay"],
    )
    gamma = make_job(key="gamma", cron="H 5 * * *", paused=True)
    make_job(key="delta", cron=None, interval="15m")

    def keys(query: str) -> set[str]:
        answer = client.get(f"{page('changelist')}?{query}")
        assert not answer.context_data["cl"].trouble, query
        return {row.key for row in answer.context_data["cl"].result_list}

    everything = {"alpha", "beta", "gamma", "delta"}
    assert keys("") == everything
    assert keys("q=ALPH") == {"alpha"}
    assert keys("q=first+one") == {"alpha"}
    assert keys("q=hooks.example") == {"beta"}
    assert keys("q=17+4") == {"beta"}
    assert keys("q=H+5") == {"gamma"}
    assert keys("q=TEAM/o") == {"beta"}
    assert keys("q=eu") == {"alpha"}
    assert keys("q=%7B") == set()
    assert keys("tag=pay") == {"alpha", "beta"}
    assert keys("tag=pay&queue=mail") == {"alpha"}
    assert keys("tag=pa") == set()
    assert keys("tag=pay&state=deleted") == set()
    assert keys(f"q={gamma.job}") == {"gamma"}
    assert keys("q=tests.nothing") == {"alpha", "gamma", "delta"}
    assert keys("q=100%25") == set()
    assert keys("q=%00") == everything
    assert keys("state=paused") == {"gamma"}
    assert keys("state=active&queue=mail") == {"alpha"}
    assert keys("kind=interval") == {"delta"}
    assert keys("kind=once") == set()
    assert keys("tenant=1") == everything
    assert keys("tenant=2") == set()
    assert keys("state=deleted") == set()


def test_a_new_job_may_begin_paused_and_belong_to_another_tenant(client, conn):
    from apps.tenants.directory import create_tenant

    other = create_tenant("Globex", actor=ACTOR)
    answer = send(client, page("add"), **NEW, tenant=str(other.pk), paused="on")
    assert answer.status_code == 302, answer.context_data["form"].errors
    job = job_at(answer.headers["Location"])
    assert (job.tenant, job.paused) == (other.pk, True)


def test_tags_are_shown_lead_to_their_jobs_and_are_edited(client, conn, make_job):
    seen = make_job(tags=["pay", "team/ops"])
    address = page("change", seen.job)
    link = f'<a href="{page("changelist")}?tag=team%2Fops">team/ops</a>'
    for shown in (page("changelist"), address):
        assert link in client.get(shown).content.decode()
    assert send(client, address, tags="eu pay", reason="moved").status_code == 302
    job = job_at(address)
    assert (job.tags, job.revision, job.version, job.changes) == (
        ("eu", "pay"),
        1,
        1,
        2,
    )
    assert events(conn, seen.job)[-1] == ("job.change", "ada", "user", "moved")
    assert send(client, address, tags="").status_code == 302
    assert job_at(address).tags == ()


def test_a_tag_that_cannot_be_shows_no_rows_and_says_so(client, make_job):
    make_job(tags=["pay"])
    listed = client.get(f"{page('changelist')}?tag=Pay").context_data["cl"]
    assert (listed.result_list, listed.trouble) == (
        [],
        "A tag is lower case: pay, not Pay.",
    )


def test_the_form_proposes_at_most_once_for_what_is_tagged_payroll(client):
    new = {**NEW, "tags": "payroll eu"}
    text = send(client, page("add"), "_preview", **new).content.decode()
    assert "somebody may be paid twice" in text
    chosen = {**new, "delivery": "at_most_once"}
    text = send(client, page("add"), "_preview", **chosen).content.decode()
    assert "somebody may be paid twice" not in text
    saved = send(client, page("add"), **chosen)
    job = job_at(saved["Location"])
    assert job.definition.policy["delivery"] == "at_most_once"
    assert job.definition.retry_policy["max_attempts"] == 1
    text = client.get(saved["Location"]).content.decode()
    assert "waits for a person" in text
