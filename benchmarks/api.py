"""Measure the API and the admin on a live web process; the last line is JSON.

    make bench-api

One client on a kept connection gives the times, eight give the requests a second. The
history holds a million runs, and the list of runs is walked to its end.
"""

import argparse
import html.parser
import http.cookiejar
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django

django.setup()

import psycopg  # noqa: E402  (needs the settings above)

from benchmarks.rig import (  # noqa: E402
    ROOT,
    Rig,
    environment,
    make_room,
    now_ms,
    rig,
    seed_one_shots,
)
from dev.postgres import free_port  # noqa: E402

HISTORY = 1_000_000
CLIENTS = 8
PAGE = 500
LOGIN = ("bench", "only-for-benchmarks")
STATEMENTS_BAR = 25
DEPTH_BAR = 2.0


@dataclass(slots=True, kw_only=True)
class Web:
    """A live web process and the key that opens it."""

    port: int
    key: str
    url: str
    """Of its database."""
    conn: psycopg.Connection[Any]
    pid: int

    def client(self) -> "Client":
        """Return a client with a connection of its own."""
        return Client(self)


class Client:
    """Requests on one kept connection."""

    def __init__(self, web: Web) -> None:
        self._http = HTTPConnection("127.0.0.1", web.port, timeout=30)
        self._headers = {
            "Authorization": f"Bearer {web.key}",
            "Content-Type": "application/json",
        }

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer's JSON; SystemExit on anything but 2xx."""
        return self.send(
            method, path, None if body is None else json.dumps(body).encode()
        )

    def send(self, method: str, path: str, data: bytes | None) -> Any:
        """Do the same with a body that is JSON already."""
        self._http.request(method, path, data, self._headers)
        answer = self._http.getresponse()
        text = answer.read()
        if not 200 <= answer.status < 300:
            raise SystemExit(f"{method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text)


def main() -> int:
    """Measure, print, and exit 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--history", type=int, default=HISTORY)
    options = parser.parse_args()
    with rig() as bench, web(bench, history=options.history) as live:
        figures = measure(live)
    missed = [
        *(
            [f"deepest pages cost {figures['list_runs']['depth_ratio']} x the first"]
            if figures["list_runs"]["depth_ratio"] > DEPTH_BAR
            else []
        ),
        *(
            f"{page}: {number} statements"
            for page, number in figures["admin_statements"].items()
            if number > STATEMENTS_BAR
        ),
    ]
    for bar in missed:
        print(f"bar missed: {bar}")
    print(json.dumps({"bars_missed": missed, **figures}))
    return 1 if missed else 0


def measure(live: Web) -> dict[str, Any]:
    """Return every figure, each with its n; print each as it comes."""
    figures: dict[str, Any] = {}

    def take(name: str, figure: dict[str, Any]) -> None:
        figures[name] = figure
        print(f"{name}: {json.dumps(figure)}", flush=True)

    client = live.client()
    jobs = itertools.cycle(
        [client.call("POST", "/api/v1/jobs", new_job())["id"] for _ in range(50)]
    )
    [(run,)] = live.conn.execute(
        "SELECT id FROM chrono_run ORDER BY id DESC LIMIT 1"
    ).fetchall()
    take("create", timed(live, lambda c: c.call("POST", "/api/v1/jobs", new_job())))
    take("get_run", timed(live, lambda c: c.call("GET", f"/api/v1/runs/{run}")))
    take(
        "trigger",
        timed(
            live,
            lambda c: c.call(
                "POST", f"/api/v1/jobs/{next(jobs)}/run", {"beside": True}
            ),
        ),
    )
    take("list_jobs", timed(live, lambda c: c.call("GET", "/api/v1/jobs?limit=50")))
    take("list_runs", walk(live.client()))
    take("admin_statements", admin_statements(live))
    return figures


def new_job() -> dict[str, Any]:
    """Return the definition of a job that no other has the key of."""
    return {
        "key": f"bench-{uuid.uuid4()}",
        "cron": "0 3 * * *",
        "target": {"kind": "task", "name": "benchmarks.nothing"},
    }


def timed(live: Web, call: Callable[[Client], Any], *, n: int = 200) -> dict[str, Any]:
    """Return p50 and p99 of one client, and the requests a second of eight."""
    client = live.client()
    for _ in range(10):
        call(client)
    times = []
    for _ in range(n):
        begin = time.perf_counter()
        call(client)
        times.append((time.perf_counter() - begin) * 1000)
    clients = [live.client() for _ in range(CLIENTS)]

    def work(mine: Client) -> None:
        for _ in range(n // CLIENTS):
            call(mine)

    threads = [threading.Thread(target=work, args=(each,)) for each in clients]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - begin
    return {
        "n": n,
        "p50_ms": round(statistics.median(times), 1),
        "p99_ms": round(statistics.quantiles(times, n=100)[98], 1),
        "requests_per_s": round(n // CLIENTS * CLIENTS / took),
    }


def walk(client: Client) -> dict[str, Any]:
    """Walk the list of runs to its end; compare the deepest pages with the first."""
    times: list[float] = []
    rows = 0
    path: str | None = f"/api/v1/runs?limit={PAGE}"
    while path:
        begin = time.perf_counter()
        page = client.call("GET", path)
        times.append((time.perf_counter() - begin) * 1000)
        rows += len(page["items"])
        cursor = page["next_cursor"]
        path = cursor and (
            f"/api/v1/runs?limit={PAGE}&cursor={urllib.parse.quote(cursor)}"
        )
    few = max(1, len(times) // 20)
    first, last = (
        statistics.median(times[:few]),
        statistics.median(times[-few - 1 : -1]),
    )
    return {
        "n": len(times),
        "rows": rows,
        "first_pages_ms": round(first, 1),
        "deepest_pages_ms": round(last, 1),
        "worst_page_ms": round(max(times), 1),
        "depth_ratio": round(last / first, 2),
    }


class Links(html.parser.HTMLParser):
    """The addresses that a page links to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the addresses of links."""
        href = dict(attrs).get("href")
        if tag == "a" and href:
            self.found.append(href)


def admin_statements(live: Web) -> dict[str, int]:
    """Return how many statements each page of the admin's index takes."""
    jar = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    base = f"http://127.0.0.1:{live.port}"

    def read(path: str, data: dict[str, str] | None = None) -> str:
        body = None if data is None else urllib.parse.urlencode(data).encode()
        request = urllib.request.Request(base + path, body, {"Referer": base + path})
        with browser.open(request, timeout=30) as answer:
            return str(answer.read().decode())

    read("/admin/login/")
    token = next(str(c.value) for c in jar if "csrf" in c.name)
    name, word = LOGIN
    index = read(
        "/admin/login/?next=/admin/",
        {"csrfmiddlewaretoken": token, "username": name, "password": word},
    )
    lists = [page for page in _links(index, "/admin/") if page.count("/") == 4]
    pages = ["/admin/", *lists]
    for page in lists:
        # Of each list the first row's page, and the form for a new one.
        below = _links(read(page), page)
        pages += [p for p in below if p.endswith("/add/")][:1]
        pages += [p for p in below if not p.endswith("/add/") and p != page][:1]
    counts = {}
    for page in dict.fromkeys(pages):
        before = _calls(live.conn)
        read(page)
        # The look itself is one.
        counts[_kind(page)] = _calls(live.conn) - before - 1
    return counts


def _links(page: str, below: str) -> list[str]:
    """Return the addresses under ``below`` that a page links to, each once."""
    links = Links()
    links.feed(page)
    found = [
        urllib.parse.urljoin(below, link).partition("#")[0].partition("?")[0]
        for link in links.found
    ]
    return sorted(
        {
            link
            for link in found
            if link.startswith(below)
            and "logout" not in link
            and "password" not in link
        }
    )


def _kind(page: str) -> str:
    """Return a page's address with the id of what it shows left out."""
    return re.sub(r"/[0-9a-f-]{36}(?=/)|/[^/]+(?=/change/$)", "/ID", page)


def _calls(conn: psycopg.Connection[Any]) -> int:
    [(calls,)] = conn.execute(
        "SELECT sum(calls) FROM pg_stat_statements WHERE dbid = "
        "(SELECT oid FROM pg_database WHERE datname = current_database())"
    ).fetchall()
    return int(calls)


@contextmanager
def web(bench: Rig, *, history: int = 0) -> Iterator[Web]:
    """Yield a live web process on a database with a history, if it shall have one."""
    with bench.database() as url, psycopg.connect(url, autocommit=True) as conn:
        make_room(url, conn)
        if history:
            _write_history(conn, history, now=now_ms(conn))
        env = {
            **environment(url),
            "DEBUG": "1",
            "ALLOWED_HOSTS": "127.0.0.1",
            "DJANGO_SUPERUSER_USERNAME": LOGIN[0],
            "DJANGO_SUPERUSER_PASSWORD": LOGIN[1],
        }
        _manage(env, "chronosetup", "--no-key")
        said = _manage(env, "chronokey", "issue", "bench", "--scopes", "admin")
        key = next(word for word in said.split() if word.startswith("chr_"))
        port = free_port()
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "gunicorn",
                "chrono.wsgi",
                "-b",
                f"127.0.0.1:{port}",
            ],
            cwd=ROOT,
            env=env,
        )
        try:
            _wait(port)
            yield Web(port=port, key=key, url=url, conn=conn, pid=process.pid)
        finally:
            process.terminate()
            process.wait(timeout=30)


