"""Merge patches, jobs put by their key, and jobs that come back."""

import pytest

from apps.jobs.applying import put_job
from apps.jobs.commands import (
    create_job,
    delete_job,
    patch_job,
    pause_job,
    restore_job,
    resume_job,
)
from apps.jobs.editing import create, new_id
from apps.jobs.errors import (
    JobDeleted,
    JobNotDeleted,
    JobNotFound,
    KeyTaken,
    UnknownField,
    VersionConflict,
)
from apps.jobs.patching import patched
from apps.jobs.public import READ_ONLY, definition_fields
from chrono.rules.errors import BadValue
from chrono.rules.instants import HOUR, MINUTE, SECOND, format_instant, parse_instant
from chrono.rules.states import Reason
from tests.jobs.sessions import in_session, in_thread
from tests.support.definitions import definition
from tests.support.pg import wait_until_blocked

NOON = parse_instant("2054-11-30T12:00:00Z")
DEADLINE = {"catchup_policy": "deadline"}
HTTP = {"kind": "http", "url": "https://example.org/", "headers": {"A": "1", "B": "2"}}


def after(patch, **fields):
    """Return the fields of a job after a patch."""
    job = create(definition(**fields), job_id=new_id(NOON), now=NOON).after
    made = patched(job, patch)
    return definition_fields(create(made, job_id=job.id, now=NOON).after)


def test_what_is_not_named_stays():
    fields = {"cron": "0 9 * * *", "timezone": "Europe/Berlin", "queue": "slow"}
    before = after({}, **fields)
    assert after({"name": "New"}, **fields) == {**before, "name": "New"}


@pytest.mark.parametrize("name", ["", "colour", "Queue"])
def test_a_name_that_no_definition_has_is_refused_with_null_too(name):
    with pytest.raises(UnknownField):
        after({name: None}, interval="1h")


def test_null_gives_a_field_its_default():
    patch = {"queue": None, "priority": None, "payload": None, "timezone": None}
    fields = after(
        patch,
        cron="0 9 * * *",
        timezone="Europe/Berlin",
        queue="slow",
        priority="high",
        payload={"a": 1},
    )
    assert (fields["queue"], fields["priority"]) == ("default", "normal")
    assert (fields["payload"], fields["timezone"]) == (None, "UTC")


def test_tags_are_replaced_whole():
    fields = {"cron": "@daily", "tags": ["a", "b"]}
    assert after({"name": "x"}, **fields)["tags"] == ["a", "b"]
    assert after({"tags": ["c"]}, **fields)["tags"] == ["c"]
    assert after({"tags": []}, **fields)["tags"] == []
    assert after({"tags": None}, **fields)["tags"] == []


def test_objects_are_merged_and_lists_replaced():
    fields = after(
        {"target": {"headers": {"A": None, "C": "3"}}, "payload": {"l": [2]}},
        cron="@daily",
        target=HTTP,
        payload={"l": [1, 1], "kept": True},
    )
    assert fields["target"]["headers"] == {"B": "2", "C": "3"}
    assert fields["payload"] == {"l": [2], "kept": True}


@pytest.mark.parametrize(
    ("patch", "gone"),
    [
        ({"interval": "2h"}, ["cron", "timezone", "dst_gap"]),
        ({"run_at": "2058-01-01T00:00:00Z"}, ["cron", "timezone", "interval"]),
        ({"cron": "@every 90s"}, ["cron", "timezone"]),
        ({"fixed_delay": "5m"}, ["cron", "timezone", "seconds", "dst_fold"]),
    ],
)
def test_another_kind_of_schedule_takes_the_old_one_with_it(patch, gone):
    fields = after(patch, cron="0 9 * * *", timezone="Europe/Berlin")
    assert not set(gone) & set(fields)


def test_another_expression_keeps_its_zone_and_another_length_its_anchor():
    fields = after({"cron": "@daily"}, cron="@hourly", timezone="Europe/Berlin")
    assert (fields["cron"], fields["timezone"]) == ("@daily", "Europe/Berlin")
    anchor = "2026-01-01T00:00:00Z"
    fields = after({"interval": "2m"}, interval="1m", starts_at=anchor)
    assert (fields["interval"], fields["starts_at"]) == ("2m", anchor)
    fields = after({"cron": "0 9 * * *"}, cron="@every 90s")
    assert "starts_at" not in fields


ANCHOR, END = "2054-12-24T00:00:00Z", "2055-12-24T00:00:00Z"
OTHERS = {
    "cron": {"cron": "0 9 * * *"},
    "every": {"cron": "@every 90s"},
    "interval": {"interval": "2h"},
    "fixed_delay": {"fixed_delay": "5m"},
}


