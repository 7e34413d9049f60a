"""The pages of a job's past: run a range again, say why, show how it was defined."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, override
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from apps.console import filters, shown, store
from apps.console.addresses import RUN, job_page, load_job, read_id
from apps.console.filters import Input
from apps.console.lists import KeysetAdmin, Listing, Page
from apps.console.pages import (
    InstantField,
    Question,
    ReasonForm,
    ask,
    blame,
    crumbs,
    fieldsets,
    render,
)
from apps.console.who import actor_of, now_of
from apps.jobs import backfill, explain
from apps.jobs import store as jobs
from apps.jobs.models import JobRevision
from apps.jobs.public import revised_fields
from apps.jobs.store import BackfillRow, Job, NumberedRevision
from apps.runs.selectors import state_of
from apps.runtime.django_session import raw_connection
from chrono.rules.errors import ChronoError
from chrono.rules.instants import DAY, MINUTE, SECOND, Millis, format_instant
from chrono.rules.keys import scheduled_for_of
from chrono.rules.schedule import schedule_from_json

PAGE = "chrono_jobs_job"
BACKFILLS = 5
ENDS = 10
"""How many of the first and of the last runs of a backfill are shown."""
MOST_DIFFERENCES = 100
LONGEST_VALUE = 300
BLAMED = {"from": "start", "to": "end"}


class BackfillForm(ReasonForm):
    """Which range, and how."""

    start = InstantField(label="From", help_text="In UTC; at most 30 days back.")
    end = InstantField(label="To", help_text="In UTC, itself not included.")
    order = forms.ChoiceField(
        choices=[("oldest", "oldest first"), ("newest", "newest first")]
    )
    reprocess = forms.ChoiceField(
        label="What has run already",
        choices=[
            ("none", "is passed over"),
            ("failed", "runs again if its last run failed"),
            ("completed", "runs again if its last run is over"),
        ],
    )
    rate = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=backfill.MOST_RATE,
        help_text="How many begin a second at most; the lane's own rate holds besides.",
    )
    field_order = ("start", "end", "order", "reprocess", "rate", "reason")

    def wanted(self) -> backfill.Range:
        """Return the range of a form that is valid. Raises BadValue."""
        given = self.cleaned_data
        return backfill.Range(
            **{name: given[name] for name in self.field_order if name != "reason"}
        )


class WhyForm(forms.Form):
    """Which instant."""

    at = InstantField()


def urls(model_admin: KeysetAdmin) -> list[URLPattern]:
    """Return the addresses of these pages, below a job's."""
    views: dict[str, tuple[str, Callable[..., HttpResponse]]] = {
        "backfill": ("backfill/", backfill_view),
        "backfill_cancel": ("backfill/<str:backfill_id>/cancel/", cancel_view),
        "why": ("why/", why_view),
    }
    wrap = model_admin.admin_site.admin_view
    return [
        path(
            f"<str:object_id>/{route}",
            wrap(partial(view, model_admin)),
            name=f"{PAGE}_{name}",
        )
        for name, (route, view) in views.items()
    ]


def backfill_view(
    model_admin: KeysetAdmin, request: HttpRequest, object_id: str
) -> HttpResponse:
    """Say what of a range would run; and once that was seen, run it."""
    job, now = load_job(object_id), now_of(request)
    foreseen = None
    if request.method == "POST":
        form = BackfillForm(request.POST)
        if form.is_valid():
            try:
                found, changed = _backfill(request, job, form)
            except ChronoError as error:
                blame(form, error, BLAMED)
            else:
                if found.id is not None:
                    many = _many(len(found.occurrences), "run")
                    messages.success(request, f"{many} will be let in by and by.")
                    return HttpResponseRedirect(f"{job_page(job.id)}#backfills")
                foreseen = _foreseen(found, form.wanted(), now, changed=changed)
    else:
        end = now // MINUTE * MINUTE
        form = BackfillForm(initial={"start": end - DAY, "end": end})
    return render(
        request,
        model_admin,
        "console/backfill.html",
        title=f"Run a range of the past of {job.key}?",
        way=crumbs(model_admin, (job.key, job_page(job.id)), ("Past", "")),
        status=422 if form.errors else 200,
        fieldsets=fieldsets(form, [(None, {"fields": list(form.fields)})]),
        foreseen=foreseen,
        back=job_page(job.id),
    )


def _backfill(
    request: HttpRequest, job: Job, form: BackfillForm
) -> tuple[backfill.Backfill, bool]:
    """Run a range if just this one was looked at, else only look; tell, too, whether
    it was changed since.
    """
    wanted, sure = form.wanted(), "_run" in request.POST
    changed = sure and request.POST.get("seen") != _fingerprint(wanted)
    found = backfill.backfill_job(
        job.id,
        wanted,
        dry_run=changed or not sure,
        actor=actor_of(request),
        reason=form.cleaned_data["reason"],
    )
    return found, changed