def _write_history(conn: psycopg.Connection[Any], count: int, *, now: int) -> None:
    """Write runs that settled over the last two days, one in fifty of them dead."""
    seed_one_shots(conn, 100, at=now + 3_600_000)
    conn.execute(
        """
        INSERT INTO chrono_run (due_at, dispatched_at, started_at, finished_at, id,
            job_id, worker, fence, revision, tenant, part, state, priority, attempt,
            queue)
        SELECT t, t, t, t, (
                lpad(to_hex((extract(epoch FROM t) * 1000)::bigint), 12, '0')
                || '8' || lpad(to_hex(j.part * 64 + n %% 64), 3, '0') || '8'
                || lpad(to_hex(n), 15, '0')
            )::uuid, j.id, gen_random_uuid(), 1, 1, 1, j.part,
            CASE WHEN n %% 50 = 0 THEN 3 ELSE 1 END, 2, 1, 'default'
        FROM (
            SELECT row_number() OVER () - 1 AS m, id, part FROM chrono_job
        ) j JOIN (
            SELECT n, to_timestamp((%(now)s - n * (86400000.0 * 2 / %(count)s)) / 1000)
                AS t
            FROM generate_series(1, %(count)s) AS n
        ) r ON r.n %% 100 = j.m
        """,
        {"now": now, "count": count},
    )
    conn.execute("ANALYZE chrono_run")


def _manage(env: dict[str, str], *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=ROOT,
        env=env,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


def _wait(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the web did not come up")


if __name__ == "__main__":
    sys.exit(main())
