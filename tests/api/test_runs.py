"""GET /runs, /runs/{id}, /runs/{id}/attempts and POST /runs/{id}/cancel."""

import uuid

import pytest

from apps.runs.days import ensure_days
from apps.runtime.sessions import connect_upkeep
from apps.timers.buckets import ensure_buckets
from chrono.rules.instants import format_instant
from chrono.rules.keys import run_id
from tests.support.seed import DUE, make_job, make_ready, make_skip


@pytest.fixture
def conn(connect):
    return connect()


@pytest.fixture
def job(conn):
    return make_job(
        conn,
        target={"kind": "http", "url": "https://example.org/"},
        payload={"n": 1},
        retry_policy={"max_attempts": 4},
    )


def settled(conn, job, *, n, state=1, reason=None, kept=False):
    """Write the row of a run that is over; return its id."""
    scheduled_for = DUE - 60_000 * n
    run = run_id(job.id, scheduled_for, 0, job.part)
    table = "chrono_run_kept" if kept else "chrono_run"
    conn.execute(
        f"""
        INSERT INTO {table} (due_at, dispatched_at, started_at, finished_at, id, job_id,
            worker, fence, revision, tenant, part, state, reason, priority, attempt,
            queue, result)
        VALUES (to_timestamp(%(at)s), to_timestamp(%(at)s + 0.25),
            to_timestamp(%(at)s + 0.5), to_timestamp(%(at)s + 2), %(run)s, %(job)s,
            %(worker)s, 7, 1, 1, %(part)s, %(state)s, %(reason)s, 2, 1, 'default', '5')
        """,
        {
            "at": scheduled_for / 1000,
            "run": run,
            "job": job.id,
            "worker": uuid.UUID(int=9),
            "part": job.part,
            "state": state,
            "reason": reason,
        },
    )
    conn.execute(
        """
        INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence, version,
            revision, part, outcome, kind)
        VALUES (to_timestamp(%s), %s, %s, 7, 1, 1, %s, 1, 1)
        """,
        [scheduled_for / 1000, job.id, run, job.part],
    )
    return run


def skipped(conn, job, *, n, reason=2):
    """Write a skipped occurrence; return the id that its run would have had."""
    scheduled_for = DUE - 60_000 * n
    run = run_id(job.id, scheduled_for, 0, job.part)
    conn.execute(
        """
        INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence, version,
            revision, part, outcome, kind, reason)
        VALUES (to_timestamp(%s), %s, %s, 7, 1, 1, %s, 2, 1, %s)
        """,
        [scheduled_for / 1000, job.id, run, job.part, reason],
    )
    return run


def leased(conn, job, *, n):
    """Write the lease of a run that a worker has; return its id."""
    scheduled_for = DUE - 60_000 * n
    run = run_id(job.id, scheduled_for, 0, job.part)
    worker = uuid.uuid4()
    conn.execute(
        """
        INSERT INTO chrono_worker (id, host, pid, concurrency, queues)
        VALUES (%s, 'h', 1, 1, '{default}')
        """,
        [worker],
    )
    conn.execute(
        """
        INSERT INTO chrono_lease (due_at, dispatched_at, run_id, job_id, tag, fence,
            revision, tenant, part, priority, attempt, queue, token, worker)
        VALUES (to_timestamp(%(at)s), to_timestamp(%(at)s + 1), %(run)s, %(job)s, 1, 7,
            1, 1, %(part)s, 2, 1, 'default', %(run)s, %(worker)s)
        """,
        {
            "at": scheduled_for / 1000,
            "run": run,
            "job": job.id,
            "part": job.part,
            "worker": worker,
        },
    )
    return run


def retrying(conn, job, *, n):
    """Write the timer of a run that waits for its next attempt; return its id."""
    scheduled_for = DUE - 60_000 * n
    run = run_id(job.id, scheduled_for, 0, job.part)
    conn.execute(
        """
        INSERT INTO chrono_timer_far (due_at, scheduled_for, ref, job_id, version,
            revision, part, kind, attempt)
        VALUES (to_timestamp(%s), to_timestamp(%s), %s, %s, 0, 1, %s, 4, 2)
        """,
        [DUE / 1000, scheduled_for / 1000, run, job.id, job.part],
    )
    return run


