"""The pages of dead letters, and of runs that are run again or terminated."""

import html
import re

import pytest
from django.urls import reverse

from apps.runs import letters, selectors
from chrono.rules.keys import run_id
from tests.console.conftest import BASE
from tests.support.seed import SeededJob, make_ended

LETTER = "admin:chrono_console_deadletter"
RUN = "admin:chrono_console_run"
LIST = f"{LETTER}_changelist"


@pytest.fixture
def seen(make_job):
    return make_job(payload={"month": 3, "password": "hush"}, tags=["payroll"])


def died(seen, n=0, error="it <b>broke</b>"):
    job = SeededJob(id=seen.job, part=seen.part, queue="default")
    return make_ended(seen.conn, job, BASE - 60_000 * n, state=3, error=error)


def page(client, address):
    answer = client.get(address)
    assert answer.status_code == 200, address
    return answer.content.decode()


def state_of(seen, run):
    [letter] = letters.load(seen.conn, [run], tenant=None).values()
    return letters.state_of(letter)


def blocked(seen):
    return [run for (run,) in seen.conn.execute("SELECT run_id FROM chrono_blocked")]


def test_the_list_shows_the_open_ones_and_narrows(client, seen):
    run = died(seen)
    address = reverse(LIST)
    text = page(client, address)
    assert "it &lt;b&gt;broke&lt;/b&gt;" in text
    assert str(run) in text
    for query, there in {
        "tag=payroll": True,
        "tag=other": False,
        "state=discarded": False,
        "state=all": True,
        "reason=attempts_exhausted": True,
        "target=nowhere": False,
        f"job={seen.job}": True,
    }.items():
        assert (str(run) in page(client, f"{address}?{query}")) is there, query


def test_several_are_run_again_once_that_is_confirmed(client, seen):
    runs = [died(seen, n) for n in (0, 1)]
    body = {"action": "redrive_selected", "_selected_action": [str(r) for r in runs]}
    asked = client.post(reverse(LIST), body)
    assert asked.status_code == 200
    assert "Run again: 2 dead letters?" in asked.content.decode()
    assert blocked(seen) == []
    done = client.post(
        reverse(LIST), {**body, "confirmed": "yes", "reason": "mended", "rate": "5"}
    )
    assert done.status_code == 302
    assert sorted(blocked(seen)) == sorted(
        run_id(seen.job, BASE - 60_000 * n, 1, seen.part) for n in (0, 1)
    )
    again = client.post(reverse(LIST), {**body, "confirmed": "yes"})
    assert again.status_code == 422
    assert "was run again already" in again.content.decode()


def test_several_are_discarded_with_a_note(client, seen):
    run = died(seen)
    body = {"action": "discard_selected", "_selected_action": [str(run)]}
    refused = client.post(reverse(LIST), {**body, "confirmed": "yes", "note": ""})
    assert refused.status_code == 422
    client.post(reverse(LIST), {**body, "confirmed": "yes", "note": "paid by hand"})
    assert state_of(seen, run) == "discarded"
    text = page(client, reverse(f"{LETTER}_change", args=[run]))
    assert "paid by hand" in text
    assert "Discard…" not in text


def test_all_that_fit_are_named_before_they_run_again(client, seen, make_job):
    run = died(seen)
    other = died(make_job(key="other"), 3)
    address = f"{reverse(f'{LETTER}_redrive')}?tag=payroll"
    assert "tag=payroll" in page(client, f"{reverse(LIST)}?tag=payroll")
    text = page(client, address)
    assert "Run again: 1 dead letter?" in text
    assert blocked(seen) == []
    assert client.post(address, {"reason": "mended"}).status_code == 302
    assert (state_of(seen, run), state_of(seen, other)) == ("rerun", "open")


