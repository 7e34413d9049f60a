"""Keys let in who holds them, as long as they are valid, and nobody else."""

import hashlib
from concurrent.futures import Future
from typing import Any

import django.db
import psycopg
import pytest

from apps.runtime.django_session import raw_connection
from apps.tenants import keys
from apps.tenants.actor import ActorKind, Scope
from apps.tenants.errors import (
    AlreadyPast,
    BadName,
    Forbidden,
    KeyExpired,
    KeyMalformed,
    KeyNotFound,
    KeyReplaced,
    KeyRevoked,
    KeyUnknown,
    TenantNotFound,
    UnknownScope,
)
from apps.tenants.key_text import compose
from apps.tenants.models import ApiKey
from chrono.rules.errors import BadInstant
from chrono.rules.instants import DAY, MINUTE, SECOND, Millis
from tests.tenants.conftest import ACTOR, Keyring

NOON: Millis = 1_795_953_600_000
"""2026-11-29T12:00:00Z."""


def test_a_key_lets_in_as_its_tenant_with_its_scopes(keyring, other_tenant):
    issued = keyring.issue("deploy", tenant=other_tenant, scopes=["write", "read"])
    principal = keys.verify(issued.text)
    assert principal == keys.Principal(
        key=issued.key.id,
        name="deploy",
        tenant=other_tenant,
        scopes=frozenset({Scope.READ, Scope.WRITE}),
    )
    actor = principal.actor(request_id="r-1")
    assert (actor.kind, actor.name) == (ActorKind.KEY, f"deploy ({issued.key.id})")
    assert (actor.tenant, actor.request_id) == (other_tenant, "r-1")
    assert actor.scopes == principal.scopes


def test_what_is_stored_is_the_hash_of_the_whole_text(keyring):
    issued = keyring.issue()
    stored = keyring.value("digest", issued.key.id)
    assert stored == hashlib.sha256(issued.text.encode()).digest()
    assert issued.text not in repr(issued)
    assert issued.text[18:] not in repr(issued)


def test_no_two_keys_are_alike(keyring):
    texts = [keyring.issue().text for _ in range(20)]
    assert len({text[9:17] for text in texts}) == 20
    assert len({text[18:50] for text in texts}) == 20


def test_another_secret_with_the_same_id_opens_nothing(keyring):
    issued = keyring.issue()
    forged = compose(ident=issued.key.id, secret="z" * 32)
    with pytest.raises(KeyUnknown):
        keys.verify(forged)


def test_an_id_that_nobody_has_opens_nothing(keyring):
    keyring.issue()
    with pytest.raises(KeyUnknown):
        keys.verify(compose(ident="z" * 8, secret="z" * 32))


def test_the_wrong_secret_learns_nothing_of_a_revoked_or_expired_key(keyring):
    revoked = keyring.issue()
    keys.revoke(revoked.key.id, tenant=1, actor=ACTOR)
    expired = keyring.issue(expires_at=NOON + 1, now=NOON)
    for ident in (revoked.key.id, expired.key.id):
        with pytest.raises(KeyUnknown):
            keys.verify(compose(ident=ident, secret="z" * 32))


def test_a_malformed_text_asks_no_database():
    # No fixture gives this test a database.
    with pytest.raises(KeyMalformed):
        keys.verify("chr_live_nonsense")


def test_a_revoked_key_is_refused_by_the_next_request(keyring):
    issued = keyring.issue()
    keys.verify(issued.text)
    keys.revoke(issued.key.id, tenant=1, actor=ACTOR, reason="leaked")
    with pytest.raises(KeyRevoked):
        keys.verify(issued.text)
    assert keyring.events()[-1][3:] == ("key.revoke", issued.key.id, "leaked")


def test_a_revocation_by_another_process_is_seen_at_once(keyring):
    issued = keyring.issue()
    keys.verify(issued.text)
    keyring.conn.execute("UPDATE chrono_api_key SET revoked_at = now()")
    with pytest.raises(KeyRevoked):
        keys.verify(issued.text)