def test_a_run_that_is_over_is_shown_whole(client, conn, job):
    run = settled(conn, job, n=1)
    answer = client.get(f"/api/v1/runs/{run}")
    assert answer.status_code == 200
    at = DUE - 60_000
    assert answer.json() == {
        "id": str(run),
        "job_id": str(job.id),
        "job_key": str(job.id),
        "status": "success",
        "state": "success",
        "reason": None,
        "cancel_requested": False,
        "scheduled_for": format_instant(at),
        "due_at": format_instant(at),
        "dispatched_at": format_instant(at + 250),
        "started_at": format_instant(at + 500),
        "finished_at": format_instant(at + 2000),
        "dispatch_lag_ms": 250,
        "start_lag_ms": 500,
        "duration_ms": 1500,
        "attempt": 1,
        "next_retry_at": None,
        "queue": "default",
        "priority": "normal",
        "revision": 1,
        "partition": job.part,
        "fence": 7,
        "worker": str(uuid.UUID(int=9)),
        "trigger": "schedule",
        "attempt_group": 0,
        "max_attempts": 4,
        "lease_until": None,
        "idempotency_key": str(run),
        "payload": {"n": 1},
        "result": 5,
        "checkpoint": None,
        "progress": None,
        "error": None,
        "missed_from": None,
        "missed_to": None,
        "missed_count": None,
        "terminate_from": None,
        "rerun_of": None,
        "rerun_as": None,
        "resolution": None,
    }


def test_a_run_shows_what_it_told_of_itself(client, conn, job):
    run = leased(conn, job, n=1)
    conn.execute(
        """
        INSERT INTO chrono_progress (run_id, part, attempt, share, text, noted_at,
            checkpoint)
        VALUES (%s, %s, 2, 0.3, 'page 7 of 20', to_timestamp(%s), '{"page": 7}')
        """,
        [run, job.part, DUE / 1000],
    )
    found = client.get(f"/api/v1/runs/{run}").json()
    assert found["checkpoint"] == {"page": 7}
    assert found["progress"] == {
        "share": 0.3,
        "text": "page 7 of 20",
        "at": format_instant(DUE),
        "attempt": 2,
    }
    conn.execute("UPDATE chrono_progress SET share = NULL, text = NULL")
    found = client.get(f"/api/v1/runs/{run}").json()["progress"]
    assert (found["share"], found["text"]) == (None, "")


def test_a_run_that_came_late_says_what_it_stands_for(client, conn, job):
    at = DUE - 60_000
    make_skip(conn, job, at - 180_000, reason=5, count=3, last=at - 60_000)
    run = settled(conn, job, n=1)
    told = ("missed_from", "missed_to", "missed_count")
    found = client.get(f"/api/v1/runs/{run}").json()
    assert [found[name] for name in told] == [None, None, None]
    conn.execute("UPDATE chrono_run SET started_at = started_at + interval '1 hour'")
    found = client.get(f"/api/v1/runs/{run}").json()
    expected = [format_instant(at - 180_000), format_instant(at), 4]
    assert [found[name] for name in told] == expected


def test_the_short_form_of_the_address_answers_the_same(client, conn, job):
    run = settled(conn, job, n=1)
    assert client.get(f"/runs/{run}").json() == client.get(f"/api/v1/runs/{run}").json()


@pytest.mark.parametrize(
    ("make", "status", "state"),
    [
        (leased, "running", "running"),
        (retrying, "pending", "retrying"),
        (lambda conn, job, n: make_ready(conn, job)[0], "pending", "ready"),
        (lambda conn, job, n: settled(conn, job, n=n, kept=True), "success", "success"),
        (
            lambda conn, job, n: settled(conn, job, n=n, state=3, reason=16),
            "failed",
            "dead",
        ),
        (skipped, "skipped", "skipped"),
    ],
    ids=["leased", "retrying", "ready", "kept", "dead", "skipped"],
)
def test_a_run_is_found_wherever_it_is(client, conn, job, make, status, state):
    run = make(conn, job, n=1)
    found = client.get(f"/api/v1/runs/{run}").json()
    assert (found["id"], found["status"], found["state"]) == (str(run), status, state)
    listed = client.get(f"/api/v1/runs?job={job.id}").json()["items"]
    mine = [one for one in listed if one["id"] == str(run)]
    if make is not retrying and state != "ready":
        # What is not in the ledger here was laid straight into its table.
        assert [one["state"] for one in mine] in ([state], [])
    everything = client.get("/api/v1/runs").json()["items"]
    assert ([one["state"] for one in everything] == [state]) is (state != "skipped")


