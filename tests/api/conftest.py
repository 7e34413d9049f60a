"""Who asks in these tests: Acme's key, and a stranger's of Globex."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.runtime import sql
from apps.tenants import keys
from apps.tenants.actor import Actor
from apps.tenants.directory import create_tenant

ACTOR = Actor.command("tests")
ACME = 1


class ApiClient(Client):
    """Speaks JSON with a key."""

    def __init__(self, key: str | None) -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        super().__init__(headers=headers)

    def send(self, path: str, body: Any = None, **options: Any) -> Any:
        """POST a value as JSON; bytes go as they are."""
        options.setdefault("content_type", "application/json")
        return self.post(path, b"" if body is None else body, **options)


@pytest.fixture
def make_client(database: str) -> Callable[..., ApiClient]:
    """Return a client whose key has these scopes."""

    def make(*scopes: str, tenant: int = ACME) -> ApiClient:
        issued = keys.issue(tenant=tenant, name="test", scopes=scopes, actor=ACTOR)
        return ApiClient(issued.text)

    return make


@pytest.fixture
def client(make_client: Callable[..., ApiClient]) -> ApiClient:
    """Acme's: may read, operate and write."""
    return make_client("operate", "write")


@pytest.fixture
def stranger(make_client: Callable[..., ApiClient]) -> ApiClient:
    """Globex's: may do everything there."""
    tenant = create_tenant("Globex", actor=ACTOR)
    return make_client("admin", tenant=tenant.pk)


@pytest.fixture
def nobody(database: str) -> ApiClient:
    """Has no key."""
    return ApiClient(None)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the statements that are executed, as they come."""
    names: list[str] = []

    def listen(method: str) -> None:
        original = getattr(sql.Statement, method)

        def execute(self: sql.Statement, *args: Any, **options: Any) -> Any:
            names.append(self.name)
            return original(self, *args, **options)

        monkeypatch.setattr(sql.Statement, method, execute)

    listen("run")
    listen("change")
    return names
