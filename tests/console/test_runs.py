"""The pages of one run and of one dead letter, and calling a run off."""

import uuid

from django.urls import reverse
from psycopg.types.json import Jsonb

from apps.jobs.manual import run_now
from chrono.rules.keys import run_id
from tests.console.conftest import ACTOR, BASE
from tests.support.seed import SeededJob, make_ready, make_skip

RUN = "admin:chrono_console_run"


def shown(client, run, verb="change"):
    answer = client.get(reverse(f"{RUN}_{verb}", args=[run]))
    assert answer.status_code == 200
    return answer.content.decode()


def ready(seen, count=1):
    job = SeededJob(id=seen.job, part=seen.part, queue="default")
    # Not the instant of the first run that `seen.runs` writes.
    return make_ready(seen.conn, job, count=count, due_at=BASE + 60_000)


def test_a_run_s_page_tells_its_instants_lags_attempts_and_result(client, make_job):
    seen = make_job(payload={"n": 1, "password": "hush"})
    seen.runs(1)
    seen.failed(0, "Traceback: it <b>broke</b>\n  second line")
    seen.conn.execute(
        "UPDATE chrono_run SET result = %s", [Jsonb({"session_token": "hush", "ok": 1})]
    )
    text = shown(client, seen.run())
    for said in (
        "2025-11-29 15:00:00",
        "2025-11-29 15:00:00.020",
        "20 ms",
        "50 ms",
        "2000 ms",
        "1 of 6",
        str(seen.run()),
        "Traceback: it &lt;b&gt;broke&lt;/b&gt;",
        "second line",
        "schedule",
        "success",
    ):
        assert said in text, said
    assert "hush" not in text
    assert "Cancel…" not in text
    assert "Why it is not running" not in text


def test_a_waiting_run_tells_why(client, conn, make_job):
    seen = make_job()
    [run] = ready(seen)
    assert "No worker asks for the queue default." in shown(client, run)
    conn.execute(
        """
        INSERT INTO chrono_worker (id, host, pid, concurrency, queues)
        VALUES (gen_random_uuid(), 'here', 1, 1, '{default}')
        """
    )
    assert "It waits for a free worker." in shown(client, run)
    later = run_now(seen.job, actor=ACTOR, now=BASE + 10**12).run_id
    assert "It is due at" in shown(client, later)


def test_a_run_that_stands_for_missed_ones_says_so(client, conn, make_job):
    seen = make_job()
    job = SeededJob(id=seen.job, part=seen.part, queue="default")
    [run] = make_ready(conn, job, due_at=BASE)
    assert "Missed occurrences" not in shown(client, run)
    make_skip(conn, job, BASE - 7_200_000, reason=5, count=41, last=BASE - 60_000)
    text = shown(client, run)
    assert "Missed occurrences" in text
    assert "<dd>42</dd>" in text


def test_a_waiting_run_is_cancelled_and_it_is_known_by_whom(client, conn, make_job):
    seen = make_job()
    [run] = ready(seen)
    assert "is ready" in shown(client, run, "cancel")
    address = reverse(f"{RUN}_cancel", args=[run])
    answer = client.post(address, {"reason": "wrong day"})
    assert answer.status_code == 302
    text = shown(client, run)
    assert "cancelled" in text
    assert "operator" in text
    rows = conn.execute(
        "SELECT action, actor, reason FROM chrono_audit_event WHERE object_id = %s",
        [str(run)],
    ).fetchall()
    assert rows == [("run.cancel", "ada", "wrong day")]
    # Again is no harm; of a run that ended well it is refused.
    assert client.post(address, {}).status_code == 302
    seen.runs(1)
    refused = client.post(reverse(f"{RUN}_cancel", args=[seen.run()]), {})
    assert refused.status_code == 422
    assert "The run is over: success." in refused.content.decode()


