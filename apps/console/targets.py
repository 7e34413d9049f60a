"""The page of targets: which are sick, and the switch of their circuits."""

from typing import Any, override

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.console import filters, shown
from apps.console.filters import Input
from apps.console.lists import Listing, Page, PagelessAdmin
from apps.console.pages import Question, ReasonForm, ask, crumbs
from apps.console.who import actor_of
from apps.runs import targets
from apps.runtime.django_session import raw_connection
from apps.tenants.models import DEFAULT_TENANT, Tenant
from chrono.rules.breaker import BreakerState
from chrono.rules.targets import parse_identity

STATES = [state.label for state in BreakerState]
LIST = "admin:chrono_console_target_changelist"
STOPPED = (
    "Runs that come due wait until you have it called again. Their attempts are not "
    "spent, and nothing probes. Calls under way go on."
)


class StopForm(ReasonForm):
    """Whose calls to what."""

    tenant = forms.ModelChoiceField(Tenant.objects.order_by("pk"), empty_label=None)
    target = forms.CharField(
        max_length=2_048,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text="An address as https://example.org, or a task's name.",
    )
    field_order = ("tenant", "target", "reason")


class TargetAdmin(PagelessAdmin):
    """Targets that failed lately or that somebody looked after, newest first."""

    list_display = (
        "name",
        "stands",
        "in_a_row",
        "since",
        "probe",
        "budget",
        "who",
        "switch",
    )
    addable = True
    list_filter = (
        filters.fields(
            filters.TENANT,
            filters.words("state", "State", STATES),
            Input(name="name", label="Target", column="name"),
        ),
    )

    @override
    def fetch(self, request: HttpRequest, cl: Listing, after: str | None) -> Page:
        if word := cl.asked("state"):
            state = BreakerState[word.upper()]
            cl.queryset = cl.queryset.filter(state=int(state))
        return super().fetch(request, cl, after)

    @admin.display(description="Circuit")
    def stands(self, target: Any) -> SafeString:
        """Return how its circuit stands."""
        state = BreakerState(target.state)
        return shown.state(state.label)

    @admin.display(description="Failures in a row")
    def in_a_row(self, target: Any) -> int:
        """Return how many there were up to now."""
        return int(target.failures)

    @admin.display(description="Since")
    def since(self, target: Any) -> SafeString | str:
        """Return since when it stands so."""
        return shown.instant(target.changed_at, target.now)

    @admin.display(description="Next probe")
    def probe(self, target: Any) -> SafeString | str:
        """Return when an open circuit is probed."""
        if target.state != BreakerState.OPEN:
            return shown.NOTHING
        if target.probe_at is None:
            return "none: opened by hand"
        return shown.instant(target.probe_at, target.now)

    @admin.display(description="Retries put off")
    def budget(self, target: Any) -> str:
        """Return how many retries went beyond the budget, of all."""
        return f"{target.refused} of {target.granted + target.refused}"

    @admin.display(description="By whom, why")
    def who(self, target: Any) -> str:
        """Return who opened or closed it."""
        return ": ".join(filter(None, (target.changed_by, target.note))) or (
            shown.NOTHING
        )

    @admin.display(description="")
    def switch(self, target: Any) -> SafeString:
        """Return the way to open or close its circuit."""
        closed = target.state == BreakerState.CLOSED
        name = "open" if closed else "close"
        address = reverse(f"admin:chrono_console_target_{name}", args=[target.pk])
        text = "Stop calls" if closed else "Call again"
        return format_html('<a href="{}">{}</a>', address, text)

    @override
    def get_urls(self) -> list[URLPattern]:
        site = self.admin_site
        return [
            path(
                "<int:pk>/open/",
                site.admin_view(self.open_view),
                name="chrono_console_target_open",
            ),
            path(
                "<int:pk>/close/",
                site.admin_view(self.close_view),
                name="chrono_console_target_close",
            ),
            *super().get_urls(),
        ]

    @override
    def new_view(self, request: HttpRequest) -> HttpResponse:
        """Stop calls to a target of which nothing is known yet."""

        def act(given: Any) -> tuple[str, str]:
            name = parse_identity(given["target"])
            targets.open_circuit(
                raw_connection(),
                name,
                tenant=given["tenant"].pk,
                actor=actor_of(request),
                reason=given["reason"],
            )
            return f"{name} is called no more.", reverse(LIST)

        question = Question(
            title="Stop calls to a target?",
            text=STOPPED,
            button="Stop calls",
            form=StopForm,
            danger=True,
            initial={"tenant": DEFAULT_TENANT},
        )
        way = crumbs(self)
        return ask(request, self, question, way=way, act=act, back=reverse(LIST))

    def open_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Stop calls to a target."""
        target = self.find(request, pk)

        def act(given: Any) -> tuple[str, str]:
            targets.open_circuit(
                raw_connection(),
                target.name,
                tenant=target.tenant,
                actor=actor_of(request),
                reason=given["reason"],
            )
            return f"{target.name} is called no more.", reverse(LIST)

        question = Question(
            title=f"Stop calls to {target.name}?",
            text=STOPPED,
            button="Stop calls",
            danger=True,
        )
        way = crumbs(self)
        return ask(request, self, question, way=way, act=act, back=reverse(LIST))

    def close_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Have a target called again."""
        target = self.find(request, pk)

        def act(given: Any) -> tuple[str, str]:
            targets.close_circuit(
                raw_connection(),
                target.name,
                tenant=target.tenant,
                actor=actor_of(request),
                reason=given["reason"],
            )
            return f"{target.name} is called again.", reverse(LIST)

        question = Question(
            title=f"Call {target.name} again?",
            text="What waits is let in at a rate that rises: five runs a second in the "
            "beginning, twice as many after every five seconds. Failures in a row "
            "open the circuit again.",
            button="Call it again",
        )
        way = crumbs(self)
        return ask(request, self, question, way=way, act=act, back=reverse(LIST))
