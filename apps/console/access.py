"""The pages of tenants, keys, people, and of what was changed by whom."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar, override
from uuid import UUID

from django import forms
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from apps.console import filters, shown
from apps.console.filters import Input
from apps.console.lists import KeysetAdmin, Listing, Page
from apps.console.pages import Act, Question, ReasonForm, ask, crumbs, render
from apps.console.recent import brief
from apps.console.who import actor_of, now_of
from apps.jobs.quotas import MOST_BYTES, MOST_JOBS, Quotas, change_quotas
from apps.runtime.django_session import enclose, raw_connection
from apps.tenants import audit, keys
from apps.tenants.actor import ActorKind, Scope
from apps.tenants.directory import (
    LEAST_WEIGHT,
    MOST_RUNS,
    MOST_WEIGHT,
    change_share,
    change_timezone,
    create_tenant,
)
from apps.tenants.event import Event
from apps.tenants.models import DEFAULT_TENANT, ApiKey, AuditEvent, Tenant
from chrono.rules.fairness import Share
from chrono.rules.instants import Millis, from_millis, to_millis

KEY = "chrono_tenants_apikey"
KINDS = [one.value for one in ActorKind]
SHARE = ("weight", "max_running", "max_starts")
QUOTAS = ("max_jobs", "max_payload_bytes")
OBJECTS = ["job", "run", "target", "queue", "key", "tenant", "user"]
PAGES = {
    "job": "chrono_jobs_job_change",
    "run": "chrono_console_run_change",
    "key": f"{KEY}_change",
    "tenant": "chrono_tenants_tenant_change",
}


class TenantForm(ReasonForm):
    """A new tenant."""

    name = forms.CharField(max_length=100)
    field_order = ("name", "reason")


class ChangeForm(ReasonForm):
    """A tenant's time zone, and its share."""

    timezone = forms.CharField(
        max_length=100,
        label="Time zone",
        help_text="Of new cron jobs that name none. Jobs that are there stay as they "
        "are.",
    )
    weight = forms.FloatField(
        min_value=LEAST_WEIGHT,
        max_value=MOST_WEIGHT,
        help_text="Its share of the workers beside other tenants who want them, too: "
        "one of weight 3 gets three runs where one of weight 1 gets one.",
    )
    max_running = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST_RUNS,
        help_text="How many of its runs may be under way at once; empty for any.",
    )
    max_starts = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST_RUNS,
        help_text="How many of its runs may begin in any second; empty for any.",
    )
    max_jobs = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST_JOBS,
        help_text="How many jobs it may have, but for deleted ones; empty for any. "
        "Those that it has stay.",
    )
    max_payload_bytes = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST_BYTES,
        help_text="How long the payload of a job, or of a run by hand, may be as JSON; "
        f"empty for {MOST_BYTES // 1024} KiB. Those that are stored stay.",
    )
    field_order = ("timezone", *SHARE, *QUOTAS, "reason")