def test_revoking_again_changes_and_records_nothing(keyring):
    issued = keyring.issue(now=NOON)
    keys.revoke(issued.key.id, tenant=1, actor=ACTOR, now=NOON + 1)
    keys.revoke(issued.key.id, tenant=1, actor=ACTOR, now=NOON + DAY)
    assert keyring.value("revoked_at", issued.key.id) == NOON + 1
    assert [event[3] for event in keyring.events()] == ["key.issue", "key.revoke"]


def test_a_key_works_until_the_instant_of_its_expiry(keyring):
    issued = keyring.issue(expires_at=NOON + DAY, now=NOON)
    assert keys.verify(issued.text, now=NOON + DAY - 1)
    with pytest.raises(KeyExpired):
        keys.verify(issued.text, now=NOON + DAY)


def test_expiry_goes_by_the_database_s_clock(keyring):
    issued = keyring.issue(expires_at=NOON + 10_000 * DAY, now=NOON)
    assert keys.verify(issued.text)
    keyring.conn.execute(
        "UPDATE chrono_api_key SET created_at = '2020-01-01Z', "
        "expires_at = clock_timestamp() - interval '1 ms'"
    )
    with pytest.raises(KeyExpired):
        keys.verify(issued.text)


def test_issue_and_revoke_take_their_instants_from_the_database(keyring):
    [(before,)] = keyring.rows("SELECT (extract(epoch FROM now()) * 1000)::bigint")
    issued = keyring.issue()
    keys.revoke(issued.key.id, tenant=1, actor=ACTOR)
    [(after,)] = keyring.rows("SELECT (extract(epoch FROM now()) * 1000)::bigint")
    created = keyring.value("created_at", issued.key.id)
    revoked = keyring.value("revoked_at", issued.key.id)
    assert before - 1 <= created <= revoked <= after


# The last use.


def test_the_last_use_is_written_once_a_minute(keyring):
    issued = keyring.issue(now=NOON)
    ident = issued.key.id
    assert keyring.value("last_used_at", ident) is None
    keys.verify(issued.text, now=NOON)
    written = keyring.value("xmin", ident)
    for later in (1, SECOND, MINUTE):
        keys.verify(issued.text, now=NOON + later)
    assert keyring.value("last_used_at", ident) == NOON
    assert keyring.value("xmin", ident) == written
    keys.verify(issued.text, now=NOON + MINUTE + 1)
    assert keyring.value("last_used_at", ident) == NOON + MINUTE + 1


def test_a_refused_key_was_not_used(keyring):
    issued = keyring.issue(expires_at=NOON + 1, now=NOON)
    with pytest.raises(KeyExpired):
        keys.verify(issued.text, now=NOON + DAY)
    with pytest.raises(KeyUnknown):
        keys.verify(compose(ident=issued.key.id, secret="z" * 32), now=NOON)
    assert keyring.value("last_used_at", issued.key.id) is None


def test_a_key_lets_in_where_the_disk_has_no_room_for_the_note(keyring):
    issued = keyring.issue()
    raw_connection().execute("""
        CREATE FUNCTION fill_up() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = 'disk_full'; END $$;
        CREATE TRIGGER no_room BEFORE UPDATE ON chrono_api_key
            FOR EACH ROW EXECUTE FUNCTION fill_up();
    """)
    assert keys.verify(issued.text).key == issued.key.id
    assert keyring.value("last_used_at", issued.key.id) is None


def test_noting_the_last_use_waits_for_nobody(keyring, connect, background):
    issued = keyring.issue()
    holder = connect(autocommit=False)
    holder.execute("SELECT FROM chrono_api_key FOR UPDATE")

    def verify_here() -> keys.Principal:
        try:
            return keys.verify(issued.text)
        finally:
            django.db.connection.close()

    verified: Future[Any] = background(verify_here)
    assert verified.result(timeout=5).key == issued.key.id
    assert keyring.value("last_used_at", issued.key.id) is None
    holder.rollback()
    keys.verify(issued.text)
    assert keyring.value("last_used_at", issued.key.id) is not None


