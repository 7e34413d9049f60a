"""Rows of tenants are read through `Model.scoped(tenant)`, and only so."""

import ast

import pytest
from django.apps import apps

from apps.tenants.scoping import TenantScoped
from tests.architecture.sources import name_of, within

# Models whose rows belong to no tenant, each with its reason.
SHARED = {
    "Tenant": "is the tenant itself",
    "Partition": "is a share of all tenants' jobs",
    "Worker": "works for all tenants",
}
# Files of the web that look at all tenants, each with its reason.
ALLOWED: dict[str, str] = {
    "apps/console/recent.py": "the index of superusers shows the last changes",
}

MANAGERS = {"objects", "_default_manager", "_base_manager"}
# Django's shortcuts that take a model and read through its default manager.
SHORTCUTS = {"get_object_or_404", "get_list_or_404"}


def is_exempt(name: str) -> bool:
    return (
        "/migrations/" in name
        or "/management/commands/" in name
        or name == "apps/tenants/scoping.py"
        or name in ALLOWED
    )


def unscoped_reads(tree: ast.AST) -> list[int]:
    """Return the lines that reach rows of a model without naming a tenant."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in MANAGERS:
            if not (isinstance(node.value, ast.Name) and node.value.id in SHARED):
                lines.append(node.lineno)
        elif isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            first = node.args[0]
            named = isinstance(first, ast.Name) and first.id[:1].isupper()
            if called in SHORTCUTS and named and ast.unparse(first) not in SHARED:
                lines.append(node.lineno)
    return lines


def test_no_row_is_read_without_its_tenant():
    paths = [*within("apps", ".py"), *within("chrono", ".py")]
    found = [
        f"{name_of(path)}:{line}"
        for path in paths
        if not is_exempt(name_of(path))
        for line in unscoped_reads(ast.parse(path.read_text()))
    ]
    assert not found


@pytest.mark.parametrize(
    "planted",
    [
        "Job.objects.filter(key=key)",
        "models.ApiKey.objects.get(pk=pk)",
        "self.model.objects.all()",
        "type(row)._default_manager.count()",
        "queryset = AuditEvent.objects.all()",
        "get_object_or_404(Job, pk=pk)",
        "shortcuts.get_list_or_404(ApiKey, name=name)",
    ],
)
def test_a_planted_read_of_all_tenants_is_found(planted):
    assert unscoped_reads(ast.parse(planted)) == [1]


@pytest.mark.parametrize(
    "fine",
    [
        "Job.scoped(tenant).filter(key=key)",
        "get_object_or_404(Job.scoped(tenant), pk=pk)",
        "Tenant.objects.get(pk=1)",
    ],
)
def test_a_scoped_read_is_none(fine):
    assert unscoped_reads(ast.parse(fine)) == []


def test_every_model_belongs_to_tenants_or_says_why_not():
    models = [
        model
        for config in apps.get_app_configs()
        if config.name.startswith("apps.")
        for model in config.get_models()
    ]
    assert {model.__name__ for model in models} >= {"Job", "ApiKey", "AuditEvent"}
    unscoped = {m.__name__ for m in models if not issubclass(m, TenantScoped)}
    assert unscoped == set(SHARED)


def test_every_exemption_is_still_needed():
    for name in ALLOWED:
        [path] = [path for path in within("apps", ".py") if name_of(path) == name]
        assert unscoped_reads(ast.parse(path.read_text())), name
