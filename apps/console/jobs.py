"""The pages of jobs: the list, the form with its preview, and what is done to them."""

import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, override
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.db.models import F, FilteredRelation, Func, Q, QuerySet, TextField, Value
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from apps.console import filters, past, shown
from apps.console.addresses import RUN, job_page, load_job
from apps.console.filters import Input
from apps.console.job_form import (
    BLAMED,
    JobForm,
    initial_of,
    initial_of_new,
    read_json,
    zones,
)
from apps.console.lists import KeysetAdmin, Listing, Page
from apps.console.pages import (
    InstantField,
    Question,
    ReasonForm,
    ask,
    ask_of_several,
    blame,
    chosen_of,
    crumbs,
    fieldsets,
    render,
)
from apps.console.who import actor_of, now_of
from apps.jobs import commands, insights, watch_store
from apps.jobs.definition import parse_schedule
from apps.jobs.forecast import MOST_LOAD, measure_load
from apps.jobs.manual import UNSET, run_now
from apps.jobs.models import Job as JobRow
from apps.jobs.selectors import PAST_EVENT, read_jobs
from apps.jobs.store import Job, LongRuns
from apps.runtime.django_session import raw_connection
from apps.tenants.actor import Actor
from apps.tenants.directory import find_timezone
from apps.tenants.models import Tenant
from chrono.rules import lint, policy, words
from chrono.rules.durations import format_duration
from chrono.rules.errors import ChronoError
from chrono.rules.instants import Millis, format_instant, parse_instant
from chrono.rules.preview import Foreseen, foresee
from chrono.rules.schedule import schedule_from_json
from chrono.rules.watch import WatchKind

PAGE = "chrono_jobs_job"
FIRES = 10
BREACHES = 10
EVENTS = 10
WATCHED = {
    WatchKind.LATE: "A run has not begun",
    WatchKind.LONG: "An attempt takes too long",
    WatchKind.NO_SUCCESS: "No success for too long",
}
RUNS_LONG = format_html(
    '<span class="chrono-state chrono-bad">{}</span>', "longer than its period"
)


class PauseForm(ReasonForm):
    """Why and until when."""

    note = forms.CharField(
        required=False,
        max_length=commands.LONGEST_NOTE,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text="Shown beside the job while it is paused.",
    )
    until = InstantField(
        required=False,
        help_text="In UTC; then it goes on by itself. Left out: until it is resumed.",
    )
    field_order = ("note", "until", "reason")


class RunForm(ReasonForm):
    """With which payload."""

    payload = forms.CharField(
        required=False,
        max_length=300_000,
        widget=forms.Textarea(attrs={"rows": 8, "class": "vLargeTextField"}),
        help_text="JSON, for this run alone; the job's own where left out.",
    )
    key = forms.CharField(widget=forms.HiddenInput, max_length=60)
    field_order = ("payload", "reason", "key")


