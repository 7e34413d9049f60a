"""The web as it is deployed: settings by the book, and a live server."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dev import postgres
from tests.architecture.sources import ROOT
from tests.chrono.test_settings import manage


def test_the_settings_pass_every_check_of_a_deployment():
    done = manage(
        "check",
        "--deploy",
        "--fail-level",
        "WARNING",
        SECRET_KEY="k3y-with-more-than-fifty-characters-of-many-kinds-0123456789",
        ALLOWED_HOSTS="chrono.example.org",
    )
    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout


def test_procfile_app_json_and_gunicorn_say_the_same():
    processes = dict(
        line.split(": ", 1) for line in (ROOT / "Procfile").read_text().splitlines()
    )
    app = json.loads((ROOT / "app.json").read_text())
    assert set(processes) == {*app["formation"], "release"}
    assert processes["web"] == "gunicorn chrono.wsgi"
    text = (ROOT / "README.md").read_text()
    for name in app["env"]:
        assert name in text or name.startswith("DJANGO_"), name


class Server:
    """A gunicorn on this machine's loopback."""

    def __init__(self, popen: subprocess.Popen[str], port: int) -> None:
        self.popen, self.port = popen, port

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Send one request on a connection of its own."""
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        ) as connection:
            names = {name.replace("_", "-"): text for name, text in headers.items()}
            connection.request(method, path, body, names)
            response = connection.getresponse()
            return response, response.read()

    def raw(self, data: bytes) -> bytes:
        """Send bytes as they are; return what comes before the end."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: sock.recv(65536), b""))


@contextlib.contextmanager
def gunicorn(**changes: str) -> Iterator[Server]:
    """Run the web on a free port until the block is left."""
    port = postgres.free_port()
    command = [sys.executable, "-m", "gunicorn", "chrono.wsgi"]
    popen = subprocess.Popen(
        [*command, "--bind", f"127.0.0.1:{port}"],
        cwd=ROOT,
        env={
            **os.environ,
            "WEB_CONCURRENCY": "1",
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            **changes,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert popen.stdout is not None
        for line in popen.stdout:
            if "Booting worker" in line:
                break
        yield Server(popen, port)
    finally:
        popen.kill()
        popen.communicate()


@pytest.fixture
def server(database: str) -> Iterator[Server]:
    with gunicorn() as server:
        yield server


def test_a_live_server_answers_and_ends_politely(server):
    response, body = server.ask("GET", "/readyz")
    assert (response.status, json.loads(body)["status"]) == (200, "ok")
    response, body = server.ask("GET", "/api/v1/runs")
    assert response.status == 401
    assert response.headers["Content-Type"] == "application/problem+json"
    # What a proxy that nobody named says counts for nothing.
    response, _ = server.ask("GET", "/readyz", X_Forwarded_Proto="https")
    assert "Strict-Transport-Security" not in response.headers
    server.popen.send_signal(signal.SIGTERM)
    said, _ = server.popen.communicate(timeout=20)
    assert server.popen.returncode == 0, said
    assert re.search(
        r"chrono\.web answered method=GET path=/api/v1/runs status=401", said
    )


POST = b"POST /api/v1/schedules/preview HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: 100\r\nConnection: close\r\n\r\n{}",
        b"\x00\x01\x02\r\n\r\n",
    ],
    ids=["two hosts", "long line", "two lengths", "cut body", "no http"],
)
def test_broken_requests_are_refused_and_the_server_lives_on(server, data):
    answer = server.raw(data)
    assert not answer or re.match(rb"HTTP/1\.[01] 4\d\d ", answer), answer[:200]
    assert server.ask("GET", "/livez")[0].status == 200


def test_over_tls_alone_unless_told_otherwise(database):
    with gunicorn(CHRONO_HTTPS="1", CHRONO_TRUST_PROXY="1") as server:
        response, _ = server.ask("GET", "/admin/login/", Host="localhost")
        assert response.status == 301
        assert response.headers["Location"] == "https://localhost/admin/login/"
        assert "Content-Security-Policy" in response.headers
        assert server.ask("GET", "/livez")[0].status == 200
        response, _ = server.ask("GET", "/admin/login/", X_Forwarded_Proto="https")
        assert response.status == 200
        assert response.headers["Strict-Transport-Security"].startswith("max-age=3153")
        assert "Secure" in response.headers["Set-Cookie"]
