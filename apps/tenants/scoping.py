"""The one place where rows are chosen by tenant.

A model whose rows belong to tenants inherits :class:`TenantScoped` and is read through
``Model.scoped(tenant)``. Its plain ``objects`` reaches the rows of all tenants: only
migrations, commands and the pages of superusers use it, and a test says where.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Self, cast, override

from django.db import models


class OtherTenant(ValueError):
    """A row of one tenant was to be written through the scope of another."""


class TenantQuerySet[M: models.Model](models.QuerySet[M]):
    """Rows of one tenant, or of all where :meth:`of` was not called."""

    tenant_in_scope: int | None = None
    path_in_scope = "tenant"

    def of(self, tenant: int, *, path: str) -> Self:
        """Return the rows whose ``path`` leads to this tenant."""
        chosen = self.filter(**{path: tenant})
        chosen.tenant_in_scope, chosen.path_in_scope = tenant, path
        return chosen

    @override
    def create(self, **fields: Any) -> M:
        """Write a row, of the scope's tenant where there is one."""
        return super().create(**self._owned(fields))

    @override
    def bulk_create(self, objs: Iterable[M], *args: Any, **options: Any) -> list[M]:
        """Write rows; raise OtherTenant, before any is, if one is not in scope."""
        rows = list(objs)
        if self.tenant_in_scope is not None:
            column = self._column()
            if any(getattr(row, column) != self.tenant_in_scope for row in rows):
                raise OtherTenant(self.model.__name__)
        return super().bulk_create(rows, *args, **options)

    @override
    def update(self, **fields: Any) -> int:
        """Change the rows; none changes hands this way."""
        if self.tenant_in_scope is not None and {"tenant", "tenant_id"} & fields.keys():
            raise OtherTenant(self.model.__name__)
        return super().update(**fields)

    def _owned(self, fields: dict[str, Any]) -> dict[str, Any]:
        if self.tenant_in_scope is None:
            return fields
        column = self._column()
        rest = {k: v for k, v in fields.items() if k not in {"tenant", "tenant_id"}}
        for given in (fields.get("tenant"), fields.get("tenant_id")):
            if (
                given is not None
                and getattr(given, "pk", given) != self.tenant_in_scope
            ):
                raise OtherTenant(self.model.__name__)
        return {**rest, column: self.tenant_in_scope}

    def _column(self) -> str:
        # A row that hangs on another tenant's row cannot be told from its own fields.
        if self.path_in_scope != "tenant":
            raise OtherTenant(f"{self.model.__name__} has no tenant of its own")
        return "tenant_id" if hasattr(self.model, "tenant_id") else "tenant"

    # Django's one place where a query set becomes the next; its stubs leave it out.
    def _clone(self) -> Self:
        clone: Self = super()._clone()  # type: ignore[misc]
        clone.tenant_in_scope = self.tenant_in_scope
        clone.path_in_scope = self.path_in_scope
        return clone


TenantManager = models.Manager.from_queryset(TenantQuerySet)


class TenantScoped(models.Model):
    """Rows that belong to tenants, by a field ``tenant`` or along ``tenant_path``."""

    tenant_path: ClassVar[str] = "tenant"

    objects = TenantManager()

    class Meta:
        abstract = True

    @classmethod
    def scoped(cls, tenant: int) -> TenantQuerySet[Self]:
        """Return this tenant's rows alone; what is created through it is the tenant's.

        A row of another tenant is not found, as if it did not exist.
        """
        rows = cast("TenantQuerySet[Self]", cls.objects.get_queryset())
        return rows.of(tenant, path=cls.tenant_path)
