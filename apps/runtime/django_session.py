"""Django's own session, for rooms whose transactions Django opens."""

from typing import cast

from django.db import connection  # noqa: TID251 (the door to Django's session)

from apps.runtime.sessions import Connection


def raw_connection() -> Connection:
    """Return the psycopg connection under Django's default one, connected.

    Inside ``transaction.atomic`` its statements belong to that transaction.
    """
    connection.ensure_connection()
    return cast(Connection, connection.connection)
