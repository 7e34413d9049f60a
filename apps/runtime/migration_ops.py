"""What migrations do besides Django's own operations."""

import pathlib
from typing import Any

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def run_sql_file(
    migration: str, *, state: list[migrations.operations.base.Operation] | None = None
) -> migrations.RunSQL:
    """Return the operation that runs ``<migration>.up.sql``, and ``.down.sql`` back.

    ``migration`` is the ``__file__`` of the migration. ``state`` is what Django's
    picture of the models becomes.
    """
    stem = pathlib.Path(migration).with_suffix("")
    return migrations.RunSQL(
        sql=stem.with_suffix(".up.sql").read_text(encoding="utf-8"),
        reverse_sql=stem.with_suffix(".down.sql").read_text(encoding="utf-8"),
        state_operations=state,
    )


def index_beside_writes(*, table: str, name: str, on: str) -> list[migrations.RunSQL]:
    """Return what makes an index while others write; the migration is not atomic.

    One that was broken off is left invalid, and made anew. ``on`` is the columns in
    parentheses and the condition, if there is one.
    """
    drop = f"DROP INDEX CONCURRENTLY IF EXISTS {name}"
    make = f"CREATE INDEX CONCURRENTLY {name} ON {table} {on}"
    return [migrations.RunSQL(drop, drop), migrations.RunSQL(make, drop)]


def index_leaves(*, table: str, name: str, on: str) -> migrations.RunPython:
    """Return the operation that gives a partitioned table an index, leaf by leaf.

    Each leaf's is made CONCURRENTLY, so that nobody waits: the migration is not atomic,
    and one that was broken off goes on. A leaf made meanwhile has it from its parent.
    ``on`` is the columns in parentheses and the condition, if there is one.
    """

    def make(apps: Any, editor: BaseDatabaseSchemaEditor) -> None:
        with editor.connection.cursor() as cursor:
            cursor.execute(f"CREATE INDEX IF NOT EXISTS {name} ON ONLY {table} {on}")
            cursor.execute(_BARE_LEAVES, [f"public.{name}", f"public.{table}"])
            for (leaf,) in cursor.fetchall():
                index = f"{leaf}_{name.removeprefix(table).strip('_')}"
                cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {index}")
                cursor.execute(f"CREATE INDEX CONCURRENTLY {index} ON {leaf} {on}")
                cursor.execute(f"ALTER INDEX {name} ATTACH PARTITION {index}")

    def drop(apps: Any, editor: BaseDatabaseSchemaEditor) -> None:
        editor.execute(f"DROP INDEX IF EXISTS {name}")

    return migrations.RunPython(make, drop)


_BARE_LEAVES = """
    SELECT t.relname FROM pg_inherits l JOIN pg_class t ON t.oid = l.inhrelid
    WHERE NOT EXISTS (
        SELECT FROM pg_inherits i JOIN pg_index x ON x.indexrelid = i.inhrelid
        WHERE i.inhparent = %s::regclass AND x.indrelid = t.oid
    ) AND l.inhparent = %s::regclass
    ORDER BY t.relname
"""
