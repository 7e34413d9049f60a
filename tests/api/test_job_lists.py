"""GET /jobs: pages by key, filters, and a plan by index whatever is asked for."""

import uuid
from datetime import timedelta

import pytest

from apps.jobs import selectors
from apps.jobs.store import Chosen
from apps.runtime import sql
from apps.runtime.django_session import raw_connection
from apps.tenants.actor import Actor
from chrono.rules.keys import PAST_ID
from tests.api.test_jobs import HTTP, JOBS, at, body, call, problem

ANYBODY = Actor.command("tests")


@pytest.fixture
def conn(connect):
    return connect()


def ids(client, question=""):
    answer = client.get(f"{JOBS}?{question}")
    assert answer.status_code == 200, answer.content
    return [one["key"] for one in answer.json()["items"]]


@pytest.fixture
def jobs(client):
    """Six jobs by key, one of each kind of difference."""
    made = {
        "report": {"name": "Nightly Report", "queue": "mail", "tags": ["pay", "eu"]},
        "hook": {"target": HTTP, "priority": "high", "tags": ["pay", "team/ops"]},
        "minutes": {"cron": "H/5 * * * *"},
        "tick": {"cron": None, "interval": "90s"},
        "once": {"cron": None, "run_at": "2059-01-01T08:00:00Z"},
        "gone": {"tags": ["pay"]},
    }
    found = {
        key: call(client, "post", JOBS, body(key=key, **fields)).json()
        for key, fields in made.items()
    }
    call(client, "delete", at(found["gone"]))
    call(client, "post", at(found["hook"], "pause"))
    return found


def test_a_list_shows_jobs_in_short_newest_first(client, jobs):
    items = client.get(JOBS).json()["items"]
    assert [one["key"] for one in items] == [
        "once",
        "tick",
        "minutes",
        "hook",
        "report",
    ]
    alone = client.get(at(jobs["hook"])).json()
    short = items[3]
    assert short["target"] == {"kind": "http", "method": "POST", "url": HTTP["url"]}
    assert set(alone) - set(short) == {"payload", "retry_policy", "next_runs"}
    for name in set(short) - {"target"}:
        assert short[name] == alone[name]


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("q=REPORT", ["report"]),
        ("q=nightly%20rep", ["report"]),
        ("q=H/5", ["minutes"]),
        ("q=example.org", ["hook"]),
        ("q=tests.noth", ["once", "tick", "minutes", "report"]),
        ("q=90s", ["tick"]),
        ("q=%25", []),
        ("q=_", []),
        ("q=%5C", []),
        ("tag=pay", ["hook", "report"]),
        ("tag=pay&tag=eu", ["report"]),
        ("tag=pay&tag=pay", ["hook", "report"]),
        ("tag=team/ops", ["hook"]),
        ("tag=pa", []),
        ("tag=eu&tag=team/ops", []),
        ("tag=pay&state=deleted", ["gone"]),
        ("tag=pay&queue=mail&q=report", ["report"]),
        ("tag=pay&key=hook", ["hook"]),
        ("q=TEAM/O", ["hook"]),
        ("queue=mail", ["report"]),
        ("queue=none", []),
        ("priority=high", ["hook"]),
        ("key=tick", ["tick"]),
        ("key=gone", []),
        ("key=gone&state=deleted", ["gone"]),
        ("key=gone&state=deleted,active", ["gone"]),
        ("state=deleted", ["gone"]),
        ("state=paused", ["hook"]),
        ("state=active", ["once", "tick", "minutes", "report"]),
        ("state=active,paused,ended", ["once", "tick", "minutes", "hook", "report"]),
        ("state=paused,deleted", ["gone", "hook"]),
        ("state=ended", []),
        ("target=tests.nothing&state=active", ["once", "tick", "minutes", "report"]),
        ("target=tests", []),
        ("target=https://example.org/", ["hook"]),
        ("q=o&priority=normal&queue=default", ["once", "tick", "minutes"]),
    ],
)
def test_filters_narrow_the_list(client, jobs, question, found):
    assert ids(client, question) == found


