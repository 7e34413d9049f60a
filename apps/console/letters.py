"""The pages of dead letters: found, run again, discarded, and noted on."""

from collections.abc import Callable, Mapping
from typing import Any, override
from uuid import UUID

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from apps.console import filters, shown
from apps.console.addresses import JOB, RUN, read_id
from apps.console.filters import Input
from apps.console.lists import KeysetAdmin, Listing, Page
from apps.console.models import DeadLetter
from apps.console.pages import (
    LONGEST_REASON,
    Act,
    Question,
    ReasonForm,
    ask,
    ask_of_several,
    chosen_of,
    crumbs,
    render,
)
from apps.console.who import actor_of, now_of
from apps.jobs.rerun import Redriven, Wanted, redrive
from apps.runs import letters
from apps.runs.errors import LetterNotFound
from apps.runs.letter_store import Letter
from apps.runs.letters import LetterFilter
from apps.runtime.django_session import raw_connection
from chrono.rules.instants import format_instant
from chrono.rules.keys import scheduled_for_of
from chrono.rules.states import Reason

REASONS = [one.label for one in Reason]
LETTER = "chrono_console_deadletter"
MOST_NAMED = 50
"""How many letters a question names one by one."""


class RedriveForm(ReasonForm):
    """Where, and how fast."""

    queue = forms.CharField(
        required=False, max_length=64, help_text="Another queue than that of the job."
    )
    rate = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=1_000,
        help_text="How many begin a second; the catch-up lane has a rate of its own, "
        "besides.",
    )
    field_order = ("queue", "rate", "reason")


class DiscardForm(forms.Form):
    """Why nothing is to be done about it."""

    note = forms.CharField(
        max_length=LONGEST_REASON,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text="Why nothing is to be done about it.",
    )


class NoteForm(forms.Form):
    """What is known about it."""

    note = forms.CharField(
        required=False,
        max_length=LONGEST_REASON,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text="In place of the one there is; empty takes it away.",
    )


