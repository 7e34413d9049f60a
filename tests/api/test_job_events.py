"""GET /jobs/{id}/events: what was noticed of a job."""

import uuid

import pytest

from apps.jobs.watch_store import Told, change_breaches
from chrono.rules.instants import MINUTE, parse_instant
from chrono.rules.watch import NO_RUN, Breach, Change, WatchKind
from tests.api.test_jobs import JOBS, body, call, problem

NOON = parse_instant("2055-03-01T12:00:00Z")


@pytest.fixture
def conn(connect):
    return connect()


@pytest.fixture
def job(client):
    return call(client, "post", JOBS, body(key="job")).json()["id"]


def tell(conn, job, change, *, kind=WatchKind.LATE, run=NO_RUN, at=NOON):
    breach = Breach(kind=kind, job_id=uuid.UUID(job), run_id=run)
    told = Told(breach=breach, change=change, tenant=1, part=5, detail="How it is.")
    return change_breaches(conn, told=[told], now=at)


def test_events_come_newest_first_page_by_page(client, conn, job):
    run = uuid.uuid4()
    tell(conn, job, Change.BEGINS, run=run)
    tell(conn, job, Change.ENDS, run=run, at=NOON + MINUTE)
    tell(conn, job, Change.BEGINS, kind=WatchKind.NO_SUCCESS, at=NOON + 2 * MINUTE)
    first = client.get(f"{JOBS}/{job}/events?limit=2").json()
    newest, older = first["items"]
    assert newest["kind"] == "no_success"
    assert (newest["over"], newest["run_id"]) == (False, None)
    assert older == {
        "id": newest["id"] - 1,
        "at": "2055-03-01T12:01:00Z",
        "kind": "late",
        "over": True,
        "run_id": str(run),
        "detail": "How it is.",
    }
    cursor = first["next_cursor"]
    rest = client.get(f"{JOBS}/{job}/events?limit=2&cursor={cursor}").json()
    assert [one["over"] for one in rest["items"]] == [False]
    assert rest["next_cursor"] is None


def test_a_job_of_which_nothing_was_noticed_has_none(client, job):
    answer = client.get(f"{JOBS}/{job}/events")
    assert answer.status_code == 200
    assert answer.json() == {"items": [], "next_cursor": None}


def test_the_events_of_another_tenant_s_job_are_nowhere(stranger, conn, job):
    tell(conn, job, Change.BEGINS)
    assert stranger.get(f"{JOBS}/{job}/events").status_code == 404
    assert stranger.get(f"{JOBS}/{uuid.uuid4()}/events").status_code == 404


@pytest.mark.parametrize("cursor", ["bm8=", "MA==", "OTIyMzM3MjAzNjg1NDc3NTgwOA=="])
def test_a_cursor_that_no_page_gave_is_refused(client, job, cursor):
    answer = client.get(f"{JOBS}/{job}/events?cursor={cursor}")
    problem(answer, 400, "bad_cursor")


def test_status_counts_what_is_wrong_up_to_a_hundred(nobody, client, conn, job):
    assert nobody.get("/status").json()["open_breaches"] == 0
    tell(conn, job, Change.BEGINS)
    assert nobody.get("/status").json()["open_breaches"] == 1
    conn.execute(
        """
        INSERT INTO chrono_breach (job_id, kind, run_id, tenant, part, since, detail)
        SELECT gen_random_uuid(), 1, gen_random_uuid(), 1, 1, now(), ''
        FROM generate_series(1, 200)
        """
    )
    assert nobody.get("/status").json()["open_breaches"] == 100
