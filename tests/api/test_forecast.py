"""GET /forecast and POST /schedules/suggest: counts, bounds, and what is refused."""

import json

import pytest

from apps.jobs import forecast
from tests.api.test_jobs import JOBS, TASK, call, problem

FORECAST = "/api/v1/forecast"
SUGGEST = "/api/v1/schedules/suggest"
NOON = "2059-01-06T12:00:00Z"


@pytest.fixture
def jobs(client):
    """One of every minute without jitter, and three of every hour with it."""
    wanted = [
        {"cron": "* * * * *", "time_critical": True},
        *[{"cron": "0 * * * *", "jitter_window": "20m"}] * 3,
    ]
    return [
        call(
            client, "post", JOBS, {"key": f"job-{n}", "target": TASK, **fields}
        ).json()["id"]
        for n, fields in enumerate(wanted)
    ]


def ask(client, **parameters):
    names = {"start": "from", "length": "for"}
    return client.get(
        FORECAST, {names.get(name, name): value for name, value in parameters.items()}
    )


def test_a_stretch_is_counted_bin_by_bin(client, jobs):
    answer = ask(client, start="2059-01-06T12:00:20Z", length="31m", per="minute")
    assert answer.status_code == 200
    told = answer.json()
    assert (told["from"], told["to"]) == (NOON, "2059-01-06T12:31:00Z")
    assert len(told["bins"]) == 31
    assert told["bins"][0] == {
        "at": NOON,
        "nominal": 4,
        "due": told["bins"][0]["due"],
    }
    assert sum(one["nominal"] for one in told["bins"]) == 34
    assert sum(one["due"] for one in told["bins"]) == 34
    assert {name: told[name] for name in told if name not in ("bins", "from")} == {
        "to": "2059-01-06T12:31:00Z",
        "jobs": 4,
        "unpredictable": 0,
        "broken": 0,
        "truncated": False,
        "last_job": None,
    }


@pytest.mark.parametrize(
    ("parameters", "bins", "runs"),
    [
        ({"start": NOON, "to": "2059-01-06T12:00:40Z", "per": "second"}, 40, 4),
        ({"start": NOON, "length": "60d", "per": "hour"}, 1440, 63 * 1440),
        ({"start": NOON, "per": "hour"}, 60, 63 * 60),
        ({"start": NOON}, 60, 63),
        ({"length": "24h"}, 1440, 63 * 24),
        ({"start": NOON, "to": "2059-01-06T12:00:01Z"}, 1, 4),
        ({}, 60, None),
    ],
)
def test_what_is_left_out_has_a_default(client, jobs, parameters, bins, runs):
    told = ask(client, **parameters).json()
    assert len(told["bins"]) == bins
    total = sum(one["nominal"] for one in told["bins"])
    assert total == (runs or total)


REFUSED = [
    ({"per": "day"}, "per", "second, minute, hour"),
    ({"length": "25h"}, "for", "1500 bins"),
    ({"length": "1h", "per": "second"}, "for", "3600 bins"),
    ({"length": "36600d", "per": "hour"}, "for", "1440"),
    ({"length": "0s"}, "for", "ends where it begins"),
    ({"length": "soon"}, "for", "duration"),
    ({"length": "1h", "to": NOON}, "for", "in place of to"),
    ({"start": NOON, "to": NOON}, "to", "ends where it begins"),
    ({"start": "9998-12-31T00:00:00Z", "to": NOON}, "to", "or before"),
    ({"start": "today"}, "from", "instant"),
    ({"to": "2059-01-06T12:00:00"}, "to", "zone"),
    ({"after_job": "7"}, "after_job", "UUID"),
    ({"until": NOON}, "until", "no parameter until"),
]


def test_a_stretch_that_is_none_is_refused(client):
    for parameters, name, words in REFUSED:
        answer = ask(client, **parameters)
        code = "unknown_parameter" if name == "until" else "bad_parameter"
        told = problem(answer, 400, code, parameter=name)
        assert words in told["detail"], parameters


