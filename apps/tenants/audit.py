"""Writing down who changed what."""

from collections.abc import Sequence

from apps.runtime.sessions import Connection
from apps.tenants import store
from apps.tenants.actor import Actor
from apps.tenants.event import Event
from chrono.rules.instants import Millis

__all__ = ["Event", "record"]


def record(
    conn: Connection,
    *,
    actor: Actor,
    events: Sequence[Event],
    now: Millis | None = None,
) -> None:
    """Write events into the transaction that is open on ``conn``, that of the change.

    Both are then on disk or neither is. ``now`` is the instant of the change where it
    has one; None stands for the database's clock.
    """
    if events:
        store.insert_audit_events(conn, actor=actor, events=events, now=now)