def test_a_session_that_may_not_write_lets_in_all_the_same(keyring):
    issued = keyring.issue()
    raw_connection().execute("SET default_transaction_read_only = on")
    assert keys.verify(issued.text).key == issued.key.id
    assert keyring.value("last_used_at", issued.key.id) is None


def test_a_session_that_died_between_two_requests_is_replaced(keyring):
    assert django.db.connection.settings_dict["CONN_HEALTH_CHECKS"]
    issued = keyring.issue()
    pid = raw_connection().info.backend_pid
    django.db.close_old_connections()
    [(ended,)] = keyring.rows("SELECT pg_terminate_backend(%s, 5000)", pid)
    assert ended
    django.db.close_old_connections()
    assert keys.verify(issued.text).key == issued.key.id


def test_a_check_is_one_statement_by_primary_key(keyring, monkeypatch):
    issued = keyring.issue()
    keys.verify(issued.text)
    said: list[str] = []
    conn = raw_connection()
    execute = psycopg.Connection.execute

    def listen(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        # Only of this connection: a thread makes the next tests' databases meanwhile.
        if self is conn:
            said.append(str(query))
        return execute(self, query, *args, **options)

    monkeypatch.setattr(psycopg.Connection, "execute", listen)
    keys.verify(issued.text)
    [statement] = said
    monkeypatch.undo()
    fill = "INSERT INTO chrono_api_key (id, tenant_id, name, digest, scopes, "
    keyring.conn.execute(
        fill + "created_at, created_by) SELECT lpad(n::text, 8, '0'), 1, 'x', "
        "sha256('x'), '{read}', now(), 'x' FROM generate_series(1, 5000) AS n"
    )
    keyring.conn.execute("ANALYZE chrono_api_key")
    plan = conn.execute(
        f"EXPLAIN {statement}", {"ident": issued.key.id, "now": None}
    ).fetchall()
    text = "\n".join(line for (line,) in plan)
    assert "Seq Scan" not in text, text
    assert "Index Scan using chrono_api_key_" in text, text


# Making them.


@pytest.mark.parametrize(
    ("options", "refusal", "field"),
    [
        ({"name": ""}, BadName, "name"),
        ({"name": "  "}, BadName, "name"),
        ({"name": "x" * 101}, BadName, "name"),
        ({"name": "two\nlines"}, BadName, "name"),
        ({"name": "nul\x00"}, BadName, "name"),
        ({"name": "lone \ud800"}, BadName, "name"),
        ({"scopes": []}, UnknownScope, "scopes"),
        ({"scopes": ["read", "root"]}, UnknownScope, "scopes"),
        ({"scopes": [""]}, UnknownScope, "scopes"),
        ({"expires_at": NOON}, AlreadyPast, "expires_at"),
        ({"expires_at": 253_370_764_800_000}, BadInstant, "expires_at"),
    ],
)
def test_a_bad_wish_is_refused_by_its_field(keyring, options, refusal, field):
    with pytest.raises(refusal) as refused:
        keyring.issue(**{"name": "ci", "now": NOON, **options})
    assert refused.value.field == field
    assert keyring.rows("SELECT count(*) FROM chrono_api_key") == [(0,)]
    assert keyring.events() == []


def test_a_tenant_that_does_not_exist_has_no_keys(keyring):
    with pytest.raises(TenantNotFound):
        keyring.issue(tenant=99)


def test_only_an_admin_makes_and_ends_keys(keyring):
    issued = keyring.issue(scopes=["read", "operate", "write", "worker"])
    actor = keys.verify(issued.text).actor()
    with pytest.raises(Forbidden):
        keyring.issue(actor=actor)
    with pytest.raises(Forbidden):
        keys.rotate(issued.key.id, tenant=1, actor=actor)
    with pytest.raises(Forbidden):
        keys.revoke(issued.key.id, tenant=1, actor=actor)


def test_another_tenant_s_keys_do_not_exist_for_an_admin(keyring, other_tenant):
    mine = keyring.issue()
    theirs = keys.verify(keyring.issue(tenant=other_tenant, scopes=["admin"]).text)
    for tenant in (1, other_tenant):
        with pytest.raises(KeyNotFound):
            keys.revoke(mine.key.id, tenant=tenant, actor=theirs.actor())
        with pytest.raises(KeyNotFound):
            keys.rotate(mine.key.id, tenant=tenant, actor=theirs.actor())
    with pytest.raises(TenantNotFound):
        keyring.issue(actor=theirs.actor())
    assert keys.verify(mine.text)


# Rotating them.


def test_both_keys_work_until_the_old_one_is_revoked(keyring):
    old = keyring.issue("deploy", scopes=["write", "operate"])
    new = keys.rotate(old.key.id, tenant=1, actor=ACTOR, reason="yearly")
    assert new.key.replaces_id == old.key.id
    principals = [keys.verify(old.text), keys.verify(new.text)]
    assert [p.name for p in principals] == ["deploy", "deploy"]
    assert principals[0].scopes == principals[1].scopes
    keys.revoke(old.key.id, tenant=1, actor=ACTOR)
    with pytest.raises(KeyRevoked):
        keys.verify(old.text)
    assert keys.verify(new.text)
    assert [event[3] for event in keyring.events()] == [
        "key.issue",
        "key.rotate",
        "key.revoke",
    ]


def test_two_keys_work_while_one_is_replaced_and_never_three(keyring):
    old = keyring.issue()
    lost = keys.rotate(old.key.id, tenant=1, actor=ACTOR)
    with pytest.raises(KeyReplaced):
        keys.rotate(old.key.id, tenant=1, actor=ACTOR)
    keys.revoke(lost.key.id, tenant=1, actor=ACTOR)
    assert keys.rotate(old.key.id, tenant=1, actor=ACTOR).key.replaces_id == old.key.id


def test_a_successor_lives_as_long_as_its_predecessor_did(keyring):
    old = keyring.issue(expires_at=NOON + 90 * DAY, now=NOON)
    later = NOON + 80 * DAY
    new = keys.rotate(old.key.id, tenant=1, actor=ACTOR, now=later)
    assert keyring.value("expires_at", new.key.id) == later + 90 * DAY
    told = keys.rotate(
        new.key.id, tenant=1, actor=ACTOR, expires_at=later + DAY, now=later
    )
    assert keyring.value("expires_at", told.key.id) == later + DAY


def test_an_endless_key_has_an_endless_successor(keyring):
    old = keyring.issue()
    new = keys.rotate(old.key.id, tenant=1, actor=ACTOR)
    assert keyring.value("expires_at", new.key.id) is None


def test_a_revoked_key_has_no_successor(keyring):
    old = keyring.issue()
    keys.revoke(old.key.id, tenant=1, actor=ACTOR)
    with pytest.raises(KeyRevoked):
        keys.rotate(old.key.id, tenant=1, actor=ACTOR)


def test_the_public_form_has_no_digest(keyring):
    issued = keyring.issue(now=NOON, expires_at=NOON + DAY)
    [key] = ApiKey.scoped(1)
    assert keys.public(key) == {
        "id": issued.key.id,
        "name": "ci",
        "scopes": ["read"],
        "created_at": "2026-11-29T12:00:00Z",
        "created_by": "tests",
        "expires_at": "2026-11-30T12:00:00Z",
        "revoked_at": None,
        "last_used_at": None,
        "replaces": None,
    }


@pytest.mark.parametrize(
    "change",
    [
        "id = 'short'",
        "id = 'sneak/it'",
        "digest = 'short'",
        "scopes = '{}'",
        "scopes = '{root}'",
        "expires_at = created_at",
        "expires_at = 'infinity'",
    ],
)
def test_the_table_refuses_what_no_key_has(keyring: Keyring, change: str) -> None:
    keyring.issue()
    with pytest.raises(psycopg.errors.CheckViolation):
        keyring.conn.execute(f"UPDATE chrono_api_key SET {change}")
