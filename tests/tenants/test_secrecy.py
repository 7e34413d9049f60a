"""A key's text is in no table and in no log, in whatever form."""

import base64
import logging
import re
from collections.abc import Iterator

import django.db
import pytest

from apps.tenants import keys
from apps.tenants.errors import KeyRefused
from apps.tenants.key_text import compose
from tests.support.pg import Connection
from tests.tenants.conftest import ACTOR, Keyring
from tests.tenants.test_commands import run

LEAST = 10
"""A part of a secret as long as this would be no chance."""


def forms(secret: str) -> set[str]:
    """Return the ways in which a secret, or a part of it, could be written down."""
    parts = {secret[n : n + LEAST] for n in range(len(secret) - LEAST + 1)}
    return {
        *parts,
        *(part[::-1] for part in parts),
        *(part.encode().hex() for part in parts),
        base64.b64encode(secret.encode()).decode().rstrip("="),
    }


def dump(conn: Connection) -> str:
    """Return every row of every table as text."""
    tables = conn.execute(
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables "
        "WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
    ).fetchall()
    assert len(tables) > 20
    parts = []
    for (table,) in tables:
        with conn.cursor().copy(f"COPY (SELECT * FROM {table}) TO STDOUT") as copy:
            parts += [bytes(block).decode() for block in copy]
    return "".join(parts)


@pytest.fixture
def talkative(
    database: str, caplog: pytest.LogCaptureFixture
) -> Iterator[pytest.LogCaptureFixture]:
    """Every logger at its loudest; Django logs each statement with its parameters."""
    for name in ("", "django", "django.db.backends", "psycopg", "apps", "chrono"):
        caplog.set_level(logging.DEBUG, logger=name)
    django.db.connection.force_debug_cursor = True
    yield caplog
    django.db.connection.force_debug_cursor = False


def test_no_key_and_no_password_is_in_the_database_or_the_logs(
    keyring: Keyring, talkative: pytest.LogCaptureFixture
):
    first = keyring.issue("first")
    second = keys.rotate(first.key.id, tenant=1, actor=ACTOR, reason="yearly")
    ended = keyring.issue("ended", expires_at=2_000, now=1_000)
    keys.revoke(first.key.id, tenant=1, actor=ACTOR)
    forged = compose(ident=second.key.id, secret="y" * 32)
    keys.verify(second.text)
    for text in (first.text, ended.text, forged, first.text[:-1]):
        with pytest.raises(KeyRefused) as refused:
            keys.verify(text)
        logging.getLogger("apps.tenants").warning("refused", exc_info=refused.value)
    typed = run("chronokey", "issue", "typed")[0].strip()
    set_up, _ = run("chronosetup")
    password = re.search(r"password (\S+)", set_up)
    assert password

    stored, logged = dump(keyring.conn), talkative.text
    texts = [first.text, second.text, ended.text, typed, forged]
    # What follows the id is the secret; the forged one's is no chance by itself.
    secrets = [*(text[18:] for text in texts if text != forged), password[1]]
    # Both would show it if it were there.
    for ident in (text[9:17] for text in texts):
        assert ident in stored
        assert ident in logged
    assert "chrono_api_key" in logged
    assert not [text for text in texts if text in stored + logged]
    for secret in secrets:
        for form in forms(secret):
            assert form not in stored
            assert form not in logged
