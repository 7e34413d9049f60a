"""What is no JSON is refused with its place; nothing of it ever comes to a 5xx."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.api.errors import BadBody
from apps.api.parsers import DEPTH, read_json

REFUSED = [
    (b"", "not JSON", None),
    (b"{", "not JSON", None),
    (b"{'a': 1}", "not JSON", None),
    (b'{"a": 1,}', "not JSON", None),
    (b'\xef\xbb\xbf{"a": 1}', "not JSON", None),
    (b'{"a": "\xff"}', "not UTF-8", None),
    (b'{"a": "\xed\xa0\x80"}', "not UTF-8", None),
    (b'{"a": NaN}', "NaN is no JSON number", "a"),
    (b'{"a": {"b": [1, -Infinity]}}', "-Infinity is no JSON number", "a.b.1"),
    (b'{"a": 1e999}', "too large", "a"),
    (b'{"a": ' + b"9" * 101 + b"}", "over 100 digits", "a"),
    (b'{"a": ' + b"9" * 5000 + b"}", "over 100 digits", "a"),
    (b'{"a": "x\\u0000y"}', "NUL", "a"),
    (b'{"a\\u0000": 1}', "NUL", None),
    (b'{"b": {"a\\u0000": 1}}', "NUL", "b"),
    (b'{"a": ["\\ud800"]}', "half of a surrogate pair", "a.0"),
    (b'{"\\udc00": 1}', "half of a surrogate pair", None),
    (b'{"a": 1, "a": 1}', "'a' is given twice", None),
    (b'{"b": {"a": 1, "a": 2}}', "'a' is given twice", "b"),
    (b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}", "deeper than 32", "a"),
    (b"[" * 100_000 + b"]" * 100_000, "deeper than 32", None),
    (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "deeper than 32", None),
]


@pytest.mark.parametrize(("body", "said", "field"), REFUSED)
def test_what_is_refused_is_told_with_its_place(body, said, field):
    with pytest.raises(BadBody, match=said) as caught:
        read_json(body)
    if field is not None:
        assert caught.value.field == field


def test_a_value_of_exactly_the_deepest_level_is_read():
    deepest = "[" * DEPTH + "]" * DEPTH
    assert read_json(deepest.encode()) == json.loads(deepest)
    with pytest.raises(BadBody, match="deeper"):
        read_json(f"[{deepest}]".encode())


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**90), 10**90)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",))),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(
                st.characters(exclude_characters="\x00", exclude_categories=("Cs",))
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(VALUES)
def test_what_json_can_say_is_read_as_it_is(value):
    assert read_json(json.dumps(value).encode()) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_refusal(body):
    try:
        read_json(body)
    except BadBody as error:
        # The place goes into the answer, which must be text that can be sent.
        (error.field or "").encode()
