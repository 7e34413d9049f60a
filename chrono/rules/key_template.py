"""Keys with holes that a run's payload fills: `employer-{payload.employer.id}`.

A hole names a place in the payload by the names that lead to it. What stands there is
text, a number, true or false. Equal numbers fill a hole alike, however they are
written. What comes out is printable and no longer than a key may be: a longer one, and
one with other characters, keeps how it begins and gets a digest of the whole, so that
different ones stay different.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from decimal import Decimal

from chrono.rules.errors import BadValue

LONGEST = 200
"""Characters of a key."""
_HOLE = re.compile(r"\{payload((?:\.[^.{}]+)+)\}")
_BEGINNING = 100
_DIGEST = 32


def check_template(text: str, *, field: str) -> None:
    """Raise BadValue for braces that are no hole."""
    rest = _HOLE.sub("", text)
    if "{" in rest or "}" in rest:
        raise BadValue(
            f"{field} has braces that name no place in the payload: write "
            "{payload.name}, or {payload.name.of.a.part}.",
            field=field,
        )


def has_holes(text: str) -> bool:
    """Return whether a payload fills something of a key."""
    return _HOLE.search(text) is not None


def filled(text: str, payload: object, *, field: str) -> str:
    """Return a key with its holes filled from a payload.

    Raises BadValue, of ``field``, where the payload has nothing there, or what is no
    plain value.
    """
    key = _HOLE.sub(lambda hole: _found(hole[1], payload, field), text)
    if len(key) <= LONGEST and key.isprintable():
        return key
    begins = "".join(c if c.isprintable() else "?" for c in key[:_BEGINNING])
    digest = hashlib.sha256(key.encode()).hexdigest()[:_DIGEST]
    return f"{begins}…{digest}"


def _found(path: str, payload: object, field: str) -> str:
    value = payload
    for name in path[1:].split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        # Postgres gives 1e23 back as the integer of its digits, not of its bits.
        value = int(Decimal(repr(value)))
    if isinstance(value, str | int | float) and value != "":
        return str(value)
    what = "nothing" if value is None or value == "" else "no plain value"
    raise BadValue(
        f"The concurrency_key is filled from payload{path}, and the payload has {what} "
        "there: give text, a number, true or false.",
        field=field,
    )
