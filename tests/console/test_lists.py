"""Lists by key: their pages, their filters, and what they say when there is nothing."""

import uuid

import pytest
from django.urls import reverse

from apps.console.lists import LONGEST_TRAIL, Trail
from apps.jobs import commands
from apps.runtime.django_session import raw_connection
from tests.console.conftest import ACTOR, BASE

RUNS = "admin:chrono_console_run_changelist"


def walk(client, address):
    """Return the address and the rows of each page, following `next`."""
    pages, path = [], address
    base = address.split("?")[0]
    while path:
        listing = client.get(path).context_data["cl"]
        assert not listing.trouble
        pages.append((path, [str(row.pk) for row in listing.result_list]))
        path = listing.following and base + listing.following
    return pages


def test_the_pages_of_a_list_are_all_of_it_once_and_in_order(client, make_job):
    seen = make_job()
    seen.runs(230)
    whole = [str(seen.run(n)) for n in range(230)]
    for query in ("", f"?job={seen.job}", "?state=success&queue=default"):
        pages = walk(client, reverse(RUNS) + query)
        assert [len(rows) for _, rows in pages] == [50, 50, 50, 50, 30]
        assert [run for _, rows in pages for run in rows] == whole
        # Back again, page by page: the same rows.
        path = pages[-1][0]
        for before, rows in reversed(pages[:-1]):
            listing = client.get(path).context_data["cl"]
            path = reverse(RUNS) + listing.previous
            found = client.get(path).context_data["cl"].result_list
            assert [str(row.pk) for row in found] == rows, before


def test_the_pages_of_the_other_lists_are_all_of_them(client, make_job, conn):
    made = [str(make_job(key=f"job-{n}").job) for n in range(60)]
    [(_, first), (_, last)] = walk(client, reverse("admin:chrono_jobs_job_changelist"))
    assert [*first, *last] == made[::-1]
    audited = walk(client, reverse("admin:chrono_tenants_auditevent_changelist"))
    events = conn.execute("SELECT id FROM chrono_audit_event ORDER BY id DESC")
    assert [event for _, rows in audited for event in rows] == [
        str(event) for (event,) in events
    ]
    partitions = walk(client, reverse("admin:chrono_console_partition_changelist"))
    assert [row for _, rows in partitions for row in rows] == [
        str(part) for part in range(64)
    ]


def test_occurrences_tell_what_was_skipped_and_why(client, make_job, conn):
    seen = make_job()
    seen.runs(70)
    seen.conn.execute(
        """
        INSERT INTO chrono_occurrence (scheduled_for, job_id, fence, version, revision,
            part, outcome, kind, reason, occurrences, last_scheduled_for)
        VALUES (to_timestamp(%s), %s, 0, 1, 1, %s, 2, 1, 1, 12, to_timestamp(%s))
        """,
        [BASE / 1000 + 60, seen.job, seen.part, BASE / 1000 + 660],
    )
    address = reverse("admin:chrono_console_occurrence_changelist")
    text = client.get(f"{address}?job={seen.job}").content.decode()
    assert "12 occurrences" in text
    assert "paused" in text
    pages = walk(client, f"{address}?job={seen.job}")
    assert sum(len(rows) for _, rows in pages) == 71
    only = walk(client, f"{address}?job={seen.job}&outcome=skipped&reason=paused")
    assert [len(rows) for _, rows in only] == [1]
    assert not walk(client, f"{address}?job={uuid.uuid4()}")[0][1]
    lost = client.get(address)
    assert "Come here from a job" in lost.content.decode()


def test_runs_are_narrowed_by_each_of_the_fields(client, make_job):
    seen, other = make_job(), make_job(key="other")
    seen.runs(10)
    other.runs(4, state=5, reason=2)

    def count(query: str) -> int:
        listing = client.get(f"{reverse(RUNS)}?{query}").context_data["cl"]
        assert not listing.trouble, query
        return len(listing.result_list)

    assert count("") == 14
    assert count("state=success") == 10
    assert count("state=skipped") == 4
    assert count("reason=overlap") == 4
    assert count("state=success&reason=overlap") == 0
    assert count("reason=paused") == 0
    assert count(f"job={other.job}&reason=overlap") == 4
    assert count("queue=default") == 14
    assert count("queue=other") == 0
    # 15:00 is the newest run of both; the fields of a browser are UTC.
    assert count("since=2025-11-29T15:00") == 2
    assert count("since=2025-11-29T14:58&until=2025-11-29T15:00") == 4
    assert count("since=2025-11-29T17:00%2B02:00") == 2
    assert count("tenant=1") == 14
    assert count("tenant=2") == 0
    assert count("state=") == 14