def test_the_last_hours_there_are_can_be_asked_for(client, jobs):
    answer = ask(client, start="9998-12-31T20:00:00Z", length="60d", per="hour")
    assert answer.status_code == 200
    counts = [one["nominal"] for one in answer.json()["bins"]]
    assert (counts[:4], sum(counts)) == ([63] * 4, 4 * 63)


def test_where_it_was_broken_off_it_can_go_on(client, jobs, monkeypatch):
    monkeypatch.setattr(forecast, "MOST_JOBS", 3)
    first = ask(client, start=NOON).json()
    assert (first["jobs"], first["truncated"]) == (3, True)
    assert first["last_job"] == jobs[1]
    rest = ask(client, start=NOON, after_job=first["last_job"]).json()
    assert (rest["jobs"], rest["truncated"], rest["last_job"]) == (1, False, None)
    assert sum(one["nominal"] for one in rest["bins"]) == 60


def test_a_stranger_s_forecast_is_empty(stranger, jobs):
    told = ask(stranger, start=NOON).json()
    assert told["jobs"] == sum(one["due"] for one in told["bins"]) == 0


def test_it_needs_a_key_that_may_read(make_client, nobody):
    assert ask(make_client("worker")).status_code == 403
    assert ask(nobody).status_code == 401
    assert ask(make_client("read")).status_code == 200


def suggest(client, **fields):
    return client.send(SUGGEST, json.dumps(fields).encode())


def test_the_least_loaded_minutes_come_beside_the_wanted_one(client):
    for n in range(4):
        fields = {"key": f"job-{n}", "target": TASK, "time_critical": True}
        cron = "0 3 * * *" if n < 3 else "1 3 * * 1"
        call(client, "post", JOBS, {**fields, "cron": cron})
    told = suggest(client, cron="0 3 * * *", timezone="UTC", count=2).json()
    assert (told["wanted"]["cron"], told["wanted"]["busiest"]) == ("0 3 * * *", 3)
    assert told["wanted"]["text"] == "At 03:00 every day, UTC."
    assert [one["cron"] for one in told["suggestions"]] == ["2 3 * * *", "3 3 * * *"]
    assert told["suggestions"][0]["busiest"] == told["suggestions"][0]["mean"] == 0
    assert told["suggestions"][0]["first"].endswith("T03:02:00Z")
    assert (told["jobs"], told["truncated"]) == (4, False)


def test_a_part_of_the_day_may_be_given(client, jobs):
    told = suggest(
        client,
        cron="@daily",
        timezone="Europe/Berlin",
        earliest="01:00",
        latest="05:00",
        count=None,
    ).json()
    assert len(told["suggestions"]) == 5
    assert told["wanted"]["busiest"] >= 1
    hours = {int(one["cron"].split()[1]) for one in told["suggestions"]}
    assert hours <= {1, 2, 3, 4, 5}


NOTHING_TO_CHOOSE = [
    ({}, "bad_schedule", "/cron"),
    ({"cron": "61 * * * *"}, "bad_cron", "/cron"),
    ({"cron": "@every 5m"}, "bad_value", "/cron"),
    ({"cron": "H 3 * * *"}, "bad_value", "/cron"),
    ({"cron": "0 3 * * *", "timezone": "Mars"}, "unknown_timezone", "/timezone"),
    ({"cron": "0 3 * * *", "earliest": "1:00"}, "bad_value", "/latest"),
    (
        {"cron": "0 3 * * *", "earliest": "1:00", "latest": "02:00"},
        "bad_value",
        "/earliest",
    ),
    ({"cron": "0 3 * * *", "latest": 5}, "bad_value", "/earliest"),
    (
        {"cron": "0 * * * *", "earliest": "01:00", "latest": "02:00"},
        "bad_value",
        "/earliest",
    ),
    ({"cron": "0 3 * * *", "count": 21}, "bad_value", "/count"),
    ({"cron": "0 3 * * *", "interval": "5m"}, "unknown_field", "/interval"),
]


def test_what_has_no_minutes_to_choose_from_is_refused(client):
    for fields, code, pointer in NOTHING_TO_CHOOSE:
        problem(suggest(client, **fields), 422, code, pointer=pointer)