def test_a_running_one_says_until_when_its_lease_holds(client, conn, job):
    run = leased(conn, job, n=1)
    found = client.get(f"/api/v1/runs/{run}").json()
    assert found["lease_until"] > found["started_at"]
    assert found["finished_at"] is None


def test_the_last_error_and_every_attempt_are_shown(client, conn, job):
    run = settled(conn, job, n=1, state=3, reason=16)
    for attempt, error in ((1, "connection refused"), (2, "503")):
        conn.execute(
            """
            INSERT INTO chrono_attempt (started_at, finished_at, run_id, worker, fence,
                part, attempt, reason, error)
            VALUES (to_timestamp(%s), to_timestamp(%s), %s, %s, 7, %s, %s, 30, %s)
            """,
            [10, 11, run, uuid.UUID(int=9), job.part, attempt, error],
        )
    found = client.get(f"/api/v1/runs/{run}").json()
    assert found["error"] == {
        "reason": "attempt_failed",
        "message": "503",
        "at": "1970-01-01T00:00:11Z",
    }
    attempts = client.get(f"/api/v1/runs/{run}/attempts").json()["items"]
    assert [(one["attempt"], one["error"]) for one in attempts] == [
        (1, "connection refused"),
        (2, "503"),
    ]


def test_the_attempt_that_did_not_fail_is_the_last(client, conn, job):
    run = settled(conn, job, n=1)
    [one] = client.get(f"/api/v1/runs/{run}/attempts").json()["items"]
    assert (one["attempt"], one["outcome"], one["duration_ms"]) == (1, "success", 1500)


@pytest.mark.parametrize(
    "text",
    ["none", str(uuid.UUID(int=0)), str(uuid.UUID(int=(1 << 128) - 1)), "1" * 32],
)
def test_a_run_that_is_not_there_is_a_problem(client, text):
    answer = client.get(f"/api/v1/runs/{text}")
    assert answer.status_code == 404
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.json()["code"] == "run_not_found"


def test_a_stranger_s_run_is_not_there(stranger, conn, job):
    run = settled(conn, job, n=1)
    other = skipped(conn, job, n=2)
    for path in (f"/runs/{run}", f"/runs/{run}/attempts", f"/runs/{other}"):
        assert stranger.get(f"/api/v1{path}").status_code == 404
    assert stranger.send(f"/api/v1/runs/{run}/cancel").status_code == 404
    assert stranger.get("/api/v1/runs").json() == {"items": [], "next_cursor": None}
    mine = stranger.get(f"/api/v1/runs?job={job.id}")
    assert mine.json() == {"items": [], "next_cursor": None}


@pytest.mark.parametrize("by_job", [False, True], ids=["tenant", "job"])
def test_pages_hold_every_run_once_and_in_order(client, conn, job, by_job):
    runs = [str(settled(conn, job, n=n, kept=n % 3 == 0)) for n in range(1, 8)]
    seen, path = [], "/api/v1/runs?limit=3" + (f"&job={job.id}" if by_job else "")
    answer = client.get(path).json()
    seen += answer["items"]
    while answer["next_cursor"]:
        answer = client.get(f"{path}&cursor={answer['next_cursor']}").json()
        assert len(answer["items"]) <= 3
        seen += answer["items"]
    assert [one["id"] for one in seen] == runs


def test_a_run_copied_to_the_kept_ones_is_listed_once(client, conn, job):
    run = settled(conn, job, n=1, state=3, reason=16)
    conn.execute("INSERT INTO chrono_run_kept SELECT * FROM chrono_run")
    items = client.get("/api/v1/runs").json()["items"]
    assert [one["id"] for one in items] == [str(run)]


