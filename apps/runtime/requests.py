"""Requests that a client may send again: one effect, one answer.

A client that heard nothing cannot know whether its request was carried out. It names
the request by a key and sends it again; whoever comes second gets the first answer.
The answer is kept in the transaction of the effect, for a day or a little more.
"""

from dataclasses import dataclass

from apps.runtime import store
from apps.runtime.sessions import Connection
from apps.runtime.store import KeyedAnswer
from chrono.rules.errors import BadValue, ChronoError

PURGED = 1000


class RequestInProgress(ChronoError):
    """A request with this Idempotency-Key is being carried out right now; ask again."""

    code = "request_in_progress"


class RequestMismatch(BadValue):
    """This Idempotency-Key was used for another request: take a new one."""

    code = "request_mismatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRequest:
    """A request by its key, with what makes it the same one."""

    tenant: int
    key: str
    method: str
    path: str
    fingerprint: bytes
    """SHA-256 of the body."""


def begin(
    conn: Connection, request: KeyedRequest, *, wait: bool = False
) -> KeyedAnswer | None:
    """Return the first answer to a request, or None for the one that comes first.

    To be called in the transaction of the effect: the key is held until its end. While
    another has it, raises RequestInProgress or, with ``wait``, waits as long as the
    session's lock timeout lets it. Raises RequestMismatch where it names another.
    """
    if wait:
        store.take_request_key(conn, tenant=request.tenant, key=request.key)
    elif not store.try_request_key(conn, tenant=request.tenant, key=request.key):
        raise RequestInProgress
    found = store.find_request_key(conn, tenant=request.tenant, key=request.key)
    if found is None:
        return None
    asked = (found.method, found.path, found.fingerprint)
    if asked != (request.method, request.path, request.fingerprint):
        raise RequestMismatch
    return found


def finish(
    conn: Connection, request: KeyedRequest, *, status: int, headers: str, answer: str
) -> None:
    """Keep the answer, in the same transaction; ``headers`` and ``answer`` are JSON."""
    entry = KeyedAnswer(
        method=request.method,
        path=request.path,
        fingerprint=request.fingerprint,
        status=status,
        headers=headers,
        answer=answer,
    )
    store.insert_request_key(conn, tenant=request.tenant, key=request.key, entry=entry)


def purge(conn: Connection) -> None:
    """Delete keys older than a day, and sessions of the admin that are over."""
    while store.purge_request_keys(conn, limit=PURGED) == PURGED:
        pass
    while store.purge_sessions(conn, limit=PURGED) == PURGED:
        pass
