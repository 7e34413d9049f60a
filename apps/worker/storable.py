"""What handlers return and raise, made fit for the database before it is sent.

A settle that the database refuses would turn a success into a second execution. So
whatever comes out of a handler becomes a value that Postgres takes, or a note.
"""

import json
import re
from typing import Any

from chrono.tasks import NotStorable

RESULT_LIMIT = 65_536
"""Bytes of a stored result, as JSON text and as jsonb."""
ERROR_LIMIT = 8_000
"""Characters kept of an error."""
DEPTH_LIMIT = 32

# A \u0000 that is not the tail of an escaped backslash.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def storable_result(value: object) -> Any:
    """Return the value as plain JSON types, or a note that says why it was not kept.

    Of keys that are equal as text the last one stays, as in Postgres.
    """
    if value is None:
        return None
    try:
        return checked(value)
    except NotStorable as error:
        return {"note": "result not stored", "why": str(error)}


def checked(value: object) -> Any:
    """Return the value as plain JSON types; raise :class:`NotStorable` with the why."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
        if size > RESULT_LIMIT:
            raise NotStorable(f"it is larger than {RESULT_LIMIT} bytes")
        if _NUL.search(text):
            raise NotStorable("it holds a NUL character")
        plain = json.loads(text)
    except NotStorable:
        raise
    except UnicodeEncodeError:
        raise NotStorable("it holds half a surrogate pair") from None
    except RecursionError:
        raise NotStorable(f"it is nested deeper than {DEPTH_LIMIT}") from None
    except TypeError:
        raise NotStorable("it holds what JSON does not know") from None
    except ValueError:
        raise NotStorable(
            "it holds NaN, an infinity, a cycle or a number out of range"
        ) from None
    except Exception as error:  # noqa: BLE001  (a hostile __str__, a dict that grows)
        raise NotStorable(f"reading it raised {type(error).__name__}") from None
    if jsonb_size(plain) > RESULT_LIMIT:
        raise NotStorable(f"it is larger than {RESULT_LIMIT} bytes in the database")
    return plain


def jsonb_size(value: Any, depth: int = 0) -> int:
    """Return no less than the bytes that jsonb takes for plain JSON types.

    Four bytes of entry for each value; numbers are padded to four and hold four
    decimal digits in two bytes behind a header of at most eight.
    Raises :class:`NotStorable` below :data:`DEPTH_LIMIT`.
    """
    if depth > DEPTH_LIMIT:
        raise NotStorable(f"it is nested deeper than {DEPTH_LIMIT}")
    if isinstance(value, dict):
        return 12 + sum(
            4 + len(key.encode()) + jsonb_size(item, depth + 1)
            for key, item in value.items()
        )
    if isinstance(value, list):
        return 12 + sum(jsonb_size(item, depth + 1) for item in value)
    if isinstance(value, str):
        return 12 + len(value.encode())
    if value is None or isinstance(value, bool):
        return 4
    return 24 + len(str(value)) // 2


def clean(text: str) -> str:
    """Return text without what Postgres refuses in one."""
    return text.encode(errors="replace").decode().replace("\x00", "\ufffd")


def storable_log(text: str, *, most: int) -> str | None:
    """Return the last bytes of a log, up to ``most`` in UTF-8; None for none."""
    whole = clean(text).encode()
    if len(whole) > most:
        mark = "[…]\n".encode()
        whole = mark + whole[len(mark) - most :]
    return whole.decode(errors="ignore") or None


def storable_error(text: str) -> str:
    """Return an error's text without what Postgres refuses, its middle left out."""
    text = clean(text)
    if len(text) > ERROR_LIMIT:
        half = ERROR_LIMIT // 2 - 10
        text = f"{text[:half]}\n[…]\n{text[-half:]}"
    return text or "no message"
