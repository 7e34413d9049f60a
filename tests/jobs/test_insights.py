"""Jobs that run longer than their period, found by their keys."""

from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from psycopg.types.json import Jsonb

from apps.jobs import insights, store
from apps.jobs.commands import create_jobs, delete_job, pause_job
from apps.jobs.insights import list_long_running, period_of
from apps.runs.days import ensure_days
from apps.runtime import sql
from apps.runtime.django_session import raw_connection
from apps.runtime.sessions import connect_upkeep
from apps.tenants.actor import Actor
from apps.tenants.directory import create_tenant
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND, parse_instant
from chrono.rules.keys import run_id
from chrono.rules.partitions import partition_of
from tests.support.definitions import definition

NOON = parse_instant("2054-11-30T12:00:00Z")
ACME = 1


def make(*fields):
    """Create jobs that are listed in this order, the newest last."""
    wanted = [
        definition(key=f"job-{number}", **one) for number, one in enumerate(fields)
    ]
    return [
        create_jobs([one], now=NOON - DAY + number)[0].job_id
        for number, one in enumerate(wanted)
    ]


def ran(ledger, job, lengths, *, state=1, every=MINUTE, group=0, before=NOON):
    """Write runs that took so long, the newest first; return their ids."""
    part, runs = partition_of(job), []
    for number, length in enumerate(lengths):
        moment = before - number * every
        ledger.fired(job, moment, group=group)
        runs.append(run_id(job, moment, group, part))
        ledger.conn.execute(
            """
            INSERT INTO chrono_run (due_at, dispatched_at, started_at, finished_at, id,
                job_id, fence, revision, tenant, part, state, attempt, queue)
            SELECT at, at, at, at + %s * interval '1 ms', %s, %s, 1, 1, 1, %s, %s, 1,
                'default' FROM to_timestamp(%s / 1000.0) AS at
            """,
            [length, runs[-1], job, part, state, moment],
        )
    return runs


def skipped(ledger, job, count, *, before=NOON):
    """Write decisions against a run, one a minute."""
    ledger.conn.execute(
        """
        INSERT INTO chrono_occurrence (scheduled_for, job_id, fence, version, revision,
            part, outcome, kind, reason)
        SELECT to_timestamp(%s / 1000.0) - n * interval '1 min', %s, 1, 1, 1, %s, 2, 1,
            2 FROM generate_series(0, %s - 1) AS n
        """,
        [before, job, partition_of(job), count],
    )


def listed(**options: Any):
    page = list_long_running(
        raw_connection(),
        **{"tenant": ACME, "now": NOON, "after": None, "limit": 50, **options},
    )
    return [one.key for one in page.items], page


MINUTELY = {"cron": "* * * * *"}


def test_who_takes_longer_than_the_time_between_two_fires_is_listed(ledger):
    slow, quick, interval = make(MINUTELY, MINUTELY, {"interval": "90s"})
    runs = ran(ledger, slow, [30 * SECOND, 61 * SECOND, 95 * SECOND, 2 * SECOND])
    ran(ledger, quick, [60 * SECOND] * 3)
    ran(ledger, interval, [91 * SECOND])
    keys, page = listed()
    assert keys == ["job-2", "job-0"]
    found = page.items[1]
    assert (found.period, found.job_id) == (MINUTE, slow)
    assert (found.runs.runs, found.runs.longer) == (4, 2)
    assert (found.runs.median, found.runs.longest) == (30 * SECOND, 95 * SECOND)
    assert found.runs.longest_run == runs[2]
    assert page.next is None


def test_only_the_last_twenty_runs_count(ledger):
    job, _ = make(MINUTELY, MINUTELY)
    ran(ledger, job, [SECOND] * 20 + [HOUR] * 5)
    assert listed()[0] == []
    ran(ledger, job, [HOUR], before=NOON + MINUTE)
    assert listed()[1].items[0].runs.runs == 20


def test_failures_and_runs_besides_the_schedule_do_not_count(ledger):
    failed, manual = make(MINUTELY, MINUTELY)
    ran(ledger, failed, [HOUR] * 3, state=3)
    ran(ledger, manual, [HOUR] * 3, group=1)
    assert listed()[0] == []


