"""What the pages of jobs say beside the job: its load, and runs that take too long."""

import html
import re

from apps.tenants.directory import create_tenant
from chrono.rules.instants import MINUTE, SECOND
from tests.console.conftest import ACTOR
from tests.console.test_jobs import NEW, page, send


def text_of(answer):
    assert answer.status_code == 200
    plain = re.sub(r"<[^>]+>", "", answer.content.decode())
    return " ".join(html.unescape(plain).split())


def test_a_preview_says_what_is_planned_in_the_minute_of_the_first(client, make_job):
    for number in range(3):
        make_job(key=f"job-{number}", cron="0 12 1 1 *", jitter_window="30s")
    changes = {**NEW, "timezone": "UTC"}
    crowded = send(client, page("add"), "_preview", **{**changes, "cron": "0 12 1 1 *"})
    assert "3 planned runs are due in the minute of the first." in text_of(crowded)
    free = send(client, page("add"), "_preview", **{**changes, "cron": "5 12 1 1 *"})
    assert "0 planned runs are due in the minute of the first." in text_of(free)


def test_an_edited_job_is_one_of_those_that_are_planned(client, make_job):
    seen = make_job(key="alone", cron="0 12 1 1 *")
    told = text_of(client.get(page("change", seen.job)))
    assert "1 planned run is due in the minute of the first." in told


def test_the_load_is_that_of_the_chosen_tenant(client, make_job):
    make_job(key="theirs", cron="0 12 1 1 *")
    other = create_tenant("Globex", actor=ACTOR)
    given = {**NEW, "timezone": "UTC", "cron": "0 12 1 1 *"}
    own = send(client, page("add"), "_preview", **given, tenant="1")
    assert "1 planned run is due" in text_of(own)
    none = send(client, page("add"), "_preview", **given, tenant=str(other.pk))
    assert "0 planned runs are due" in text_of(none)
    wrong = send(client, page("add"), "_preview", **given, tenant="999")
    assert "in the minute of the first" not in wrong.content.decode()


def lay_runs(conn, seen, lengths):
    """Write runs that ended lately and took so long."""
    conn.execute(
        """
        WITH runs AS (
            SELECT id, length, date_trunc('minute', now()) - n * interval '1 min' AS at
            FROM unnest(%(ids)s::uuid[], %(lengths)s::bigint[]) WITH ORDINALITY
                AS r (id, length, n)
        ), decided AS (
            INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence,
                version, revision, part, outcome, kind)
            SELECT at, %(job)s, id, 1, 1, 1, %(part)s, 1, 1 FROM runs
        )
        INSERT INTO chrono_run (due_at, started_at, finished_at, id, job_id, fence,
            revision, tenant, part, state, attempt)
        SELECT at, at, at + length * interval '1 ms', id, %(job)s, 1, 1, 1, %(part)s, 1,
            1 FROM runs
        """,
        {
            "ids": [seen.run(n) for n in range(len(lengths))],
            "lengths": lengths,
            "job": seen.job,
            "part": seen.part,
        },
    )


def test_runs_that_take_longer_than_the_period_are_a_warning(client, make_job, conn):
    slow = make_job(key="slow", cron="* * * * *")
    quick = make_job(key="quick", cron="* * * * *")
    lay_runs(conn, slow, [SECOND, 95 * SECOND, 61 * SECOND])
    lay_runs(conn, quick, [MINUTE, SECOND])
    told = client.get(page("change", slow.job))
    assert (
        "Longer than its period 2 of its last 3 runs took longer than its period of "
        "1 min, the longest 1 min 35 s." in text_of(told)
    )
    assert f"/run/{slow.run(1)}/" in told.content.decode()
    assert "Longer than its period" not in text_of(
        client.get(page("change", quick.job))
    )
    rows = re.findall(
        r"<tr.*?</tr>", client.get(page("changelist")).content.decode(), re.DOTALL
    )
    marked = [row for row in rows if "longer than its period" in row]
    assert len(marked) == 1
    assert "slow" in marked[0]