def test_filters_narrow_the_list(client, conn, job):
    good = str(settled(conn, job, n=1))
    dead = str(settled(conn, job, n=2, state=3, reason=16))
    cancelled = str(settled(conn, job, n=3, state=4, reason=18))
    skip = str(skipped(conn, job, n=4))
    running = str(leased(conn, job, n=5))
    waiting = str(retrying(conn, job, n=6))

    def listed(question):
        items = client.get(f"/api/v1/runs?{question}").json()["items"]
        return [one["id"] for one in items]

    assert listed("status=failed") == [dead]
    assert listed("state=dead,cancelled") == [dead, cancelled]
    assert listed("status=running") == [running]
    assert listed("status=pending") == [waiting]
    assert listed("state=retrying&status=pending") == [waiting]
    assert listed("state=retrying&status=running") == []
    assert listed(f"status=failed&job={job.id}") == [dead]
    assert listed(f"status=success&job={job.id}") == [good]
    assert listed(f"status=skipped&job={job.id}") == [skip]
    assert listed("queue=other") == []
    assert listed("queue=default&status=success") == [good]
    since, until = format_instant(DUE - 120_000), format_instant(DUE - 60_000)
    assert listed(f"scheduled_after={since}&scheduled_before={until}") == [dead]
    assert listed(f"job={job.id}&scheduled_after={since}&scheduled_before={until}") == [
        dead
    ]


def test_runs_are_found_by_the_key_of_their_job(client, stranger, conn, job):
    other = make_job(conn, target={})
    runs = [str(settled(conn, job, n=n)) for n in range(1, 4)]
    failed = str(settled(conn, job, n=4, state=3, reason=16))
    settled(conn, other, n=5)
    address = f"/api/v1/runs?job_key={job.id}"

    def listed(question, who=client):
        items = who.get(f"{address}{question}").json()["items"]
        return [one["id"] for one in items]

    assert listed("") == [*runs, failed]
    assert listed("&status=failed") == [failed]
    assert listed(f"&job={job.id}&status=failed") == [failed]
    assert listed(f"&job={other.id}") == []
    first = client.get(f"{address}&limit=3").json()
    assert [one["id"] for one in first["items"]] == runs
    assert listed(f"&limit=3&cursor={first['next_cursor']}") == [failed]
    assert listed("", stranger) == []
    assert client.get("/api/v1/runs?job_key=nobody-s").json()["items"] == []
    conn.execute("UPDATE chrono_job SET deleted_at = now() WHERE id = %s", [job.id])
    assert listed("") == []


@pytest.mark.parametrize(
    ("question", "code", "parameter"),
    [
        ("job_key=", "bad_parameter", "job_key"),
        (f"job_key={'k' * 201}", "bad_parameter", "job_key"),
        ("job_key=nobody-s&state=done", "bad_parameter", "state"),
        ("stat=failed", "unknown_parameter", "stat"),
        ("limit=0", "bad_parameter", "limit"),
        ("limit=501", "bad_parameter", "limit"),
        ("limit=1e2", "bad_parameter", "limit"),
        ("limit=", "bad_parameter", "limit"),
        ("limit=٣", "bad_parameter", "limit"),
        ("limit=1&limit=2", "bad_parameter", "limit"),
        ("job=1", "bad_parameter", "job"),
        ("state=done", "bad_parameter", "state"),
        ("state=dead,", "bad_parameter", "state"),
        ("queue=%00", "bad_parameter", "queue"),
        ("scheduled_after=yesterday", "bad_parameter", "scheduled_after"),
        (
            "scheduled_after=2026-01-01T00:00:00+02:00",
            "bad_parameter",
            "scheduled_after",
        ),
        ("cursor=x", "bad_cursor", "cursor"),
        ("cursor=WzEsMl0=", "bad_cursor", "cursor"),
        ("cursor=bnVsbA==", "bad_cursor", "cursor"),
    ],
)
def test_a_wrong_parameter_is_named(client, question, code, parameter):
    answer = client.get(f"/api/v1/runs?{question}")
    assert answer.status_code == 400
    body = answer.json()
    assert body["code"] == code
    assert [one["parameter"] for one in body["errors"]] == [parameter]


