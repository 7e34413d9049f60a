"""POST /schedules/preview: nothing is saved, everything is said."""

import json
import re

import pytest

from apps.tenants.actor import Actor
from apps.tenants.directory import change_timezone
from tests.architecture.sources import ROOT
from tests.support.seed import make_job

PATH = "/api/v1/schedules/preview"
BACKWARDS = {"starts_at": "2056-01-01T00:00:00Z", "ends_at": "2055-01-01T00:00:00Z"}


@pytest.fixture
def preview(client):
    def ask(**fields):
        return client.send(PATH, json.dumps(fields).encode())

    return ask


def test_a_schedule_is_a_sentence_with_its_next_ten_fires(preview):
    answer = preview(
        cron="30 9 * * 1-5", timezone="Europe/Berlin", after="2026-01-01T00:00:00Z"
    )
    assert answer.status_code == 200
    body = answer.json()
    assert body["text"] == "At 09:30 on Monday to Friday, Europe/Berlin time."
    assert len(body["fires"]) == 10
    assert body["fires"][0] == {
        "scheduled_for": "2026-01-01T08:30:00Z",
        "due_before": "2026-01-01T08:31:00Z",
        "local": "2026-01-01T09:30:00+01:00",
        "note": None,
    }
    assert body["jitter_window"] == "1m"
    assert body["warnings"] == []


def test_a_clock_change_is_said_beside_its_fire(preview):
    body = preview(
        cron="30 2 * * *",
        timezone="America/New_York",
        after="2055-03-14T00:00:00-05:00",
        count=1,
    ).json()
    [fire] = body["fires"]
    assert fire["local"] == "2055-03-14T03:00:00-04:00"
    assert "02:30 does not exist" in fire["note"]
    assert [one["code"] for one in body["warnings"]] == ["dst-gap"]


@pytest.mark.parametrize(
    ("fields", "text", "count"),
    [
        ({"interval": "90s"}, "Every 90 seconds, counted from", 10),
        ({"cron": "@every 2h"}, "Every 2 hours, counted from", 10),
        ({"fixed_delay": "5m"}, "Each 5 minutes after the end of the run before.", 1),
        ({"run_at": "2100-01-01T00:00:00Z"}, "Once, at 2100-01-01T00:00:00Z.", 1),
        ({"run_at": "2001-01-01T00:00:00Z"}, "Once, at 2001-01-01T00:00:00Z.", 0),
    ],
)
def test_the_other_kinds_are_shown_too(preview, fields, text, count):
    body = preview(**fields).json()
    assert body["text"].startswith(text)
    assert len(body["fires"]) == count
    assert (body["load_at_first"] is None) is (count == 0)


def test_a_missing_time_is_left_out_where_that_is_asked_for(preview):
    ask = {
        "cron": "30 2 * * *",
        "timezone": "America/New_York",
        "after": "2055-03-13T12:00:00-05:00",
        "count": 1,
    }
    shifted, skipped = preview(**ask), preview(**ask, dst_gap="skip")
    [fire] = shifted.json()["fires"]
    assert fire["local"] == "2055-03-14T03:00:00-04:00"
    [fire] = skipped.json()["fires"]
    assert (fire["local"], fire["note"]) == ("2055-03-15T02:30:00-04:00", None)
    assert "left out" in skipped.json()["warnings"][0]["text"]


@pytest.mark.parametrize(
    ("fold", "offsets"), [("first", "4"), ("second", "5"), ("both", "45")]
)
def test_a_time_that_comes_twice_is_taken_as_asked_for(preview, fold, offsets):
    body = preview(
        cron="30 1 * * *",
        timezone="America/New_York",
        dst_fold=fold,
        after="2055-11-07T00:00:00-04:00",
        count=3,
    ).json()
    day = [one for one in body["fires"] if one["local"].startswith("2055-11-07")]
    assert [one["local"][-5:] for one in day] == [f"{n:0>2}:00" for n in offsets]
    notes = {"4": "this is the first", "5": "this is the second"}
    for one, offset in zip(day, offsets, strict=True):
        assert notes[offset] in one["note"]


