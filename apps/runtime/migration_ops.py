"""RunSQL from a file that stands beside its migration."""

import pathlib

from django.db import migrations


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