def _fingerprint(wanted: backfill.Range) -> str:
    fields = (wanted.start, wanted.end, wanted.order, wanted.reprocess, wanted.rate)
    return " ".join(map(str, fields))


def _foreseen(
    found: backfill.Backfill, wanted: backfill.Range, now: Millis, *, changed: bool
) -> dict[str, Any]:
    count = len(found.occurrences)
    rows = [(n, shown.instant(at, now)) for n, at in _ends(found.occurrences)]
    over = found.passed_over
    passed = f" {_many(over, 'occurrence')} of the range is passed over."
    if over > 1:
        passed = f" {_many(over, 'occurrence')} of the range are passed over."
    text = f"{_many(count, 'run')}." if count else "Nothing is to run."
    return {
        "count": count,
        "changed": changed,
        "text": text + (passed if over else ""),
        "first": rows[:ENDS],
        "between": max(0, count - 2 * ENDS),
        "last": rows[ENDS:],
        "seen": _fingerprint(wanted),
        "button": f"Run {'it' if count == 1 else f'these {count:,}'}",
    }


def _ends(moments: Sequence[Millis]) -> list[tuple[int, Millis]]:
    """Return the first and the last of some instants, numbered from one."""
    numbered = list(enumerate(moments, start=1))
    return numbered if len(numbered) <= 2 * ENDS else numbered[:ENDS] + numbered[-ENDS:]


def cancel_view(
    model_admin: KeysetAdmin, request: HttpRequest, object_id: str, backfill_id: str
) -> HttpResponse:
    """Call off what of a backfill still waits."""
    job, ident = load_job(object_id), read_id(backfill_id)
    found = jobs.list_backfills(raw_connection(), job=job.id, backfill=ident, limit=1)
    if not found:
        raise Http404
    here, [row] = job_page(job.id), found

    def act(given: Mapping[str, Any]) -> tuple[str, str]:
        count = backfill.cancel_backfill(
            job.id, ident, actor=actor_of(request), reason=given["reason"]
        )
        return f"{_many(count, 'run')} called off.", f"{here}#backfills"

    question = Question(
        title=f"Cancel a backfill of {job.key}?",
        text=f"Of its {_many(row.runs, 'run')} from {format_instant(row.start)} to "
        f"{format_instant(row.end)}, {row.waiting:,} still wait and are cancelled. "
        "What was let in goes on.",
        button="Cancel what waits",
        danger=True,
    )
    way = crumbs(model_admin, (job.key, here))
    return ask(request, model_admin, question, way=way, act=act, back=here)


def show_backfills(job: Job, now: Millis) -> dict[str, Any]:
    """Return a job's last backfills, for its page."""
    found = jobs.list_backfills(raw_connection(), job=job.id, limit=BACKFILLS + 1)
    return {
        "rows": [_shown(job, row, now) for row in found[:BACKFILLS]],
        "more": len(found) > BACKFILLS,
    }


def _shown(job: Job, row: BackfillRow, now: Millis) -> dict[str, Any]:
    ends: SafeString | str = ""
    if row.cancelled_at is not None:
        by = f"by {row.cancelled_by}" if row.cancelled_by else None
        ends = shown.state("cancelled", by)
    elif row.waiting and job.deleted_at is None:
        ends = shown.link(f"{PAGE}_backfill_cancel", "Cancel…", job.id, row.id)
    return {
        "made": shown.lines([shown.instant(row.created_at, now), row.created_by]),
        "range": shown.lines(
            [shown.instant(row.start, now), shown.instant(row.end, now)]
        ),
        "runs": f"{row.runs:,}",
        "waiting": f"{row.waiting:,}",
        "ends": ends,
    }


def why_view(
    model_admin: KeysetAdmin, request: HttpRequest, object_id: str
) -> HttpResponse:
    """Say why a job ran at an instant, or did not."""
    job, now = load_job(object_id), now_of(request)
    form, found = ask_why(job, now), None
    if "at" in request.GET:
        form = WhyForm(request.GET)
        if form.is_valid():
            found = explain.explain(
                raw_connection(),
                job.id,
                at=form.cleaned_data["at"],
                actor=actor_of(request),
                now=now,
            )
    return render(
        request,
        model_admin,
        "console/why.html",
        title=f"Why did {job.key} run, or not?",
        way=crumbs(model_admin, (job.key, job_page(job.id)), ("Why?", "")),
        status=422 if form.errors else 200,
        job=job,
        form=form,
        found=None if found is None else _explained(job, found, now),
    )


def ask_why(job: Job, now: Millis) -> WhyForm:
    """Return the form that asks for an instant: the job's last occurrence, at first."""
    return WhyForm(initial={"at": _last_occurrence(job, now)})


def why_link(job: UUID, text: object, at: Millis) -> SafeString:
    """Return a link to why a job ran at an instant, or did not."""
    query = urlencode({"at": format_instant(at)})
    return shown.link(f"{PAGE}_why", text, job, query=f"?{query}")


