"""What a tenant's jobs will bring, read from its schedules batch by batch."""

import uuid
from collections import Counter

import pytest
from psycopg.types.json import Jsonb

from apps.jobs import forecast
from apps.jobs.commands import create_jobs, delete_job
from apps.jobs.forecast import foretell, measure_load, suggest
from apps.runtime import sql
from apps.runtime.django_session import raw_connection
from apps.tenants.actor import Actor
from apps.tenants.directory import create_tenant
from chrono.rules.forecast import Stretch
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND, parse_instant
from chrono.rules.jitter import offset
from chrono.rules.keys import PAST_ID
from chrono.rules.schedule import CronSchedule
from tests.support.definitions import definition

NOON = parse_instant("2054-11-30T12:00:00Z")
HALF = Stretch(start=NOON, width=MINUTE, bins=30)
ACME = 1


def make(*fields):
    """Create jobs; return their ids in that order."""
    wanted = [
        definition(key=f"job-{number}", **one) for number, one in enumerate(fields)
    ]
    found = create_jobs(wanted, now=NOON - HOUR)
    return [outcome.job_id for outcome in found]


def told(stretch=HALF, **options):
    return foretell(raw_connection(), tenant=ACME, stretch=stretch, **options)


def store_schedule(ledger, job, schedule):
    ledger.conn.execute(
        "UPDATE chrono_job_revision SET schedule = %s WHERE job_id = %s",
        [Jsonb(schedule), job],
    )


def test_each_kind_of_schedule_is_counted(ledger):
    make(
        {"cron": "*/10 * * * *", "timezone": "Asia/Kolkata", "time_critical": True},
        {"interval": "7m", "starts_at": "2054-11-30T11:58:00Z"},
        {"run_at": "2054-11-30T12:05:30Z"},
        {"run_at": "2054-11-30T12:30:00Z"},
    )
    found = told()
    expected = dict.fromkeys([0, 10, 20], 1) | {5: 2, 12: 1, 19: 1, 26: 1}
    assert {n: c for n, c in enumerate(found.nominal) if c} == expected
    assert found.due == found.nominal
    assert (found.jobs, found.unpredictable, found.broken) == (4, 0, 0)
    assert found.last_job is None
    assert list(found.rows())[5] == (NOON + 5 * MINUTE, 2, 2)


