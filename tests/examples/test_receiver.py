"""The receiver: an honest witness."""

import base64
import datetime
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from examples import receiver
from tests.architecture.sources import ROOT

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
Post = Callable[..., int]


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def post(ledger: Path) -> Iterator[Post]:
    """A receiver in its own process; posts to it and returns the answer's status."""
    command = [sys.executable, "-m", "examples.receiver", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--ledger", str(ledger)],
        cwd=ROOT,
        env={"CHRONO_WEBHOOK_SECRET": SECRET},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    address = process.stdout.readline().split()[2].rstrip(",")

    def send(path: str, body: bytes = b"{}", **headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(address + path, data=body, headers=named)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    yield send
    process.terminate()
    assert process.wait(timeout=10) == 0
    process.stdout.close()


def entries(ledger: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in ledger.read_text().splitlines()]


def signed(message_id: str, body: bytes, moment: datetime.datetime) -> dict[str, str]:
    """Return the headers as the reference implementation makes them."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": Webhook(SECRET).sign(message_id, moment, body.decode()),
    }


def test_an_answer_means_that_the_ledger_has_it(post, ledger):
    assert post("/a", b'{"n": 1}', Idempotency_Key="k1", Chrono_Attempt="2") == 200
    [entry] = entries(ledger)
    assert (entry["method"], entry["path"], entry["key"]) == ("POST", "/a", "k1")
    assert (entry["body"], entry["status"]) == ('{"n": 1}', 200)
    assert entry["signature"] == "missing"
    headers = entry["headers"]
    assert isinstance(headers, dict)
    assert headers["chrono-attempt"] == "2"


def test_requests_that_come_together_are_all_in_the_ledger(post, ledger):
    with ThreadPoolExecutor(20) as pool:
        numbers = range(200)
        answers = list(pool.map(lambda n: post("/a", Idempotency_Key=str(n)), numbers))
    assert answers == [200] * 200
    keys = sorted(int(str(entry["key"])) for entry in entries(ledger))
    assert keys == list(range(200))


def test_it_fails_as_often_as_asked_for_each_key(post, ledger):
    for key in ("one", "two"):
        asked = [post("/fail-times/2/x", Idempotency_Key=key) for _ in range(3)]
        assert asked == [500, 500, 200]
    assert post("/status/503/x") == 503
    assert [entry["status"] for entry in entries(ledger)] == [500, 500, 200] * 2 + [503]


def test_the_reference_implementation_s_signature_is_good_over_the_wire(post, ledger):
    body = b'{"n": 1}'
    now = datetime.datetime.now(datetime.UTC)
    post("/a", body, **signed("id1", body, now))
    post("/a", body + b" ", **signed("id2", body, now))
    assert [entry["signature"] for entry in entries(ledger)] == ["ok", "wrong"]


def verdict(headers: dict[str, str], body: bytes, now: float) -> str:
    request = receiver.Request(method="POST", path="/", headers=headers, body=body)
    return receiver.signature_verdict(request, SECRET, now)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "ok"),
        ({"webhook-id": "other"}, "wrong"),
        ({"webhook-signature": "v1,AAAA"}, "wrong"),
        ({"webhook-signature": "v1,%%"}, "wrong"),
        ({"webhook-signature": ""}, "missing"),
        ({"webhook-timestamp": "soon"}, "stale"),
        ({"webhook-timestamp": "1000"}, "stale"),
    ],
)
def test_a_changed_header_is_noticed(change, expected):
    moment = datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.UTC)
    headers = signed("id", b"body", moment) | change
    assert verdict(headers, b"body", moment.timestamp() + 299) == expected


def test_an_old_signature_is_stale_and_a_second_one_may_be_the_good_one():
    moment = datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.UTC)
    headers = signed("id", b"body", moment)
    assert verdict(headers, b"body", moment.timestamp() + 301) == "stale"
    headers["webhook-signature"] = "v1,AAAA " + headers["webhook-signature"]
    assert verdict(headers, b"body", moment.timestamp()) == "ok"
