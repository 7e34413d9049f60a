"""`Idempotency-Key`: a POST sent twice has one effect, and both get one answer."""

import hashlib
import json
from collections.abc import Callable

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder

from apps.api.authentication import principal_of
from apps.api.errors import BadHeader
from apps.runtime import requests
from apps.runtime.django_session import enclose
from apps.runtime.requests import KeyedRequest
from apps.runtime.sessions import Connection
from apps.runtime.store import KeyedAnswer

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
LONGEST = 255
_KEPT = ("Location", "ETag")


def once(request: Request, effect: Callable[[], Response]) -> Response:
    """Return the effect's answer, or the one it gave under the same key before.

    The effect and its answer are one transaction, which what ``effect`` calls must
    join. A refusal is raised through here and keeps nothing.
    """
    keyed = keyed_request(request)
    if keyed is None:
        return effect()
    with enclose() as conn:
        first = requests.begin(conn, keyed)
        if first is not None:
            return _replay(first)
        response = effect()
        _keep(conn, keyed, response)
    return response


def repeatable(request: Request, effect: Callable[[], Response]) -> Response:
    """Do the same for an effect that cannot join a transaction and may be repeated.

    Two at once may both be carried out, and the second does nothing more.
    """
    keyed = keyed_request(request)
    if keyed is None:
        return effect()
    with enclose() as conn:
        first = requests.begin(conn, keyed)
    if first is not None:
        return _replay(first)
    response = effect()
    with enclose() as conn:
        _keep(conn, keyed, response)
    return response


def keyed_request(request: Request) -> KeyedRequest | None:
    """Return the request by its key; None without one. Raises BadHeader."""
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not (1 <= len(key) <= LONGEST and key.isascii() and key.isprintable()):
        raise BadHeader(
            f"{HEADER} is 1 to {LONGEST} printable ASCII characters.", field=HEADER
        )
    return KeyedRequest(
        tenant=principal_of(request).tenant,
        key=key,
        method=str(request.method),
        path=request.path.removeprefix("/api/v1"),
        fingerprint=hashlib.sha256(request._request.body).digest(),  # noqa: SLF001
    )


def _keep(conn: Connection, keyed: KeyedRequest, response: Response) -> None:
    headers = {name: response[name] for name in _KEPT if name in response}
    requests.finish(
        conn,
        keyed,
        status=response.status_code,
        headers=json.dumps(headers),
        answer=json.dumps(response.data, cls=JSONEncoder),
    )


def _replay(first: KeyedAnswer) -> Response:
    headers = {**json.loads(first.headers), REPLAYED: "true"}
    return Response(json.loads(first.answer), status=first.status, headers=headers)
