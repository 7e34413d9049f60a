"""Leaves of range-partitioned tables: made beside the parent, attached, dropped.

A leaf is made with LIKE and attached, since CREATE … PARTITION OF would wait for every
open reader of the parent and make everybody wait behind it. Lock timeouts are the
session's (:data:`apps.runtime.sessions.UPKEEP`); a timeout means: next time.
"""

from dataclasses import dataclass

from psycopg import sql as compose

from apps.runtime import store
from apps.runtime.sessions import Connection

# Hot leaves are vacuumed by what happened to them, not by their share of dead rows.
HOT_STORAGE = (
    "autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, "
    "autovacuum_vacuum_cost_delay = 0"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One leaf of a partitioned table."""

    name: str
    detaching: bool
    """An earlier DETACH CONCURRENTLY was interrupted; it must be finalized first."""


def list_leaves(conn: Connection, *, parent: str) -> list[Leaf]:
    """Return the leaves of ``parent`` by name, its default leaf included."""
    return [
        Leaf(name=name, detaching=detaching)
        for name, detaching in store.list_leaves(conn, parent=parent)
    ]


def attach_leaf(
    conn: Connection,
    *,
    parent: str,
    leaf: str,
    key: str,
    lower: str,
    upper: str,
    storage: str = "",
) -> int:
    """Make a leaf for ``key`` in [lower, upper); return rows taken from the default.

    The default leaf's rows of that range move in the same transaction: Postgres refuses
    to attach a leaf whose rows lie in the default. A leaf that is there already is left
    as it is. Raises ``LockNotAvailable``.
    """
    default = f"{parent}_default"
    with conn.transaction():
        # ATTACH takes this lock anyway. Taken first, whoever else makes the same leaf
        # is seen to have made it.
        conn.execute(
            compose.SQL("LOCK TABLE {} IN SHARE UPDATE EXCLUSIVE MODE").format(
                compose.Identifier(parent)
            )
        )
        names = {leaf.name for leaf in list_leaves(conn, parent=parent)}
        if leaf in names:
            return 0
        conn.execute(
            compose.SQL(
                "CREATE TABLE IF NOT EXISTS {} (LIKE {} INCLUDING ALL){}"
            ).format(
                compose.Identifier(leaf),
                compose.Identifier(parent),
                compose.SQL(f" WITH ({storage})" if storage else ""),
            )
        )
        moved = 0
        if default in names:
            taking = (conn, default, leaf, key, lower, upper)
            moved = _take(*taking)
            # What others wrote into it since would make ATTACH fail: so now, before the
            # second look, writers wait. The first took most, beside them.
            conn.execute(
                compose.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(
                    compose.Identifier(default)
                )
            )
            moved += _take(*taking)
        conn.execute(
            compose.SQL(
                "ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})"
            ).format(
                compose.Identifier(parent),
                compose.Identifier(leaf),
                compose.Literal(lower),
                compose.Literal(upper),
            )
        )
    return moved


def _take(
    conn: Connection, default: str, leaf: str, key: str, lower: str, upper: str
) -> int:
    """Move the default leaf's rows of a range into a leaf; return how many."""
    return conn.execute(
        compose.SQL(
            "WITH moved AS (DELETE FROM {} WHERE {} >= {} AND {} < {} "
            "RETURNING *) INSERT INTO {} SELECT * FROM moved"
        ).format(
            compose.Identifier(default),
            compose.Identifier(key),
            compose.Literal(lower),
            compose.Identifier(key),
            compose.Literal(upper),
            compose.Identifier(leaf),
        )
    ).rowcount


def detach_leaf(conn: Connection, *, parent: str, leaf: Leaf) -> None:
    """Detach a leaf without making readers of the parent wait.

    Only for parents without a default leaf; needs an autocommit session. Finishes a
    detach that a timeout left pending.
    """
    how = "FINALIZE" if leaf.detaching else "CONCURRENTLY"
    conn.execute(
        compose.SQL(f"ALTER TABLE {{}} DETACH PARTITION {{}} {how}").format(
            compose.Identifier(parent), compose.Identifier(leaf.name)
        )
    )


def lock_against_writes(conn: Connection, *, table: str) -> None:
    """Have writers of a table wait until the transaction ends; readers go on.

    What was written before is seen by the next statement. Raises ``LockNotAvailable``.
    """
    conn.execute(
        compose.SQL("LOCK TABLE {} IN SHARE MODE").format(compose.Identifier(table))
    )


def drop_table(conn: Connection, *, table: str) -> None:
    """Drop a detached leaf, or an attached one of a parent that has a default leaf."""
    conn.execute(
        compose.SQL("DROP TABLE IF EXISTS {}").format(compose.Identifier(table))
    )


def is_empty(conn: Connection, *, table: str) -> bool:
    """Return whether a table has no row."""
    return store.is_empty(conn, table=table)
