"""The statements of this room, one function a file."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from apps.runtime import sql
from apps.runtime.arrays import int8s, jsonbs, texts
from apps.runtime.sessions import Connection
from apps.tenants.actor import Actor, Scope
from apps.tenants.event import Event
from chrono.rules.fairness import Share
from chrono.rules.instants import Millis

_FIND_KEY = sql.load("tenants", "find_key")
_FIND_TIMEZONE = sql.load("tenants", "find_timezone")
_LIST_SHARES = sql.load("tenants", "list_shares")
_TOUCH_KEY = sql.load("tenants", "touch_key")
_INSERT_AUDIT_EVENTS = sql.load("tenants", "insert_audit_events")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundKey:
    """What decides whether a key lets in."""

    digest: bytes = field(repr=False)
    tenant: int
    name: str
    scopes: frozenset[Scope]
    revoked: bool
    expired: bool
    idle: bool
    """Its last use is a minute old, and the session may write."""


def list_shares(conn: Connection) -> dict[int, Share]:
    """Return the shares of the tenants that have not the usual one."""
    return {
        tenant: Share(weight=weight, max_running=running, max_starts=starts)
        for tenant, weight, running, starts in _LIST_SHARES.run(conn)
    }


def find_key(conn: Connection, *, ident: str, now: Millis | None) -> FoundKey | None:
    """Return the key of this id; ``now`` None stands for the database's clock."""
    rows = _FIND_KEY.run(conn, {"ident": ident, "now": now})
    if not rows:
        return None
    [(digest, tenant, name, scopes, revoked, expired, idle)] = rows
    return FoundKey(
        digest=digest,
        tenant=tenant,
        name=name,
        scopes=frozenset(map(Scope, scopes)),
        revoked=revoked,
        expired=expired,
        idle=idle,
    )


def find_timezone(conn: Connection, *, tenant: int) -> str | None:
    """Return a tenant's time zone, None where there is no such tenant."""
    for (timezone,) in _FIND_TIMEZONE.run(conn, {"tenant": tenant}):
        return str(timezone)
    return None


def touch_key(conn: Connection, *, ident: str, now: Millis | None) -> int:
    """Set when the key was last used, once a minute; return how many rows changed.

    Waits for nobody: where another session holds the row it changes none.
    """
    return _TOUCH_KEY.change(conn, {"ident": ident, "now": now})


def insert_audit_events(
    conn: Connection, *, actor: Actor, events: Sequence[Event], now: Millis | None
) -> int:
    """Write events of one actor and instant; return how many."""
    return _INSERT_AUDIT_EVENTS.change(
        conn,
        {
            "now": now,
            "actor": actor.name,
            "actor_kind": actor.kind.value,
            "request_id": actor.request_id,
            "tenants": int8s([event.tenant for event in events]),
            "actions": texts([event.action for event in events]),
            "object_kinds": texts([event.object_kind for event in events]),
            "object_ids": texts([event.object_id for event in events]),
            "befores": jsonbs([event.before for event in events]),
            "afters": jsonbs([event.after for event in events]),
            "reasons": texts([event.reason for event in events]),
        },
    )