def test_what_was_skipped_meanwhile_is_looked_past(ledger):
    near, far = make(MINUTELY, MINUTELY)
    for job, count in ((near, 999), (far, 1_000)):
        skipped(ledger, job, count)
        ran(ledger, job, [20 * HOUR], before=NOON - count * MINUTE)
    assert listed()[0] == ["job-0"]


def test_who_does_not_fire_or_cannot_be_read_is_left_out(ledger):
    jobs = make(MINUTELY, MINUTELY, MINUTELY, MINUTELY, {"run_at": "2054-11-30T11:00Z"})
    for job in jobs:
        ran(ledger, job, [HOUR])
    pause_job(jobs[0], now=NOON)
    delete_job(jobs[1], now=NOON)
    ledger.conn.execute(
        "UPDATE chrono_job_revision SET schedule = %s WHERE job_id = %s",
        [Jsonb({"cron": "61 * * * *"}), jobs[2]],
    )
    assert listed()[0] == ["job-3"]


def test_another_tenant_s_jobs_are_none_of_these(ledger):
    [job] = make(MINUTELY)
    ran(ledger, job, [HOUR])
    other = create_tenant("Globex", actor=Actor.command("tests")).pk
    assert listed(tenant=other)[0] == []


def test_pages_go_on_where_the_last_ended(ledger, monkeypatch):
    slow, quick = {"cron": "*/2 * * * *"}, MINUTELY
    jobs = make(slow, quick, slow, quick, slow)
    for number in (0, 2, 4):
        ran(ledger, jobs[number], [HOUR])
    keys, page = listed(limit=2)
    assert (keys, page.next) == (["job-4", "job-2"], jobs[2])
    assert listed(limit=2, after=page.next)[0] == ["job-0"]
    monkeypatch.setattr(insights, "LOOK", 2)
    keys, page = listed()
    assert (keys, page.next) == (["job-4"], jobs[3])


@pytest.mark.parametrize(
    ("fields", "length"),
    [
        ({"cron": "*/5 * * * *", "timezone": "Europe/Berlin"}, 5 * MINUTE),
        ({"cron": "H H * * *"}, DAY),
        ({"interval": "90s", "starts_at": "2054-11-30T11:00:00Z"}, 90 * SECOND),
        ({"fixed_delay": "90s", "starts_at": "2054-11-30T11:00:00Z"}, None),
        ({"run_at": "2054-11-30T11:00:00Z"}, None),
        ({"cron": "61 * * * *"}, None),
        ({}, None),
    ],
)
def test_the_period_is_the_least_time_between_two_fires(fields, length):
    assert period_of(fields, UUID(int=7)) == length


def nodes(plan):
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def read_of_ledger(job):
    """Return how many rows of the ledger it reads to find a job's runs."""
    text = sql.load("jobs", "list_long_runs").text
    values = {
        "jobs": [job],
        "parts": [partition_of(job)],
        "periods": [MINUTE],
        "since": NOON - 7 * DAY,
    }
    with transaction.atomic():
        conn = raw_connection()
        store.forbid_sorts(conn)
        [(plan,)] = conn.execute(
            f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {text}", values
        )
    return sum(
        one["Actual Rows"]
        for one in nodes(plan[0]["Plan"])
        if one.get("Relation Name", "").startswith("chrono_occurrence")
    )


def test_the_ledger_is_read_no_further_than_its_bound(dsn, ledger):
    with connect_upkeep(dsn, name="test upkeep") as upkeep:
        ensure_days(upkeep, now=NOON)
    # Statistics by which a job has a row or two: it looks cheap to read all and sort.
    ledger.conn.execute(
        """
        INSERT INTO chrono_occurrence (scheduled_for, job_id, fence, version, revision,
            part, outcome, kind, reason)
        SELECT to_timestamp(%s / 1000.0), gen_random_uuid(), 1, 1, 1, n %% 64, 2, 1, 2
        FROM generate_series(1, 2000) AS n
        """,
        [NOON],
    )
    ledger.conn.execute("ANALYZE chrono_occurrence")
    [job] = make(MINUTELY)
    skipped(ledger, job, 2_500)
    # Of each other day the newest row is compared.
    assert 1_000 <= read_of_ledger(job) < 1_000 + 20
