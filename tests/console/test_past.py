"""The pages of a job's past: a range run again, why it was so, how it was defined."""

import html
import re
import uuid

import pytest
from django.urls import reverse

from apps.jobs import commands
from apps.jobs.backfill import Range, backfill_job
from apps.jobs.manual import run_now
from chrono.rules.instants import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    format_instant,
    parse_instant,
)
from tests.console.conftest import ACTOR
from tests.console.forms import fields_of
from tests.console.test_jobs import HTTP, events, page
from tests.support.definitions import definition

REVISIONS = "admin:chrono_jobs_jobrevision_changelist"


@pytest.fixture
def now(conn):
    """The database's clock, to the second."""
    [(moment,)] = conn.execute(
        "SELECT floor(extract(epoch FROM clock_timestamp()))::bigint * 1000"
    ).fetchall()
    return moment


@pytest.fixture
def hour(now):
    """The last full hour."""
    return now // HOUR * HOUR


@pytest.fixture
def seen(make_job, conn, hour):
    """An hourly job that was paused over thirty hours, until before the last one."""
    seen = make_job(key="hourly", cron="0 * * * *", jitter_window="0s")
    start = hour - 31 * HOUR + MINUTE
    # As if it had been made then: the plan begins with its activation.
    conn.execute(
        """
        WITH job AS (
            UPDATE chrono_job SET activated_at = to_timestamp(%(at)s),
                created_at = to_timestamp(%(at)s) WHERE id = %(job)s
        )
        UPDATE chrono_job_revision SET created_at = to_timestamp(%(at)s)
        WHERE job_id = %(job)s
        """,
        {"at": start / 1000, "job": seen.job},
    )
    commands.pause_job(seen.job, now=start + SECOND)
    commands.resume_job(seen.job, now=hour - MINUTE)
    return seen


def text_of(answer, status=200):
    assert answer.status_code == status
    plain = re.sub(r"<[^>]+>", " ", answer.content.decode())
    return " ".join(html.unescape(plain).split())


def errors_of(answer):
    """Return the fields that have an error."""
    [fields] = answer.context_data["fieldsets"]
    return list(fields.form.errors)


def press(client, address, answer, button, **changes):
    """Press a button of a page that is open, some of its fields changed."""
    fields = fields_of(answer.content.decode())
    return client.post(address, {**fields, **changes, button: "1"})


def look(client, seen, hour, **changes):
    """Ask what of the thirty hours would run."""
    address = page("backfill", seen.job)
    asked = {
        "start": format_instant(hour - 30 * HOUR)[:-1],
        "end": format_instant(hour)[:-1],
        "reason": "lost data",
    }
    opened = client.get(address)
    assert opened.status_code == 200
    return address, press(client, address, opened, "_look", **asked, **changes)


def backfills(conn):
    return conn.execute("SELECT id, runs FROM chrono_backfill ORDER BY id").fetchall()


def test_a_range_is_looked_at_first_and_then_runs(client, conn, seen, hour):
    address, looked = look(client, seen, hour)
    assert "30 runs." in text_of(looked)
    assert "10 more" in text_of(looked)
    rows = looked.content.decode().split("What would run")[1].count("<time")
    assert rows == 20
    assert backfills(conn) == []
    done = press(client, address, looked, "_run")
    assert done.status_code == 302
    assert done.headers["Location"] == page("change", seen.job) + "#backfills"
    [(made, runs)] = backfills(conn)
    assert runs == 30
    assert events(conn, seen.job)[-1] == ("job.backfill", "ada", "user", "lost data")
    shown = client.get(page("change", seen.job))
    assert "30 runs will be let in by and by." in text_of(shown)
    assert page("backfill_cancel", seen.job, made) in shown.content.decode()
    again = press(client, address, looked, "_run")
    assert "Nothing is to run. 30 occurrences of the range are passed over." in (
        text_of(again)
    )
    assert "_run" not in again.content.decode()


def test_what_was_not_looked_at_does_not_run(client, conn, seen, hour):
    address, looked = look(client, seen, hour)
    newer = format_instant(hour - 2 * HOUR)[:-1]
    changed = press(client, address, looked, "_run", start=newer)
    assert "The fields were changed since you looked." in text_of(changed)
    assert "2 runs." in text_of(changed)
    assert backfills(conn) == []
    assert press(client, address, changed, "_run").status_code == 302
    assert [runs for _, runs in backfills(conn)] == [2]


