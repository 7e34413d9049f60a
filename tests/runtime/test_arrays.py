"""Packed arrays: what goes in comes out, on every kind of session."""

import uuid

import psycopg
import pytest

from apps.runtime.arrays import (
    bools,
    int8s,
    int8s_or_nulls,
    jsonbs,
    random_uuids,
    texts,
    uuids,
    uuids_or_nulls,
)
from apps.runtime.sql import Statement

ONE, OTHER = uuid.UUID(int=1), uuid.UUID(int=(1 << 128) - 1)
PACKED = [
    ("boolean", bools, [True, False]),
    ("bigint", int8s, [0, -1, (1 << 63) - 1]),
    ("bigint", int8s_or_nulls, [None, -(1 << 63), None, 7]),
    ("smallint", int8s_or_nulls, [3, None]),
    ("jsonb", jsonbs, [{"ä": ["'\\", 1.5, None, True]}, None, [], "x", 0, False]),
    ("text", texts, ["", "it's", 'ü\n{},\\"', "NULL"]),
    ("uuid", uuids, [ONE, OTHER]),
    ("uuid", uuids_or_nulls, [None, ONE, None]),
]


@pytest.mark.parametrize("factory", [psycopg.Cursor, psycopg.ClientCursor])
@pytest.mark.parametrize(("kind", "pack", "values"), PACKED)
def test_what_is_packed_comes_out(connect, factory, kind, pack, values):
    conn = connect()
    conn.cursor_factory = factory
    text = f"SELECT %(values)s::{kind}[], %(one)s::text"
    statement = Statement(name="unpack", text=text)
    for some in (values, []):
        rows = statement.run(conn, {"values": pack(some), "one": "it's one"})
        assert rows == [(some, "it's one")]


def test_a_json_null_is_no_value(connect):
    statement = Statement(name="count", text="SELECT num_nulls(VARIADIC %(all)s)")
    assert statement.run(connect(), {"all": jsonbs([None, {}])}) == [(1,)]


@pytest.mark.parametrize("count", [0, 1, 200])
def test_random_uuids_arrive_as_so_many_that_differ(connect, count):
    statement = Statement(name="unpack", text="SELECT %(values)s::uuid[]")
    [(told,)] = statement.run(connect(), {"values": random_uuids(count)})
    assert len(set(told)) == count
    assert all(isinstance(value, uuid.UUID) for value in told)
