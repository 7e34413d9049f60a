"""Pages by key: a cursor says after which row to go on, so every page costs the same.

There is no number of pages and no total: counting costs what the list was meant to
save. A cursor is the last row's key in base64; it names a place in the order, opens
nothing, and keeps its meaning while rows come and go.
"""

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any

from rest_framework.request import Request

from apps.api import query
from apps.api.errors import BadParameter

PARAMETERS = frozenset({"cursor", "limit"})
MOST = 500
USUAL = 50


class BadCursor(BadParameter):
    """The cursor is not one that a page gave: begin without it."""

    code = "bad_cursor"


def limit_of(request: Request) -> int:
    """Return how many rows a page has."""
    return query.number(request, "limit", least=1, most=MOST, default=USUAL)


def cursor_of[Key](request: Request, read: Callable[[Any], Key]) -> Key | None:
    """Return the key that a page goes on from; None for the first page.

    ``read`` makes the key from what :func:`cursor` was given; whatever it raises of
    ValueError, TypeError, KeyError or IndexError means a cursor that is none of ours.
    """
    given = query.text(request, "cursor", most=600)
    if given is None:
        return None
    try:
        raw = base64.b64decode(given.encode(), altchars=b"-_", validate=True)
        return read(json.loads(raw))
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        binascii.Error,
        RecursionError,
    ):
        raise BadCursor(field="cursor") from None


def cursor(key: object) -> str | None:
    """Return the cursor of a key, None for None: the list ends.

    ``key`` is the JSON that ``read`` of :func:`cursor_of` takes.
    """
    if key is None:
        return None
    text = json.dumps(key, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode()