def test_a_job_is_found_by_its_id(client, jobs):
    assert ids(client, f"q={jobs['tick']['id'].upper()}") == ["tick"]
    assert ids(client, f"q={jobs['tick']['id'][:-1]}") == []


def test_a_single_instant_that_is_over_has_ended(client, conn, jobs):
    [(moment,)] = conn.execute("SELECT now() - interval '2 hours'").fetchall()
    call(
        client,
        "post",
        JOBS,
        {**body(key="over", cron=None), "run_at": moment.isoformat(timespec="seconds")},
    )
    late = client.get(f"{JOBS}?key=over").json()["items"][0]
    assert (late["state"], ids(client, "key=over&state=ended")) == ("active", [])
    conn.execute(
        """
        INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence, version,
            revision, part, outcome, kind)
        SELECT date_trunc('second', %s::timestamptz), id, id, 1, 1, 1, part, 1, 1
        FROM chrono_job WHERE key = 'over'
        """,
        [moment],
    )
    over = client.get(f"{JOBS}?key=over").json()["items"][0]
    assert (over["state"], over["next_run_at"]) == ("ended", None)
    assert ids(client, "state=ended") == ["over"]
    assert "over" not in ids(client, "state=active")
    # Once the ledger is pruned, its age alone says so.
    conn.execute("DELETE FROM chrono_occurrence")
    old = "UPDATE chrono_job SET activated_at = now() - interval '1 hour'"
    conn.execute(f"{old} WHERE key = 'over'")
    assert ids(client, "state=ended") == ["over"]


@pytest.mark.parametrize(
    "kind", [{"cron": "* * * * *"}, {"interval": "1m"}, {"fixed_delay": "1m"}]
)
def test_a_schedule_whose_end_is_over_has_ended(client, conn, kind):
    made = {**body(key="over", cron=None), **kind, "ends_at": "2100-01-01T00:00:00Z"}
    assert call(client, "post", JOBS, made).status_code == 201
    assert ids(client, "state=active") == ["over"]
    assert ids(client, "state=ended") == []

    def ends(moment):
        conn.execute(
            "UPDATE chrono_job_revision SET jitter_window = 30000, schedule = "
            "schedule || jsonb_build_object('ends_at', to_char(%s::timestamptz "
            """AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))""",
            [moment],
        )

    [(now,)] = conn.execute(
        "UPDATE chrono_job SET activated_at = now() - interval '1 hour' RETURNING now()"
    ).fetchall()
    ends(now - timedelta(seconds=10))
    assert ids(client, "state=ended") == [], "its jitter is not over yet"
    ends(now - timedelta(minutes=1))
    assert ids(client, "state=ended") == ["over"]
    assert ids(client, "state=active") == []
    conn.execute("UPDATE chrono_job SET activated_at = %s", [now])
    [item] = client.get(f"{JOBS}?state=ended").json()["items"]
    assert (item["state"], item["next_run_at"]) == ("ended", None)
    # Of what an edit has decided up to the end no jitter is left to come.
    ends(now - timedelta(seconds=10))
    assert ids(client, "state=ended") == ["over"]
    conn.execute("UPDATE chrono_job SET paused = true")
    assert ids(client, "state=ended,active") == []


def test_an_end_that_is_no_instant_does_not_break_the_list(client, conn):
    call(client, "post", JOBS, body(key="odd", ends_at="2100-01-01T00:00:00Z"))
    for end in ('"soon"', "7", "{}", "null", '""'):
        conn.execute(
            "UPDATE chrono_job_revision SET schedule = "
            "jsonb_set(schedule, '{ends_at}', %s::jsonb)",
            [end],
        )
        assert client.get(f"{JOBS}?state=active,ended").status_code == 200


def test_a_job_is_found_by_its_delay(client):
    call(client, "post", JOBS, {**body(key="slow", cron=None), "fixed_delay": "77m"})
    assert ids(client, "q=77m") == ["slow"]


