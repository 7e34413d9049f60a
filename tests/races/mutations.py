"""Take one rule out of one statement, for as long as a scenario runs."""

import contextlib
from collections.abc import Iterator
from unittest import mock

from apps.runtime import sql


class RuleNotFound(Exception):
    """The statement has not, or has not once, the text that a mutation is about.

    No AssertionError, which would pass for a scenario that turned red.
    """


def flat(text: str) -> str:
    """Return text with white space as single spaces, as statements are loaded."""
    return " ".join(text.split())


@contextlib.contextmanager
def mutated(name: str, old: str, new: str) -> Iterator[None]:
    """Replace ``old`` by ``new`` in the statement of this name, wherever it is run.

    ``old`` must be there exactly once: a mutation of a text that has changed since must
    not pass for one that changes nothing.
    """
    named = sql.Statement.named

    def altered(self: sql.Statement, **tables: str) -> str:
        if self.name != name:
            return named(self, **tables)
        text = flat(self.text)
        if text.count(flat(old)) != 1:
            raise RuleNotFound(f"{name} has {text.count(flat(old))} × {old}")
        changed = sql.Statement(name=name, text=text.replace(flat(old), flat(new)))
        return named(changed, **tables)

    with mock.patch.object(sql.Statement, "named", altered):
        yield
