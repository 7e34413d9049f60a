"""The text of a key: what is one, and that a mistake in it is seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.tenants.errors import KeyMalformed
from apps.tenants.key_text import ALPHABET, compose, digest_of, ident_of

IDENTS = st.text(ALPHABET, min_size=8, max_size=8)
SECRETS = st.text(ALPHABET, min_size=32, max_size=32)
TEXTS = st.builds(lambda i, s: compose(ident=i, secret=s), IDENTS, SECRETS)

# Computed bit by bit, apart from this code: CRC-32 of what stands before is 1619889945.
KNOWN = "chr_live_" + "0" * 8 + "_" + "z" * 32 + "1lctNB"


def test_a_known_text():
    text = compose(ident="0" * 8, secret="z" * 32)
    assert text == KNOWN


@given(ident=IDENTS, secret=SECRETS)
def test_a_text_has_the_form_that_scanners_know(ident, secret):
    text = compose(ident=ident, secret=secret)
    assert ident_of(text) == ident
    assert text.startswith(f"chr_live_{ident}_{secret}")
    assert len(text) == 9 + 8 + 1 + 32 + 6
    assert set(text) <= set(ALPHABET) | {"_"}


@given(text=TEXTS, place=st.integers(0, 55), other=st.characters())
def test_any_one_wrong_character_is_seen(text, place, other):
    wrong = text[:place] + other + text[place + 1 :]
    if wrong == text:
        assert ident_of(wrong)
    else:
        with pytest.raises(KeyMalformed):
            ident_of(wrong)


def test_every_one_wrong_character_of_one_key_is_seen():
    text = compose(ident="aB3xY9Qr", secret="0123456789abcdefghijABCDEFGHIJzz")
    seen = 0
    for place, right in enumerate(text):
        for other in set(ALPHABET + "_") - {right}:
            with pytest.raises(KeyMalformed):
                ident_of(text[:place] + other + text[place + 1 :])
            seen += 1
    assert seen == 56 * 62


@given(text=TEXTS, place=st.integers(0, 54))
def test_two_swapped_neighbours_are_seen(text, place):
    wrong = text[:place] + text[place + 1] + text[place] + text[place + 2 :]
    if wrong != text:
        with pytest.raises(KeyMalformed):
            ident_of(wrong)


@given(text=TEXTS, length=st.integers(0, 55))
def test_a_cut_key_is_seen(text, length):
    with pytest.raises(KeyMalformed):
        ident_of(text[:length])
    with pytest.raises(KeyMalformed):
        ident_of(text[length + 1 :])


@pytest.mark.parametrize("around", ["{}\n", " {}", "{}\x00", "Bearer {}", "{}{}"])
def test_what_stands_around_a_key_is_no_part_of_it(around):
    text = compose(ident="aB3xY9Qr", secret="z" * 32)
    with pytest.raises(KeyMalformed):
        ident_of(around.format(text, text))


@given(st.text())
def test_any_other_text_is_refused_without_repeating_it(text):
    with pytest.raises(KeyMalformed) as refused:
        ident_of(text)
    assert refused.value.message == ("This is no whole API key: it is cut or mistyped.")


@given(text=TEXTS)
def test_the_digest_is_of_all_of_the_text(text):
    assert len(digest_of(text)) == 32
    assert digest_of(text) != digest_of(text[:-1])
