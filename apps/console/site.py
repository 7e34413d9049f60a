"""The admin's site: who gets in, and what its index shows."""

from typing import Any, override

import psycopg
from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.template.response import TemplateResponse

from apps.console.names import NAMES
from apps.console.recent import recent_events
from apps.runtime.django_session import raw_connection
from apps.runtime.store import find_old_snapshot
from apps.timers import firing

GROUPS = (
    ("Work", ("Job", "Run", "DeadLetter", "Target", "QueuePause")),
    ("Access", ("Tenant", "ApiKey", "AuditEvent", "User")),
    ("Engine", ("Partition", "Worker")),
)
UNKNOWN = "Nobody knows whether anything fires: the database did not say in time."


class Site(AdminSite):
    """Django's admin, for superusers alone: its pages show the rows of all tenants."""

    site_title = "Chrono"
    site_header = "Chrono"
    index_title = "Chrono"
    site_url = None
    index_template = "console/index.html"
    empty_value_display = "–"

    @override
    def has_permission(self, request: HttpRequest) -> bool:
        user = request.user
        return user.is_active and getattr(user, "is_superuser", False)

    @override
    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        """Return what every page has: above all a word where nothing fires."""
        context = super().each_context(request)
        if context["has_permission"]:
            context["not_firing"] = _not_firing()
        return context

    @override
    def index(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> TemplateResponse:
        """Show where to go, and what was changed last."""
        events = recent_events(10)
        more = {"recent": events, "snapshot": find_old_snapshot(raw_connection())}
        return super().index(request, {**(extra_context or {}), **more})

    @override
    def get_app_list(
        self, request: HttpRequest, app_label: str | None = None
    ) -> list[Any]:
        """Return the models by what people do with them, not by where they live."""
        listed = super().get_app_list(request, app_label)
        if app_label is not None:
            return listed
        models = {
            model["object_name"]: {
                **model,
                "name": NAMES.get(model["object_name"].lower(), model["name"]),
            }
            for app in listed
            for model in app["models"]
        }
        return [
            {
                "name": name,
                "app_label": name.lower(),
                "app_url": f"#{name.lower()}",
                "has_module_perms": True,
                "models": [models[one] for one in members if one in models],
            }
            for name, members in GROUPS
        ]


def _not_firing() -> str:
    conn = raw_connection()
    try:
        # Of its own, or a look that fails would end what the page is in.
        with conn.transaction():
            return firing.look(conn).sentence
    except psycopg.errors.OperationalError:
        return UNKNOWN
