"""`manage.py chronoforecast`: a small table of what is to come."""

import io

import pytest
from django.core.management import CommandError, call_command
from psycopg.types.json import Jsonb

from apps.jobs import forecast
from apps.jobs.commands import create_jobs
from chrono.rules.instants import parse_instant
from tests.support.definitions import definition

NOON = parse_instant("2054-11-30T12:00:00Z")


@pytest.fixture
def chronoforecast(ledger):
    """Ask for noon's next hours; return the lines that were printed."""

    def run(*options):
        out = io.StringIO()
        call_command(
            "chronoforecast", "--from", "2054-11-30T12:10:00Z", *options, stdout=out
        )
        return out.getvalue().splitlines()

    return run


def test_each_hour_has_its_row(chronoforecast):
    wanted = [
        {"cron": "*/30 * * * *", "time_critical": True},
        {"cron": "59 13 * * *", "jitter_window": "1s"},
    ]
    create_jobs(
        [definition(key=f"job-{n}", **one) for n, one in enumerate(wanted)], now=NOON
    )
    assert chronoforecast("--for", "2h") == [
        "UTC                      nominal         due",
        "2054-11-30 12:00:00            2           2",
        "2054-11-30 13:00:00            3           3",
        "sum                            5           5",
        "2 jobs counted.",
    ]
    assert len(chronoforecast()) == 1 + 24 + 2
    assert len(chronoforecast("--per", "minute", "--for", "90s")) == 1 + 2 + 2


def test_who_is_left_out_is_said(ledger, chronoforecast, monkeypatch):
    wanted = [definition(key=f"job-{n}", cron="0 * * * *") for n in range(4)]
    jobs = sorted(outcome.job_id for outcome in create_jobs(wanted, now=NOON))
    delay = {"fixed_delay": "5m", "starts_at": "2054-11-30T11:00:00Z"}
    for job, schedule in zip(jobs[2:], (delay, {}), strict=True):
        ledger.conn.execute(
            "UPDATE chrono_job_revision SET schedule = %s WHERE job_id = %s",
            [Jsonb(schedule), job],
        )
    monkeypatch.setattr(forecast, "MOST_JOBS", 3)
    assert chronoforecast("--for", "1h")[-1] == (
        "1 jobs counted; 1 left out: a fixed delay cannot be foretold; 1 left out: "
        f"their schedule cannot be read; broken off after {jobs[1]}: all older jobs "
        "are left out."
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--for", "2000h"], "2000 bins"),
        (["--for", "soon"], "A duration is"),
        (["--from", "noon"], "An instant is"),
        (["--tenant", "Globex"], "no tenant"),
    ],
)
def test_what_cannot_be_asked_is_said(chronoforecast, options, words):
    with pytest.raises(CommandError, match=words):
        chronoforecast(*options)
