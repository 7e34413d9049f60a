"""The page of targets in the admin."""

import uuid

import pytest
from django.urls import reverse

from apps.runs import targets
from apps.runs.targets import Told
from chrono.rules.retry import RetryPolicy

LIST = "admin:chrono_console_target_changelist"
ADD = "admin:chrono_console_target_add"


@pytest.fixture
def sick(conn):
    """A target whose circuit is open; its number."""
    told = [
        Told(
            key=(1, "https://sick.example:443"),
            run=uuid.uuid4(),
            token=uuid.uuid4(),
            good=False,
            policy=RetryPolicy(),
        )
        for _ in range(20)
    ]
    targets.report(conn, told, firsts={})
    [(number,)] = conn.execute("SELECT id FROM chrono_target").fetchall()
    return number


def state(conn):
    return conn.execute(
        "SELECT name, state, changed_by, note FROM chrono_target"
    ).fetchall()


def test_the_list_shows_what_is_sick(client, sick):
    text = client.get(reverse(LIST)).content.decode()
    assert "https://sick.example:443" in text
    assert ">open<" in text
    assert "Call again" in text
    narrowed = client.get(reverse(LIST), {"state": "closed"}).content.decode()
    assert "https://sick.example:443" not in narrowed


def test_a_target_is_called_again_with_a_note(client, conn, sick):
    address = reverse("admin:chrono_console_target_close", args=[sick])
    assert (
        "Call https://sick.example:443 again?" in client.get(address).content.decode()
    )
    assert client.post(address, {"reason": "mended"}).status_code == 302
    assert state(conn) == [("https://sick.example:443", 4, "ada", "mended")]


def test_a_target_that_is_well_is_stopped(client, conn, sick):
    conn.execute("UPDATE chrono_target SET state = 1, probe_at = NULL")
    address = reverse("admin:chrono_console_target_open", args=[sick])
    assert client.get(address).status_code == 200
    assert client.post(address, {"reason": "they ask for it"}).status_code == 302
    assert state(conn) == [("https://sick.example:443", 2, "ada", "they ask for it")]


def test_a_target_of_which_nothing_is_known_is_stopped(client, conn):
    address = reverse(ADD)
    assert client.get(address).status_code == 200
    sent = {"tenant": "1", "target": "https://example.org/x", "reason": "moving"}
    assert client.post(address, sent).status_code == 302
    assert state(conn) == [("https://example.org:443", 2, "ada", "moving")]
    refused = client.post(address, {**sent, "target": "ftp://x"})
    assert refused.status_code == 422
    assert "begins with https://" in refused.content.decode()


def test_a_number_that_is_none_is_not_found(client):
    client.raise_request_exception = False
    for name in ("open", "close"):
        address = reverse(f"admin:chrono_console_target_{name}", args=[77])
        assert client.get(address).status_code == 404