def test_jitter_moves_what_is_due(ledger):
    jobs = make(*[{"cron": "5 12 * * *", "jitter_window": "10m"}] * 20)
    found = told()
    assert found.nominal[5] == sum(found.nominal) == 20
    expected = [0] * 30
    for job in jobs:
        expected[5 + offset(job, 10 * MINUTE) // MINUTE] += 1
    assert found.due == expected


def test_what_was_nominal_before_is_due_within(ledger):
    jobs = make(*[{"cron": "59 11 * * *", "jitter_window": "1h"}] * 5)
    found = told(Stretch(start=NOON, width=SECOND, bins=3_600))
    seconds = [(offset(job, HOUR) - MINUTE) // SECOND for job in jobs]
    assert sum(found.nominal) == 0
    # One in sixty is due before the stretch begins.
    within = Counter(second for second in seconds if second >= 0)
    assert {n: c for n, c in enumerate(found.due) if c} == within


def test_paused_and_deleted_jobs_bring_nothing(ledger):
    minutely = {"cron": "* * * * *"}
    _, _, gone = make(minutely, {**minutely, "paused": True}, minutely)
    delete_job(gone, now=NOON - MINUTE)
    found = told()
    assert (found.jobs, sum(found.nominal)) == (1, 30)


def test_another_tenant_s_jobs_are_none_of_these(ledger):
    make({"cron": "* * * * *"})
    other = create_tenant("Globex", actor=Actor.command("tests")).pk
    found = foretell(raw_connection(), tenant=other, stretch=HALF)
    assert (found.jobs, sum(found.nominal)) == (0, 0)


def test_a_fixed_delay_and_a_broken_row_are_told_and_stop_nobody(ledger):
    bad = [
        {"fixed_delay": "5m", "starts_at": "2054-11-30T11:00:00Z"},
        {"cron": "61 * * * *"},
        {"cron": "* * * * *", "timezone": "Mars/Olympus"},
        {},
    ]
    jobs = make(*[{"cron": "* * * * *"}] * (len(bad) + 1))
    for job, schedule in zip(jobs, bad, strict=False):
        store_schedule(ledger, job, schedule)
    found = told()
    assert (found.jobs, found.unpredictable, found.broken) == (1, 1, 3)
    assert sum(found.nominal) == 30


def test_batches_make_no_difference(ledger, monkeypatch):
    make(*[{"cron": "*/3 * * * *"}] * 4, *[{"interval": "5m"}] * 5)
    whole = told()
    monkeypatch.setattr(forecast, "BATCH", 3)
    assert told() == whole


@pytest.mark.parametrize(("name", "most"), [("MOST_JOBS", 2), ("MOST_STEPS", 250)])
def test_what_was_broken_off_goes_on_after_its_last_job(
    ledger, monkeypatch, name, most
):
    jobs = make(
        *[{"cron": f"{n} * * * *", "time_critical": True} for n in range(5)],
        {"cron": "* * * * *", "paused": True},
    )
    whole = told()
    monkeypatch.setattr(forecast, name, most)
    first = told()
    assert first.last_job in jobs
    assert 0 < first.jobs < 5
    parts, part = [first], first
    while part.last_job is not None:
        part = told(after=part.last_job)
        parts.append(part)
    assert sum(part.jobs for part in parts) == whole.jobs == 5
    added = [sum(counts) for counts in zip(*(p.due for p in parts), strict=True)]
    assert added == whole.due


def test_a_batch_is_read_by_its_keys_alone(ledger):
    create_tenant("Globex", actor=Actor.command("tests"))
    ledger.conn.execute(
        """
        WITH n AS (
            SELECT n, gen_random_uuid() AS id, 1 + n % 2 AS tenant
            FROM generate_series(1, 4000) AS n
        ), jobs AS (
            INSERT INTO chrono_job (id, tenant, key, name, part, version, revision,
                epoch, activated_at, paused, pause_note, created_at, updated_at)
            SELECT id, tenant, n, '', 0, 1, 1, 0, now(), false, '', now(), now() FROM n
        )
        INSERT INTO chrono_job_revision (job_id, revision, schedule, jitter_window,
            overlap_policy, queue, priority, target, payload, retry_policy, created_at)
        SELECT id, 1, '{}', 0, 'skip', 'default', 2, '{}', NULL, '{}', now() FROM n
        """
    )
    ledger.conn.execute("ANALYZE chrono_job, chrono_job_revision")
    text = sql.load("jobs", "list_schedules").text
    rows = raw_connection().execute(
        f"EXPLAIN {text}", {"tenant": 1, "before": PAST_ID, "limit": 100}
    )
    plan = "\n".join(line for (line,) in rows)
    assert "chrono_job_living" in plan
    assert "chrono_job_revision_key" in plan
    assert "Seq Scan" not in plan


def test_the_load_of_a_minute_is_what_is_planned_in_it(ledger):
    make(
        *[{"run_at": "2054-11-30T18:00:00Z"}] * 2,
        {"run_at": "2054-11-30T18:00:59.999Z"},
        {"run_at": "2054-11-30T18:01:00Z"},
    )
    at = NOON + 6 * HOUR + 30 * SECOND
    assert measure_load(raw_connection(), at, tenant=ACME) == 3
    assert measure_load(raw_connection(), at, tenant=ACME + 1) == 0


def ask(cron, *, count=3, between=None, **options):
    return suggest(
        raw_connection(),
        CronSchedule(cron, **options),
        tenant=ACME,
        now=NOON + 30 * SECOND,
        between=between,
        count=count,
    )


def crons(found):
    return [one.schedule.expression for one in found.others]


def test_the_least_loaded_minute_of_the_hour_is_found(ledger):
    busy = [n for n in range(60) if n != 17]
    make(*[{"cron": f"{n} * * * *", "time_critical": True} for n in [*busy, 0, 0]])
    found = ask("0 * * * *")
    assert (found.wanted.busiest, found.wanted.mean) == (3, 3.0)
    assert crons(found)[0] == "17 * * * *"
    assert [one.busiest for one in found.others] == [0, 1, 1]
    assert found.forecast.jobs == 61


def test_a_part_of_the_day_is_meant_by_its_own_clocks(ledger):
    # 00:00 to 04:00 in UTC, of which only 03:21 is free.
    free = 3 * 60 + 21
    make(
        *[
            {"cron": f"{n % 60} {n // 60} * * *", "time_critical": True}
            for n in range(241)
            if n != free
        ]
    )
    found = ask("@daily", timezone="Europe/Berlin", between=(60, 300), count=1)
    assert crons(found) == ["21 4 * * *"]
    assert found.others[0].first == NOON - 12 * HOUR + DAY + free * MINUTE


def test_a_monthly_cron_is_weighed_on_its_own_day(ledger):
    make(*[{"cron": "0 3 1 * *", "time_critical": True}] * 2)
    found = ask("0 3 1 * *", count=60)
    assert found.wanted.busiest == 2
    assert [one.busiest for one in found.others] == [0] * 59


def test_nothing_else_to_choose_from_is_an_answer_too(ledger):
    make({"cron": "* * * * *"})
    found = ask("* * * * *")
    assert found.others == []
    assert found.wanted.busiest == 1


def test_a_job_that_is_not_there_is_a_place_to_go_on_from(ledger):
    make({"cron": "* * * * *"})
    assert told(after=PAST_ID).jobs == 1
    assert told(after=uuid.UUID(int=0)).jobs == 0
