"""What somebody changed is written down with the change, and stays."""

import uuid

import psycopg
import pytest

from apps.tenants.actor import Actor, ActorKind, Scope
from apps.tenants.audit import Event, record
from tests.support.pg import Connection

ACTOR = Actor(
    kind=ActorKind.KEY,
    name="deploy (aB3xY9Qr)",
    tenant=1,
    scopes=frozenset({Scope.WRITE}),
    request_id="r-17",
)


def event(object_id: str = "j1", **fields: object) -> Event:
    values = {"action": "job.change", "object_kind": "job", **fields}
    return Event(tenant=1, object_id=object_id, **values)  # type: ignore[arg-type]


def test_an_event_says_who_did_what_to_what_and_why(connect, second_connection):
    conn = connect()
    before, after = {"name": "a", "tags": []}, {"name": "b", "tags": ["x"]}
    record(
        conn,
        actor=ACTOR,
        events=[event(before=before, after=after, reason="renamed: it’s clearer")],
        now=1_795_953_600_123,
    )
    [row] = second_connection.execute(
        "SELECT tenant_id, actor, actor_kind, action, object_kind, object_id, before, "
        "after, reason, request_id, (extract(epoch FROM at) * 1000)::bigint "
        "FROM chrono_audit_event"
    ).fetchall()
    assert row == (
        1,
        "deploy (aB3xY9Qr)",
        "key",
        "job.change",
        "job",
        "j1",
        before,
        after,
        "renamed: it’s clearer",
        "r-17",
        1_795_953_600_123,
    )


def test_what_was_made_has_no_before_and_what_is_gone_no_after(connect):
    conn = connect()
    record(conn, actor=ACTOR, events=[event(after={}), event(before={})])
    rows = conn.execute(
        "SELECT before IS NULL, after IS NULL FROM chrono_audit_event ORDER BY id"
    ).fetchall()
    assert rows == [(True, False), (False, True)]


def test_no_event_is_no_statement(connect):
    conn = connect()
    conn.close()
    record(conn, actor=ACTOR, events=[])


def test_ids_are_uuids_of_version_7_that_sort_as_the_events_were_given(connect):
    conn = connect()
    names = [f"j{n}" for n in range(500)]
    record(conn, actor=ACTOR, events=[event(n) for n in names], now=1_795_953_600_123)
    record(conn, actor=ACTOR, events=[event("later")], now=1_795_953_600_124)
    rows = conn.execute(
        "SELECT object_id, id FROM chrono_audit_event ORDER BY id"
    ).fetchall()
    assert [name for name, _ in rows] == [*names, "later"]
    for _, ident in rows:
        assert isinstance(ident, uuid.UUID)
        assert (ident.version, ident.variant) == (7, uuid.RFC_4122)
    assert {ident.int >> 80 for _, ident in rows[:-1]} == {1_795_953_600_123}


def test_without_an_instant_it_is_the_database_s(connect):
    conn = connect()
    record(conn, actor=ACTOR, events=[event()])
    [(fresh, same)] = conn.execute(
        "SELECT clock_timestamp() - at < interval '10 s' AND at <= clock_timestamp(), "
        "('x' || substr(replace(id::text, '-', ''), 1, 12))::bit(48)::bigint "
        "  = floor(extract(epoch FROM at) * 1000) FROM chrono_audit_event"
    ).fetchall()
    assert fresh
    assert same


# Invariant 14: the event and the change are one transaction.

CHANGE = "UPDATE chrono_tenant SET name = 'renamed' WHERE id = 1"


def change(conn: Connection) -> None:
    """Do what a command does: change a row, and record it."""
    conn.execute(CHANGE)
    record(conn, actor=ACTOR, events=[event()])


def state(conn: Connection) -> tuple[str, int]:
    [(name,)] = conn.execute("SELECT name FROM chrono_tenant WHERE id = 1").fetchall()
    [(events,)] = conn.execute("SELECT count(*) FROM chrono_audit_event").fetchall()
    return name, events


def test_event_and_change_carry_the_same_transaction(connect, second_connection):
    with connect(autocommit=False) as conn:
        change(conn)
        assert state(second_connection) == ("default", 0)
    assert state(second_connection) == ("renamed", 1)
    [(changed, recorded)] = second_connection.execute(
        "SELECT t.xmin, e.xmin FROM chrono_tenant t, chrono_audit_event e"
    ).fetchall()
    assert changed == recorded


def test_two_transactions_would_be_told_apart(connect, second_connection):
    change(connect())
    [(changed, recorded)] = second_connection.execute(
        "SELECT t.xmin, e.xmin FROM chrono_tenant t, chrono_audit_event e"
    ).fetchall()
    assert changed != recorded


def test_a_change_that_is_rolled_back_was_not_recorded(connect, second_connection):
    conn = connect(autocommit=False)
    change(conn)
    conn.rollback()
    assert state(second_connection) == ("default", 0)


def test_a_change_that_cannot_be_recorded_is_none(connect, second_connection):
    conn = connect(autocommit=False)
    conn.execute(CHANGE)
    with pytest.raises(psycopg.errors.CheckViolation):
        record(conn, actor=ACTOR, events=[event(action="Renamed it!")])
    conn.commit()
    assert state(second_connection) == ("default", 0)


# Append-only.

REPLACE = """
    INSERT INTO chrono_audit_event SELECT * FROM chrono_audit_event
    ON CONFLICT (id) DO UPDATE SET actor = 'nobody'
"""
MERGE = """
    MERGE INTO chrono_audit_event e USING (SELECT 1) s ON true
    WHEN MATCHED THEN DELETE
"""
ATTACKS = [
    "UPDATE chrono_audit_event SET actor = 'nobody'",
    "UPDATE chrono_audit_event SET actor = 'nobody' WHERE false",
    "DELETE FROM chrono_audit_event",
    "TRUNCATE chrono_audit_event",
    MERGE,
    REPLACE,
]


@pytest.mark.parametrize("role", ["origin", "replica"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_event_is_never_changed_or_deleted(connect, second_connection, attack, role):
    conn = connect()
    record(conn, actor=ACTOR, events=[event()])
    conn.execute("SELECT set_config('session_replication_role', %s, false)", [role])
    with pytest.raises(
        psycopg.errors.RestrictViolation, match="never changed or deleted"
    ):
        conn.execute(attack)
    rows = second_connection.execute("SELECT actor FROM chrono_audit_event").fetchall()
    assert rows == [(ACTOR.name,)]


@pytest.mark.parametrize(
    "wrong", [{"action": "create"}, {"after": [1]}, {"before": "text"}]
)
def test_the_table_refuses_what_no_event_says(connect, wrong):
    conn = connect()
    with pytest.raises(psycopg.errors.CheckViolation):
        record(conn, actor=ACTOR, events=[event(**wrong)])