def test_a_schedule_has_fires_between_its_start_and_its_end_alone(preview):
    body = preview(
        cron="0 9 * * *",
        after="2026-01-01T00:00:00Z",
        starts_at="2026-02-01T09:00:00Z",
        ends_at="2026-02-03T09:00:00Z",
    ).json()
    assert [one["scheduled_for"] for one in body["fires"]] == [
        f"2026-02-0{day}T09:00:00Z" for day in (1, 2, 3)
    ]
    body = preview(
        interval="1d", after="2026-01-01T00:00:00Z", ends_at="2026-01-02T23:00:00Z"
    ).json()
    assert [one["scheduled_for"] for one in body["fires"]] == ["2026-01-02T00:00:00Z"]
    body = preview(cron="0 9 * * *", ends_at="2001-01-01T00:00:00Z").json()
    assert (body["fires"], body["load_at_first"]) == ([], None)


def test_what_a_fixed_delay_does_after_its_first_run_is_not_guessed(preview):
    body = preview(fixed_delay="5m", after="2026-01-01T00:00:00Z").json()
    [fire] = body["fires"]
    assert fire["scheduled_for"] == "2026-01-01T00:05:00Z"
    assert [one["code"] for one in body["warnings"]] == ["fixed-delay"]


def test_a_cron_without_a_zone_is_read_in_the_tenant_s(preview, connect):
    change_timezone(1, "Europe/Berlin", actor=Actor.command("tests"))
    ask = {"cron": "0 9 * * *", "after": "2026-01-01T00:00:00Z", "count": 1}
    [fire] = preview(**ask).json()["fires"]
    assert fire["local"] == "2026-01-01T09:00:00+01:00"
    [fire] = preview(**ask, timezone="UTC").json()["fires"]
    assert fire["local"] == "2026-01-01T09:00:00+00:00"


def test_the_load_of_the_first_minute_is_the_tenant_s_own(preview, connect, stranger):
    conn = connect()
    for n in range(3):
        job = make_job(conn, target={})
        conn.execute(
            """
            INSERT INTO chrono_timer_far (due_at, scheduled_for, ref, job_id, version,
                revision, part, kind)
            VALUES (%(at)s, %(at)s, %(job)s, %(job)s, 1, 1, %(part)s, 1)
            """,
            {"at": f"2099-01-01T00:0{n // 2}:30Z", "job": job.id, "part": job.part},
        )
    fields = {"cron": "0 0 * * *", "after": "2098-12-31T12:00:00Z", "count": 1}
    assert preview(**fields).json()["load_at_first"] == 2
    theirs = stranger.send(PATH, json.dumps(fields).encode())
    assert theirs.json()["load_at_first"] == 0


