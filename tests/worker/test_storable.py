"""Whatever a handler returns becomes something that Postgres takes."""

import enum
import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from apps.worker.storable import (
    DEPTH_LIMIT,
    ERROR_LIMIT,
    RESULT_LIMIT,
    jsonb_size,
    storable_error,
    storable_result,
)


class Loud:
    def __str__(self):
        raise RuntimeError


class Colour(enum.IntEnum):
    RED = 1


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


def circle():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (None, None),
        (0, 0),
        (False, False),
        ("", ""),
        ({}, {}),
        ((1, 2), [1, 2]),
        ({1: "a", None: 2}, {"1": "a", "null": 2}),
        (Colour.RED, 1),
        ("\\u0000", "\\u0000"),
        ("\\\\u0000", "\\\\u0000"),
        ("ü\u2028", "ü\u2028"),
        (10**400, 10**400),
        (nested(DEPTH_LIMIT), nested(DEPTH_LIMIT)),
    ],
)
def test_what_json_knows_is_kept(value, kept):
    assert storable_result(value) == kept


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (math.nan, "NaN"),
        ([math.inf], "infinity"),
        ({"a": -math.inf}, "infinity"),
        (circle(), "cycle"),
        pytest.param(10**5000, "range", id="long"),
        ("a\x00b", "NUL"),
        ({"\x00": 1}, "NUL"),
        ("\\\x00", "NUL"),
        ("\ud800", "surrogate"),
        ({"\udfff": 1}, "surrogate"),
        (b"bytes", "JSON does not know"),
        ({1, 2}, "JSON does not know"),
        (Loud(), "JSON does not know"),
        ({(1, 2): 3}, "JSON does not know"),
        (nested(DEPTH_LIMIT + 1), "nested"),
        (nested(200_000), "nested"),
        ("x" * RESULT_LIMIT, "larger"),
        ([1] * 20_000, "larger"),
    ],
)
def test_what_it_does_not_is_noted(value, why):
    note = storable_result(value)
    assert note["note"] == "result not stored"
    assert why in note["why"]


def as_floats(value):
    # jsonb keeps decimal digits: 6e16 comes back as an integer.
    return json.loads(json.dumps(value), parse_int=float)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None))
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(value=VALUES)
def test_postgres_takes_every_result_and_it_is_no_larger_than_reckoned(
    second_connection, value
):
    result = storable_result(value)
    if result is None:
        return
    [(size, back)] = second_connection.execute(
        "SELECT pg_column_size(%s::jsonb), %s::jsonb", [Jsonb(result), Jsonb(result)]
    ).fetchall()
    assert size <= jsonb_size(result) + 8
    assert as_floats(back) == as_floats(result)


@given(st.text(st.characters(codec=None), max_size=200))
def test_an_error_is_text_that_postgres_takes(text):
    stored = storable_error(text)
    assert stored
    assert "\x00" not in stored
    assert stored.encode()


def test_a_long_error_loses_its_middle():
    stored = storable_error("begin" + "x" * 50_000 + "end")
    assert len(stored) <= ERROR_LIMIT
    assert stored.startswith("begin")
    assert stored.endswith("end")