@pytest.mark.parametrize("new", OTHERS)
@pytest.mark.parametrize("old", OTHERS)
def test_a_start_that_was_chosen_and_an_end_outlive_the_kind(old, new):
    fields = after(OTHERS[new], **OTHERS[old], starts_at=ANCHOR, ends_at=END)
    assert (fields["starts_at"], fields["ends_at"]) == (ANCHOR, END)
    fields = after({"run_at": END}, **OTHERS[old], starts_at=ANCHOR, ends_at=END)
    assert not {"starts_at", "ends_at"} & set(fields)


@pytest.mark.parametrize("old", ["every", "interval", "fixed_delay"])
def test_where_an_interval_happens_to_count_from_becomes_no_start(old):
    fields = after(OTHERS["cron"], **OTHERS[old])
    assert not {"starts_at", "interval", "fixed_delay"} & set(fields)
    fields = after({"fixed_delay": "7m"}, **OTHERS[old])
    assert fields["starts_at"] == format_instant(NOON)


def test_a_bound_is_patched_alone_and_taken_away():
    fields = after({"ends_at": END}, cron="@daily")
    assert (fields["ends_at"], "starts_at" in fields) == (END, False)
    fields = after({"starts_at": None, "ends_at": None}, cron="@daily", ends_at=END)
    assert not {"starts_at", "ends_at"} & set(fields)
    fields = after({"starts_at": None}, interval="1m", starts_at=ANCHOR)
    assert fields["starts_at"] == format_instant(NOON)


def test_a_schedule_takes_the_policies_with_it_that_it_cannot_have():
    missed = {"catchup_policy": "deadline", "max_delay": "1h"}
    fields = after({"fixed_delay": "5m"}, cron="@daily", remaining_runs=3, **missed)
    assert (fields["catchup_policy"], fields["max_delay"]) == ("run_once", None)
    assert fields["remaining_runs"] == 3
    fields = after({"run_at": END}, cron="@daily", remaining_runs=3, **missed)
    assert (fields["catchup_policy"], fields["max_delay"]) == ("deadline", "1h")
    assert fields["remaining_runs"] is None
    for name, value in (("catchup_policy", "run_all"), ("max_delay", "1h")):
        with pytest.raises(BadValue) as refused:
            after({"fixed_delay": "5m", name: value}, cron="@daily", max_delay="2h")
        assert refused.value.field == name


def test_null_switches_a_policy_off():
    chosen = {"late_after": "5m", "pause_on_failure": 3, "catchup_policy": "skip"}
    fields = after(dict.fromkeys(chosen), cron="@daily", **chosen)
    assert (fields["late_after"], fields["pause_on_failure"]) == (None, None)
    assert fields["catchup_policy"] == "run_once"


def test_a_patch_leaves_no_deadline_without_its_length():
    with pytest.raises(BadValue) as refused:
        after({"max_delay": None}, cron="@daily", max_delay="1h", **DEADLINE)
    assert refused.value.field == "max_delay"
    with pytest.raises(BadValue) as refused:
        after(DEADLINE, cron="@daily")
    assert refused.value.field == "max_delay"


def test_a_patched_end_lies_after_the_start():
    for fields in ({"cron": "@daily", "starts_at": END}, {"interval": "1m"}):
        with pytest.raises(BadValue) as refused:
            after({"ends_at": "2026-01-01T00:00:00Z"}, **fields)
        assert refused.value.field == "ends_at"


def test_two_kinds_of_schedule_are_refused():
    with pytest.raises(BadValue):
        after({"cron": "@daily", "interval": "2m"}, cron="@hourly")


def test_a_default_jitter_follows_the_schedule_and_a_chosen_one_stays():
    assert after({}, cron="@daily")["jitter_window"] == "1m"
    assert after({"cron": "* * * * *"}, cron="@daily")["jitter_window"] == "30s"
    chosen = {"cron": "@daily", "jitter_window": "10s"}
    assert after({"cron": "* * * * *"}, **chosen)["jitter_window"] == "10s"
    assert after({"time_critical": True}, **chosen)["jitter_window"] == "0s"
    with pytest.raises(BadValue) as refused:
        after({"cron": "* * * * *"}, cron="@daily", jitter_window="45s")
    assert refused.value.field == "jitter_window"


def test_another_kind_of_target_takes_the_old_one_with_it():
    target = {"kind": "task", "name": "tests.x"}
    fields = after({"target": target}, cron="@daily", target=HTTP)
    assert fields["target"] == target