def test_a_range_is_read_in_its_order_and_at_its_rate(client, conn, seen, hour):
    address, looked = look(client, seen, hour, order="newest", rate="2")
    first = looked.content.decode().split("<td>1</td>")[1].split("</tr>")[0]
    assert format_instant(hour - HOUR) in first
    assert press(client, address, looked, "_run").status_code == 302
    apart = conn.execute(
        "SELECT extract(epoch FROM max(due_at) - min(due_at))::float "
        "FROM chrono_blocked"
    ).fetchone()[0]
    assert apart == 29 * 0.5


def test_a_bad_range_is_told_at_its_field(client, seen, hour):
    address = page("backfill", seen.job)
    opened = client.get(address)
    for changes, field, said in (
        ({"start": ""}, "start", "This field is required."),
        ({"start": "soon"}, "start", "An instant"),
        ({"start": "1999-01-01T00:00"}, "start", "at the earliest"),
        ({"start": "0001-01-01T00:00"}, "start", "1970 to 9998"),
        ({"end": "2199-01-01T00:00"}, "end", "future"),
        ({"end": "2001-01-01T00:00"}, "end", "to lies after from."),
        ({"order": "sideways"}, "order", "sideways is not one"),
        ({"reprocess": "all"}, "reprocess", "all is not one"),
        ({"rate": "0"}, "rate", "greater than or equal to 1"),
        ({"rate": "fast"}, "rate", "whole number"),
    ):
        answer = press(client, address, opened, "_look", **changes)
        text = text_of(answer, 422)
        assert errors_of(answer) == [field], changes
        assert said in text, changes
        assert "What would run" not in text, changes


def test_a_deleted_job_runs_no_range(client, seen, hour):
    commands.delete_job(seen.job)
    assert "Run a range of the past" not in text_of(
        client.get(page("change", seen.job))
    )
    _, looked = look(client, seen, hour)
    assert "restore it first" in text_of(looked, 422)


def test_a_backfill_is_called_off_once_a_reason_was_asked(client, conn, seen, hour):
    wanted = Range(start=hour - 3 * HOUR, end=hour)
    made = backfill_job(seen.job, wanted, actor=ACTOR)
    address = page("backfill_cancel", seen.job, made.id)
    assert "3 still wait" in text_of(client.get(address))
    done = client.post(address, {"reason": "wrong range"})
    assert done.status_code == 302
    shown = client.get(page("change", seen.job))
    assert "3 runs called off." in text_of(shown)
    assert "cancelled by ada" in text_of(shown)
    assert address not in shown.content.decode()
    assert events(conn, seen.job)[-1] == (
        "job.backfill_cancel",
        "ada",
        "user",
        "wrong range",
    )
    for ident in (uuid.uuid4(), "x"):
        gone = client.get(page("backfill_cancel", seen.job, ident))
        assert gone.status_code == 404


def test_a_job_s_page_shows_the_last_backfills_alone(client, seen, hour):
    assert "What was run again last" not in text_of(
        client.get(page("change", seen.job))
    )
    for n in range(6):
        wanted = Range(start=hour - (n + 1) * HOUR, end=hour - n * HOUR)
        assert backfill_job(seen.job, wanted, actor=ACTOR).id is not None
    shown = client.get(page("change", seen.job))
    assert text_of(shown).count("Cancel…") == 5
    assert "Earlier ones" in text_of(shown)


def why(client, seen, at, status=200):
    return text_of(client.get(page("why", seen.job), {"at": at}), status)


def test_why_is_asked_of_the_last_occurrence_at_first(client, make_job, seen, hour):
    def asked(verb, job):
        text = client.get(page(verb, job)).content.decode()
        return parse_instant(fields_of(text)["at"] + "Z")

    for verb in ("change", "why"):
        # The hour may end meanwhile.
        assert asked(verb, seen.job) in (hour, hour + HOUR)
    new = make_job(key="new", cron="0 0 1 1 *")
    assert asked("why", new.job) >= hour, "what was before the job is not asked for"


