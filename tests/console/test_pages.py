"""Every page: its frame, its headers, and how many statements it takes."""

import uuid

import pytest
from django.urls import reverse

from apps.console.site import UNKNOWN
from apps.runtime.django_session import raw_connection
from apps.runtime.locks import PARTITION_LOCKS
from tests.console.conftest import Seen

MOST = 25
"""Statements of one page."""
BOUNDED = (
    "/* jobs.measure_minute */",
    "/* jobs.list_long_runs */",
    "/* jobs.count_skips */",
    "/* jobs.list_backfills */",
    "/* timers.read_leaders */",
)
"""Statements that count no more than a LIMIT lets through, a backfill has, or locks."""


def addresses(seen: Seen, key: str = "nothing0") -> dict[str, str]:
    """Return every page that shows something, by its name."""
    lists = (
        "chrono_jobs_job",
        "chrono_console_run",
        "chrono_console_deadletter",
        "chrono_console_occurrence",
        "chrono_console_worker",
        "chrono_console_partition",
        "chrono_tenants_tenant",
        "chrono_tenants_apikey",
        "chrono_tenants_auditevent",
        "auth_user",
    )
    found = {name: reverse(f"admin:{name}_changelist") for name in lists}
    found["chrono_console_occurrence"] += f"?job={seen.job}"
    found["runs of a job"] = f"{found['chrono_console_run']}?job={seen.job}"
    found["runs skipped"] = (
        f"{found['chrono_console_run']}?state=skipped&reason=overlap"
    )
    found["jobs found"] = (
        f"{found['chrono_jobs_job']}?q=nightly&kind=cron&queue=default"
    )
    found["index"] = reverse("admin:index")
    for name in ("chrono_jobs_job", "chrono_tenants_tenant", "chrono_tenants_apikey"):
        found[f"{name} add"] = reverse(f"admin:{name}_add")
    revisions = reverse("admin:chrono_jobs_jobrevision_changelist")
    found["revisions"] = f"{revisions}?job={seen.job}"
    verbs = ("change", "pause", "resume", "skip", "delete", "restore", "run")
    for verb in (*verbs, "backfill", "why"):
        name = f"admin:chrono_jobs_job_{verb}"
        found[f"job {verb}"] = reverse(name, args=[seen.job])
    found["clone"] = f"{found['chrono_jobs_job add']}?clone={seen.job}"
    found["job explained"] = f"{found['job why']}?at=2025-11-29T15:00:00Z"
    for verb in ("change", "cancel", "move"):
        name = f"admin:chrono_console_run_{verb}"
        found[f"run {verb}"] = reverse(name, args=[seen.run()])
    found["dead letter"] = reverse(
        "admin:chrono_console_deadletter_change", args=[seen.run()]
    )
    event = seen.conn.execute("SELECT id FROM chrono_audit_event LIMIT 1").fetchone()
    assert event is not None
    found["event"] = reverse("admin:chrono_tenants_auditevent_change", args=event)
    found["app"] = reverse("admin:app_list", args=["chrono_jobs"])
    found["user"] = reverse("admin:auth_user_add")
    return found


@pytest.fixture
def seen(make_job):
    seen = make_job()
    seen.runs(10_000)
    seen.failed(0, "it broke")
    return seen


def test_each_page_takes_few_statements_and_counts_nothing(seen, client, statements):
    taken = {}
    for name, address in addresses(seen).items():
        statements.clear()
        answer = client.get(address)
        assert answer.status_code == 200, (name, answer.status_code)
        taken[name] = len(statements)
        counted = [
            text
            for text in statements
            if "count(" in text.lower() and not text.startswith(BOUNDED)
        ]
        assert not counted, (name, counted)
        skipped = [
            text for text in statements if "OFFSET" in text.replace("OFFSET 0", "")
        ]
        assert not skipped, (name, skipped)
        header = answer.headers["Content-Security-Policy"]
        assert "unsafe" not in header
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Referrer-Policy"] == "same-origin"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        text = answer.content.decode()
        assert " style=" not in text, name
        assert "<style" not in text, name
        assert " onclick=" not in text, name
        assert "javascript:" not in text, name
    print(taken)
    assert max(taken.values()) <= MOST, taken
    assert min(taken.values()) >= 1, taken


def test_nobody_else_gets_in(seen, client, person):
    pages = addresses(seen)
    person.is_superuser = False
    person.save()
    for name, address in pages.items():
        answer = client.get(address)
        assert answer.status_code == 302, name
        assert answer.headers["Location"].startswith("/admin/login/"), name
    client.logout()
    for name, address in pages.items():
        assert client.get(address).status_code == 302, name


def test_what_is_not_there_is_not_found(client):
    nothing = uuid.uuid4()
    for name in (
        "chrono_jobs_job_change",
        "chrono_jobs_job_pause",
        "chrono_jobs_job_run",
        "chrono_jobs_job_backfill",
        "chrono_jobs_job_why",
        "chrono_console_run_change",
        "chrono_console_run_cancel",
        "chrono_console_run_move",
        "chrono_console_deadletter_change",
        "chrono_tenants_auditevent_change",
        "chrono_tenants_apikey_change",
        "chrono_console_worker_change",
    ):
        for ident in (str(nothing), "x" * 8, "0", "a%27b", "%00"):
            address = reverse(f"admin:{name}", args=["IDENT"]).replace("IDENT", ident)
            assert client.get(address).status_code == 404, (name, ident)


def test_c12_every_page_says_that_nothing_fires(client, person, conn):
    pages = [reverse("admin:index"), reverse("admin:chrono_jobs_job_changelist")]
    told = "Nothing fires: no scheduler leads any partition."
    for page in pages:
        assert told in client.get(page).content.decode()
    client.logout()
    asked = client.get(reverse("admin:login"))
    assert (asked.status_code, told in asked.content.decode()) == (200, False)
    client.force_login(person)
    for part in range(63):
        conn.execute("SELECT pg_advisory_lock(%s, %s)", [PARTITION_LOCKS, part])
    for page in pages:
        page_text = client.get(page).content.decode()
        assert "Some jobs do not fire: 63 of 64 partitions are led." in page_text
    conn.execute("SELECT pg_advisory_lock(%s, 63)", [PARTITION_LOCKS])
    for page in pages:
        assert "chrono-alarm" not in client.get(page).content.decode()


def test_no_page_fails_because_nobody_knows_whether_anything_fires(client, conn):
    page = reverse("admin:chrono_tenants_tenant_changelist")
    assert client.get(page).status_code == 200
    raw_connection().execute("SET lock_timeout = '100ms'")
    with conn.transaction():
        conn.execute("LOCK chrono_timer_far IN ACCESS EXCLUSIVE MODE")
        answer = client.get(page)
    assert answer.status_code == 200
    assert UNKNOWN in answer.content.decode()
