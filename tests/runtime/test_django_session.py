"""Django's session as the rooms use it."""

import pytest
from django.db import connection, transaction
from django.db.backends.signals import connection_created

from apps.runtime import django_session
from apps.runtime.django_session import (
    WEB,
    enclose,
    is_enclosed,
    limit_sessions,
    raw_connection,
    unapplied_migrations,
)
from apps.runtime.sessions import PooledSession


@pytest.fixture
def limited(database):
    """Sessions opened from now on are the web's."""
    connection.close()
    limit_sessions()
    yield
    connection_created.disconnect(dispatch_uid="chrono.limit_sessions")
    connection.close()


def settings():
    rows = raw_connection().execute(
        "SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", [list(WEB)]
    )
    return dict(rows.fetchall())


def test_a_session_of_the_web_is_bounded(limited):
    assert (
        settings()
        == WEB
        == {
            "statement_timeout": "5000",
            "idle_in_transaction_session_timeout": "2000",
            "lock_timeout": "2000",
        }
    )


def test_other_processes_are_not(database):
    assert settings()["statement_timeout"] == "0"


def test_behind_a_pooler_nothing_is_set_and_the_log_says_what_to_do(
    limited, monkeypatch, caplog
):
    def pooled(conn):
        raise PooledSession

    monkeypatch.setattr(django_session, "refuse_pooler", pooled)
    assert settings()["statement_timeout"] == "0"
    assert "ALTER ROLE" in caplog.text


def test_a_command_inside_joins_and_nobody_else_is_let_in(database):
    assert not is_enclosed()
    with enclose() as conn:
        assert is_enclosed()
        assert conn is raw_connection()
        with pytest.raises(RuntimeError, match="durable"), enclose():
            pass
        with transaction.atomic():
            pass
    assert not is_enclosed()


def test_a_migrated_database_lacks_nothing(database, connect):
    assert unapplied_migrations() == []
    connect().execute("DELETE FROM django_migrations WHERE app = 'chrono_runtime'")
    assert unapplied_migrations() == ["chrono_runtime.0001_request_key"]