def test_one_is_run_again_discarded_or_noted_on(client, seen):
    run, other = died(seen), died(seen, 1)
    text = page(client, reverse(f"{LETTER}_change", args=[run]))
    for verb in ("Run again…", "Discard…", "Note…"):
        assert verb in text
    client.post(reverse(f"{LETTER}_note", args=[run]), {"note": "asked the bank"})
    assert "asked the bank" in page(client, reverse(f"{LETTER}_change", args=[run]))
    done = client.post(reverse(f"{LETTER}_redrive_one", args=[run]), {"queue": "slow"})
    [rerun] = blocked(seen)
    assert done["Location"] == reverse(f"{RUN}_change", args=[rerun])
    assert str(run) in page(client, done["Location"])
    client.post(reverse(f"{LETTER}_discard", args=[other]), {"note": "no"})
    assert state_of(seen, other) == "discarded"


def test_a_run_is_run_again_with_its_payload_or_another(client, conn, seen):
    seen.runs(2)
    first, second = seen.run(0), seen.run(1)
    address = reverse(f"{RUN}_retry", args=[first])
    assert "Run again…" in page(client, reverse(f"{RUN}_change", args=[first]))
    form = page(client, address)
    assert "hush" not in form
    assert "month" in form
    done = client.post(address, {"payload": '{"month": 4}', "reason": "wrong month"})
    made = selectors.get_reruns(conn, first).rerun_as
    assert done["Location"] == reverse(f"{RUN}_change", args=[made])
    assert selectors.get_run(conn, made, tenant=1)[1].payload == {"month": 4}
    assert "Run again…" not in page(client, reverse(f"{RUN}_change", args=[first]))
    assert str(made) in page(client, reverse(f"{RUN}_change", args=[first]))
    # Sent as the page shows it, a payload keeps its secret.
    form = page(client, reverse(f"{RUN}_retry", args=[second]))
    [shows] = re.findall(r"<textarea[^>]*>\s*(.*?)</textarea>", form, re.DOTALL)
    text = html.unescape(shows).replace("\n", "\r\n")
    client.post(reverse(f"{RUN}_retry", args=[second]), {"payload": text})
    made = selectors.get_reruns(conn, second).rerun_as
    assert selectors.get_run(conn, made, tenant=1)[1].payload == {
        "month": 3,
        "password": "hush",
    }


def test_a_run_s_page_has_what_it_logged_last(client, conn, seen):
    seen.runs(1)
    seen.failed(0, "it broke")
    conn.execute("UPDATE chrono_attempt SET log = 'tried <this>'")
    conn.execute("UPDATE chrono_run SET log = 'and that'")
    text = page(client, reverse(f"{RUN}_change", args=[seen.run()]))
    assert "tried &lt;this&gt;" in text
    assert "and that" in text


def test_e02_terminate_is_offered_a_minute_after_a_cancel(client, conn, seen):
    run = run_id(seen.job, BASE + 60_000, 0, seen.part)
    conn.execute(
        "INSERT INTO chrono_lease (due_at, dispatched_at, run_id, job_id, tag, fence, "
        "revision, tenant, part, priority, attempt, queue, token, worker) VALUES "
        "(now(), now(), %(run)s, %(job)s, 1, 7, 1, 1, %(part)s, 2, 1, 'default', "
        "%(run)s, %(run)s)",
        {"run": run, "job": seen.job, "part": seen.part},
    )
    here = reverse(f"{RUN}_change", args=[run])
    client.post(reverse(f"{RUN}_cancel", args=[run]), {"reason": "stuck"})
    assert "Terminate…" not in page(client, here)
    early = client.post(reverse(f"{RUN}_terminate", args=[run]), {"reason": ""})
    assert early.status_code == 422
    conn.execute("UPDATE chrono_lease SET cancel_at = cancel_at - interval '1 minute'")
    assert "Terminate…" in page(client, here)
    done = client.post(reverse(f"{RUN}_terminate", args=[run]), {"reason": "stuck"})
    assert done.status_code == 302
    assert "cancelled" in page(client, here)
    assert conn.execute("SELECT count(*) FROM chrono_lease").fetchone() == (0,)
