"""Pausing a queue: of a tenant's runs in it nothing is handed out."""

from apps.queue import store
from apps.queue.store import PauseRow
from apps.runtime.notify import JOBS
from apps.runtime.sessions import Connection
from apps.runtime.store import notify
from apps.tenants import audit
from apps.tenants.actor import Actor, Scope
from apps.tenants.event import Event
from apps.timers.store import raise_gates


def pause(
    conn: Connection, queue: str, *, tenant: int, actor: Actor, reason: str
) -> PauseRow:
    """Hold a tenant's runs in a queue until it is resumed; what runs goes on.

    A paused one keeps its pause. Raises Forbidden.
    """
    actor.require(Scope.OPERATE)
    with conn.transaction():
        new = store.insert_pause(
            conn, tenant=tenant, queue=queue, paused_by=actor.name, note=reason
        )
        if new:
            _changed(conn, queue, True, tenant=tenant, actor=actor, reason=reason)
        [row] = store.list_pauses(conn, tenant=tenant, queue=queue, count=True)
    return row


def resume(
    conn: Connection, queue: str, *, tenant: int, actor: Actor, reason: str
) -> bool:
    """Hand a tenant's runs in a queue out again; return whether it was paused.

    Raises Forbidden.
    """
    actor.require(Scope.OPERATE)
    with conn.transaction():
        ended = store.delete_pause(conn, tenant=tenant, queue=queue)
        if ended:
            _changed(conn, queue, False, tenant=tenant, actor=actor, reason=reason)
    return ended


def _changed(
    conn: Connection,
    queue: str,
    paused: bool,
    *,
    tenant: int,
    actor: Actor,
    reason: str,
) -> None:
    raise_gates(conn)
    notify(conn, channel=JOBS, payload="")
    audit.record(
        conn,
        actor=actor,
        events=[
            Event(
                tenant=tenant,
                action="queue.pause" if paused else "queue.resume",
                object_kind="queue",
                object_id=queue,
                before={"paused": not paused},
                after={"paused": paused},
                reason=reason,
            )
        ],
    )