@pytest.mark.parametrize("question", ["", "q=job", "state=active,deleted"])
def test_pages_hold_every_job_once_and_in_order(client, question):
    made = [
        call(client, "post", JOBS, body(key=f"job-{n}")).json()["id"] for n in range(7)
    ]
    seen, cursor = [], ""
    while cursor is not None:
        more = f"&cursor={cursor}" if cursor else ""
        page = client.get(f"{JOBS}?limit=3&{question}{more}").json()
        assert len(page["items"]) <= 3
        seen += [one["id"] for one in page["items"]]
        cursor = page["next_cursor"]
    assert seen == made[::-1]


def test_a_search_gives_its_place_back_after_so_many_jobs(client, jobs, monkeypatch):
    monkeypatch.setattr(selectors, "LOOK", 2)
    pages, cursor = [], ""
    while cursor is not None:
        more = f"&cursor={cursor}" if cursor else ""
        page = client.get(f"{JOBS}?q=report{more}").json()
        pages.append([one["key"] for one in page["items"]])
        cursor = page["next_cursor"]
    assert pages == [[], [], ["report"]]


@pytest.mark.parametrize(
    ("question", "code", "parameter"),
    [
        ("name=x", "unknown_parameter", "name"),
        ("sort=name", "unknown_parameter", "sort"),
        ("next_before=2055-01-01T00:00:00Z", "unknown_parameter", "next_before"),
        ("limit=0", "bad_parameter", "limit"),
        ("q=", "bad_parameter", "q"),
        ("q=" + "x" * 101, "bad_parameter", "q"),
        ("q=%00", "bad_parameter", "q"),
        ("state=broken", "bad_parameter", "state"),
        ("tag=", "bad_parameter", "tag"),
        ("tag=Pay", "bad_parameter", "tag"),
        ("tag=pay,eu", "bad_parameter", "tag"),
        ("tag=%00", "bad_parameter", "tag"),
        ("tag=%ED%A0%80", "bad_parameter", "tag"),
        ("tag=" + "x" * 51, "bad_parameter", "tag"),
        ("tag=pay&tag=no tag", "bad_parameter", "tag"),
        ("&".join(f"tag=t{n}" for n in range(21)), "bad_parameter", "tag"),
        ("q=x&q=y", "bad_parameter", "q"),
        ("tags=pay", "unknown_parameter", "tags"),
        ("priority=1", "bad_parameter", "priority"),
        ("priority=high,low", "bad_parameter", "priority"),
        ("key=" + "x" * 201, "bad_parameter", "key"),
        ("target=%0A", "bad_parameter", "target"),
        ("cursor=x", "bad_cursor", "cursor"),
        ("cursor=Ii0xIg==", "bad_cursor", "cursor"),
        ("cursor=WzFd", "bad_cursor", "cursor"),
        ("cursor=MTI=", "bad_cursor", "cursor"),
    ],
)
def test_a_wrong_parameter_is_named(client, question, code, parameter):
    problem(client.get(f"{JOBS}?{question}"), 400, code, parameter=parameter)


def test_a_stranger_sees_none(stranger, jobs):
    assert stranger.get(JOBS).json() == {"items": [], "next_cursor": None}
    assert stranger.get(f"{JOBS}?state=deleted").json()["items"] == []
    assert stranger.get(f"{JOBS}?q={jobs['tick']['id']}").json()["items"] == []
    mine = call(stranger, "put", f"{JOBS}/by-key/tick", body(key="tick"))
    assert mine.status_code == 201
    assert ids(stranger) == ["tick"]


FILL = """
    WITH n AS (
        SELECT n, ('0190' || lpad(to_hex(n), 28, '0'))::uuid AS id
        FROM generate_series(1, 20000) AS n
    ), jobs AS (
        INSERT INTO chrono_job (id, tenant, key, name, part, version, revision, epoch,
            activated_at, paused, pause_note, created_at, updated_at, deleted_at)
        SELECT id, 1, 'key-' || n, '', n % 64, 1, 1, n, now(), false, '', now(), now(),
            CASE WHEN n % 2 = 0 THEN now() END FROM n
    )
    INSERT INTO chrono_job_revision (job_id, revision, schedule, jitter_window,
        overlap_policy, queue, priority, target, payload, retry_policy, created_at)
    SELECT id, 1, '{"cron": "30 2 * * *"}', 0, 'skip', 'default', 2,
        '{"kind": "task", "name": "t"}', NULL, '{}', now() FROM n
"""


