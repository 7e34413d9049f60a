"""The page of paused queues."""

from typing import Any, override

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.console import filters, shown
from apps.console.lists import PagelessAdmin
from apps.console.pages import Question, ReasonForm, ask, crumbs
from apps.console.who import actor_of
from apps.jobs.definition import check_queue
from apps.runs import pauses
from apps.runtime.django_session import raw_connection
from apps.tenants.models import DEFAULT_TENANT, Tenant

LIST = "admin:chrono_console_queuepause_changelist"


class PauseForm(ReasonForm):
    """Whose runs in which queue."""

    tenant = forms.ModelChoiceField(Tenant.objects.order_by("pk"), empty_label=None)
    queue = forms.CharField(max_length=64, help_text="a-z, 0-9, _ . and -")
    field_order = ("tenant", "queue", "reason")


class QueuePauseAdmin(PagelessAdmin):
    """Paused queues, the last paused first."""

    list_display = ("queue", "tenant", "since", "paused_by", "note", "switch")
    addable = True
    list_filter = (filters.fields(filters.TENANT),)

    @admin.display(description="Since")
    def since(self, pause: Any) -> SafeString | str:
        """Return since when it is paused."""
        return shown.instant(pause.paused_at, pause.now)

    @admin.display(description="")
    def switch(self, pause: Any) -> SafeString:
        """Return the way to end the pause."""
        address = reverse("admin:chrono_console_queuepause_resume", args=[pause.pk])
        return format_html('<a href="{}">Resume</a>', address)

    @override
    def get_urls(self) -> list[URLPattern]:
        return [
            path(
                "<int:pk>/resume/",
                self.admin_site.admin_view(self.resume_view),
                name="chrono_console_queuepause_resume",
            ),
            *super().get_urls(),
        ]

    @override
    def new_view(self, request: HttpRequest) -> HttpResponse:
        """Pause a queue."""

        def act(given: Any) -> tuple[str, str]:
            pauses.pause(
                raw_connection(),
                check_queue(given["queue"]),
                tenant=given["tenant"].pk,
                actor=actor_of(request),
                reason=given["reason"],
            )
            return f"The queue {given['queue']} is paused.", reverse(LIST)

        question = Question(
            title="Pause a queue?",
            text="None of the tenant's runs in it is handed out until it is resumed. "
            "What is running goes on.",
            button="Pause the queue",
            form=PauseForm,
            danger=True,
            initial={"tenant": DEFAULT_TENANT},
        )
        way = crumbs(self)
        return ask(request, self, question, way=way, act=act, back=reverse(LIST))

    def resume_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """End the pause of a queue."""
        pause = self.find(request, pk)

        def act(given: Any) -> tuple[str, str]:
            pauses.resume(
                raw_connection(),
                pause.queue,
                tenant=pause.tenant,
                actor=actor_of(request),
                reason=given["reason"],
            )
            return f"The queue {pause.queue} goes on.", reverse(LIST)

        question = Question(
            title=f"Resume the queue {pause.queue}?",
            text="The runs that it holds are handed out, the first due first.",
            button="Resume the queue",
        )
        way = crumbs(self)
        return ask(request, self, question, way=way, act=act, back=reverse(LIST))