def test_a_skip_is_explained_with_links_to_its_neighbours(client, seen, hour):
    at = hour - 5 * HOUR
    answer = client.get(page("why", seen.job), {"at": format_instant(at)})
    assert "skipped paused" in text_of(answer)
    assert "The job was paused then." in text_of(answer)
    text = html.unescape(answer.content.decode())
    assert fields_of(text)["at"] == format_instant(at)[:-1]
    for neighbour in (at - HOUR, at + HOUR):
        link = f"?at={format_instant(neighbour).replace(':', '%3A')}"
        assert link in text
        assert client.get(page("why", seen.job) + link).status_code == 200


def test_a_run_is_explained_with_a_link_to_it(client, seen):
    # The instant of its newest run, which the schedule alone would have.
    seen.runs(1)
    text = client.get(page("why", seen.job), {"at": "2025-11-29T15:00"})
    assert "It ran, and succeeded." in text_of(text)
    assert f"/run/{seen.run()}/change/" in text.content.decode()


def test_what_never_was_is_explained(client, seen, hour):
    assert "The job exists since" in why(client, seen, "2025-11-29T15:00")
    assert "It is no occurrence of the schedule." in why(
        client, seen, format_instant(hour + DAY + MINUTE)
    )
    assert "It is due at 9998-12-31T23:00:00Z." in why(
        client, seen, "9998-12-31T23:00:00"
    )


def test_what_is_no_instant_is_said_at_its_field(client, make_job):
    address = page("why", make_job().job)
    for at in ("", "soon", "2026-13-01T00:00", "9999-06-01T00:00"):
        answer = client.get(address, {"at": at})
        assert answer.status_code == 422
        assert list(answer.context_data["form"].errors) == ["at"]
        assert "chrono-wrong" in answer.content.decode()


def test_each_skipped_occurrence_leads_to_why(client, seen, hour):
    listed = reverse("admin:chrono_console_occurrence_changelist")
    text = client.get(listed, {"job": str(seen.job)}).content.decode()
    [link] = re.findall(r'href="([^"]+/why/[^"]+)"', text)
    assert "The job was paused then." in text_of(client.get(html.unescape(link)))
    seen.runs(3)
    text = client.get(listed, {"job": str(seen.job)}).content.decode()
    assert text.count("Why?") == 1, "of those that fired, the run tells"


def test_the_list_and_the_page_tell_what_was_skipped_and_what_is_left(
    client, make_job, seen
):
    make_job(key="thrice", cron="0 3 * * *", remaining_runs=3)
    listed = text_of(client.get(page("changelist")))
    assert "30 skipped" in listed
    assert "3 runs left" in listed
    shown = text_of(client.get(page("change", seen.job)))
    assert "In 30 days 30 skipped" in shown
    assert "Runs left" not in shown


def change(seen, **fields):
    commands.change_job(
        seen.job, definition(**{"cron": "30 2 * * *", **fields}), actor=ACTOR
    )


def revisions(client, seen, **query):
    return client.get(reverse(REVISIONS), {"job": str(seen.job), **query})


def lines_of(answer):
    """Return what is said of each revision, line by line."""
    cells = re.findall(
        r'class="field-changes">(.*?)</td>', answer.content.decode(), re.DOTALL
    )
    return [
        [
            html.unescape(re.sub(r"<[^>]+>", "", line))
            for line in re.findall(r"<div>(.*?)</div>", cell, re.DOTALL)
        ]
        for cell in cells
    ]


def test_a_revision_is_told_by_what_it_changed(client, make_job):
    seen = make_job(target=HTTP, payload={"n": 1, "to": {"a": "<b>"}, "pin": "hush-1"})
    headers = {"Authorization": "Bearer hush-other", "X-New": "hush-new"}
    change(
        seen,
        target={**HTTP, "url": "https://example.org/other", "headers": headers},
        payload={"n": 2, "to": {"a": "<i>"}, "pin": "hush-2"},
        queue="slow",
    )
    answer = revisions(client, seen)
    newest, first = lines_of(answer)
    assert sorted(newest) == [
        "payload.n: 1 → 2",
        "payload.to.a: <b> → <i>",
        "queue: default → slow",
        "target.headers.Authorization: (hidden) → (hidden, changed)",
        "target.headers.X-New: – → (hidden)",
        "target.headers.X-Plain: (hidden) → –",
        "target.url: https://example.org/hook?(hidden) → https://example.org/other",
    ]
    assert "cron: 30 2 * * *" in first
    assert "payload.to.a: <b>" in first
    assert not [line for line in first if line.startswith(("key", "tags", "paused"))]
    assert not [line for line in first if line.endswith("null")]
    assert "hush" not in answer.content.decode()
    assert "<i>" not in answer.content.decode()


