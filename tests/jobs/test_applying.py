"""Applying a list: what is right already is left alone."""

import pytest

from apps.jobs import applying
from apps.jobs.applying import Removal, apply, apply_each
from apps.jobs.commands import COMMAND, create_job, pause_job
from apps.tenants.directory import change_timezone
from chrono.rules.errors import BadValue
from chrono.rules.instants import DAY, parse_instant
from tests.support.definitions import definition

NOON = parse_instant("2054-11-30T12:00:00Z")


def test_applying_makes_it_so_and_applying_again_does_nothing(ledger):
    stays = create_job(definition(key="stays", interval="10s"), now=NOON).job_id
    goes = create_job(definition(key="goes", interval="10s"), now=NOON).job_id
    rests = create_job(definition(key="rests", interval="10s"), now=NOON).job_id
    wanted = [
        definition(key="new", interval="1m"),
        definition(key="stays", interval="10s"),
        Removal(key="goes"),
        Removal(key="never was"),
        definition(key="rests", interval="10s", paused=True),
    ]
    dry = apply(wanted, dry_run=True, now=NOON)
    assert not ledger.job(goes)["deleted"]
    done = apply(wanted, now=NOON)
    said = [("created",), ("unchanged",), ("deleted",), ("unchanged",), ("paused",)]
    assert [outcome.actions for outcome in done] == said
    assert [outcome.actions for outcome in dry] == said
    assert ledger.job(goes)["deleted"]
    assert ledger.job(rests)["paused"]
    assert ledger.job(stays)["version"] == 1
    epochs = ledger.rows("SELECT id, epoch FROM chrono_partition ORDER BY id")
    assert {o.actions for o in apply(wanted, now=NOON + DAY)} == {("unchanged",)}
    assert ledger.rows("SELECT id, epoch FROM chrono_partition ORDER BY id") == epochs


def test_a_definition_that_says_nothing_of_a_pause_leaves_it(ledger):
    job = create_job(definition(interval="10s"), now=NOON).job_id
    pause_job(job, now=NOON)
    apply([definition(interval="10s")], now=NOON)
    assert ledger.job(job)["paused"]
    apply([definition(interval="10s", paused=False)], now=NOON)
    assert not ledger.job(job)["paused"]


def test_a_list_without_zones_moves_no_job_when_its_tenant_does(ledger):
    wanted = [definition(key=f"k{n}", cron="0 9 * * *") for n in range(2)]
    change_timezone(1, "Europe/Berlin", actor=COMMAND)
    assert [one.actions for one in apply(wanted, now=NOON)] == [("created",)] * 2
    change_timezone(1, "Asia/Tokyo", actor=COMMAND)
    for dry_run in (True, False):
        done = apply(wanted, dry_run=dry_run, now=NOON)
        assert [one.actions for one in done] == [("unchanged",)] * 2
    apply([definition(key="k2", cron="0 9 * * *"), *wanted], now=NOON)
    assert ledger.rows(
        "SELECT j.key, r.schedule ->> 'timezone' FROM chrono_job j "
        "JOIN chrono_job_revision r ON r.job_id = j.id ORDER BY j.key"
    ) == [("k0", "Europe/Berlin"), ("k1", "Europe/Berlin"), ("k2", "Asia/Tokyo")]
    named = definition(key="k0", cron="0 9 * * *", timezone="UTC")
    assert apply([named], now=NOON)[0].actions == ("changed",)


def test_one_bad_entry_and_nothing_is_applied(ledger):
    wanted = [
        definition(key="good", interval="1m"),
        definition(key="bad", run_at="2020-01-01T00:00:00Z"),
    ]
    with pytest.raises(BadValue, match="bad: run_at") as refused:
        apply(wanted, now=NOON)
    assert refused.value.field == "run_at"
    with pytest.raises(BadValue, match="there twice"):
        apply([wanted[0], wanted[0]], now=NOON)
    assert ledger.rows("SELECT count(*) FROM chrono_job") == [(0,)]


def test_a_key_taken_while_applying_is_changed_instead(ledger, monkeypatch):
    look = applying._look
    raced = []

    def look_and_lose_the_race(wanted, tenant, now):
        seen = look(wanted, tenant, now)
        if not raced:
            raced.append(create_job(definition(interval="10s"), now=NOON).job_id)
        return seen

    monkeypatch.setattr(applying, "_look", look_and_lose_the_race)
    [outcome] = apply([definition(interval="20s")], now=NOON)
    assert (outcome.job_id, outcome.actions) == (raced[0], ("changed",))


def test_what_was_refused_before_or_is_now_stands_where_it_was_asked(
    ledger, monkeypatch
):
    monkeypatch.setattr(applying, "BATCH", 2)
    create_job(definition(key="stays", interval="1m"), now=NOON)
    wrong = BadValue("It is no job.")
    over = definition(key="over", run_at="2020-01-01T00:00:00Z")
    new = [definition(key=f"new {n}", interval="1m") for n in range(3)]
    stays = definition(key="stays", interval="1m")
    wanted = [wrong, new[0], over, new[1], new[0], over, wrong, stays, new[2], wrong]
    found = apply_each(wanted, now=NOON)
    said = [getattr(one, "message", None) or (one.key, *one.actions) for one in found]
    past, twice = said[2], "The key is there twice."
    assert past.startswith("run_at")
    assert said == [
        wrong.message,
        ("new 0", "created"),
        past,
        ("new 1", "created"),
        twice,
        twice,
        wrong.message,
        ("stays", "unchanged"),
        ("new 2", "created"),
        wrong.message,
    ]
