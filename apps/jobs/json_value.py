"""Which JSON values are stored: what every reader of the database can read back.

One value nested a few thousand deep, or one NUL, makes reading a whole batch of rows
fail while Postgres stores it without complaint. So the limits are checked here, and
again by CHECK constraints.
"""

import json
import math
import unicodedata
from decimal import Decimal

from chrono.rules.errors import BadValue

DEPTH = 32
SIZE = 256 * 1024
DIGITS = 100


def check_json(value: object, *, field: str, size: int = SIZE) -> None:
    """Raise BadValue unless ``value`` is JSON of at most 32 levels and ``size`` bytes.

    Bytes are those of Postgres' own text of the value. Refused are NUL, lone
    surrogates, NaN and infinity, keys that are no text, and numbers of over 100 digits.
    """
    left = _measure(value, field=field, size=size, depth=0)
    if left < 0:
        raise _too_long(field, size)


def fits(value: object, *, size: int) -> bool:
    """Return whether a value that is checked already has at most ``size`` bytes."""
    return _measure(value, field="", size=size, depth=0) >= 0


def same_json(one: object, other: object) -> bool:
    """Return whether two JSON values are equal; unlike with ==, true is not 1."""
    if one is None or isinstance(one, str):
        return one == other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            same_json(value, other[name]) for name, value in one.items()
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, float) or isinstance(other, float):
        return _as_float(one) == _as_float(other)
    return one == other


def _as_float(value: object) -> object:
    # Postgres gives 1e17 back with all its digits, which Python reads as an integer.
    return float(value) if isinstance(value, int) else value


def check_text(
    value: object, *, field: str, most: int, least: int = 1, lines: bool = False
) -> str:
    """Return the text in NFC, or raise BadValue: control characters, length, no text.

    Two spellings of the same letter would be two keys to Postgres.
    """
    if not isinstance(value, str):
        raise BadValue(f"{field} is text.", field=field)
    # Most texts are plain ASCII: in NFC as they are, and without control characters.
    plain = value.isascii() and value.isprintable()
    text = value if plain else unicodedata.normalize("NFC", value)
    if not least <= len(text) <= most:
        raise BadValue(f"{field} has {least} to {most} characters.", field=field)
    if text != text.strip():
        raise BadValue(f"{field} neither begins nor ends with a space.", field=field)
    allowed = "\n\t" if lines else ""
    if not plain and any(
        unicodedata.category(letter) in ("Cc", "Cs") and letter not in allowed
        for letter in text
    ):
        raise BadValue(f"{field} has no control characters.", field=field)
    return text


def check_note(value: object, *, field: str, most: int) -> str:
    """Return some lines of text that a person wrote, without spaces around them.

    Raises BadValue as :func:`check_text` does.
    """
    if isinstance(value, str):
        value = value.strip()
    return check_text(value, field=field, most=most, least=0, lines=True)


def _measure(value: object, *, field: str, size: int, depth: int) -> int:
    """Return how many bytes of ``size`` are left after ``value``; stop below none."""
    if value is None or isinstance(value, bool):
        return size - len(json.dumps(value))
    if isinstance(value, str):
        return size - _text_size(value, field)
    if isinstance(value, int | float):
        return size - _number_size(value, field)
    if not isinstance(value, dict | list):
        raise BadValue(f"{field} is JSON; {type(value).__name__} is not.", field=field)
    if depth == DEPTH:
        raise BadValue(f"{field} is nested deeper than {DEPTH} levels.", field=field)
    size -= 2 + 2 * max(0, len(value) - 1)
    if isinstance(value, dict):
        size -= sum(2 + _name_size(name, field) for name in value)
    for item in value.values() if isinstance(value, dict) else value:
        # A few lines of YAML with aliases can stand for billions of values.
        if size < 0:
            break
        size = _measure(item, field=field, size=size, depth=depth + 1)
    return size


def _name_size(name: object, field: str) -> int:
    if not isinstance(name, str):
        raise BadValue(f"{field} has a key that is no text.", field=field)
    return _text_size(name, field)


def _text_size(text: str, field: str) -> int:
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return 2 + len(text)
    if "\x00" in text:
        raise BadValue(f"{field} has a NUL character.", field=field)
    try:
        return len(json.dumps(text, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        raise BadValue(f"{field} has half of a surrogate pair.", field=field) from None


def _number_size(number: float, field: str) -> int:
    if isinstance(number, int):
        # 10 bits are a little more than three digits; printing a huge one is refused.
        if number.bit_length() > DIGITS * 10 // 3:
            raise BadValue(
                f"{field} has a number of over {DIGITS} digits.", field=field
            )
        return len(str(number))
    if not math.isfinite(number):
        raise BadValue(f"{field} has NaN or infinity, which JSON lacks.", field=field)
    # Postgres prints 1e300 with all its zeros, and knows no zero below zero.
    return len(format(Decimal(repr(number + 0.0)), "f"))


def _too_long(field: str, size: int) -> BadValue:
    return BadValue(f"{field} is longer than {size // 1024} KiB.", field=field)
