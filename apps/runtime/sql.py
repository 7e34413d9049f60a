"""SQL files as callables: one statement per file, loaded once, named in the server.

A room keeps its statements in ``apps/<room>/sql/<verb>_<noun>.sql`` and calls them
from its ``store.py`` alone. The text is stripped of comments (a lone percent sign in
one would break psycopg) and prefixed with its own name, so that ``pg_stat_activity``
says which statement runs.
"""

import functools
import pathlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from apps.runtime.arrays import Array

ROOMS = pathlib.Path(__file__).resolve().parent.parent
TABLE_NAME = re.compile(r"chrono_[a-z_]{1,30}(_[0-9]{1,10})?")
SLOT = re.compile(r"\{([a-z_]+)\}")
COMMENT = re.compile(r"--[^\n]*")


class UnknownTableName(ValueError):
    """A table name that a statement was given has not the form of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement of a room; call :meth:`run` to execute it."""

    name: str
    text: str

    def named(self, **tables: str) -> str:
        """Return the text with its ``{slots}`` filled by checked table names."""
        if not tables:
            return self.text
        return _filled(self.text, tuple(sorted(tables.items())))

    def run(
        self,
        conn: psycopg.Connection[Any],
        params: Mapping[str, Any] | None = None,
        **tables: str,
    ) -> list[tuple[Any, ...]]:
        """Execute on ``conn`` and return all rows, or an empty list if it has none.

        Raises what psycopg raises. Takes part in the transaction that is open on
        ``conn``; on an autocommit session the statement is its own transaction.
        """
        cursor = _execute(conn, self.named(**tables), params)
        return cursor.fetchall() if cursor.description else []

    def change(
        self,
        conn: psycopg.Connection[Any],
        params: Mapping[str, Any] | None = None,
        **tables: str,
    ) -> int:
        """Execute on ``conn`` and return how many rows the statement changed."""
        return _execute(conn, self.named(**tables), params).rowcount


def _execute(
    conn: psycopg.Connection[Any], text: str, params: Mapping[str, Any] | None
) -> psycopg.Cursor[Any]:
    """Execute and return the cursor, whose answer is in binary where that can be.

    Django's own sessions write the parameters into the statement and answer in text.
    Packed arrays are bound by the server instead, which asks nothing more of a pooler:
    the statement is prepared without a name, for this once.
    """
    if not issubclass(conn.cursor_factory, psycopg.ClientCursor):
        return conn.execute(text, params, binary=True)
    if any(isinstance(value, Array) for value in (params or {}).values()):
        return psycopg.Cursor(conn).execute(text, params, binary=True)
    return conn.execute(text, params)


@functools.cache
def load(room: str, name: str) -> Statement:
    """Return the statement of that file; FileNotFoundError if there is none."""
    raw = (ROOMS / room / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    lines = (COMMENT.sub("", line).strip() for line in raw.splitlines())
    body = " ".join(line for line in lines if line).rstrip(";")
    return Statement(name=name, text=f"/* {room}.{name} */ {body}")


@functools.lru_cache(maxsize=1024)
def _filled(text: str, tables: tuple[tuple[str, str], ...]) -> str:
    names = dict(tables)
    for table in names.values():
        if not TABLE_NAME.fullmatch(table):
            raise UnknownTableName(table)
    return SLOT.sub(lambda slot: names[slot.group(1)], text)
