"""Zones: one set of data, one place of arithmetic, and no local time in between."""

import itertools
import re
import zoneinfo
from importlib.metadata import version

import pytest
from django.conf import settings
from django.test import override_settings

from apps.jobs.commands import delete_jobs
from apps.runtime.django_session import raw_connection
from chrono.rules import oracle, zones
from chrono.rules.instants import DAY
from tests.api.conftest import ApiClient
from tests.architecture.sources import ROOT, name_of, within
from tests.cases.fires import at, fires
from tests.scheduler.conftest import Leader

FAR_APART = ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Asia/Kolkata"]
KEEPERS_OF_LOCAL_TIME = {"chrono/rules/zones.py", "chrono/rules/oracle.py"}
"""Who may turn an instant into a local time: the rule, and what checks the rule."""


def test_a08_no_zone_but_the_job_s_has_a_say(leader: Leader) -> None:
    for ours, sessions in itertools.product(FAR_APART, FAR_APART):
        began = leader.clock.moment
        with override_settings(TIME_ZONE=ours):
            for conn in (leader.conn, raw_connection()):
                conn.execute(f"SET TimeZone = '{sessions}'")
            jobs = {
                leader.create(
                    f"{ours} {sessions} {zone}", cron="0 9 * * *", timezone=zone
                ): zone
                for zone in FAR_APART
            }
            leader.jump_to(began + DAY)
        for job, zone in jobs.items():
            fields = {"cron": "0 9 * * *", "timezone": zone}
            [once] = oracle.fires(fields, began, began + DAY)
            assert leader.fired(job) == [once], (ours, sessions, zone)
        delete_jobs(list(jobs), now=leader.clock.moment)


def test_a09_every_instant_has_its_zone_in_the_settings_and_the_tables(
    leader: Leader,
) -> None:
    assert settings.USE_TZ
    text = (ROOT / "chrono" / "settings.py").read_text()
    assert "\nUSE_TZ = True\n" in text, "no environment may switch it off"
    naive = leader.conn.execute(
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_schema = 'public' AND data_type = 'timestamp without time zone'"
    ).fetchall()
    assert naive == []


@pytest.mark.parametrize("field", ["run_at", "starts_at"])
def test_a09_an_instant_without_a_zone_is_refused_by_its_field(
    client: ApiClient, field: str
) -> None:
    schedule = {"interval": "1h"} if field == "starts_at" else {}
    body = {
        "key": "naive",
        "target": {"kind": "task", "name": "tests.nothing"},
        **schedule,
        field: "2055-01-01T00:00:00",
    }
    answer = client.send("/api/v1/jobs", body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == f"/{field}"
    assert "names no zone" in answer.json()["detail"]


def test_a15_nothing_but_the_rule_of_zones_makes_a_local_time_of_an_instant() -> None:
    local = re.compile(
        r"ZoneInfo\(|\.astimezone\((?!UTC\))|make_aware|localtime|\.fold\b"
    )
    found = {
        name_of(path)
        for folder in ("apps", "chrono")
        for path in within(folder, ".py")
        if local.search(path.read_text())
    }
    assert found == KEEPERS_OF_LOCAL_TIME


def test_a15_one_instant_of_an_hour_that_comes_twice_is_due_at_that_instant(
    leader: Leader,
) -> None:
    # 01:30 in New York, the second time; at 05:45 the first time is over.
    leader.clock.moment = at("2055-11-07 05:00")
    job = leader.create("once", run_at="2055-11-07T06:30:00Z")
    leader.jump_to(at("2055-11-07 05:45"))
    leader.jump_to(at("2055-11-07 06:29"))
    assert leader.fired(job) == []
    leader.jump_to(at("2055-11-07 06:30"))
    assert leader.fired(job) == [at("2055-11-07 06:30")]


def test_a39_a_zone_that_gave_up_its_summer_time_has() -> None:
    assert fires("0 9 * * *", "America/Mexico_City", "2026-07-01 00:00") == [
        "2026-07-01 15:00"
    ]


def test_a39_zone_data_is_one_pinned_package_and_the_server_s_is_not_asked() -> None:
    assert zoneinfo.TZPATH == ()
    pinned = (ROOT / "requirements.txt").read_text()
    assert f"tzdata=={version('tzdata')}\n" in pinned
    assert zones.data_version() == version("tzdata")
    asked = [
        name_of(path)
        for path in within("apps", ".sql")
        for zone in re.findall(r"(?i)at\s+time\s+zone\s+(\S+)", path.read_text())
        if zone.strip(",;)") != "'UTC'"
    ]
    assert asked == []


@pytest.mark.parametrize("zone", ["Asia/Amman", "Asia/Damascus"])
def test_a40_a_change_that_was_called_off_at_short_notice_is_none(zone: str) -> None:
    assert fires("0 9 * * *", zone, "2022-10-26 12:00", 4) == [
        "2022-10-27 06:00",
        "2022-10-28 06:00",
        "2022-10-29 06:00",
        "2022-10-30 06:00",
    ]


def test_a41_a_zone_without_summer_time_since_a_year_ago_has_none() -> None:
    assert fires("0 9 * * *", "America/Sao_Paulo", "2019-12-01 00:00", 2) == [
        "2019-12-01 12:00",
        "2019-12-02 12:00",
    ]
    # The last summer with one.
    assert fires("0 9 * * *", "America/Sao_Paulo", "2018-12-01 00:00") == [
        "2018-12-01 11:00"
    ]
