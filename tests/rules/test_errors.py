"""An error's docstring is its message; its code is stable and its own."""

import pytest

from chrono.rules import errors
from chrono.rules.errors import BadCron, BadValue, ChronoError

CLASSES = [
    one
    for one in vars(errors).values()
    if isinstance(one, type) and issubclass(one, ChronoError)
]


@pytest.mark.parametrize("error", CLASSES)
def test_the_docstring_is_the_default_message(error):
    assert str(error()) == error().message == error.__doc__.strip()
    assert error().field is None


def test_codes_are_words_and_unique():
    codes = [error.code for error in CLASSES]
    assert len(set(codes)) == len(codes)
    assert all(code.replace("_", "").isalpha() and code.islower() for code in codes)


def test_a_message_and_a_field_may_be_given():
    error = BadCron("minute: 61", field="cron")
    assert (str(error), error.field, error.code) == ("minute: 61", "cron", "bad_cron")
    assert isinstance(error, BadValue)
