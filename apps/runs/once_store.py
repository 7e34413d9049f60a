"""The statements of what tasks do once, one function a file."""

import json
import uuid
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from apps.runtime import sql
from apps.runtime.sessions import Connection
from chrono.rules.instants import Millis

_SQL = {
    name: sql.load("runs", name)
    for name in (
        "insert_once",
        "find_once",
        "take_over_once",
        "finish_once",
        "release_once",
        "purge_once",
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceKey:
    """A key of a run, or of a job for what its runs share."""

    owner: uuid.UUID
    part: int
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Whose execution asks."""

    run: uuid.UUID
    token: uuid.UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What there is under a key, seen at one moment."""

    leased: bool
    """Whether the execution that asks still holds its lease."""
    holder: uuid.UUID | None
    """The token of the execution that did it or is at it; None for nothing."""
    done: bool
    result: Any
    expired: bool
    alive: bool
    """Whether the holder's lease and worker are there."""


def insert_once(conn: Connection, key: OnceKey, by: Holder, *, ttl: Millis) -> bool:
    """Take a key that nobody has; False where somebody has, or the lease is lost."""
    return bool(_SQL["insert_once"].run(conn, {**_named(key, by), "ttl": ttl}))


def find_once(conn: Connection, key: OnceKey, by: Holder) -> Found:
    """Return what there is under a key."""
    [(leased, holder, done, result, expired, alive)] = _SQL["find_once"].run(
        conn, _named(key, by)
    )
    return Found(
        leased=leased,
        holder=holder,
        done=bool(done),
        result=None if result is None else json.loads(result),
        expired=bool(expired),
        alive=bool(alive),
    )


def take_over_once(
    conn: Connection, key: OnceKey, by: Holder, *, holder: uuid.UUID, ttl: Millis
) -> bool:
    """Take a key from the holder that was found dead, or expired; say whether."""
    given = {**_named(key, by), "holder": holder, "ttl": ttl}
    return bool(_SQL["take_over_once"].run(conn, given))


def finish_once(
    conn: Connection, key: OnceKey, by: Holder, *, result: Any, ttl: Millis
) -> bool:
    """Keep an answer; False where somebody took the key over. Safe to repeat."""
    given = {
        **_named(key, by),
        "result": None if result is None else Jsonb(result),
        "ttl": ttl,
    }
    del given["run"]
    return bool(_SQL["finish_once"].run(conn, given))


def release_once(conn: Connection, key: OnceKey, by: Holder) -> None:
    """Give a key back under which nothing was done."""
    given = _named(key, by)
    del given["run"]
    _SQL["release_once"].change(conn, given)


def purge_once(conn: Connection, *, before: Millis, limit: int) -> int:
    """Forget what was to be kept until before an instant; return how many keys."""
    return _SQL["purge_once"].change(conn, {"before": before, "limit": limit})


def _named(key: OnceKey, by: Holder) -> dict[str, Any]:
    return {
        "owner": key.owner,
        "part": key.part,
        "key": key.key,
        "run": by.run,
        "token": by.token,
    }
