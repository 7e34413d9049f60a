"""The page of paused queues in the admin."""

from django.urls import reverse

from apps.runs import pauses
from tests.console.conftest import ACTOR

LIST = "admin:chrono_console_queuepause_changelist"
ADD = "admin:chrono_console_queuepause_add"


def rows(conn):
    return conn.execute(
        "SELECT tenant, queue, paused_by, note FROM chrono_queue_pause"
    ).fetchall()


def test_a_queue_is_paused_and_shown(client, conn):
    assert client.get(reverse(ADD)).status_code == 200
    sent = {"tenant": "1", "queue": "mails", "reason": "a deploy"}
    assert client.post(reverse(ADD), sent).status_code == 302
    assert rows(conn) == [(1, "mails", "ada", "a deploy")]
    text = client.get(reverse(LIST)).content.decode()
    assert "mails" in text
    assert "a deploy" in text
    assert client.post(reverse(ADD), {**sent, "queue": "No!"}).status_code == 422


def test_a_paused_queue_is_resumed(client, conn):
    pauses.pause(conn, "mails", tenant=1, actor=ACTOR, reason="")
    [(number,)] = conn.execute("SELECT id FROM chrono_queue_pause").fetchall()
    address = reverse("admin:chrono_console_queuepause_resume", args=[number])
    assert "Resume the queue mails?" in client.get(address).content.decode()
    assert client.post(address, {"reason": "done"}).status_code == 302
    assert rows(conn) == []
    client.raise_request_exception = False
    assert client.get(address).status_code == 404
