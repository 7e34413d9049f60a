"""Keys in a fresh database, and a second session that looks at them."""

from dataclasses import dataclass
from typing import Any

import pytest

from apps.tenants import keys
from apps.tenants.actor import Actor
from apps.tenants.directory import create_tenant
from tests.support.pg import Connection

ACTOR = Actor.command("tests")


@dataclass(frozen=True)
class Keyring:
    """Makes keys through the product, and reads rows past it."""

    conn: Connection

    def issue(self, name: str = "ci", **options: Any) -> keys.Issued:
        wanted = {"tenant": 1, "scopes": ["read"], "actor": ACTOR, **options}
        return keys.issue(name=name, **wanted)

    def rows(self, text: str, *args: Any) -> list[tuple[Any, ...]]:
        return self.conn.execute(text, args).fetchall()

    def value(self, column: str, key: str) -> Any:
        """Return one column of a key's row; instants in epoch milliseconds."""
        if column.endswith("_at"):
            column = f"(extract(epoch FROM {column}) * 1000)::bigint"
        [(value,)] = self.rows(
            f"SELECT {column} FROM chrono_api_key WHERE id = %s", key
        )
        return value

    def events(self) -> list[tuple[Any, ...]]:
        """Return (tenant, actor_kind, actor, action, object_id, reason) in order."""
        return self.rows(
            "SELECT tenant_id, actor_kind, actor, action, object_id, reason "
            "FROM chrono_audit_event ORDER BY id"
        )


@pytest.fixture
def keyring(database: str, second_connection: Connection) -> Keyring:
    """The keys as another session sees them."""
    return Keyring(second_connection)


@pytest.fixture
def other_tenant(database: str) -> int:
    """One more tenant's id."""
    return int(create_tenant("other", actor=ACTOR).pk)