@pytest.fixture
def many(database, conn):
    """A tenant with 10,000 jobs and as many deleted ones."""
    conn.execute(FILL)
    conn.execute("ANALYZE chrono_job, chrono_job_revision")
    return conn


def scans(plan, depth=0):
    yield plan["Node Type"], plan.get("Index Name", ""), plan["Actual Rows"]
    for child in plan.get("Plans", []):
        yield from scans(child, depth + 1)


CHOSEN = {
    "all": ({}, {}, 60),
    "deep": ({"before": uuid.UUID("01900000-0000-0000-0000-000000000400")}, {}, 60),
    "deleted": ({"living": False, "deleted": True}, {}, 60),
    "both": ({"deleted": True}, {"states": ["active", "deleted"]}, 130),
    "words": ({}, {"words": "KEY-1999"}, 10_000),
    "nothing": ({}, {"queue": "none"}, 10_000),
    "tag": ({}, {"tags": ["pay", "eu"]}, 10_000),
    "key": ({"key": "key-77"}, {}, 1),
}


def explained(name):
    """Return the plan of a list as the web asks for it: its values bound before."""
    look, chosen, most = CHOSEN[name]
    picky = bool(chosen) or "key" in look
    params = {
        "tenant": 1,
        "before": PAST_ID,
        "look": selectors.LOOK if picky else 51,
        "living": True,
        "deleted": False,
        "key": None,
        "limit": 51,
        "states": None,
        "queue": None,
        "priority": None,
        "tags": [],
        "target": None,
        "words": None,
        **look,
        **chosen,
    }
    text = sql.load("jobs", "list_jobs").text
    [(plan,)] = raw_connection().execute(
        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON, TIMING OFF) {text}", params
    )
    return plan[0]["Plan"], most


@pytest.mark.parametrize("name", CHOSEN)
def test_the_list_is_read_by_index_alone(many, name):
    plan, most = explained(name)
    nodes = list(scans(plan))
    kinds = {kind for kind, _, _ in nodes}
    assert not kinds & {"Seq Scan", "Bitmap Heap Scan"}
    assert max(rows for _, _, rows in nodes) <= most, nodes
    indexes = {index for _, index, _ in nodes} - {""}
    assert "chrono_job_pkey" not in indexes
    assert indexes & {"chrono_job_living", "chrono_job_deleted", "chrono_job_key"}


def test_the_last_page_reads_no_more_than_the_first(many):
    first, deep = (
        plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        for plan, _ in (explained("all"), explained("deep"))
    )
    assert deep <= first + 5


def test_a_page_costs_the_same_statements_at_any_length(many, client, conn):
    def statements(limit):
        texts = []
        original = type(sql.load("jobs", "list_jobs")).run

        def counted(self, *args, **options):
            texts.append(self.name)
            return original(self, *args, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sql.Statement, "run", counted)
            assert len(client.get(f"{JOBS}?limit={limit}").json()["items"]) == limit
        return [name for name in texts if "request" not in name]

    assert statements(1) == statements(500)
    assert len(statements(10)) <= 6


def test_the_end_of_a_walk_is_found_with_and_without_a_key(many):
    for chosen, key in (
        (Chosen(queue="none"), None),
        (Chosen(tags=("none",)), None),
        (Chosen(), "no-such-key"),
    ):
        after, pages = None, 0
        while True:
            page = selectors.list_jobs(
                raw_connection(),
                tenant=1,
                actor=ANYBODY,
                chosen=chosen,
                key=key,
                after=after,
                limit=50,
            )
            assert page.items == []
            pages += 1
            if page.next is None:
                break
            assert after is None or page.next < after
            after = page.next
        assert pages == (3 if key is None else 1)
