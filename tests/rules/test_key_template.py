"""Keys that a payload fills."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chrono.rules.errors import BadValue
from chrono.rules.key_template import LONGEST, check_template, filled, has_holes


def fill(text, payload):
    return filled(text, payload, field="payload")


@pytest.mark.parametrize(
    ("text", "payload", "key"),
    [
        ("plain", None, "plain"),
        ("of {payload.a}", {"a": "x"}, "of x"),
        ("{payload.a.b.c}", {"a": {"b": {"c": "deep"}}}, "deep"),
        ("{payload.a}/{payload.b}", {"a": 1, "b": True}, "1/true"),
        ("{payload.a}{payload.a}", {"a": "x"}, "xx"),
        ("{payload.a-b c}", {"a-b c": False}, "false"),
        ("{payload.n}", {"n": 0}, "0"),
        ("{payload.n}", {"n": 1.5}, "1.5"),
        ("{payload.n}", {"n": 3.0}, "3"),
        ("{payload.n}", {"n": 1e17}, "100000000000000000"),
        ("{payload.n}", {"n": 1e23}, "100000000000000000000000"),
        ("{payload.n}", {"n": -0.0}, "0"),
        ("{payload.a}", {"a": "{payload.b}", "b": "no"}, "{payload.b}"),
        ("{payload.a}", {"a": r"\1"}, r"\1"),
    ],
)
def test_a_key_is_filled_from_its_places(text, payload, key):
    check_template(text, field="concurrency_key")
    assert fill(text, payload) == key


@pytest.mark.parametrize(
    ("payload", "what"),
    [
        (None, "nothing"),
        ({}, "nothing"),
        ({"a": None}, "nothing"),
        ({"a": {}}, "nothing"),
        ({"a": {"b": None}}, "nothing"),
        ({"a": {"b": ""}}, "nothing"),
        ({"a": "text"}, "nothing"),
        ({"a": [{"b": 1}]}, "nothing"),
        ([1], "nothing"),
        ({"a": {"b": {}}}, "no plain value"),
        ({"a": {"b": [1]}}, "no plain value"),
    ],
)
def test_a_payload_that_does_not_fill_it_is_refused(payload, what):
    with pytest.raises(BadValue, match=rf"payload\.a\.b.* has {what} there") as refused:
        fill("of {payload.a.b}", payload)
    assert refused.value.field == "payload"


@pytest.mark.parametrize(
    "text",
    [
        *("{", "}", "{}", "{payload}", "{payload.}", "{payload..a}", "{payload.a."),
        *("{payloads.a}", "{a}", "{{payload.a}}", "x}{payload.a}", "{ payload.a}"),
    ],
)
def test_braces_that_are_no_hole_are_refused(text):
    with pytest.raises(BadValue, match="braces that name no place"):
        check_template(text, field="concurrency_key")


def test_only_braces_make_holes():
    assert has_holes("of {payload.a}")
    assert not has_holes("of payload.a")


@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=400))
def test_what_comes_out_is_a_key_and_different_values_stay_different(value):
    key = fill("of {payload.a}", {"a": value})
    assert 0 < len(key) <= LONGEST
    assert key.isprintable()
    assert key != fill("of {payload.a}", {"a": value + "."})
    assert key == fill("of {payload.a}", json.loads(json.dumps({"a": value})))
