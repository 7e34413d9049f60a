"""The receiver that has each effect once, driven over the wire and by a worker."""

import json
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chrono.rules.states import RunState
from tests.architecture.sources import ROOT
from tests.support.seed import make_job, make_ready
from tests.worker.support import FAST, offered_again, running, settled, wait_for


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "effects.db"


@pytest.fixture
def address(file):
    """A receiver in a process of its own."""
    command = [sys.executable, "-m", "examples.effects_receiver", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--file", str(file)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    yield process.stdout.readline().split()[2].rstrip(",")
    process.terminate()
    assert process.wait(timeout=10) == 0
    process.stdout.close()


@pytest.fixture
def post(address):
    """Posts an order; returns status, headers and answer."""

    def send(key, *, fence=1, attempt=1, path="/pay"):
        headers = {
            "Idempotency-Key": key,
            "Chrono-Fence": str(fence),
            "Chrono-Attempt": str(attempt),
        }
        request = urllib.request.Request(address + path, data=b"{}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.headers, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, json.load(error)

    return send


def effects(file):
    return read(file, "SELECT key FROM effect ORDER BY id")


def keys(file):
    return read(file, "SELECT key FROM seen")


def read(file, question):
    conn = sqlite3.connect(file, timeout=10)
    try:
        return [key for (key,) in conn.execute(question)]
    finally:
        conn.close()


def test_a_key_that_was_done_gets_its_answer_again_and_no_second_effect(post, file):
    status, headers, first = post("a")
    assert (status, headers.get("Idempotency-Replayed")) == (201, None)
    status, headers, second = post("a", attempt=2)
    assert (status, headers["Idempotency-Replayed"]) == (201, "true")
    assert second == first
    assert post("b")[2] != first
    assert effects(file) == ["a", "b"]


def test_a_lower_fence_or_an_earlier_attempt_is_refused(post, file):
    assert post("a", fence=5, attempt=2, path="/fail/x")[0] == 500
    assert post("a", fence=4, attempt=9)[0] == 409
    assert post("a", fence=5, attempt=1)[0] == 409
    assert effects(file) == []
    assert post("a", fence=5, attempt=2)[0] == 201
    assert post("a", fence=4, attempt=3)[0] == 409, "done or not"
    assert post("b", fence=1)[0] == 201, "fences of other keys say nothing"
    assert effects(file) == ["a", "b"]


def test_requests_that_come_together_have_one_effect(post, file):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post("a", path="/sleep-ms/300/x"), range(8)))
    statuses = sorted(status for status, _, _ in answers)
    assert statuses[0] == 201
    assert set(statuses) <= {201, 429}
    assert 429 in statuses
    assert all(h["Retry-After"] == "1" for s, h, _ in answers if s == 429)
    assert effects(file) == ["a"]


def test_what_failed_leaves_nothing_and_is_had_by_the_next(post, file):
    assert post("a", path="/fail/x")[0] == 500
    assert effects(file) == []
    assert post("a", attempt=2)[0] == 201
    assert effects(file) == ["a"]


def test_without_a_key_nothing_is_done(post, file):
    assert post("")[0] == 400
    assert effects(file) == []


def test_a_worker_s_second_attempt_finds_what_the_first_had(
    post, address, file, dsn, connect
):
    """The first attempt's worker was lost after the effect, before its answer."""
    conn = connect()
    target = {"kind": "http", "url": f"{address}/pay"}
    [run] = make_ready(conn, make_job(conn, target=target, retry_policy=FAST), fence=3)
    assert post(str(run), fence=3, attempt=1)[0] == 201
    conn.execute("UPDATE chrono_ready SET attempt = 2, fence = 4")
    with running(dsn):
        rows = settled(conn)
    assert rows[0][1:4] == (RunState.SUCCESS, None, 2)
    assert effects(file) == [str(run)]
    status, _, _ = post(str(run), fence=3, attempt=1)
    assert status == 409, "the lost worker, come back"


def test_a_worker_comes_again_while_the_key_is_worked_on(
    post, address, file, dsn, connect, background
):
    conn = connect()
    target = {"kind": "http", "url": f"{address}/pay"}
    [run] = make_ready(conn, make_job(conn, target=target, retry_policy=FAST))
    first = background(post, str(run), path="/sleep-ms/5000/x")
    wait_for(lambda: keys(file) == [str(run)])
    assert post(str(run))[0] == 429
    with running(dsn):
        offered_again(conn, run, 2, claim=False)
        assert first.result(timeout=10)[0] == 201
        offered_again(conn, run, 2)
        assert settled(conn)[0][1] == RunState.SUCCESS
    assert effects(file) == [str(run)]
