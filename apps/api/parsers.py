"""JSON as RFC 8259 means it, and nothing that a reader behind us would choke on."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, NoReturn

from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from apps.api.errors import BadBody, UnsupportedMediaType

DEPTH = 32
MERGE_PATCH = "application/merge-patch+json"
DIGITS = 100


class StrictJSONParser(BaseParser):
    """Reads a body: see :func:`read_json`."""

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the body's value; raises BadBody with the place at fault."""
        return read_json(stream.read())


class AlwaysJSON(BaseContentNegotiation):
    """Answers in JSON whatever a client says it would rather have."""

    def select_parser(
        self, request: Request, parsers: Iterable[BaseParser]
    ) -> BaseParser | None:
        """Return the parser for JSON; raises UnsupportedMediaType for another body."""
        named = request.content_type.partition(";")[0].strip().lower()
        patches = request.method == "PATCH" and named == MERGE_PATCH
        if named != StrictJSONParser.media_type and not patches:
            raise UnsupportedMediaType
        return next(iter(parsers))

    def select_renderer(
        self,
        request: Request,
        renderers: Iterable[BaseRenderer],
        format_suffix: str | None = None,
    ) -> tuple[BaseRenderer, str]:
        """Return the first renderer."""
        first = next(iter(renderers))
        return first, first.media_type


@dataclass(frozen=True, slots=True)
class _Refused:
    """Stands where something refused was read, so that the walk can say where."""

    why: str


def read_json(body: bytes) -> object:
    """Return the value of a body in UTF-8.

    Raises BadBody, with a pointer where there is one, for what is no JSON, for NaN and
    infinity, numbers beyond a double or of over 100 digits, a name given twice, NUL,
    half of a surrogate pair, and more than 32 levels.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise BadBody("The body is not UTF-8.") from None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
        )
    except RecursionError:
        raise BadBody(f"The body is nested deeper than {DEPTH} levels.") from None
    except ValueError as error:
        raise BadBody(f"The body is not JSON: {error}.") from None
    if _is_plain(text, value):
        return value
    _check(value)
    return value


def _is_plain(text: str, root: object) -> bool:
    """Return whether a look at the text and at the nesting says that nothing is wrong.

    A NUL and half of a surrogate pair come in as escapes alone, and what was refused
    while reading stands in an object or a list. The slow look then says what and where.
    """
    if "\\u" in text:
        return False
    level = [root]
    for _ in range(DEPTH + 1):
        if _Refused in map(type, level):
            return False
        nested = [value for value in level if isinstance(value, dict | list)]
        if not nested:
            return True
        level = [
            item
            for value in nested
            for item in (value.values() if isinstance(value, dict) else value)
        ]
    return False


def _check(root: object) -> None:
    waiting: list[tuple[object, tuple[str, ...]]] = [(root, ())]
    while waiting:
        value, path = waiting.pop()
        if isinstance(value, _Refused):
            _refuse(value.why, path)
        if isinstance(value, str):
            _check_text(value, path)
        elif isinstance(value, dict | list):
            if len(path) >= DEPTH:
                _refuse(f"It is nested deeper than {DEPTH} levels.", path[:1])
            waiting += _children(value, path)


def _children(
    value: dict[str, Any] | list[Any], path: tuple[str, ...]
) -> Iterator[tuple[object, tuple[str, ...]]]:
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield item, (*path, str(number))
        return
    for name, item in value.items():
        _check_text(name, path)
        yield item, (*path, name)


def _check_text(text: str, path: tuple[str, ...]) -> None:
    if "\x00" in text:
        _refuse("It has a NUL character.", path)
    try:
        text.encode()
    except UnicodeEncodeError:
        _refuse("It has half of a surrogate pair.", path)


def _refuse(why: str, path: tuple[str, ...]) -> NoReturn:
    # A name may hold anything, and this text goes into the answer.
    field = ".".join(part.encode(errors="replace").decode() for part in path)[:200]
    raise BadBody(why, field=field.replace("\x00", "?") or None)


def _object(pairs: list[tuple[str, object]]) -> object:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        shown = twice.encode(errors="replace").decode()[:60]
        return _Refused(f"The name {shown!r} is given twice.")
    return found


def _constant(text: str) -> _Refused:
    return _Refused(f"{text} is no JSON number.")


def _float(text: str) -> float | _Refused:
    number = float(text)
    return number if math.isfinite(number) else _Refused("The number is too large.")


def _int(text: str) -> int | _Refused:
    if len(text) > DIGITS:
        return _Refused(f"The number has over {DIGITS} digits.")
    return int(text)
