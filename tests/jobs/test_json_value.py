"""JSON values: what Postgres and every reader can take, measured as Postgres does."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from apps.jobs.json_value import DEPTH, SIZE, check_json, same_json
from chrono.rules.errors import BadValue

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(codec="utf-8", exclude_characters="\x00")),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def nested(levels):
    return json.loads("[" * levels + "]" * levels)


def test_the_deepest_value_is_accepted_and_one_deeper_is_not():
    check_json(nested(DEPTH), field="payload")
    with pytest.raises(BadValue, match="deeper than 32"):
        check_json(nested(DEPTH + 1), field="payload")


def test_a_value_that_grows_by_aliases_is_refused_before_it_is_walked():
    bomb: list[object] = ["x" * 100]
    for _ in range(DEPTH - 2):
        bomb = [bomb] * 10
    with pytest.raises(BadValue, match="longer than 256 KiB"):
        check_json(bomb, field="payload")


def test_the_longest_text_is_accepted_by_rule_and_table(database, connect):
    conn = connect()
    limit = "SELECT octet_length(%s::jsonb::text)"
    longest = "x" * (SIZE - 2)
    check_json(longest, field="payload")
    assert conn.execute(limit, [Jsonb(longest)]).fetchone() == (SIZE,)
    with pytest.raises(BadValue, match="longer than"):
        check_json(longest + "x", field="payload")


def test_a_value_is_as_long_to_the_rule_as_it_is_to_postgres(database, connect):
    conn = connect()

    @given(values)
    def check(value):
        size = conn.execute(
            "SELECT octet_length(%s::jsonb::text)", [Jsonb(value)]
        ).fetchone()[0]
        check_json(value, field="payload", size=size)
        stored = conn.execute("SELECT %s::jsonb::text", [Jsonb(value)]).fetchone()[0]
        assert same_json(value, json.loads(stored))
        with pytest.raises(BadValue):
            check_json(value, field="payload", size=size - 1)

    check()


def test_true_is_not_one_and_one_is_one_point_nothing():
    assert not same_json({"a": [True]}, {"a": [1]})
    assert not same_json([0], [False])
    assert not same_json([1], [1, 2])
    assert not same_json({"a": 1}, {"b": 1})
    assert same_json({"a": 1, "b": [1.0]}, {"b": [1], "a": 1.0})