def test_revisions_go_by_pages_each_beside_the_one_before(client, make_job):
    seen = make_job(payload=0)
    for number in range(1, 45):
        change(seen, payload=number)
    found, address = [], f"{reverse(REVISIONS)}?job={seen.job}"
    while address:
        answer = client.get(address)
        listing = answer.context_data["cl"]
        found += zip(
            [row.revision for row in listing.result_list], lines_of(answer), strict=True
        )
        following = listing.following
        address = following and reverse(REVISIONS) + following
    assert [number for number, _ in found] == list(range(45, 0, -1))
    for number, lines in found[:-1]:
        assert lines == [f"payload: {number - 2} → {number - 1}"]
    assert "payload: 0" in found[-1][1]


def test_a_long_difference_does_not_fill_the_page(client, make_job):
    seen = make_job(payload={"text": "a" * 1_000})
    change(seen, payload={str(n): n for n in range(150)})
    newest, _ = lines_of(revisions(client, seen))
    assert len(newest) == 101
    assert newest[-1] == "… 51 more"
    assert max(map(len, newest)) < 400


def test_revisions_of_no_job_or_from_nowhere_are_said_to_be_none(client, make_job):
    for query in ({"job": ""}, {"job": str(uuid.uuid4())}):
        assert "Come here from a job" in text_of(client.get(reverse(REVISIONS), query))
    seen = make_job()
    for cursor, count in (("9" * 70, 1), ("-" + "9" * 70, 0), ("0", 0)):
        assert len(lines_of(revisions(client, seen, p=cursor))) == count
    refused = text_of(revisions(client, seen, p="abc"))
    assert "The address of this page is not one of ours." in refused


def test_a_revision_has_no_page_that_would_show_its_headers(client, make_job, conn):
    seen = make_job(target=HTTP)
    [(ident,)] = conn.execute(
        "SELECT id FROM chrono_job_revision WHERE job_id = %s", [seen.job]
    ).fetchall()
    for verb in ("change", "history", "delete"):
        address = f"{reverse(REVISIONS)}{ident}/{verb}/"
        assert client.get(address).status_code == 404, verb


def move(client, run, **fields):
    return client.post(reverse("admin:chrono_console_run_move", args=[run]), fields)


def test_a_waiting_run_is_moved(client, conn, make_job, now):
    seen = make_job()
    run = run_now(seen.job, actor=ACTOR, now=now + DAY).run_id
    shown = client.get(reverse("admin:chrono_console_run_change", args=[run]))
    assert "Move…" in text_of(shown)
    address = reverse("admin:chrono_console_run_move", args=[run])
    opened = fields_of(client.get(address).content.decode())
    assert opened["due_at"] == format_instant(now + DAY)[:-1]
    due = format_instant(now + 2 * DAY)
    done = move(client, run, due_at=due[:-1], reason="too early")
    assert done.status_code == 302
    assert f"The run is due at {due}." in text_of(client.get(done.headers["Location"]))
    rows = conn.execute(
        "SELECT action, actor, reason, after->>'due_at' FROM chrono_audit_event "
        "WHERE object_id = %s AND action = 'run.reschedule'",
        [str(run)],
    ).fetchall()
    assert rows == [("run.reschedule", "ada", "too early", due)]


def test_a_run_is_not_moved_to_no_instant_or_once_it_is_over(client, make_job, now):
    seen = make_job()
    run = run_now(seen.job, actor=ACTOR, now=now + DAY).run_id
    for at in ("", "soon", "0001-01-01T00:00"):
        answer = move(client, run, due_at=at)
        assert answer.status_code == 422
        assert errors_of(answer) == ["due_at"]
    seen.runs(1)
    shown = client.get(reverse("admin:chrono_console_run_change", args=[seen.run()]))
    assert "Move…" not in text_of(shown)
    refused = move(client, seen.run(), due_at=format_instant(now + DAY))
    assert "only one that waits for its time can be moved" in text_of(refused, 422)