def test_a_waiting_run_is_cancelled_with_its_author_and_reason(client, conn, job):
    with connect_upkeep(client_url(conn), name="test") as upkeep:
        ensure_days(upkeep, now=DUE)
        ensure_buckets(upkeep, now=DUE)
    [run] = make_ready(conn, job)
    answer = client.send(f"/api/v1/runs/{run}/cancel", b'{"reason": "not today"}')
    assert answer.status_code == 200
    body = answer.json()
    assert (body["status"], body["reason"]) == ("cancelled", "operator")
    [event] = conn.execute(
        "SELECT actor_kind, action, object_id, reason, before, after, request_id"
        " FROM chrono_audit_event WHERE object_kind = 'run'"
    ).fetchall()
    assert event[:4] == ("key", "run.cancel", str(run), "not today")
    assert (event[4]["state"], event[5]["state"]) == ("ready", "cancelled")
    assert event[6] == answer["X-Request-Id"]
    again = client.send(f"/api/v1/runs/{run}/cancel")
    assert (again.status_code, again.json()) == (200, body)
    [(count,)] = conn.execute(
        "SELECT count(*) FROM chrono_audit_event WHERE object_kind = 'run'"
    ).fetchall()
    assert count == 1


def client_url(conn):
    return conn.info.dsn + (
        f" password={conn.info.password}" if conn.info.password else ""
    )


def test_a_running_run_is_asked_to_stop(client, conn, job):
    run = leased(conn, job, n=1)
    answer = client.send(f"/api/v1/runs/{run}/cancel", b"{}")
    assert answer.status_code == 202
    body = answer.json()
    assert (body["status"], body["cancel_requested"]) == ("running", True)


def test_e02_a_run_that_does_not_stop_is_terminated_a_minute_later(client, conn, job):
    run = leased(conn, job, n=1)
    address = f"/api/v1/runs/{run}/cancel"
    early = client.send(address, {"mode": "terminate"})
    assert (early.status_code, early.json()["code"]) == (409, "not_to_terminate")
    told = client.send(address).json()
    again = client.send(address, {"mode": "terminate"})
    assert (again.status_code, again.json()["code"]) == (409, "not_to_terminate")
    assert told["terminate_from"] in again.json()["detail"]
    conn.execute("UPDATE chrono_lease SET cancel_at = cancel_at - interval '1 minute'")
    body = {"mode": "terminate", "reason": "stuck"}
    done = client.send(address, body)
    assert (done.status_code, done.json()["state"]) == (200, "cancelled")
    assert (done.json()["reason"], done.json()["terminate_from"]) == ("operator", None)
    assert conn.execute("SELECT count(*) FROM chrono_lease").fetchone() == (0,)
    assert conn.execute(
        "SELECT reason FROM chrono_audit_event WHERE action = 'run.terminate'"
    ).fetchall() == [("stuck",)]
    over = client.send(address, body)
    assert (over.status_code, over.json()["code"]) == (409, "run_finished")
    wrong = client.send(address, {"mode": "kill"})
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/mode")


def test_a_run_that_is_over_stays_as_it_is(client, conn, job):
    run = settled(conn, job, n=1)
    answer = client.send(f"/api/v1/runs/{run}/cancel")
    assert (answer.status_code, answer.json()["code"]) == (409, "run_finished")


def test_a_repeated_cancel_with_a_key_gets_the_first_answer(client, conn, job):
    run = leased(conn, job, n=1)
    path, headers = f"/api/v1/runs/{run}/cancel", {"Idempotency-Key": "abc"}
    first = client.send(path, b"{}", headers=headers)
    conn.execute("DELETE FROM chrono_lease")
    second = client.send(path, b"{}", headers=headers)
    assert (second.status_code, second.content) == (202, first.content)
    assert second["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first
    other = client.send(path, b'{"reason": "x"}', headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "request_mismatch")


def test_a_key_that_only_reads_cancels_nothing(make_client, conn, job):
    run = leased(conn, job, n=1)
    answer = make_client("read").send(f"/api/v1/runs/{run}/cancel")
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert make_client("worker").get(f"/api/v1/runs/{run}").status_code == 403
