"""The parameters of an address, read one by one; what nobody reads is refused."""

import difflib
from collections.abc import Collection
from typing import NoReturn
from uuid import UUID

from rest_framework.request import Request

from apps.api.errors import BadParameter, UnknownParameter
from chrono.rules.errors import BadInstant
from chrono.rules.instants import Millis, parse_instant


def check_names(
    request: Request, known: Collection[str], *, repeated: Collection[str] = ()
) -> None:
    """Raise UnknownParameter or BadParameter unless each is known and there once.

    Those ``repeated`` may be there several times. A filter that is silently
    left out would show the wrong list.
    """
    for name, values in request.query_params.lists():
        shown = name.encode(errors="replace").decode()[:60]
        if name not in known:
            close = difflib.get_close_matches(shown, sorted(known), n=1)
            hint = f"; is it {close[0]}?" if close else "."
            raise UnknownParameter(
                f"There is no parameter {shown} here{hint}", field=shown
            )
        if len(values) > 1 and name not in repeated:
            refuse(name, "is given more than once; write a list with commas")


def text(request: Request, name: str, *, most: int = 200) -> str | None:
    """Return a parameter's text, None where it is left out."""
    value = request.query_params.get(name)
    if value is None:
        return None
    if not value:
        refuse(name, "is empty; leave it out")
    if len(value) > most:
        refuse(name, f"has at most {most} characters")
    if not value.isprintable():
        refuse(name, "has a control character")
    return value


def number(request: Request, name: str, *, least: int, most: int, default: int) -> int:
    """Return a whole number within its bounds."""
    value = text(request, name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and len(value) <= 9):
        refuse(name, f"is a whole number from {least} to {most}")
    if not least <= int(value) <= most:
        refuse(name, f"is a whole number from {least} to {most}")
    return int(value)


def identifier(request: Request, name: str) -> UUID | None:
    """Return a UUID, None where it is left out."""
    value = text(request, name)
    if value is None:
        return None
    found = uuid_of(value)
    if found is None:
        refuse(name, "is a UUID")
    return found


def instant(request: Request, name: str) -> Millis | None:
    """Return an instant, None where it is left out."""
    value = text(request, name)
    if value is None:
        return None
    try:
        return parse_instant(value, field=name)
    except BadInstant as error:
        # A + in an address is a blank, which is how most offsets get lost.
        hint = " Write + as %2B." if " " in value else ""
        raise BadParameter(f"{name}: {error.message}{hint}", field=name) from None


def word(request: Request, name: str, *, known: Collection[str]) -> str | None:
    """Return one known word, None where it is left out."""
    value = text(request, name)
    if value is not None and value not in known:
        refuse(name, f"is one of {', '.join(known)}")
    return value


def words(
    request: Request, name: str, *, known: Collection[str]
) -> tuple[str, ...] | None:
    """Return a list of known words with commas, each once; None where left out."""
    value = text(request, name)
    if value is None:
        return None
    found = tuple(dict.fromkeys(value.split(",")))
    if not all(one in known for one in found):
        refuse(name, f"is one or more of {', '.join(known)}, with commas")
    return found


def uuid_of(value: str) -> UUID | None:
    """Return the UUID in its one canonical form; None for any other text."""
    if len(value) != 36:
        return None
    try:
        found = UUID(value)
    except ValueError:
        return None
    return found if str(found) == value.lower() else None


def refuse(name: str, why: str) -> NoReturn:
    """Raise BadParameter for a parameter."""
    raise BadParameter(f"{name} {why}.", field=name)