@pytest.mark.parametrize(
    ("name", "query"),
    [
        (RUNS, "job=nonsense"),
        (RUNS, "state=sleeping"),
        (RUNS, "reason=whim"),
        (RUNS, "since=yesterday"),
        (RUNS, "until=2025-13-01T00:00"),
        (RUNS, "tenant=everybody"),
        (RUNS, "queue=a%00b"),
        (RUNS, "p=zzz"),
        (RUNS, f"p={'9' * 80}"),
        ("admin:chrono_jobs_job_changelist", "p=zzz"),
        ("admin:chrono_jobs_job_changelist", "kind=whim"),
        ("admin:chrono_console_worker_changelist", "p=1"),
        ("admin:chrono_console_partition_changelist", "p=x"),
        ("admin:chrono_console_deadletter_changelist", "reason=whim"),
        ("admin:chrono_tenants_auditevent_changelist", "of=whim"),
    ],
)
def test_what_cannot_be_meant_shows_no_rows_and_says_so(client, name, query):
    answer = client.get(f"{reverse(name)}?{query}")
    assert answer.status_code == 200
    assert answer.context_data["cl"].trouble
    assert not answer.context_data["cl"].result_list
    assert "errornote" in answer.content.decode()


@pytest.mark.parametrize(
    ("name", "query"),
    [
        (RUNS, "stat=dead"),
        (RUNS, "state__startswith=d"),
        ("admin:chrono_jobs_job_changelist", "paused=1"),
        ("admin:chrono_jobs_job_changelist", "jobrevision__target__headers__has_key=A"),
        ("admin:chrono_tenants_apikey_changelist", "digest__startswith=a"),
        ("admin:auth_user_changelist", "password__startswith=pbkdf2"),
    ],
)
def test_a_list_is_asked_by_its_own_fields_alone(client, name, query):
    assert client.get(f"{reverse(name)}?{query}").status_code == 400


def test_a_database_that_takes_too_long_is_named_not_an_empty_list(
    client, conn, make_job
):
    make_job()
    # Whoever holds the table makes every reader wait until its time is up.
    with conn.transaction():
        conn.execute("LOCK TABLE chrono_dead_letter IN ACCESS EXCLUSIVE MODE")
        raw_connection().execute("SET statement_timeout = 2000")
        answer = client.get(reverse("admin:chrono_console_deadletter_changelist"))
    text = answer.content.decode()
    assert answer.status_code == 200
    assert "took too long" in text
    assert "Nothing to show" not in text


def test_workers_and_leaders_are_shown_as_they_are(client, conn, make_job):
    conn.execute(
        """
        INSERT INTO chrono_worker (id, host, pid, concurrency, queues, beat_at, dead)
        SELECT gen_random_uuid(), host, 1, 5, '{mail}', now() - late, dead
        FROM (VALUES ('host-alive', interval '0', false),
            ('host-late', interval '1 day', false), ('host-gone', interval '0', true)
        ) AS w (host, late, dead)
        """
    )
    address = reverse("admin:chrono_console_worker_changelist")
    text = client.get(address).content.decode()
    for host, state in (
        ("host-alive", "active"),
        ("host-late", "unknown"),
        ("host-gone", "dead"),
    ):
        row = text.split(host)[1].split("</tr>")[0]
        assert state in row
    conn.execute("SELECT pg_advisory_lock(1128792065, 7)")
    address = reverse("admin:chrono_console_partition_changelist")
    rows = client.get(address).context_data["cl"].result_list
    assert [row.pk for row in rows if row.led] == [7]


def test_a_trail_is_what_an_address_says_and_no_longer_than_it_may_be():
    assert Trail.read("").last is None
    assert Trail.read("a~b").last == "b"
    assert Trail.read("a~b").back() == "a"
    assert Trail.read("a").back() is None
    assert Trail.read("a~<script>").cursors == ()
    long = Trail.read("~".join(f"c{n}" for n in range(100)))
    assert len(long.cursors) == LONGEST_TRAIL
    assert long.last == "c99"
    assert long.on("x").count("~") == LONGEST_TRAIL - 1


def test_deleted_jobs_are_shown_to_who_asks_for_them(client, make_job):
    make_job(key="kept")
    gone = make_job(key="gone")
    commands.delete_job(gone.job, actor=ACTOR)
    address = reverse("admin:chrono_jobs_job_changelist")

    def keys(query: str) -> list[str]:
        listing = client.get(f"{address}?{query}").context_data["cl"]
        return [row.key for row in listing.result_list]

    assert keys("") == ["kept"]
    assert keys("state=deleted") == ["gone"]