class SkipForm(ReasonForm):
    """How many."""

    count = forms.IntegerField(
        min_value=1, max_value=commands.LONGEST_SKIP, initial=1, label="How many"
    )
    field_order = ("count", "reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """A job, and who does something to it."""

    job: Job
    actor: Actor
    given: Mapping[str, Any]

    @property
    def by(self) -> dict[str, Any]:
        """Return what every command takes."""
        return {"actor": self.actor, "reason": self.given["reason"]}


def _pause(doing: Doing) -> str:
    commands.pause_job(
        doing.job.id,
        note=doing.given["note"],
        until=doing.given["until"],
        **doing.by,
    )
    return "The job is paused."


def _resume(doing: Doing) -> str:
    commands.resume_job(doing.job.id, **doing.by)
    return "The job goes on."


def _skip(doing: Doing) -> str:
    done = commands.skip_next(doing.job.id, count=doing.given["count"], **doing.by)
    return f"Skipped: {', '.join(map(format_instant, done.skipped))}."


def _delete(doing: Doing) -> str:
    commands.delete_job(doing.job.id, **doing.by)
    return "The job is deleted. It can be restored from here."


def _restore(doing: Doing) -> str:
    commands.restore_job(doing.job.id, **doing.by)
    return "The job is back, paused: resume it when it shall run."


DEEDS: dict[str, tuple[Question, Any]] = {
    "pause": (
        Question(
            title="Pause {key}?",
            text="No run of its schedule follows until it is resumed. Paused time is "
            "never made up for. Runs that are waiting or running go on.",
            button="Pause",
            form=PauseForm,
        ),
        _pause,
    ),
    "resume": (
        Question(
            title="Resume {key}?",
            text="It is planned from now on; what fell into the pause is not made up.",
            button="Resume",
        ),
        _resume,
    ),
    "skip": (
        Question(
            title="Skip what {key} would do next?",
            text="The occurrences are recorded as skipped; nothing before the last of "
            "them is planned any more.",
            button="Skip",
            form=SkipForm,
        ),
        _skip,
    ),
    "delete": (
        Question(
            title="Delete {key}?",
            text="It fires no more, and its waiting runs are cancelled. Its history "
            "stays, its key is free, and it can be restored.",
            button="Delete",
            danger=True,
        ),
        _delete,
    ),
    "restore": (
        Question(
            title="Restore {key}?",
            text="It comes back paused.",
            button="Restore",
        ),
        _restore,
    ),
}
"""What is asked before each deed, and what then does it."""


class JobAdmin(KeysetAdmin):
    """Jobs of all tenants, the last made first."""

    list_display = ("named", "stands", "when", "next_run", "last_run", "calls")
    list_display_links = None
    addable = True
    search_fields = ("key",)
    search_help_text = "key, name, tag, id, address, task or cron text"
    actions = ("pause_selected", "resume_selected")
    list_filter = (
        filters.fields(
            filters.words("state", "State", ["active", "paused", "deleted"]),
            filters.words(
                "kind", "Schedule", ["cron", "interval", "fixed_delay", "once"]
            ),
            Input(name="queue", label="Queue", column="current__queue"),
            Input(name="tag", label="Tag", kind="tag"),
            filters.TENANT,
        ),
    )

    @override
    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return True

    @override
    def get_queryset(self, request: HttpRequest) -> QuerySet[JobRow]:
        in_force = FilteredRelation(
            "jobrevision", condition=Q(jobrevision__revision=F("revision"))
        )
        rows: QuerySet[JobRow] = super().get_queryset(request)
        words = Func(
            "tags",
            Value(" "),
            function="array_to_string",
            output_field=TextField(),
        )
        return rows.alias(current=in_force, tag_words=words)

    @override
    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[JobRow], search_term: str
    ) -> tuple[QuerySet[JobRow], bool]:
        term = search_term.strip().replace("\0", "")[:200]
        if not term:
            return queryset, False
        found = Q()
        for column in (
            "key",
            "name",
            "tag_words",
            "current__target__url",
            "current__target__name",
            "current__schedule__cron",
            "current__schedule__written",
        ):
            found |= Q(**{f"{column}__icontains": term})
        with contextlib.suppress(ValueError):
            found |= Q(pk=UUID(term))
        return queryset.filter(found), False

    @override
    def fetch(self, request: HttpRequest, cl: Listing, after: str | None) -> Page:
        rows = cl.queryset
        state, kind, tag = cl.asked("state"), cl.asked("kind"), cl.asked("tag")
        rows = rows.filter(deleted_at__isnull=state != "deleted")
        if state in ("active", "paused"):
            rows = rows.filter(paused=state == "paused")
        if kind:
            name = "run_at" if kind == "once" else kind
            rows = rows.filter(current__schedule__has_key=name)
        if tag:
            rows = rows.filter(tags__contains=[tag])
        cl.queryset = rows
        page = super().fetch(request, cl, after)
        found = read_jobs(
            raw_connection(),
            [row.pk for row in page.rows],
            actor=actor_of(request),
            runs=1,
            now=cl.now,
        )
        public = {UUID(one["id"]): one for one in found}
        long_runs = _long_runs(public, cl.now)
        for row in page.rows:
            row.public = public[row.pk]  # type: ignore[attr-defined]
            row.runs_long = row.pk in long_runs  # type: ignore[attr-defined]
        return page

    @admin.display(description="Job")
    def named(self, job: Any) -> SafeString:
        """Return name and key, as a link, and the tags."""
        text = job.key
        if job.name:
            text = format_html("{}<br><code>{}</code>", job.name, job.key)
        link = shown.link(f"{PAGE}_change", text, job.pk)
        return format_html("{}<br>{}", link, _tags(job.tags)) if job.tags else link

    @admin.display(description="State")
    def stands(self, job: Any) -> SafeString:
        """Return whether it fires, and why not."""
        note = job.public["pause_note"] if job.paused else None
        return shown.state(job.public["state"], note[:80] if note else None)

    @admin.display(description="Schedule")
    def when(self, job: Any) -> SafeString | str:
        """Return the schedule as a sentence, over what was written."""
        given = (job.public.get(kind) for kind in ("cron", "interval", "fixed_delay"))
        written = next(filter(None, given), "")
        told = format_html(
            '{}<br><code class="quiet">{}</code>',
            job.public["schedule_text"].split(", counted from ")[0],
            written,
        )
        return format_html("{}<br>{}", told, RUNS_LONG) if job.runs_long else told

    @admin.display(description="Next run")
    def next_run(self, job: Any) -> SafeString | str:
        """Return its next nominal instant."""
        moment, left = job.public["next_run_at"], job.public["runs_left"]
        told = shown.NOTHING if moment is None else _instant(moment, job.now)
        return told if left is None else _over(told, _runs_left(left))

    @admin.display(description="Last run")
    def last_run(self, job: Any) -> SafeString | str:
        """Return how its last run went, as a link to it."""
        last, counts = job.public["last_run"], _counts(job.public)
        told = shown.NOTHING
        if last is not None:
            told = shown.link(RUN, _last(last), last["id"])
        return _over(told, counts) if counts else told

    @admin.display(description="Target")
    def calls(self, job: Any) -> str:
        """Return what it calls."""
        return (
            shown.NOTHING if job.public is None else shown.target(job.public["target"])
        )

    @admin.action(description="Pause the selected jobs…")
    def pause_selected(
        self, request: HttpRequest, queryset: QuerySet[JobRow]
    ) -> HttpResponse:
        """Pause several jobs, once that is confirmed."""

        def act(given: Mapping[str, Any]) -> str:
            outcomes = commands.pause_jobs(
                chosen_of(request),
                note=given["note"],
                until=given["until"],
                actor=actor_of(request),
                reason=given["reason"],
            )
            return _told(outcomes, "paused")

        return self._several(request, queryset, "Pause", PauseForm, act)

    @admin.action(description="Resume the selected jobs…")
    def resume_selected(
        self, request: HttpRequest, queryset: QuerySet[JobRow]
    ) -> HttpResponse:
        """Resume several jobs, once that is confirmed."""

        def act(given: Mapping[str, Any]) -> str:
            outcomes = commands.resume_jobs(
                chosen_of(request), actor=actor_of(request), reason=given["reason"]
            )
            return _told(outcomes, "resumed")

        return self._several(request, queryset, "Resume", ReasonForm, act)

    def _several(
        self,
        request: HttpRequest,
        queryset: QuerySet[JobRow],
        verb: str,
        form: type[forms.Form],
        act: Callable[[Mapping[str, Any]], str],
    ) -> HttpResponse:
        rows = list(queryset.values_list("pk", "key").order_by("key"))
        question = Question(
            title=f"{verb} {len(rows)} {'job' if len(rows) == 1 else 'jobs'}?",
            button=verb,
            form=form,
            items=[key for _, key in rows],
        )
        chosen = [pk for pk, _ in rows]
        return ask_of_several(request, self, question, rows=chosen, act=act)

    @override
    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        own = [
            path(
                f"<str:object_id>/{verb}/",
                wrap(self.deed_view),
                {"verb": verb},
                name=f"{PAGE}_{verb}",
            )
            for verb in DEEDS
        ]
        run = path("<str:object_id>/run/", wrap(self.run_view), name=f"{PAGE}_run")
        return [*own, run, *past.urls(self), *super().get_urls()]

    def deed_view(
        self, request: HttpRequest, object_id: str, verb: str
    ) -> HttpResponse:
        """Ask for and do one of the deeds."""
        job, (question, deed) = load_job(object_id), DEEDS[verb]
        here = job_page(job.id)

        def act(given: Mapping[str, Any]) -> tuple[str, str]:
            return deed(Doing(job=job, actor=actor_of(request), given=given)), here

        asked = Question(
            title=question.title.format(key=job.key),
            text=question.text,
            button=question.button,
            form=question.form,
            danger=question.danger,
            initial={"note": job.pause_note},
        )
        way = crumbs(self, (job.key, here))
        return ask(request, self, asked, way=way, act=act, back=here)

    def run_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Run a job at once."""
        job = load_job(object_id)
        here = job_page(job.id)

        def act(given: Mapping[str, Any]) -> tuple[str, str]:
            text = given["payload"]
            ref = run_now(
                job.id,
                payload=read_json(text) if text.strip() else UNSET,
                request_key=given["key"],
                actor=actor_of(request),
                reason=given["reason"],
                beside=False,
            )
            return "The run is on its way.", reverse(f"admin:{RUN}", args=[ref.run_id])

        question = Question(
            title=f"Run {job.key} now?",
            text="Beside its schedule, whether it is paused and whatever of it runs.",
            button="Run now",
            form=RunForm,
            # Sent twice, the form makes one run.
            initial={"key": secrets.token_urlsafe(16)},
        )
        way = crumbs(self, (job.key, here))
        return ask(request, self, question, way=way, act=act, back=here)

    @override
    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show a job with its form, or the form of a new one."""
        job = None if object_id is None else load_job(object_id)
        source = _source(request) if job is None else None
        foreseen = None
        if request.method == "POST":
            form = JobForm(request.POST, job=job, source=source)
            answer = self._save(request, form)
            if answer is not None:
                return answer
            given = form.schedule_fields()
            foreseen = _foresee(
                given,
                job,
                now_of(request),
                tenant=form.tenant_id(),
                besides=form.surprises(),
            )
        else:
            form = JobForm(initial=_initial(job, source), job=job, source=source)
            if (old := form.old) is not None:
                given = _own_schedule(old)
                foreseen = _foresee(
                    given,
                    job,
                    now_of(request),
                    tenant=old.tenant,
                    besides=lint.of_delivery(
                        old.tags, str(old.definition.policy.get("delivery"))
                    ),
                )
        title = "Add a job" if job is None else (job.name or job.key)
        return render(
            request,
            self,
            "console/job.html",
            title=title,
            way=crumbs(self, ("Add" if job is None else job.key, "")),
            status=422 if form.errors else 200,
            job=job,
            summary=None
            if job is None
            else _summary(job, actor_of(request), now_of(request)),
            fieldsets=fieldsets(form, form.groups()),
            form=form,
            zones=zones(),
            foreseen=foreseen,
            watched=None if job is None else _watched(job, now_of(request)),
            why=None if job is None else past.ask_why(job, now_of(request)),
            backfills=None
            if job is None
            else past.show_backfills(job, now_of(request)),
        )

    def _save(self, request: HttpRequest, form: JobForm) -> HttpResponse | None:
        """Save, if that was asked for; None where the form is shown again."""
        form.is_valid()
        definition = form.definition()
        if definition is None or "_save" not in request.POST:
            return None
        given, job = form.cleaned_data, form.job
        by: dict[str, Any] = {"actor": actor_of(request), "reason": given["reason"]}
        try:
            if job is None:
                tenant = int(given["tenant"])
                outcome = commands.create_job(definition, tenant=tenant, **by)
            else:
                outcome = commands.change_job(
                    job.id, definition, if_match=given["version"], **by
                )
        except ChronoError as error:
            blame(form, error, BLAMED)
            return None
        done = "created" if job is None else " and ".join(outcome.actions)
        messages.success(request, f"The job {outcome.key} is {done}.")
        return HttpResponseRedirect(
            reverse(f"admin:{PAGE}_change", args=[outcome.job_id])
        )


def _source(request: HttpRequest) -> Job | None:
    """Return the job that a new one is to be a clone of."""
    given = request.POST.get("clone_of") or request.GET.get("clone")
    return load_job(given) if given else None


def _initial(job: Job | None, source: Job | None) -> dict[str, Any]:
    if job is not None:
        return initial_of(job)
    return initial_of_new() if source is None else initial_of(source, clone=True)


def _own_schedule(job: Job) -> dict[str, Any]:
    fields = dict(job.definition.schedule)
    written = fields.pop("written", None)
    if written is not None:
        fields["cron"] = written
    return {**fields, "jitter_window": format_duration(job.definition.jitter_window)}


def _timezone(job: Job | None, tenant: int | None) -> str:
    """Return the time zone of a cron that names none."""
    own = None if job is None else job.definition.schedule.get("timezone")
    if own is not None or tenant is None:
        return str(own or "UTC")
    return find_timezone(raw_connection(), tenant=tenant)


def _foresee(
    fields: Mapping[str, Any],
    job: Job | None,
    now: Millis,
    *,
    tenant: int | None,
    besides: Sequence[lint.Finding] = (),
) -> dict[str, Any] | None:
    """Return what a schedule will do; None where it is not valid, which is told.

    ``besides`` is what else may surprise.
    """
    try:
        schedule, window = parse_schedule(
            fields, anchor=now, timezone=_timezone(job, tenant)
        )
        found: Foreseen = foresee(
            schedule, after=now, count=FIRES, job_id=None if job is None else job.id
        )
    except ChronoError:
        return None
    return {
        "text": found.text,
        "window": format_duration(window) if window else "",
        "warnings": (*found.warnings, *besides),
        "load": _load_at_first(found, tenant),
        "fires": [
            {
                "utc": format_instant(fire.at).removesuffix("Z").replace("T", " "),
                "local": fire.local.replace("T", " "),
                "ago": shown.relative(fire.at - now),
                "note": fire.note or "",
            }
            for fire in found.fires
        ],
    }


def _load_at_first(found: Foreseen, tenant: int | None) -> str:
    """Return what else is planned in the minute of the first fire; empty for none."""
    if tenant is None or not found.fires:
        return ""
    load = measure_load(raw_connection(), found.fires[0].at, tenant=tenant)
    many = f"{load:,}" + (" or more" if load >= MOST_LOAD else "")
    runs = "run is" if load == 1 else "runs are"
    return f"{many} planned {runs} due in the minute of the first."


def _long_runs(
    jobs: Mapping[UUID, Mapping[str, Any]], now: Millis
) -> Mapping[UUID, LongRuns]:
    """Return those of these jobs, in their public form, that exceed their period."""
    periods = {
        job: length
        for job, fields in jobs.items()
        if (length := insights.period_of(fields, job)) is not None
    }
    return insights.find_long_runs(raw_connection(), periods, now=now)


def _runs_long(job: Job, public: Mapping[str, Any], now: Millis) -> SafeString | str:
    """Return what is said of a job that exceeds its period; empty for any other."""
    period = insights.period_of(public, job.id)
    if period is None:
        return ""
    conn = raw_connection()
    found = insights.find_long_runs(conn, {job.id: period}, now=now).get(job.id)
    if found is None:
        return ""
    return format_html(
        "{} of its last {} runs took longer than its period of {}, the {} {}.",
        found.longer,
        found.runs,
        shown.lag(period),
        shown.link(RUN, "longest", found.longest_run),
        shown.lag(found.longest),
    )


def _summary(job: Job, actor: Actor, now: Millis) -> dict[str, Any]:
    [public] = read_jobs(raw_connection(), [job.id], actor=actor, now=now)
    deleted = job.deleted_at is not None
    tenant = Tenant.objects.filter(pk=job.tenant).first()
    moments = [_instant(moment, now) for moment in public["next_runs"]]
    last = public["last_run"]
    facts: list[tuple[str, object]] = [
        ("Next runs", shown.lines(moments) if moments else shown.NOTHING),
        (
            "Last run",
            shown.NOTHING if last is None else shown.link(RUN, _last(last), last["id"]),
        ),
        ("In 30 days", _counts(public) or "none skipped or missed"),
        *_rules(job),
        ("Key", shown.code(job.key)),
        ("Tags", _tags(job.tags) if job.tags else shown.NOTHING),
        ("Id", shown.code(job.id)),
        ("Tenant", str(tenant)),
        ("Version, revision", f"{job.changes}, {job.revision}"),
        ("Created", shown.instant(job.created_at, now)),
        ("Changed", shown.instant(job.updated_at, now)),
    ]
    if public["runs_left"] is not None:
        facts.insert(1, ("Runs left", f"{public['runs_left']:,}"))
    return {
        "badge": shown.state(public["state"]),
        "deleted": deleted,
        "runs_long": _runs_long(job, public, now),
        "paused": job.paused and not deleted,
        "pause_note": job.pause_note,
        "paused_by": job.paused_by,
        "paused_until": None
        if job.paused_until is None
        else shown.instant(job.paused_until, now),
        "facts": facts,
    }


def _rules(job: Job) -> list[tuple[str, object]]:
    """Return a job's policies in words; none where they cannot be read."""
    try:
        policies = policy.from_json(job.definition.policy)
        overlap = policy.overlap_from_name(job.definition.overlap_policy)
        schedule = schedule_from_json(job.definition.schedule)
    except ChronoError:
        return []
    return [
        ("Missed", words.missed(schedule, policies)),
        ("Overlap", words.overlapping(overlap, policies.max_concurrent_runs)),
        ("Limits", words.limiting(policies)),
        ("Delivery", words.delivered(policies)),
        ("Failures", words.failing(policies.pause_on_failure)),
        ("Reported", words.watching(policies)),
    ]


def _watched(job: Job, now: Millis) -> dict[str, Any]:
    """Return what is wrong with a job now, and what was noticed of it last."""
    conn = raw_connection()
    wrong = watch_store.list_breaches(conn, job=job.id, limit=BREACHES + 1)
    events = watch_store.list_events(conn, job=job.id, before=PAST_EVENT, limit=EVENTS)
    return {
        "wrong": [
            {
                "what": WATCHED[one.kind],
                "since": shown.instant(one.since, now),
                "detail": one.detail,
                "run": _run_link(one.run_id),
            }
            for one in wrong[:BREACHES]
        ],
        "more": len(wrong) > BREACHES,
        "events": [
            {
                "at": shown.instant(one.at, now),
                "what": WATCHED[one.kind] + (": over" if one.over else ""),
                "detail": one.detail,
                "run": _run_link(one.run_id),
            }
            for one in events
        ],
    }


def _run_link(run: UUID | None) -> SafeString | str:
    return "" if run is None else shown.link(RUN, "run", run)


def _tags(tags: Sequence[str]) -> SafeString:
    """Return tags, each as a link to the jobs that have it."""
    links = (
        (shown.link(f"{PAGE}_changelist", tag, query=f"?{urlencode({'tag': tag})}"),)
        for tag in tags
    )
    return format_html_join(" ", '<span class="chrono-tag">{}</span>', links)


def _last(last: Mapping[str, Any]) -> SafeString:
    """Return how the last run stands; where it waits its own page knows better."""
    over = last["finished_at"] is not None
    return shown.state(last["state"] if over else last["status"], last["reason"])


def _counts(public: Mapping[str, Any]) -> str:
    """Return how many occurrences were skipped and missed; empty for none."""
    least = "at least " if public["counts_capped"] else ""
    return ", ".join(
        f"{least}{public[name]:,} {word}"
        for name, word in (("skipped_count", "skipped"), ("missed_count", "missed"))
        if public[name]
    )


def _runs_left(left: int) -> str:
    return f"{left:,} {'run' if left == 1 else 'runs'} left"


def _over(told: object, quiet: str) -> SafeString:
    return format_html('{}<br><span class="quiet">{}</span>', told, quiet)


def _told(outcomes: Sequence[Any], verb: str) -> str:
    done = sum(verb in outcome.actions for outcome in outcomes)
    rest = len(outcomes) - done
    return f"{done} {verb}." + (f" {rest} were so already." if rest else "")


def _instant(text: str, now: Millis) -> SafeString | str:
    return shown.instant(parse_instant(text), now)