class TenantAdmin(KeysetAdmin):
    """Who owns jobs, keys and runs."""

    list_display = ("named", "number", "timezone", "weight", "quotas", "created")
    list_display_links = None
    addable = True
    newest_first = False

    @admin.display(description="Name")
    def named(self, tenant: Any) -> SafeString:
        """Return the name as a link."""
        return shown.link(PAGES["tenant"], tenant.name, tenant.pk)

    @admin.display(description="Id")
    def number(self, tenant: Any) -> int:
        """Return its number."""
        return int(tenant.pk)

    @admin.display(description="Quotas")
    def quotas(self, tenant: Any) -> str:
        """Return its quotas in words."""
        return _quotas({name: getattr(tenant, name) for name in (*SHARE, *QUOTAS)})

    @admin.display(description="Created")
    def created(self, tenant: Any) -> SafeString | str:
        """Return when it was made."""
        return shown.instant(tenant.created_at, tenant.now)

    @override
    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Make a tenant, or change the time zone and the share of one."""
        listed = reverse("admin:chrono_tenants_tenant_changelist")
        if object_id is not None:
            return self._change(request, object_id, listed)

        def act(given: Mapping[str, Any]) -> tuple[str, str]:
            tenant = create_tenant(
                given["name"], actor=actor_of(request), reason=given["reason"]
            )
            return f"There is a tenant {tenant.name} now.", listed

        question = Question(
            title="Add a tenant",
            text="A tenant is never renamed and never deleted.",
            button="Add",
            form=TenantForm,
        )
        return ask(request, self, question, way=crumbs(self), act=act, back=listed)

    def _change(
        self, request: HttpRequest, object_id: str, listed: str
    ) -> HttpResponse:
        rows = self.get_queryset(request)
        number = int(object_id) if object_id.isdecimal() else 0
        tenant = rows.filter(pk=number).first() if number < 1 << 31 else None
        if tenant is None:
            raise Http404

        def act(given: Mapping[str, Any]) -> tuple[str, str]:
            by = {"actor": actor_of(request), "reason": given["reason"]}
            share = Share(**{name: given[name] for name in SHARE})
            quotas = Quotas(**{name: given[name] for name in QUOTAS})
            with enclose():
                moved = change_timezone(tenant.pk, given["timezone"], **by)
                shared = change_share(tenant.pk, share, **by)
                limited = change_quotas(tenant.pk, quotas, **by)
            said = [f"The time zone is now {given['timezone']}."] if moved else []
            if shared or limited:
                words = _quotas({**asdict(share), **asdict(quotas)})
                said.append(f"The weight is now {share.weight:g}, {words}.")
            return " ".join(said) or "Nothing was changed.", listed

        question = Question(
            title=f"Tenant {tenant.name}",
            text="A tenant is never renamed and never deleted.",
            button="Save",
            form=ChangeForm,
            initial={
                name: getattr(tenant, name) for name in ("timezone", *SHARE, *QUOTAS)
            },
        )
        way = crumbs(self, (tenant.name, ""))
        return ask(request, self, question, way=way, act=act, back=listed)


_IN_WORDS = {
    "max_running": "runs at once",
    "max_starts": "starts a second",
    "max_jobs": "jobs",
    "max_payload_bytes": "bytes of payload",
}


def _quotas(limits: Mapping[str, Any]) -> str:
    words = [
        f"{limits[name]:,} {of}"
        for name, of in _IN_WORDS.items()
        if limits[name] is not None
    ]
    *most, last = words or [""]
    listed = f"{', '.join(most)} and {last}" if most else last
    return f"at most {listed}" if words else "no quotas"


class KeyForm(ReasonForm):
    """A new key."""

    tenant = forms.ChoiceField()
    name = forms.CharField(max_length=100, help_text="Who or what will use it.")
    scopes = forms.MultipleChoiceField(
        choices=[(scope.value, scope.value) for scope in Scope],
        widget=forms.CheckboxSelectMultiple,
        help_text=(
            "operate runs and cancels, write changes jobs, both may read; admin may "
            "all of these; worker claims and settles runs."
        ),
    )
    expires_at = forms.DateTimeField(
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}),
        help_text="In UTC; a key without an end works until it is revoked.",
    )
    field_order = ("tenant", "name", "scopes", "expires_at", "reason")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        choices = [(one.pk, one.name) for one in Tenant.objects.order_by("pk")[:500]]
        self.fields["tenant"].choices = choices  # type: ignore[attr-defined]


class ApiKeyAdmin(KeysetAdmin):
    """Keys: everything but their text."""

    list_display = ("label", "ident", "owner", "rights", "stands", "expires", "used")
    list_display_links = None
    addable = True
    list_filter = (filters.fields(filters.TENANT),)
    list_select_related = ("tenant",)

    @admin.display(description="Name")
    def label(self, key: Any) -> SafeString:
        """Return the name as a link."""
        return shown.link(f"{KEY}_change", key.name, key.pk)

    @admin.display(description="Id")
    def ident(self, key: Any) -> SafeString:
        """Return the part of the text that is no secret."""
        return shown.code(key.pk)

    @admin.display(description="Tenant")
    def owner(self, key: Any) -> str:
        """Return whose it is."""
        return str(key.tenant.name)

    @admin.display(description="Scopes")
    def rights(self, key: Any) -> str:
        """Return what it may do."""
        return ", ".join(key.scopes)

    @admin.display(description="State")
    def stands(self, key: Any) -> SafeString:
        """Return whether it works."""
        return shown.state(_state(key, key.now))

    @admin.display(description="Expires")
    def expires(self, key: Any) -> SafeString | str:
        """Return when it ends by itself."""
        return shown.instant(key.expires_at, key.now)

    @admin.display(description="Last used")
    def used(self, key: Any) -> SafeString | str:
        """Return when it was used last, to the minute."""
        return shown.instant(key.last_used_at, key.now)

    @override
    def get_urls(self) -> list[URLPattern]:
        own = [
            path(
                f"<str:object_id>/{verb}/",
                self.admin_site.admin_view(view),
                name=f"{KEY}_{verb}",
            )
            for verb, view in (
                ("rotate", self.rotate_view),
                ("revoke", self.revoke_view),
            )
        ]
        return [*own, *super().get_urls()]

    @override
    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show a key, or issue one."""
        if object_id is None:
            return self._issue(request)
        key, now = self._key(request, object_id), now_of(request)
        facts = [
            ("State", shown.state(_state(key, now))),
            ("Id", shown.code(key.pk)),
            ("Tenant", key.tenant.name),
            ("Scopes", ", ".join(key.scopes)),
            ("Created", shown.instant(key.created_at, now)),
            ("By", key.created_by),
            ("Expires", shown.instant(key.expires_at, now)),
            ("Revoked", shown.instant(key.revoked_at, now)),
            ("Last used", shown.instant(key.last_used_at, now)),
            ("Replaces", key.replaces_id or shown.NOTHING),
        ]
        return render(
            request,
            self,
            "console/key.html",
            title=f"API key {key.name}",
            way=crumbs(self, (key.name, "")),
            key=key,
            facts=facts,
            works=key.revoked_at is None,
        )

    def rotate_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Make the successor of a key."""
        key = self._key(request, object_id)

        def act(given: Mapping[str, Any]) -> HttpResponse:
            made = keys.rotate(
                key.pk,
                tenant=key.tenant_id,
                actor=actor_of(request),
                reason=given["reason"],
            )
            return self._once(request, made)

        question = Question(
            title=f"Rotate {key.name}?",
            text=(
                "A second key with the same name and scopes is issued. The old one "
                "goes on working until it is revoked."
            ),
            button="Rotate",
        )
        return self._ask(request, key, question, act)

    def revoke_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """End a key."""
        key = self._key(request, object_id)

        def act(given: Mapping[str, Any]) -> tuple[str, str]:
            keys.revoke(
                key.pk,
                tenant=key.tenant_id,
                actor=actor_of(request),
                reason=given["reason"],
            )
            return "The key opens nothing any more.", _page_of(key)

        question = Question(
            title=f"Revoke {key.name}?",
            text="It opens nothing from the next request on. This cannot be undone.",
            button="Revoke",
            danger=True,
        )
        return self._ask(request, key, question, act)

    def _ask(
        self, request: HttpRequest, key: Any, question: Question, act: Act
    ) -> HttpResponse:
        here = _page_of(key)
        way = crumbs(self, (key.name, here))
        return ask(request, self, question, way=way, act=act, back=here)

    def _issue(self, request: HttpRequest) -> HttpResponse:
        def act(given: Mapping[str, Any]) -> HttpResponse:
            ends = given["expires_at"]
            made = keys.issue(
                tenant=int(given["tenant"]),
                name=given["name"],
                scopes=given["scopes"],
                expires_at=None if ends is None else to_millis(ends),
                actor=actor_of(request),
                reason=given["reason"],
            )
            return self._once(request, made)

        question = Question(
            title="Issue an API key",
            text="Its text is shown once, on the next page.",
            button="Issue",
            form=KeyForm,
        )
        listed = reverse(f"admin:{KEY}_changelist")
        return ask(request, self, question, way=crumbs(self), act=act, back=listed)

    def _once(self, request: HttpRequest, made: keys.Issued) -> HttpResponse:
        """Show a key's text, on a page that nobody stores."""
        answer = render(
            request,
            self,
            "console/key_once.html",
            title=f"API key {made.key.name}",
            way=crumbs(self, (made.key.name, "")),
            text=made.text,
            page=_page_of(made.key),
        )
        answer.headers["Cache-Control"] = "no-store"
        return answer

    def _key(self, request: HttpRequest, object_id: str) -> Any:
        rows = self.get_queryset(request).select_related("tenant")
        key = rows.filter(pk=object_id[:8]).first() if len(object_id) == 8 else None
        if key is None:
            raise Http404
        return key