@pytest.mark.parametrize(
    ("fields", "code", "pointer"),
    [
        ({}, "bad_schedule", "/cron"),
        ({"cron": "* * * * *", "interval": "5m"}, "bad_schedule", "/interval"),
        ({"cron": ""}, "bad_value", "/cron"),
        ({"cron": None}, "bad_schedule", "/cron"),
        ({"cron": ["* * * * *"]}, "bad_schedule", "/cron"),
        ({"cron": "* * * * * *"}, "bad_cron", "/cron"),
        ({"cron": "@reboot"}, "bad_cron", "/cron"),
        ({"cron": "0 0 31 2 *"}, "never_fires", "/cron"),
        ({"cron": "x" * 300}, "bad_cron", "/cron"),
        ({"cron": "* * * * *\n"}, "bad_cron", "/cron"),
        ({"cron": "* * * * *", "seconds": 1}, "bad_schedule", "/seconds"),
        ({"cron": "* * * * *", "timezone": "Mars"}, "unknown_timezone", "/timezone"),
        ({"cron": "* * * * *", "timezone": 5}, "bad_schedule", "/timezone"),
        ({"cron": "* * * * *", "dst_gap": "x"}, "bad_schedule", "/dst_gap"),
        ({"cron": "* * * * *", "jitter_window": 5}, "bad_value", "/jitter_window"),
        ({"cron": "* * * * *", "jitter_window": "9h"}, "bad_value", "/jitter_window"),
        ({"interval": 5}, "bad_schedule", "/interval"),
        ({"fixed_delay": 5}, "bad_schedule", "/fixed_delay"),
        ({"fixed_delay": "0s"}, "bad_schedule", "/fixed_delay"),
        ({"fixed_delay": "5m", "cron": "@daily"}, "bad_schedule", "/fixed_delay"),
        ({"fixed_delay": "5m", "timezone": "UTC"}, "bad_value", "/timezone"),
        ({"cron": "@daily", "ends_at": 5}, "bad_schedule", "/ends_at"),
        ({"cron": "@daily", "ends_at": "never"}, "bad_instant", "/ends_at"),
        ({"cron": "@daily", **BACKWARDS}, "bad_schedule", "/ends_at"),
        ({"fixed_delay": "5m", **BACKWARDS}, "bad_schedule", "/ends_at"),
        ({"run_at": "2058-01-01T00:00:00Z", **BACKWARDS}, "bad_value", "/starts_at"),
        ({"cron": "* * * * *", "run_at": {}}, "bad_schedule", "/run_at"),
        ({"cron": "* * * * *", "interval": 0}, "bad_schedule", "/interval"),
        ({"interval": "5m", "starts_at": []}, "bad_schedule", "/starts_at"),
        ({"interval": "5m", "starts_at": ""}, "bad_value", "/starts_at"),
        ({"interval": "1ms"}, "bad_schedule", "/interval"),
        ({"interval": "99999999d"}, "bad_duration", "/interval"),
        ({"run_at": "tomorrow"}, "bad_instant", "/run_at"),
        ({"run_at": "9999-12-31T00:00:00Z"}, "bad_instant", "/run_at"),
        ({"run_at": "2026-01-01T00:00:00"}, "bad_instant", "/run_at"),
        ({"cron": "* * * * *", "after": 5}, "bad_value", "/after"),
        ({"cron": "* * * * *", "after": "now"}, "bad_instant", "/after"),
        ({"cron": "* * * * *", "count": 0}, "bad_value", "/count"),
        ({"cron": "* * * * *", "count": 101}, "bad_value", "/count"),
        ({"cron": "* * * * *", "count": 1.5}, "bad_value", "/count"),
        ({"cron": "* * * * *", "count": True}, "bad_value", "/count"),
    ],
)
def test_a_wrong_field_is_named(preview, fields, code, pointer):
    answer = preview(**fields)
    assert answer.status_code == 422
    body = answer.json()
    assert (body["code"], body["errors"][0]["pointer"]) == (code, pointer)


def refused():
    text = (ROOT / "docs" / "cron.md").read_text()
    table = text.split("## Refused")[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \| (yes|no) \|", table, re.MULTILINE)


def test_every_expression_that_the_docs_refuse_is_refused_here(preview):
    assert len(refused()) > 30
    for expression, seconds in refused():
        answer = preview(cron=expression, seconds=seconds == "yes")
        assert answer.status_code == 422, expression
        assert answer.json()["errors"][0]["pointer"] == "/cron"


def test_the_last_instant_there_is_can_be_asked_for(preview):
    answer = preview(cron="* * * * *", after="9998-12-31T23:59:00Z")
    assert answer.status_code == 200
    assert answer.json()["fires"] == []


def test_a_job_tagged_payroll_is_proposed_to_run_at_most_once(preview):
    def codes(**fields):
        answer = preview(cron="0 9 1 * *", timezone="Europe/Berlin", **fields)
        return [one["code"] for one in answer.json()["warnings"]]

    assert "payroll-delivery" in codes(tags=["eu", "payroll"])
    assert "payroll-delivery" in codes(tags=["payroll"], delivery="at_least_once")
    for fields in (
        {},
        {"tags": None},
        {"tags": ["payslips"]},
        {"tags": ["payroll"], "delivery": "at_most_once"},
    ):
        assert "payroll-delivery" not in codes(**fields)
    for name, wrong in (("tags", "payroll"), ("delivery", "never")):
        refused = preview(cron="0 9 1 * *", **{name: wrong})
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["pointer"] == f"/{name}"