def test_a_running_one_is_told_to_stop(client, conn, make_job):
    seen = make_job()
    run = run_id(seen.job, BASE, 0, seen.part)
    worker = uuid.uuid4()
    conn.execute(
        """
        INSERT INTO chrono_worker (id, host, pid, concurrency, queues)
        VALUES (%s, 'here', 1, 1, '{default}')
        """,
        [worker],
    )
    conn.execute(
        """
        INSERT INTO chrono_lease (due_at, dispatched_at, run_id, job_id, tag, fence,
            revision, tenant, part, priority, attempt, queue, token, worker)
        VALUES (now(), now(), %s, %s, 0, 7, 1, 1, %s, 2, 1, 'default',
            gen_random_uuid(), %s)
        """,
        [run, seen.job, seen.part, worker],
    )
    conn.execute(
        """
        INSERT INTO chrono_progress (run_id, part, attempt, share, text, checkpoint)
        VALUES (%s, %s, 1, 0.35, 'page <7>', '{"page": 7}')
        """,
        [run, seen.part],
    )
    text = shown(client, run)
    assert "running" in text
    assert "Lease until" in text
    assert "&quot;page&quot;: 7" in text
    assert "35%, page &lt;7&gt;, attempt 1" in text
    answer = client.post(reverse(f"{RUN}_cancel", args=[run]), {})
    assert answer.status_code == 302
    text = shown(client, run)
    assert "told to stop" in text
    assert "Cancel…" not in text


def test_a_dead_letter_shows_its_errors_and_its_payload(client, make_job):
    seen = make_job()
    seen.runs(3, state=3, reason=16)
    for number in range(3):
        seen.failed(number, f"error {number}\nmore")
    address = reverse("admin:chrono_console_deadletter_changelist")
    answer = client.get(f"{address}?reason=non_retryable&queue=default&job={seen.job}")
    assert [row.pk for row in answer.context_data["cl"].result_list] == [
        seen.run(number) for number in range(3)
    ]
    assert "error 2" in answer.content.decode()
    assert "more" not in answer.content.decode().split("<table")[1].split("</table")[0]
    page = reverse("admin:chrono_console_deadletter_change", args=[seen.run(1)])
    text = client.get(page).content.decode()
    assert "error 1" in text
    assert "as sent" in text
    assert "non retryable" in text


def test_errors_of_an_unknown_shape_are_shown_as_they_are(client, conn, make_job):
    seen = make_job()
    seen.runs(1, state=3, reason=16)
    seen.failed(0, "x")
    for stored in ({"odd": 1}, ["just text", 5, None], [{"reason": 999}], "text", []):
        conn.execute("UPDATE chrono_dead_letter SET errors = %s", [Jsonb(stored)])
        address = reverse("admin:chrono_console_deadletter_change", args=[seen.run()])
        assert client.get(address).status_code == 200, stored
        listed = reverse("admin:chrono_console_deadletter_changelist")
        assert client.get(listed).status_code == 200, stored


def test_a_huge_text_is_cut(client, conn, make_job):
    seen = make_job()
    seen.runs(1)
    seen.failed(0, "e" * 100_000)
    text = shown(client, seen.run())
    assert "80000 characters more" in text
    assert len(text) < 100_000


def test_an_unknown_run_is_resolved_by_a_person_with_a_note(client, conn, make_job):
    seen = make_job()
    seen.runs(1, state=6, reason=21)
    run = seen.run()
    text = shown(client, run)
    assert "Nobody knows what became of it" in text
    assert "Resolve…" in text
    assert str(run) in shown(client, run, "resolve")
    address = reverse(f"{RUN}_resolve", args=[run])
    for given in ({"outcome": "success"}, {"reason": "x"}, {}):
        assert client.post(address, given).status_code == 422
    answer = client.post(address, {"outcome": "success", "reason": "it is <paid>"})
    assert answer.status_code == 302
    text = shown(client, run)
    assert "Resolved as success" in text
    assert "it is &lt;paid&gt;" in text
    assert "Resolve…" not in text
    [(action, reason)] = conn.execute(
        "SELECT action, reason FROM chrono_audit_event WHERE action LIKE 'run.%'"
    ).fetchall()
    assert (action, reason) == ("run.resolve", "it is <paid>")

    def listed(**asked):
        page = client.get(reverse(f"{RUN}_changelist"), asked).content.decode()
        return str(run) in page

    assert listed(state="success")
    assert listed(reason="resolved")
    assert not listed(state="unknown")
    again = client.post(address, {"outcome": "failed", "reason": "no"})
    assert again.status_code == 422