class AuditEventAdmin(KeysetAdmin):
    """What was changed by whom, newest first."""

    list_display = ("when", "who", "done", "subject", "owner", "why")
    list_display_links = None
    list_select_related = ("tenant",)
    list_filter = (
        filters.fields(
            Input(name="actor", label="Actor", column="actor"),
            filters.words("kind", "came by", KINDS, column="actor_kind"),
            Input(name="action", label="Action", column="action__startswith"),
            filters.words("of", "Object", OBJECTS, column="object_kind"),
            Input(name="object", label="Object's id", column="object_id"),
            filters.TENANT,
        ),
    )

    @override
    def fetch(self, request: HttpRequest, cl: Listing, after: str | None) -> Page:
        cl.queryset = brief(cl.queryset)
        return super().fetch(request, cl, after)

    @admin.display(description="At")
    def when(self, event: Any) -> SafeString:
        """Return when, as a link to its page."""
        text = shown.instant(event.at, event.now)
        return shown.link("chrono_tenants_auditevent_change", text, event.pk)

    @admin.display(description="Actor")
    def who(self, event: Any) -> str:
        """Return who did it, and by which way they came in."""
        return f"{event.actor_kind} {event.actor}"

    @admin.display(description="Action")
    def done(self, event: Any) -> str:
        """Return what was done."""
        return str(event.action)

    @admin.display(description="Object")
    def subject(self, event: Any) -> SafeString | str:
        """Return what it was done to."""
        return _object(event, event.object_name)

    @admin.display(description="Tenant")
    def owner(self, event: Any) -> str:
        """Return whose it is."""
        return str(event.tenant.name)

    @admin.display(description="Reason")
    def why(self, event: Any) -> str:
        """Return the reason that was given."""
        return event.reason[:200] or shown.NOTHING

    @override
    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show one event."""
        try:
            ident = UUID(object_id or "")
        except ValueError:
            raise Http404 from None
        rows = self.get_queryset(request).select_related("tenant")
        event: Any = rows.filter(pk=ident).first()
        if event is None:
            raise Http404
        return render(
            request,
            self,
            "console/event.html",
            title=f"{event.action}",
            way=crumbs(self, (event.action, "")),
            facts=[
                ("At", shown.instant(event.at, now_of(request))),
                ("Actor", f"{event.actor_kind} {event.actor}"),
                ("Object", _object(event)),
                ("Tenant", event.tenant.name),
                ("Reason", event.reason or shown.NOTHING),
                ("Request", shown.code(event.request_id or shown.NOTHING)),
            ],
            made=event.before is None,
            gone=event.after is None,
            differences=shown.differences(event.before, event.after),
        )


class PeopleAdmin(KeysetAdmin, UserAdmin):  # type: ignore[type-arg]
    """Logins; each change of one is in the audit, too."""

    list_display = ("username", "is_active", "is_superuser", "last_login")
    list_display_links = ("username",)
    list_filter: ClassVar[tuple[Any, ...]] = ()
    search_fields = ("username", "email")
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        ("Person", {"fields": ("first_name", "last_name", "email")}),
        (
            "Rights",
            {
                "fields": ("is_active", "is_staff", "is_superuser"),
                "description": "Only superusers get into these pages.",
            },
        ),
    )

    @override
    def has_add_permission(self, request: HttpRequest) -> bool:
        return UserAdmin.has_add_permission(self, request)

    @override
    def has_change_permission(
        self, request: HttpRequest, obj: Model | None = None
    ) -> bool:
        return UserAdmin.has_change_permission(self, request, obj)

    @override
    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        _record(request, "user.create", obj, message)
        return super().log_addition(request, obj, message)

    @override
    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        _record(request, "user.change", obj, message)
        return super().log_change(request, obj, message)


def _record(
    request: HttpRequest, action: str, user: AbstractBaseUser, message: Any
) -> None:
    """Write what became of a login, in the transaction of the change."""
    event = Event(
        tenant=DEFAULT_TENANT,
        action=action,
        object_kind="user",
        object_id=str(user.pk),
        after={
            "username": user.get_username(),
            "is_active": user.is_active,
            "is_superuser": getattr(user, "is_superuser", False),
            "changed": message,
        },
    )
    audit.record(raw_connection(), actor=actor_of(request), events=[event])


def _state(key: ApiKey, now: Millis) -> str:
    if key.revoked_at is not None:
        return "revoked"
    if key.expires_at is not None and key.expires_at <= from_millis(now):
        return "expired"
    return "active"


def _page_of(key: ApiKey) -> str:
    return reverse(f"admin:{KEY}_change", args=[key.pk])


def _object(event: AuditEvent, name: str | None = None) -> SafeString | str:
    page = PAGES.get(event.object_kind)
    text = f"{event.object_kind} {name or event.object_id}"
    return text if page is None else shown.link(page, text, event.object_id)