@pytest.mark.parametrize("name", READ_ONLY)
def test_what_is_only_read_is_not_patched(name):
    with pytest.raises(BadValue) as refused:
        after({name: "x"}, cron="@daily")
    assert refused.value.field == name


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"nmae": "x"}, "nmae"),
        ({"queue": 1}, "queue"),
        ({"tags": "a"}, "tags"),
        ({"tags": {"0": "a"}}, "tags"),
        ({"tags": ["A"]}, "tags"),
        ({"target": None}, "target"),
        ({"target": "x"}, "target"),
        ({"cron": None}, "cron"),
        ({"cron": 5}, "cron"),
        ({"paused": "yes"}, "paused"),
        ({"key": None}, "key"),
        ({"retry_policy": {"max_attempts": 0}}, "retry_policy.max_attempts"),
    ],
)
def test_a_patch_is_checked_as_a_whole_definition_is(patch, field):
    with pytest.raises(BadValue) as refused:
        after(patch, cron="@daily")
    assert refused.value.field == field


@pytest.mark.parametrize("patch", [None, [], "x", 3])
def test_a_patch_is_an_object(patch):
    with pytest.raises(BadValue):
        after(patch, cron="@daily")


def test_a_patch_of_a_thousand_levels_is_refused():
    patch = {}
    for _ in range(1_000):
        patch = {"payload": patch}
    with pytest.raises(BadValue):
        after(patch, cron="@daily")


def test_the_key_is_not_patched(ledger):
    job = create_job(definition(interval="1m"), now=NOON).job_id
    with pytest.raises(BadValue) as refused:
        patch_job(job, {"key": "other"}, now=NOON)
    assert refused.value.field == "key"
    with pytest.raises(UnknownField):
        patch_job(job, {"kye": "other"}, now=NOON)
    assert patch_job(job, {"key": "nightly"}, now=NOON).actions == ("unchanged",)


def test_a_patch_pauses_and_resumes(ledger):
    job = create_job(definition(interval="1m"), now=NOON).job_id
    assert patch_job(job, {"paused": True}, now=NOON).actions == ("paused",)
    assert patch_job(job, {"name": "N"}, now=NOON).actions == ("changed",)
    assert ledger.job(job)["paused"]
    outcome = patch_job(job, {"paused": False, "name": ""}, now=NOON)
    assert outcome.actions == ("changed", "resumed")
    assert patch_job(job, {"paused": None}, now=NOON).actions == ("unchanged",)


def test_only_the_version_that_was_seen_is_changed(ledger):
    job = create_job(definition(interval="1m"), now=NOON).job_id
    seen = patch_job(job, {"name": "one"}, if_match=1, now=NOON).changes
    for stale in (1, 3, 0):
        with pytest.raises(VersionConflict, match="version 2"):
            patch_job(job, {"name": "two"}, if_match=stale, now=NOON)
        with pytest.raises(VersionConflict):
            delete_job(job, if_match=stale, now=NOON)
        with pytest.raises(VersionConflict):
            pause_job(job, if_match=stale, now=NOON)
    assert ledger.rows("SELECT name, changes FROM chrono_job") == [("one", 2)]
    assert resume_job(job, if_match=seen, now=NOON).actions == ("unchanged",)
    assert delete_job(job, if_match=seen, now=NOON).changes == 3


def test_of_two_patches_of_one_version_the_second_is_refused(
    ledger, connect, background
):
    job = create_job(definition(interval="1m"), now=NOON).job_id
    first = connect(autocommit=False)
    first.execute("SELECT FROM chrono_job FOR UPDATE")
    second, pid = in_thread(background, patch_job, job, {"name": "two"}, if_match=1)
    wait_until_blocked(ledger.conn, pid)
    first.execute("UPDATE chrono_job SET changes = 2, name = 'one'")
    first.commit()
    with pytest.raises(VersionConflict):
        second.result(timeout=5)
    assert ledger.rows("SELECT name FROM chrono_job") == [("one",)]


def test_two_patches_of_different_fields_both_hold(ledger, background):
    job = create_job(definition(interval="1m"), now=NOON).job_id
    patches = [{"name": "one"}, {"payload": {"a": 1}}, {"queue": "slow"}]
    calls = [background(in_session, patch_job, job, patch) for patch in patches]
    for call in calls:
        call.result(timeout=10)
    assert ledger.rows(
        "SELECT j.name, r.payload, r.queue, j.changes FROM chrono_job j "
        "JOIN chrono_job_revision r ON r.job_id = j.id AND r.revision = j.revision"
    ) == [("one", {"a": 1}, "slow", 4)]


