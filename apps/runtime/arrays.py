"""Whole arrays as parameters of statements over many rows, packed at once.

psycopg dumps a list element by element, a third of a microsecond each, and a session
that binds on its own side writes every text and every JSON into the statement, which
costs several times that here and on the server. These are one-dimensional, in the
binary format of ``array_send``. Most have no nulls: what may be absent travels as 0 and
comes back as NULL by ``nullif``.
"""

import json
import os
import struct
import uuid
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, repeat

from psycopg import pq
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Dumper

_HEAD = struct.Struct("!iiIii")
_BOOLS = (b"\0\0\0\x01\0", b"\0\0\0\x01\x01")
_SIXTEEN = 16 << 128
_BOOL, _INT8, _TEXT, _UUID, _JSONB = 16, 20, 25, 2950, 3802
_NULL = b"\xff\xff\xff\xff"
_JSONB_VERSION = b"\x01"


class Array(bytes):
    """An array in Postgres's binary format."""

    __slots__ = ()


class BoolArray(Array):
    """boolean[]"""


class Int8Array(Array):
    """bigint[]; the statement casts it down where the column is smaller."""


class JsonbArray(Array):
    """jsonb[]"""


class TextArray(Array):
    """text[]"""


class UuidArray(Array):
    """uuid[]"""


def bools(values: Sequence[bool]) -> BoolArray:
    """Return the values as a boolean[]."""
    return BoolArray(_head(_BOOL, len(values)) + b"".join([_BOOLS[v] for v in values]))


def int8s(values: Sequence[int]) -> Int8Array:
    """Return the values as a bigint[]; struct.error where one needs more bits."""
    body = _int8_body(len(values)).pack(*chain.from_iterable(zip(repeat(8), values)))
    return Int8Array(_head(_INT8, len(values)) + body)


def int8s_or_nulls(values: Sequence[int | None]) -> Int8Array:
    """Return the values as a bigint[] in which None is NULL."""
    parts = [
        _NULL if value is None else b"\0\0\0\x08" + value.to_bytes(8, signed=True)
        for value in values
    ]
    return Int8Array(_head(_INT8, len(parts), nulls=True) + b"".join(parts))


def jsonbs(values: Iterable[object]) -> JsonbArray:
    """Return the values as a jsonb[] in which None is NULL."""
    parts = []
    for value in values:
        if value is None:
            parts.append(_NULL)
            continue
        text = json.dumps(value).encode()
        parts.append((len(text) + 1).to_bytes(4) + _JSONB_VERSION + text)
    return JsonbArray(_head(_JSONB, len(parts), nulls=True) + b"".join(parts))


def texts(values: Iterable[str]) -> TextArray:
    """Return the values as a text[]."""
    values = list(values)
    # Nearly all of a fire's names are the same.
    known = {value: _text(value.encode()) for value in set(values)}
    return TextArray(
        _head(_TEXT, len(values)) + b"".join([known[value] for value in values])
    )


def uuids(values: Sequence[uuid.UUID]) -> UuidArray:
    """Return the values as a uuid[]."""
    # With a leading 16, for its length, an id is one number of 20 bytes.
    parts = [(_SIXTEEN | value.int).to_bytes(20) for value in values]
    return UuidArray(_head(_UUID, len(parts)) + b"".join(parts))


def random_uuids(count: int) -> UuidArray:
    """Return so many random values as a uuid[], all 128 bits of each by chance."""
    drawn = os.urandom(16 * count)
    parts = [b"\0\0\0\x10" + drawn[n : n + 16] for n in range(0, len(drawn), 16)]
    return UuidArray(_head(_UUID, count) + b"".join(parts))


def uuids_or_nulls(values: Sequence[uuid.UUID | None]) -> UuidArray:
    """Return the values as a uuid[] in which None is NULL."""
    parts = [
        _NULL if value is None else b"\0\0\0\x10" + value.bytes for value in values
    ]
    return UuidArray(_head(_UUID, len(parts), nulls=True) + b"".join(parts))


def register(adapters: AdaptersMap) -> None:
    """Let a session, or every one that is opened from now on, take these arrays."""
    for dumper in (_BoolDumper, _Int8Dumper, _JsonbDumper, _TextDumper, _UuidDumper):
        adapters.register_dumper(dumper.takes, dumper)


@lru_cache(maxsize=2048)
def _head(element: int, count: int, *, nulls: bool = False) -> bytes:
    if not count:
        return _HEAD.pack(0, 0, element, 0, 0)[:12]
    return _HEAD.pack(1, nulls, element, count, 1)


def _text(encoded: bytes) -> bytes:
    return len(encoded).to_bytes(4) + encoded


@lru_cache(maxsize=2048)
def _int8_body(count: int) -> struct.Struct:
    return struct.Struct("!" + "iq" * count)


class _Dumper(Dumper):
    format = pq.Format.BINARY
    takes: type[Array]

    def dump(self, obj: Array) -> Buffer:
        return obj


class _BoolDumper(_Dumper):
    oid = 1000
    takes = BoolArray


class _Int8Dumper(_Dumper):
    oid = 1016
    takes = Int8Array


class _JsonbDumper(_Dumper):
    oid = 3807
    takes = JsonbArray


class _TextDumper(_Dumper):
    oid = 1009
    takes = TextArray


class _UuidDumper(_Dumper):
    oid = 2951
    takes = UuidArray
