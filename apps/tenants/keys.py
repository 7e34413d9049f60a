"""API keys: making, checking, rotating and revoking them.

A key's text leaves :func:`issue` and :func:`rotate` once, to be shown to its holder;
what stays is its SHA-256. Nothing is cached: the check is one read by primary key, so
a key that was revoked opens nothing from the next request on.
"""

import hmac
import logging
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg
from django.db import transaction

from apps.runtime import store as runtime
from apps.runtime.django_session import raw_connection
from apps.runtime.sessions import Connection
from apps.tenants import audit, key_text, store
from apps.tenants.actor import Actor, ActorKind, Scope, parse_scopes
from apps.tenants.errors import (
    AlreadyPast,
    BadName,
    KeyExpired,
    KeyNotFound,
    KeyReplaced,
    KeyRevoked,
    KeyUnknown,
    TenantNotFound,
)
from apps.tenants.event import Event
from apps.tenants.models import ApiKey, Tenant
from chrono.rules.instants import (
    Millis,
    checked,
    format_instant,
    from_millis,
    to_millis,
)

log = logging.getLogger("chrono.tenants")

LONGEST_NAME = 100
_NOBODY = bytes(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Whom a key let in; ``key`` is the key's id."""

    key: str
    name: str
    tenant: int
    scopes: frozenset[Scope]

    def actor(self, *, request_id: str = "") -> Actor:
        """Return who acts when this key does."""
        return Actor(
            kind=ActorKind.KEY,
            name=f"{self.name} ({self.key})",
            tenant=self.tenant,
            scopes=self.scopes,
            request_id=request_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A new key's row, and its text, which can be had here only."""

    key: ApiKey
    text: str = field(repr=False)


def verify(text: str, *, now: Millis | None = None) -> Principal:
    """Return whom this text lets in; ``now`` None stands for the database's clock.

    Raises KeyMalformed without a look at the database, KeyUnknown, and only to who
    has the whole key KeyRevoked and KeyExpired. Compares in constant time. Call it
    outside a transaction: the note of the last use, written at most once a minute,
    would hold the key's row until the end.
    """
    ident = key_text.ident_of(text)
    conn = raw_connection()
    found = store.find_key(conn, ident=ident, now=now)
    digest = _NOBODY if found is None else found.digest
    same = hmac.compare_digest(digest, key_text.digest_of(text))
    if found is None or not same:
        raise KeyUnknown
    if found.revoked:
        raise KeyRevoked
    if found.expired:
        raise KeyExpired
    if found.idle:
        _note_use(conn, ident, now)
    return Principal(
        key=ident, name=found.name, tenant=found.tenant, scopes=found.scopes
    )


def _note_use(conn: Connection, ident: str, now: Millis | None) -> None:
    try:
        store.touch_key(conn, ident=ident, now=now)
    except psycopg.Error as error:
        # A server whose disk is full can still be read: let in who only reads.
        log.warning("the last use of key %s is not noted: %s", ident, error)


def issue(
    *,
    tenant: int,
    name: str,
    scopes: Iterable[str],
    expires_at: Millis | None = None,
    actor: Actor,
    reason: str = "",
    now: Millis | None = None,
) -> Issued:
    """Make a key for a tenant; without ``expires_at`` it works until it is revoked.

    Raises Forbidden, TenantNotFound, BadName, UnknownScope, BadInstant, AlreadyPast.
    """
    actor.require(Scope.ADMIN)
    if not actor.sees(tenant) or not Tenant.objects.filter(pk=tenant).exists():
        raise TenantNotFound
    with transaction.atomic():
        moment = _instant(now)
        made = _make(
            tenant=tenant,
            name=checked_name(name),
            scopes=parse_scopes(scopes),
            expires_at=expires_at,
            replaces=None,
            actor=actor,
            now=moment,
        )
        _record(actor, "key.issue", made.key, before=None, reason=reason, now=moment)
    return made


def rotate(
    ident: str,
    *,
    tenant: int,
    expires_at: Millis | None = None,
    actor: Actor,
    reason: str = "",
    now: Millis | None = None,
) -> Issued:
    """Make the successor of a key: same name, scopes and, unless told, length of life.

    The old key goes on working until it is revoked. Raises Forbidden, KeyNotFound,
    KeyRevoked, KeyReplaced where it has a successor already, BadInstant, AlreadyPast.
    """
    actor.require(Scope.ADMIN)
    with transaction.atomic():
        old = _locked(ident, tenant, actor)
        if old.revoked_at is not None:
            raise KeyRevoked
        if ApiKey.scoped(tenant).filter(replaces=old, revoked_at=None).exists():
            raise KeyReplaced
        moment = _instant(now)
        if expires_at is None and old.expires_at is not None:
            lifetime = to_millis(old.expires_at) - to_millis(old.created_at)
            expires_at = moment + lifetime
        made = _make(
            tenant=tenant,
            name=old.name,
            scopes=parse_scopes(old.scopes),
            expires_at=expires_at,
            replaces=old,
            actor=actor,
            now=moment,
        )
        _record(actor, "key.rotate", made.key, before=None, reason=reason, now=moment)
    return made


def revoke(
    ident: str,
    *,
    tenant: int,
    actor: Actor,
    reason: str = "",
    now: Millis | None = None,
) -> ApiKey:
    """End a key for good, from the next request on; again is no error.

    Raises Forbidden, KeyNotFound.
    """
    actor.require(Scope.ADMIN)
    with transaction.atomic():
        key = _locked(ident, tenant, actor)
        if key.revoked_at is None:
            before, moment = public(key), _instant(now)
            key.revoked_at = from_millis(moment)
            key.save(update_fields=["revoked_at"])
            _record(actor, "key.revoke", key, before=before, reason=reason, now=moment)
    return key


def public(key: ApiKey) -> dict[str, Any]:
    """Return what may be shown of a key, as JSON."""
    return {
        "id": key.id,
        "name": key.name,
        "scopes": list(key.scopes),
        "created_at": _text(key.created_at),
        "created_by": key.created_by,
        "expires_at": _text(key.expires_at),
        "revoked_at": _text(key.revoked_at),
        "last_used_at": _text(key.last_used_at),
        "replaces": key.replaces_id,
    }


def checked_name(name: str) -> str:
    """Return the name without the blanks around it; raise BadName for an unfit one."""
    name = name.strip()
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise BadName(field="name")
    return name


def _make(
    *,
    tenant: int,
    name: str,
    scopes: tuple[Scope, ...],
    expires_at: Millis | None,
    replaces: ApiKey | None,
    actor: Actor,
    now: Millis,
) -> Issued:
    if expires_at is not None and checked(expires_at, field="expires_at") <= now:
        raise AlreadyPast(field="expires_at")
    ident, secret = _draw(key_text.ID_LENGTH), _draw(key_text.SECRET_LENGTH)
    text = key_text.compose(ident=ident, secret=secret)
    key = ApiKey.scoped(tenant).create(
        id=ident,
        name=name,
        digest=key_text.digest_of(text),
        scopes=[scope.value for scope in scopes],
        created_at=from_millis(now),
        created_by=actor.name,
        expires_at=None if expires_at is None else from_millis(expires_at),
        replaces=replaces,
    )
    return Issued(key=key, text=text)


def _draw(length: int) -> str:
    return "".join(secrets.choice(key_text.ALPHABET) for _ in range(length))


def _locked(ident: str, tenant: int, actor: Actor) -> ApiKey:
    if not actor.sees(tenant):
        raise KeyNotFound
    key = ApiKey.scoped(tenant).select_for_update().filter(pk=ident).first()
    if key is None:
        raise KeyNotFound
    return key


def _record(
    actor: Actor,
    action: str,
    key: ApiKey,
    *,
    before: dict[str, Any] | None,
    reason: str,
    now: Millis,
) -> None:
    event = Event(
        tenant=key.tenant_id,
        action=action,
        object_kind="key",
        object_id=key.id,
        before=before,
        after=public(key),
        reason=reason,
    )
    audit.record(raw_connection(), actor=actor, events=[event], now=now)


def _instant(now: Millis | None) -> Millis:
    return int(runtime.read_clock(raw_connection())) if now is None else now


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else format_instant(to_millis(moment))