# By key.


def test_a_job_is_put_by_its_key(ledger):
    made = put_job(definition(interval="1m"), now=NOON)
    assert made.actions == ("created",)
    same = put_job(definition(interval="1m"), now=NOON)
    assert (same.job_id, same.actions) == (made.job_id, ("unchanged",))
    changed = put_job(definition(interval="2m"), if_match=1, now=NOON)
    assert (changed.job_id, changed.actions, changed.changes) == (
        made.job_id,
        ("changed",),
        2,
    )
    with pytest.raises(VersionConflict):
        put_job(definition(interval="3m"), if_match=1, now=NOON)
    with pytest.raises(VersionConflict):
        put_job(definition(key="none", interval="3m"), if_match=1, now=NOON)
    delete_job(made.job_id, now=NOON)
    assert put_job(definition(interval="1m"), now=NOON).actions == ("created",)


def test_twenty_puts_of_one_key_make_one_job(ledger, background):
    calls = [
        background(in_session, put_job, definition(interval="1m")) for _ in range(20)
    ]
    outcomes = [call.result(timeout=20) for call in calls]
    assert len({outcome.job_id for outcome in outcomes}) == 1
    actions = [outcome.actions for outcome in outcomes]
    assert actions.count(("created",)) == 1
    assert ledger.rows("SELECT count(*) FROM chrono_job") == [(1,)]


# Deleted and restored.


def test_a_restored_job_is_paused_and_plans_from_its_resume_on(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    delete_job(job, now=NOON + 5 * SECOND)
    assert restore_job(job, now=NOON + MINUTE).actions == ("restored",)
    row = ledger.job(job)
    assert (row["deleted"], row["paused"], ledger.live(job)) == (False, True, [])
    assert row["activated_at"] == NOON + MINUTE
    assert ledger.skips(job) == []
    resume_job(job, now=NOON + HOUR + 1)
    [timer] = ledger.live(job)
    assert timer[3] == NOON + HOUR + 10 * SECOND
    [(first, reason, count, last)] = ledger.skips(job)
    assert (first, last) == (NOON + MINUTE + 10 * SECOND, NOON + HOUR)
    assert (reason, count) == (Reason.PAUSED, 354)


def test_a_job_whose_key_was_taken_stays_deleted(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    delete_job(job, now=NOON)
    other = create_job(definition(interval="1m"), now=NOON).job_id
    with pytest.raises(KeyTaken) as refused:
        restore_job(job, now=NOON)
    assert refused.value.field == "key"
    assert ledger.job(job)["deleted"]
    delete_job(other, now=NOON)
    restore_job(job, now=NOON)
    assert not ledger.job(job)["deleted"]


def test_a_job_that_is_there_is_not_restored(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    with pytest.raises(JobNotDeleted):
        restore_job(job, now=NOON)
    assert ledger.job(job)["version"] == 1


def test_deleting_twice_is_done_once(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    delete_job(job, now=NOON)
    before = ledger.rows("SELECT * FROM chrono_job")
    outcome = delete_job(job, now=NOON + HOUR)
    assert (outcome.actions, outcome.version, outcome.changes) == (
        ("unchanged",),
        2,
        2,
    )
    assert ledger.rows("SELECT * FROM chrono_job") == before


def test_a_deleted_job_says_so_to_who_would_change_it(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    delete_job(job, now=NOON)
    with pytest.raises(JobDeleted):
        pause_job(job, now=NOON)
    with pytest.raises(JobNotFound):
        patch_job(job, {"name": "x"}, now=NOON)


def test_a_pause_with_an_end_does_not_outlive_a_delete(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    pause_job(job, until=NOON + HOUR, now=NOON)
    delete_job(job, now=NOON)
    restore_job(job, now=NOON + 2 * HOUR)
    assert ledger.rows("SELECT paused, paused_until FROM chrono_job") == [(True, None)]


def test_a_job_that_is_no_longer_delivered_at_most_once_gets_its_attempts_back():
    def told(patch, **fields):
        told = after(patch, interval="1m", **fields)
        return told["delivery"], told["retry_policy"]["max_attempts"]

    once = {"delivery": "at_most_once"}
    assert told(once, retry_policy={"max_attempts": 4}) == ("at_most_once", 1)
    assert told({"name": "other"}, **once) == ("at_most_once", 1)
    assert told({"delivery": "at_least_once"}, **once) == ("at_least_once", 6)
    both = {"delivery": None, "retry_policy": {"max_attempts": 3}}
    assert told(both, **once) == ("at_least_once", 3)