def _last_occurrence(job: Job, now: Millis) -> Millis:
    """Return the last since a job was made, by its schedule or by its last run; now
    where there is none.
    """
    try:
        schedule = schedule_from_json(job.definition.schedule)
        found = explain.last_before(schedule, now + 1)
    except ChronoError:
        found = None
    if found is not None and found >= job.created_at:
        return found
    last = jobs.list_last_runs(raw_connection(), jobs=[job]).get(job.id)
    return now // SECOND * SECOND if last is None else scheduled_for_of(last.run_id)


def _explained(job: Job, found: explain.Explanation, now: Millis) -> dict[str, Any]:
    word = found.verdict if found.run is None else state_of(found.run).label
    facts: list[tuple[str, object]] = [
        (name, why_link(job.id, shown.instant(at, now), at))
        for name, at in (
            ("Occurrence before", found.previous),
            ("Occurrence after", found.following),
        )
        if at is not None
    ]
    if found.run is not None:
        facts.insert(0, ("Run", shown.link(RUN, found.run.id, found.run.id)))
    return {
        "at": shown.instant(found.at, now),
        "badge": shown.state(word.replace("_", " "), found.reason),
        "text": found.text,
        "facts": facts,
    }


class RevisionAdmin(KeysetAdmin):
    """How one job was defined, newest first, each as what it changed."""

    list_display = ("number", "made", "changes")
    list_display_links = None
    list_per_page = 20
    list_filter = (filters.fields(Input(name="job", label="Job's id", kind="uuid")),)

    @override
    def has_module_permission(self, request: HttpRequest) -> bool:
        # Without a job there is nothing to list, so no menu leads here.
        return False

    @override
    def get_urls(self) -> list[URLPattern]:
        # A revision has no page of its own: the admin's would show its headers.
        listed = f"{self.opts.app_label}_{self.opts.model_name}_changelist"
        return [one for one in super().get_urls() if one.name == listed]

    @override
    def fetch(self, request: HttpRequest, cl: Listing, after: str | None) -> Page:
        ident = cl.asked("job")
        found = jobs.load_jobs(raw_connection(), jobs=[ident]) if ident else []
        if not found:
            cl.trouble = "Come here from a job, or give the id of one that there is."
            return Page(rows=(), next=None)
        [job], size = found, self.list_per_page
        newest = job.revision + 1
        made = jobs.list_revisions(
            raw_connection(),
            job=job.id,
            before=newest if after is None else max(0, min(int(after), newest)),
            limit=size + 1,
        )
        following = str(made[size - 1].number) if len(made) > size else None
        return Page(rows=_compared(job, made, cl.now)[:size], next=following)

    @admin.display(description="Revision")
    def number(self, one: Any) -> int:
        """Return its number."""
        return int(one.revision)

    @admin.display(description="Made")
    def made(self, one: Any) -> SafeString | str:
        """Return when it was made."""
        return shown.instant(one.made_at, one.now)

    @admin.display(description="What changed")
    def changes(self, one: Any) -> SafeString | str:
        """Return field by field how it was before, and is since."""
        found: list[shown.Difference] = one.differences
        if not found:
            return "Nothing that is shown."
        told = [_change(each, first=one.first) for each in found[:MOST_DIFFERENCES]]
        more = len(found) - MOST_DIFFERENCES
        return shown.lines([*told, f"… {more:,} more"] if more > 0 else told)


def _compared(
    job: Job, made: Sequence[NumberedRevision], now: Millis
) -> list[JobRevision]:
    """Return revisions, newest first, each beside the one that follows it here."""
    payloads = store.list_payloads(
        raw_connection(), job=job.id, revisions=[one.number for one in made]
    )

    def fields(
        one: NumberedRevision, other: NumberedRevision | None = None
    ) -> dict[str, Any]:
        known = None if other is None else other.definition
        found = revised_fields(job, one.definition, known)
        return {**found, "payload": payloads.get(one.number)}

    rows = []
    for one, before in zip_longest(made, made[1:]):
        row: Any = JobRevision(revision=one.number)
        row.made_at, row.now, row.first = one.created_at, now, before is None
        if before is None:
            own = {
                name: value for name, value in fields(one).items() if value is not None
            }
            row.differences = shown.differences(None, own)
        else:
            row.differences = shown.differences(fields(before), fields(one, before))
        rows.append(row)
    return rows


def _change(one: shown.Difference, *, first: bool) -> SafeString:
    after = format_html(
        '<span class="chrono-after">{}</span>', _brief(one.after) or shown.NOTHING
    )
    if first:
        return format_html("<code>{}</code>: {}", one.path, after)
    before = format_html(
        '<span class="chrono-before">{}</span>', _brief(one.before) or shown.NOTHING
    )
    return format_html("<code>{}</code>: {} → {}", one.path, before, after)


def _brief(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