class DeadLetterAdmin(KeysetAdmin):
    """What used up its attempts, of one tenant, newest first."""

    list_display = ("died", "job", "why", "stands", "attempt", "queue", "last_error")
    list_display_links = None
    actions = ("redrive_selected", "discard_selected")
    change_list_template = "console/dead_letters.html"
    list_filter = (
        filters.fields(
            filters.ONE_TENANT,
            filters.words("state", "State", [*letters.STATES, "all"], default="open"),
            filters.words("reason", "Reason", REASONS),
            Input(name="queue", label="Queue"),
            Input(name="target", label="Target"),
            Input(name="tag", label="Tag", kind="tag"),
            Input(name="since", label="Died from (UTC)", kind="instant"),
            Input(name="until", label="before (UTC)", kind="instant"),
            Input(name="job", label="Job's id", kind="uuid"),
        ),
    )

    @override
    def fetch(self, request: HttpRequest, cl: Listing, after: str | None) -> Page:
        page = letters.list_letters(
            raw_connection(),
            tenant=cl.asked("tenant"),
            wanted=_wanted(cl),
            before=None if after is None else UUID(hex=after),
            limit=self.list_per_page,
        )
        rows = []
        for letter in page.letters:
            row = DeadLetter(id=letter.run_id)
            row.letter, row.now = letter, cl.now  # type: ignore[attr-defined]
            rows.append(row)
        return Page(rows=rows, next=None if page.next is None else page.next.hex)

    @admin.display(description="Died")
    def died(self, row: Any) -> SafeString:
        """Return when, as a link to its page."""
        text = shown.instant(row.letter.died_at, row.now)
        return shown.link(f"{LETTER}_change", text, row.id)

    @admin.display(description="Job")
    def job(self, row: Any) -> SafeString:
        """Return the job's key."""
        return shown.link(JOB, row.letter.job_key, row.letter.job_id)

    @admin.display(description="Reason")
    def why(self, row: Any) -> str:
        """Return why it died."""
        return Reason(row.letter.reason).label.replace("_", " ")

    @admin.display(description="State")
    def stands(self, row: Any) -> SafeString | str:
        """Return what was done about it."""
        word = letters.state_of(row.letter)
        if row.letter.rerun_id is None:
            return word
        return shown.link(RUN, word, row.letter.rerun_id)

    @admin.display(description="Attempts")
    def attempt(self, row: Any) -> int:
        """Return how many attempts it had."""
        return int(row.letter.attempt)

    @admin.display(description="Queue")
    def queue(self, row: Any) -> str:
        """Return its queue."""
        return str(row.letter.queue)

    @admin.display(description="Last error")
    def last_error(self, row: Any) -> str:
        """Return the first line of the last error."""
        line: str = row.letter.error.split("\n", 1)[0][:160]
        return line or shown.NOTHING

    @admin.action(description="Run the selected ones again…")
    def redrive_selected(
        self, request: HttpRequest, queryset: QuerySet[DeadLetter]
    ) -> HttpResponse:
        """Run several again, once that is confirmed."""
        ids = chosen_of(request)

        def act(given: Mapping[str, Any]) -> str:
            tenant = _tenant_of(ids)
            return _told(
                redrive(
                    Wanted(ids=ids, **_how(given)),
                    tenant=tenant,
                    actor=actor_of(request),
                    reason=given["reason"],
                )
            )

        return self._several(request, ids, "Run again", RedriveForm, act)

    @admin.action(description="Discard the selected ones…")
    def discard_selected(
        self, request: HttpRequest, queryset: QuerySet[DeadLetter]
    ) -> HttpResponse:
        """Close several, once that is confirmed."""
        ids = chosen_of(request)

        def act(given: Mapping[str, Any]) -> str:
            count = letters.discard(
                raw_connection(), ids, note=given["note"], actor=actor_of(request)
            )
            return f"{count} discarded."

        return self._several(request, ids, "Discard", DiscardForm, act)

    def _several(
        self,
        request: HttpRequest,
        ids: tuple[UUID, ...],
        verb: str,
        form: type[forms.Form],
        act: Callable[[Mapping[str, Any]], str],
    ) -> HttpResponse:
        found = letters.load(raw_connection(), ids, tenant=None)
        question = Question(
            title=f"{verb}: {len(ids)} dead {_letters(len(ids))}?",
            button=verb,
            form=form,
            danger=form is DiscardForm,
            items=[_name(found[one]) for one in ids if one in found],
        )
        return ask_of_several(request, self, question, rows=ids, act=act)

    @override
    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        own = [
            path("redrive/", wrap(self.redrive_view), name=f"{LETTER}_redrive"),
            path(
                "<str:object_id>/redrive/",
                wrap(self.redrive_one_view),
                name=f"{LETTER}_redrive_one",
            ),
            path(
                "<str:object_id>/discard/",
                wrap(self.discard_view),
                name=f"{LETTER}_discard",
            ),
            path("<str:object_id>/note/", wrap(self.note_view), name=f"{LETTER}_note"),
        ]
        return [*own, *super().get_urls()]

    def redrive_view(self, request: HttpRequest) -> HttpResponse:
        """Run what a filter fits again, once it was said how much and which."""
        listed = reverse(f"admin:{LETTER}_changelist")
        if query := request.META.get("QUERY_STRING", ""):
            listed = f"{listed}?{query}"
        cl = self.get_changelist_instance(request)
        if not isinstance(cl, Listing) or cl.trouble:
            raise Http404
        wanted, tenant = _wanted(cl, living=True), cl.asked("tenant")
        looked = redrive(
            Wanted(filter=wanted),
            tenant=tenant,
            dry_run=True,
            actor=actor_of(request),
        )

        def act(given: Mapping[str, Any]) -> tuple[str, str]:
            made = redrive(
                Wanted(filter=wanted, **_how(given)),
                tenant=tenant,
                actor=actor_of(request),
                reason=given["reason"],
            )
            return _told(made), listed

        count = len(looked.letters)
        names = [_name(letter) for letter in looked.letters[:MOST_NAMED]]
        if count > MOST_NAMED:
            names.append(f"… and {count - MOST_NAMED} more")
        question = Question(
            title=f"Run again: {count} dead {_letters(count)}?",
            text="All open ones that the list's filter fits now, up to 1,000"
            + (", and more of them are left then." if looked.more else ".")
            + " They wait in the catch-up lane, the oldest first.",
            button="Run again",
            form=RedriveForm,
            items=names,
        )
        return ask(request, self, question, way=crumbs(self), act=act, back=listed)

    def redrive_one_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Run one again, which its run's page cannot once that is gone."""
        run = read_id(object_id)

        def act(given: Mapping[str, Any]) -> tuple[str, str]:
            made = redrive(
                Wanted(ids=(run,), **_how(given)),
                tenant=_tenant_of((run,)),
                actor=actor_of(request),
                reason=given["reason"],
            )
            return _told(made), reverse(f"admin:{RUN}", args=[made.runs[0]])

        question = Question(
            title="Run a dead letter again?",
            text="As a new run of the same occurrence, in the catch-up lane, with the "
            "letter's payload. For another payload run its run again.",
            button="Run again",
            form=RedriveForm,
        )
        return self._ask(request, run, question, act)

    def discard_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Close one."""
        run = read_id(object_id)

        def act(given: Mapping[str, Any]) -> tuple[str, str]:
            letters.discard(
                raw_connection(), [run], note=given["note"], actor=actor_of(request)
            )
            return "It is discarded.", _page(run)

        question = Question(
            title="Discard a dead letter?",
            text="The run stays dead; the letter leaves the list of open ones.",
            button="Discard",
            form=DiscardForm,
            danger=True,
        )
        return self._ask(request, run, question, act)

    def note_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Put a note on one."""
        run = read_id(object_id)
        found = letters.load(raw_connection(), [run], tenant=None).get(run)
        if found is None:
            raise Http404

        def act(given: Mapping[str, Any]) -> tuple[str, str]:
            letters.write_note(
                raw_connection(), run, note=given["note"], actor=actor_of(request)
            )
            return "The note is kept.", _page(run)

        question = Question(
            title="Note on a dead letter",
            text="Earlier notes are in the audit.",
            button="Keep the note",
            form=NoteForm,
            initial={"note": found.note or ""},
        )
        return self._ask(request, run, question, act)

    def _ask(
        self, request: HttpRequest, run: UUID, question: Question, act: Act
    ) -> HttpResponse:
        here = _page(run)
        way = crumbs(self, (str(run), here))
        return ask(request, self, question, way=way, act=act, back=here)

    @override
    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show one dead letter."""
        now = now_of(request)
        try:
            letter, payload, errors = letters.get_letter(
                raw_connection(), read_id(object_id), tenant=None
            )
        except LetterNotFound:
            raise Http404 from None
        rerun = letter.rerun_id
        return render(
            request,
            self,
            "console/dead_letter.html",
            title=f"Dead letter of {letter.job_key}",
            way=crumbs(self, (str(letter.run_id), "")),
            letter=letter,
            state=letters.state_of(letter),
            closed=shown.instant(letter.closed_at, now),
            noted=shown.instant(letter.noted_at, now),
            rerun=None if rerun is None else shown.link(RUN, rerun, rerun),
            run_link=shown.link(RUN, letter.run_id, letter.run_id),
            job_link=shown.link(JOB, letter.job_key, letter.job_id),
            died=shown.instant(letter.died_at, now),
            why=Reason(letter.reason).label.replace("_", " "),
            errors=_errors(errors),
            payload=shown.json_text(payload),
        )


def _page(run: UUID) -> str:
    return reverse(f"admin:{LETTER}_change", args=[run])


def _wanted(cl: Listing, *, living: bool = False) -> LetterFilter:
    """Return what the list is narrowed by; for a redrive, of it what is open."""
    state, reason = cl.asked("state"), cl.asked("reason")
    word = "open" if living else state
    return LetterFilter(
        state=next((one for one in letters.STATES if one == word), None),
        job=cl.asked("job"),
        target=cl.asked("target"),
        reason=Reason[reason.upper()] if reason else None,
        queue=cl.asked("queue"),
        tag=cl.asked("tag"),
        since=cl.asked("since"),
        until=cl.asked("until"),
        living=living,
    )


def _tenant_of(ids: tuple[UUID, ...]) -> int:
    """Return whose letters these are: a list shows those of one tenant."""
    found = letters.load(raw_connection(), ids[:1], tenant=None)
    if not found:
        raise LetterNotFound
    return found[ids[0]].tenant


def _how(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"queue": given["queue"] or None, "rate": given["rate"]}


def _told(made: Redriven) -> str:
    count = len(made.runs)
    more = " There are more: repeat it." if made.more else ""
    return f"{count} dead {_letters(count)} run again, in the catch-up lane.{more}"


def _letters(count: int) -> str:
    return "letter" if count == 1 else "letters"


def _name(letter: Letter) -> str:
    return f"{letter.job_key}, {format_instant(scheduled_for_of(letter.run_id))}"


def _errors(stored: Any) -> list[dict[str, Any]]:
    """Return the errors of a dead letter, one of an unknown shape as it is."""
    if not isinstance(stored, list):
        return [{"attempt": "", "reason": "", "error": shown.json_text(stored)}]
    found = []
    for one in stored:
        fields = one if isinstance(one, dict) else {"error": shown.json_text(one)}
        reason = fields.get("reason")
        word = ""
        if isinstance(reason, int) and reason in Reason:
            word = Reason(reason).label.replace("_", " ")
        found.append(
            {
                "attempt": fields.get("attempt", ""),
                "reason": word,
                "finished_at": fields.get("finished_at", ""),
                "error": shown.cut(str(fields.get("error") or "")),
                "log": shown.cut(str(fields.get("log") or "")),
            }
        )
    return found
