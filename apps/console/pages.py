"""Pages of our own inside the admin's frame, and the one that asks before it acts."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast, override
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME, AdminForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from apps.console.addresses import read_id
from apps.console.filters import read_instant
from apps.console.lists import Base
from apps.console.names import plural
from chrono.rules.errors import ChronoError
from chrono.rules.instants import Millis, format_instant

LONGEST_REASON = 1_000

type Crumb = tuple[str, str]
"""A text and an address; the last one's is empty."""


class InstantField(forms.Field):
    """An instant in UTC; its value is `Millis`, or None where it is left out."""

    widget = forms.TextInput(attrs={"type": "datetime-local", "step": "1"})

    @override
    def to_python(self, value: Any) -> Millis | None:
        text = str(value or "").strip()
        if not text:
            return None
        try:
            return read_instant(text)
        except ChronoError as error:
            raise forms.ValidationError(error.message) from None

    @override
    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, str):
            # The browser's field takes no zone, which an address may well have.
            with contextlib.suppress(ChronoError):
                value = read_instant(value.strip())
        return format_instant(value)[:-1] if isinstance(value, int) else value


class ReasonForm(forms.Form):
    """Why something is done, for the audit."""

    reason = forms.CharField(
        required=False,
        max_length=LONGEST_REASON,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text="Optional; it is kept in the audit.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a page asks before something is done."""

    title: str
    text: str = ""
    button: str
    form: type[forms.Form] = ReasonForm
    danger: bool = False
    items: Sequence[str] = ()
    """The names of what it is done to, where that is several."""
    hidden: Sequence[tuple[str, str]] = ()
    """Fields that come back as they are."""
    initial: Mapping[str, Any] = field(default_factory=dict)


type Act = Callable[[Mapping[str, Any]], tuple[str, str] | HttpResponse]
"""Does it with the form's values; returns what to say and where to go, or a page."""


def crumbs(model_admin: Base, *more: Crumb) -> list[Crumb]:
    """Return the way to a page of a model."""
    opts = model_admin.opts
    listed = reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist")
    start = [
        ("Home", reverse("admin:index")),
        (plural(opts), listed),
    ]
    return [*start, *more]


def render(
    request: HttpRequest,
    model_admin: Base,
    template: str,
    *,
    title: str,
    way: Sequence[Crumb],
    status: int = 200,
    **context: Any,
) -> TemplateResponse:
    """Return a page in the admin's frame."""
    request.current_app = model_admin.admin_site.name
    return TemplateResponse(
        request,
        template,
        {
            **model_admin.admin_site.each_context(request),
            "opts": model_admin.opts,
            "title": title,
            "way": way,
            **context,
        },
        status=status,
    )


def ask(
    request: HttpRequest,
    model_admin: Base,
    question: Question,
    *,
    way: Sequence[Crumb],
    act: Act,
    back: str,
    bound: bool | None = None,
) -> HttpResponse:
    """Ask; and once that is answered, do it, say so and go on.

    What refuses it is said beside its field. ``bound`` tells whether the form was sent,
    where the method does not.
    """
    sent = request.method == "POST" if bound is None else bound
    form = (
        question.form(request.POST)
        if sent
        else question.form(initial=dict(question.initial))
    )
    if sent and form.is_valid():
        try:
            done = act(form.cleaned_data)
        except ChronoError as error:
            blame(form, error)
        else:
            if isinstance(done, HttpResponse):
                return done
            said, where = done
            messages.success(request, said)
            return HttpResponseRedirect(where)
    return render(
        request,
        model_admin,
        "console/ask.html",
        title=question.title,
        way=[*way, (question.button, "")],
        status=422 if sent else 200,
        question=question,
        fieldsets=fieldsets(form, [(None, {"fields": list(form.fields)})]),
        back=back,
    )


def ask_of_several(
    request: HttpRequest,
    model_admin: Base,
    question: Question,
    *,
    rows: Iterable[UUID],
    act: Callable[[Mapping[str, Any]], str],
) -> HttpResponse:
    """Ask about rows that were chosen in a list, as an action of it; then back to it.

    ``act`` returns what to say. The answer comes back as the same action of the list.
    """
    listed = request.get_full_path()
    asked = replace(
        question,
        text="All of them, or none where one refuses.",
        hidden=[
            ("action", request.POST.get("action", "")),
            ("confirmed", "yes"),
            *((ACTION_CHECKBOX_NAME, str(row)) for row in rows),
        ],
    )
    return ask(
        request,
        model_admin,
        asked,
        way=crumbs(model_admin),
        act=lambda given: (act(given), listed),
        back=listed,
        bound="confirmed" in request.POST,
    )


def chosen_of(request: HttpRequest) -> tuple[UUID, ...]:
    """Return the ids of the rows that were chosen in a list. Raises Http404."""
    return tuple(read_id(text) for text in request.POST.getlist(ACTION_CHECKBOX_NAME))


def fieldsets(form: forms.Form, groups: Sequence[tuple[str | None, Any]]) -> AdminForm:
    """Return a form in the admin's groups; any form has all that these look at."""
    return AdminForm(cast(Any, form), cast(Any, groups), {})


def blame(
    form: forms.Form, error: ChronoError, names: Mapping[str, str] | None = None
) -> None:
    """Put an error beside the field it names, or on top where that is none of these."""
    named = error.field or ""
    for known, own in (names or {}).items():
        if named == known or named.startswith((f"{known}.", f"{known}[")):
            named = own
            break
    form.add_error(named if named in form.fields else None, error.message)
