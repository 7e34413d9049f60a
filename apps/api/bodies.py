"""A body's fields, read one by one; what nobody reads is refused."""

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from rest_framework.request import Request

from apps.api.errors import BadBody
from apps.jobs.definition import Definition, check_names, parse_definition
from apps.jobs.errors import UnknownField
from apps.jobs.json_value import check_text
from chrono.rules.errors import BadInstant, BadValue
from chrono.rules.instants import Millis, parse_instant

LONGEST_NOTE = 1_000


def fields(request: Request, *, known: Collection[str]) -> dict[str, Any]:
    """Return the body's object, an empty one for no body.

    Raises BadBody where it is no object, UnknownField for a name that is not known.
    """
    body = mapping(request)
    for name in body:
        if name not in known:
            shown = name[:60]
            close = difflib.get_close_matches(shown, sorted(known), n=1)
            hint = f"; is it {close[0]}?" if close else "."
            raise UnknownField(f"There is no field {shown} here{hint}", field=shown)
    return body


def mapping(request: Request) -> dict[str, Any]:
    """Return the body's object whatever its names are."""
    body = request.data
    if not isinstance(body, Mapping):
        raise BadBody("The body is an object: {…}.")
    return dict(body)


def given(body: Mapping[str, Any], *, but: str) -> dict[str, Any]:
    """Return the fields that are not null: null stands for left out, ``but`` in one."""
    return {
        name: value for name, value in body.items() if value is not None or name == but
    }


def definition(body: Mapping[str, Any]) -> Definition:
    """Return the job that a body describes; raises what parse_definition does.

    Names are looked at before what is null is left out, or a wrong one would pass.
    """
    check_names(body)
    return parse_definition(given(body, but="payload"))


def take_reason(body: dict[str, Any]) -> str:
    """Take out of a body why its sender does this: it goes to the audit alone."""
    reason = text(body, "reason", most=LONGEST_NOTE)
    body.pop("reason", None)
    return reason


def instant(body: Mapping[str, Any], name: str) -> Millis | None:
    """Return an instant, None where it is left out or null."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadInstant(field=name)
    return parse_instant(value, field=name)


def text(body: Mapping[str, Any], name: str, *, most: int) -> str:
    """Return a text of several lines, empty where it is left out or null."""
    value = body.get(name)
    if value is None:
        return ""
    return check_text(value, field=name, most=most, least=0, lines=True)


def flag(body: Mapping[str, Any], name: str) -> bool:
    """Return a switch, False where it is left out or null."""
    value = body.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise BadValue(f"{name} is true or false.", field=name)
    return value


def whole(
    body: Mapping[str, Any], name: str, *, least: int, most: int, default: int
) -> int:
    """Return a whole number within its bounds."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadValue(f"{name} is a whole number from {least} to {most}.", field=name)
    if not least <= value <= most:
        raise BadValue(f"{name} is from {least} to {most}.", field=name)
    return value
