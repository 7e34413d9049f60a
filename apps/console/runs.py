"""The pages of runs and of occurrences."""

import json
from collections.abc import Callable, Mapping
from typing import Any, override
from uuid import UUID

from django import forms
from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.console import filters, past, shown, store
from apps.console.addresses import JOB, RUN, read_id
from apps.console.filters import Input
from apps.console.job_form import read_json
from apps.console.lists import KeysetAdmin, Listing, Page
from apps.console.models import Occurrence, Run
from apps.console.pages import (
    LONGEST_REASON,
    Act,
    InstantField,
    Question,
    ReasonForm,
    ask,
    crumbs,
    render,
)
from apps.console.who import actor_of, now_of
from apps.jobs import store as jobs
from apps.jobs.manual import UNSET
from apps.jobs.public import HIDDEN
from apps.jobs.rerun import retry_run
from apps.runs import selectors
from apps.runs.cancel import cancel_by, terminate_by
from apps.runs.errors import RunNotFound
from apps.runs.reschedule import reschedule
from apps.runs.resolve import OUTCOMES, RESOLVABLE, resolve
from apps.runs.selectors import Filter, Key
from apps.runs.store import AttemptRow, JobRunKey, Progress, RunDetail, RunRow
from apps.runs.waits import why_waiting
from apps.runtime.django_session import raw_connection
from apps.runtime.sessions import Connection
from chrono.rules import retry
from chrono.rules.errors import ChronoError
from chrono.rules.instants import LATEST, Millis, format_instant
from chrono.rules.keys import scheduled_for_of
from chrono.rules.lease import LEASE_TTL, TERMINATE_AFTER
from chrono.rules.partitions import partition_of
from chrono.rules.states import (
    Outcome,
    Priority,
    Reason,
    RunState,
    TimerKind,
    is_final,
    status_of,
)

STATES = [one.label for one in RunState]
REASONS = [one.label for one in Reason]
MOVABLE = frozenset({RunState.SCHEDULED, RunState.RETRYING, RunState.PARKED})

type Given = Mapping[str, Any]
type By = Mapping[str, Any]
"""The tenant whose run it is, the actor and the reason, as commands take them."""
type Deed = Callable[[Connection, Given, By], str]
"""Does it with the form's values; returns what to say."""


class MoveForm(ReasonForm):
    """To when."""

    due_at = InstantField(
        label="Due at", help_text="In UTC; one that is over means at once."
    )
    field_order = ("due_at", "reason")


class RetryForm(ReasonForm):
    """With which payload, and where."""

    payload = forms.CharField(
        required=False,
        max_length=300_000,
        widget=forms.Textarea(attrs={"rows": 8, "class": "vLargeTextField"}),
        help_text="JSON: the run's own unless it is changed. What is named like a "
        f"secret shows as {HIDDEN}.",
    )
    queue = forms.CharField(
        required=False,
        max_length=64,
        help_text="Another queue than that of the job, for this run.",
    )
    field_order = ("payload", "queue", "reason")


class ResolveForm(ReasonForm):
    """What became of it, and how that is known."""

    reason = forms.CharField(
        label="How you know",
        max_length=LONGEST_REASON,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text="It is shown with the run, and kept in the audit.",
    )
    outcome = forms.ChoiceField(
        label="What became of it",
        choices=[
            ("success", "it had its effect (success)"),
            ("failed", "it had none, or only a part (failed)"),
        ],
        widget=forms.RadioSelect,
    )
    field_order = ("outcome", "reason")


class RunAdmin(KeysetAdmin):
    """Runs of one tenant, newest first, wherever they are in their life."""

    list_display = ("started", "job", "stands", "lags", "took", "attempt", "queue")
    list_display_links = None
    list_filter = (
        filters.fields(
            filters.ONE_TENANT,
            filters.words("state", "State", STATES),
            filters.words("reason", "Reason", REASONS),
            Input(name="queue", label="Queue"),
            Input(name="since", label="Scheduled from (UTC)", kind="instant"),
            Input(name="until", label="before (UTC)", kind="instant"),
            Input(name="job", label="Job's id", kind="uuid"),
        ),
    )

    @override
    def fetch(self, request: HttpRequest, cl: Listing, after: str | None) -> Page:
        wanted = _wanted(cl)
        page = selectors.list_runs(
            raw_connection(),
            tenant=cl.asked("tenant"),
            wanted=wanted,
            after=_key(after, by_ledger=wanted.by_ledger),
            limit=self.list_per_page,
        )
        following = None
        if isinstance(page.next, JobRunKey):
            following = f"{page.next.scheduled_for}.{page.next.attempt_group}"
        elif page.next is not None:
            following = page.next.hex
        rows = []
        for row in page.rows:
            run = Run(id=row.id)
            run.row, run.now = row, cl.now  # type: ignore[attr-defined]
            rows.append(run)
        return Page(rows=rows, next=following)

    @admin.display(description="Scheduled for")
    def started(self, run: Any) -> SafeString:
        """Return the nominal instant as a link to the run's page."""
        text = shown.instant(scheduled_for_of(run.id), run.now)
        return shown.link(RUN, text, run.id)

    @admin.display(description="Job")
    def job(self, run: Any) -> SafeString:
        """Return the job's key."""
        return shown.link(JOB, run.row.job_key, run.row.job_id)

    @admin.display(description="State")
    def stands(self, run: Any) -> SafeString:
        """Return where it stands and why."""
        return shown.state(
            selectors.state_of(run.row).label, selectors.reason_of(run.row)
        )

    @admin.display(description="Start lag")
    def lags(self, run: Any) -> str:
        """Return how long after its due time it was started."""
        return shown.lag(_between(run.row.due_at, run.row.started_at))

    @admin.display(description="Took")
    def took(self, run: Any) -> str:
        """Return how long it ran."""
        return shown.lag(_between(run.row.started_at, run.row.finished_at))

    @admin.display(description="Attempt")
    def attempt(self, run: Any) -> object:
        """Return the number of its attempt."""
        return run.row.attempt or shown.NOTHING

    @admin.display(description="Queue")
    def queue(self, run: Any) -> str:
        """Return its queue."""
        return run.row.queue or shown.NOTHING

    @override
    def get_urls(self) -> list[URLPattern]:
        own = [
            path(
                f"<str:object_id>/{verb}/",
                self.admin_site.admin_view(view),
                name=f"chrono_console_run_{verb}",
            )
            for verb, view in (
                ("cancel", self.cancel_view),
                ("resolve", self.resolve_view),
                ("retry", self.retry_view),
                ("terminate", self.terminate_view),
                ("move", self.move_view),
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
        """Show one run."""
        row, detail = _get(object_id)
        now = now_of(request)
        conn = raw_connection()
        failed = selectors.list_attempts(conn, row.id)
        state = selectors.state_of(row)
        return render(
            request,
            self,
            "console/run.html",
            title=f"Run of {row.job_key}",
            way=crumbs(self, (str(row.id), "")),
            run=row,
            badge=shown.state(state.label, selectors.reason_of(row)),
            state_word=state.label,
            status_word=status_of(state),
            over=is_final(state),
            movable=state in MOVABLE,
            repeatable=is_final(state) and row.place == "run" and not detail.rerun_as,
            terminable=detail.told_at is not None
            and now >= detail.told_at + TERMINATE_AFTER,
            log=detail.log,
            resolvable=state in RESOLVABLE,
            unknown=state is RunState.UNKNOWN,
            resolution=_resolution(row, now),
            cancelling=row.cancel and not is_final(state),
            waits=why_waiting(conn, row, now, error=detail.error_reason),
            instants=_instants(row, now),
            facts=_facts(row, detail, now),
            attempts=[_attempt(one, now) for one in failed],
            payload=shown.json_text(detail.payload),
            result=shown.json_text(detail.result),
            checkpoint=shown.json_text(detail.checkpoint),
        )

    def cancel_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Call a run off."""
        row, _ = _get(object_id)

        def deed(conn: Connection, given: Given, by: By) -> str:
            state = cancel_by(conn, row.id, **by)
            if state is RunState.RUNNING:
                return "Its worker is told to stop within ten seconds."
            return "The run is cancelled."

        question = Question(
            title=f"Cancel a run of {row.job_key}?",
            text=(
                f"The run for {format_instant(scheduled_for_of(row.id))} is "
                f"{selectors.state_of(row).label}. A waiting run is cancelled at once; "
                "a running one is asked to stop."
            ),
            button="Cancel the run",
            danger=True,
        )
        return self._do(request, row, question, deed)

    def resolve_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Say what became of a run."""
        row, _ = _get(object_id)

        def deed(conn: Connection, given: Given, by: By) -> str:
            outcome = OUTCOMES[given["outcome"]]
            resolve(conn, row.id, outcome=outcome, **by)
            return f"The run is resolved as {outcome.label}."

        question = Question(
            title=f"What became of a run of {row.job_key}?",
            text=(
                f"The run for {format_instant(scheduled_for_of(row.id))} is "
                f"{selectors.state_of(row).label}. Look at its target for the "
                f"idempotency key {row.id}, and say here what you found. It runs no "
                "more; the job can be run by hand."
            ),
            button="Resolve the run",
            form=ResolveForm,
        )
        return self._do(request, row, question, deed)

    def terminate_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """End a run that was told to stop and did not."""
        row, _ = _get(object_id)

        def deed(conn: Connection, given: Given, by: By) -> str:
            terminate_by(conn, row.id, **by)
            return "The run is cancelled; what its worker still writes is void."

        question = Question(
            title=f"Terminate a run of {row.job_key}?",
            text=(
                "It was told to stop and still runs. It is cancelled here and now, and "
                "its lease is gone. A task in a process of its own is killed; one in a "
                "thread may go on for as long as it likes, and keeps a seat of its "
                "worker meanwhile."
            ),
            button="Terminate the run",
            danger=True,
        )
        return self._do(request, row, question, deed)

    def retry_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Run a finished run's occurrence again, with its payload or another."""
        row, detail = _get(object_id)
        shows = json.dumps(shown.masked(detail.payload), indent=2, ensure_ascii=False)

        def act(given: Given) -> tuple[str, str]:
            # Browsers send lines that end with a carriage return, too.
            text = given["payload"].replace("\r\n", "\n")
            payload: Any = UNSET
            if text.strip() != shows.strip():
                payload = shown.unmasked(read_json(text), detail.payload)
            made = retry_run(
                row.id,
                payload=payload,
                queue=given["queue"] or None,
                actor=actor_of(request),
                reason=given["reason"],
            )
            return "The new run is on its way.", reverse(f"admin:{RUN}", args=[made])

        question = Question(
            title=f"Run a run of {row.job_key} again?",
            text=(
                f"The occurrence of {format_instant(scheduled_for_of(row.id))} runs "
                "again at once, as a new run with a key of its own, by the job's "
                "definition now. This run stays as it is, and each names the other."
            ),
            button="Run again",
            form=RetryForm,
            initial={"payload": shows},
        )
        return self._ask(request, row, question, act)

    def move_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Have a waiting run come due at another instant."""
        row, _ = _get(object_id)

        def deed(conn: Connection, given: Given, by: By) -> str:
            due = reschedule(conn, row.id, due_at=given["due_at"], **by)
            return f"The run is due at {format_instant(due)}."

        due = (
            "" if row.due_at is None else f" It is due at {format_instant(row.due_at)}."
        )
        question = Question(
            title=f"Move a run of {row.job_key}?",
            text=(
                f"The run for {format_instant(scheduled_for_of(row.id))} is "
                f"{selectors.state_of(row).label}.{due} Only one that waits for its "
                "time, a retry or a gate can be moved; what it was scheduled for stays."
            ),
            button="Move the run",
            form=MoveForm,
            initial={"due_at": row.due_at},
        )
        return self._do(request, row, question, deed)

    def _do(
        self, request: HttpRequest, row: RunRow, question: Question, deed: Deed
    ) -> HttpResponse:
        """Ask, do it to a run, and go back to its page."""

        def act(given: Mapping[str, Any]) -> tuple[str, str]:
            conn = raw_connection()
            [job] = jobs.load_jobs(conn, jobs=[row.job_id])
            by = {
                "tenant": job.tenant,
                "actor": actor_of(request),
                "reason": given["reason"],
            }
            return deed(conn, given, by), reverse(f"admin:{RUN}", args=[row.id])

        return self._ask(request, row, question, act)

    def _ask(
        self, request: HttpRequest, row: RunRow, question: Question, act: Act
    ) -> HttpResponse:
        here = reverse(f"admin:{RUN}", args=[row.id])
        way = crumbs(self, (str(row.id), here))
        return ask(request, self, question, way=way, act=act, back=here)


class OccurrenceAdmin(KeysetAdmin):
    """What was decided of one job's schedule, newest first."""

    list_display = ("instant", "outcome", "run", "decided", "fence", "plan")
    list_display_links = None
    list_filter = (
        filters.fields(
            Input(name="job", label="Job's id", kind="uuid"),
            filters.words("outcome", "Outcome", ["fired", "skipped"]),
            filters.words("reason", "Reason", REASONS),
        ),
    )

    @override
    def has_module_permission(self, request: HttpRequest) -> bool:
        # Without a job there is nothing to list, so no menu leads here.
        return False

    @override
    def fetch(self, request: HttpRequest, cl: Listing, after: str | None) -> Page:
        job = cl.asked("job")
        if job is None:
            cl.trouble = "Come here from a job, or give a job's id."
            return Page(rows=(), next=None)
        outcome, reason = cl.asked("outcome"), cl.asked("reason")
        begins = _job_key(after)
        found = store.list_occurrences(
            raw_connection(),
            job=job,
            part=partition_of(job),
            before=(begins.scheduled_for, begins.attempt_group),
            outcome=Outcome[outcome.upper()].value if outcome else None,
            reason=Reason[reason.upper()].value if reason else None,
            limit=self.list_per_page + 1,
        )
        rows = []
        for row in found[: self.list_per_page]:
            one = Occurrence(id=row.run_id or UUID(int=0))
            one.row, one.now = row, cl.now  # type: ignore[attr-defined]
            one.job = job  # type: ignore[attr-defined]
            rows.append(one)
        following = None
        if len(found) > self.list_per_page:
            last = found[self.list_per_page - 1]
            following = f"{last.scheduled_for}.{last.attempt_group}"
        return Page(rows=rows, next=following)

    @admin.display(description="Scheduled for")
    def instant(self, one: Any) -> SafeString | str:
        """Return the nominal instant, both ends of a stretch."""
        start = shown.instant(one.row.scheduled_for, one.now)
        if one.row.last_for is None:
            return start
        return shown.lines(
            [
                start,
                shown.instant(one.row.last_for, one.now),
                f"{one.row.occurrences} occurrences",
            ]
        )

    @admin.display(description="Outcome")
    def outcome(self, one: Any) -> SafeString:
        """Return what was decided and why."""
        word = Outcome(one.row.outcome).name.lower()
        reason = None if one.row.reason is None else Reason(one.row.reason).label
        told = shown.state(word, reason)
        if one.row.outcome == Outcome.FIRED:
            return told
        why = past.why_link(one.job, "Why?", one.row.scheduled_for)
        return format_html("{} {}", told, why)

    @admin.display(description="Run")
    def run(self, one: Any) -> SafeString | str:
        """Return a link to its run."""
        if one.row.run_id is None or one.row.outcome != Outcome.FIRED:
            return shown.NOTHING
        return shown.link(RUN, one.row.run_id, one.row.run_id)

    @admin.display(description="Decided")
    def decided(self, one: Any) -> SafeString | str:
        """Return when it was decided."""
        return shown.instant(one.row.decided_at, one.now)

    @admin.display(description="Fence")
    def fence(self, one: Any) -> str:
        """Return the leadership that decided; 0 is an edit."""
        return str(one.row.fence) if one.row.fence else "by an edit"

    @admin.display(description="Plan, revision")
    def plan(self, one: Any) -> str:
        """Return the numbers of the plan and of the definition."""
        return f"{one.row.version}, {one.row.revision}"


def _get(object_id: str | None) -> tuple[RunRow, RunDetail]:
    try:
        return selectors.get_run(raw_connection(), read_id(object_id), tenant=None)
    except RunNotFound:
        raise Http404 from None


def _wanted(cl: Listing) -> Filter:
    state, reason = cl.asked("state"), cl.asked("reason")
    return Filter(
        job=cl.asked("job"),
        states=frozenset({RunState[state.upper()]}) if state else None,
        queue=cl.asked("queue"),
        reason=Reason[reason.upper()] if reason else None,
        since=cl.asked("since"),
        until=cl.asked("until"),
    )


def _key(text: str | None, *, by_ledger: bool) -> Key | None:
    if text is None:
        return None
    return _job_key(text) if by_ledger else UUID(hex=text)


def _job_key(text: str | None) -> JobRunKey:
    if text is None:
        return JobRunKey(scheduled_for=LATEST - 1, attempt_group=-1)
    moment, _, group = text.partition(".")
    key = JobRunKey(scheduled_for=int(moment), attempt_group=int(group))
    if not (0 <= key.scheduled_for < LATEST and -1 <= key.attempt_group < 1 << 31):
        raise ValueError(text)
    return key


def _instants(row: RunRow, now: Millis) -> list[dict[str, Any]]:
    """Return the five instants, each with how long after being due it came."""
    five = (
        ("Scheduled for", scheduled_for_of(row.id), "nominal: the key is made of it"),
        ("Due at", row.due_at, "with its jitter, or its retry"),
        ("Dispatched at", row.dispatched_at, "ready for a worker"),
        ("Started at", row.started_at, "a worker has it"),
        ("Finished at", row.finished_at, "settled"),
    )
    return [
        {
            "name": name,
            "at": shown.instant(moment, now),
            "lag": shown.lag(_between(row.due_at, moment)) if number > 1 else "",
            "note": note,
        }
        for number, (name, moment, note) in enumerate(five)
    ]


def _resolution(row: RunRow, now: Millis) -> dict[str, Any] | None:
    """Return what a person said became of it."""
    if row.reason != Reason.RESOLVED:
        return None
    said = selectors.find_resolution(raw_connection(), row.id)
    if said is None:
        return None
    return {
        "outcome": RunState(said.state).label,
        "by": said.actor,
        "at": shown.instant(said.at, now),
        "note": shown.cut(said.note),
    }


def _facts(row: RunRow, detail: RunDetail, now: Millis) -> list[tuple[str, object]]:
    of = _max_attempts(detail)
    attempt = shown.NOTHING if row.attempt is None else str(row.attempt)
    lease = None if detail.beat_at is None else detail.beat_at + LEASE_TTL
    facts: list[tuple[str, object]] = [
        ("Job", shown.link(JOB, row.job_key, row.job_id)),
        ("Trigger", selectors.trigger_of(row, detail) or shown.NOTHING),
        ("Took", shown.lag(_between(row.started_at, row.finished_at))),
        ("Attempt", f"{attempt} of {of}" if of else attempt),
        ("Queue", row.queue or shown.NOTHING),
        (
            "Priority",
            shown.NOTHING if row.priority is None else Priority(row.priority).label,
        ),
        ("Idempotency key", shown.code(row.id)),
        ("Fence", row.fence or shown.NOTHING),
        ("Worker", shown.NOTHING if row.worker is None else shown.code(row.worker)),
        ("Partition", row.part),
        ("Revision", row.revision),
    ]
    if detail.rerun_of is not None:
        facts.append(("Runs again", shown.link(RUN, detail.rerun_of, detail.rerun_of)))
    if detail.rerun_as is not None:
        facts.append(
            ("Run again as", shown.link(RUN, detail.rerun_as, detail.rerun_as))
        )
    if row.place == "lease":
        facts.append(("Lease until", shown.instant(lease, now)))
    if detail.progress is not None:
        facts.append(("Progress", _progress(detail.progress, now)))
    if row.kind == TimerKind.RETRY:
        facts.append(("Next retry at", shown.instant(row.due_at, now)))
    if detail.missed is not None:
        since = shown.instant(detail.missed.first, now)
        facts.append(("Missed occurrences", detail.missed.count))
        facts.append(("Missed since", since))
    return facts


def _progress(told: Progress, now: Millis) -> SafeString:
    share = "" if told.share is None else f"{told.share:.0%}"
    words = ", ".join(filter(None, [share, told.text])) or "checkpoint"
    at = shown.instant(told.at, now)
    return format_html("{}, attempt {}, {}", words, told.attempt, at)


def _attempt(one: AttemptRow, now: Millis) -> dict[str, Any]:
    return {
        "attempt": one.attempt,
        "reason": Reason(one.reason).label.replace("_", " "),
        "started": shown.instant(one.started_at, now),
        "took": shown.lag(one.finished_at - one.started_at),
        "worker": one.worker,
        "fence": one.fence,
        "error": shown.cut(one.error),
        "log": one.log or "",
    }


def _between(start: Millis | None, end: Millis | None) -> Millis | None:
    return None if start is None or end is None else end - start


def _max_attempts(detail: RunDetail) -> int | None:
    if detail.retry_policy is None:
        return None
    try:
        return retry.from_json(detail.retry_policy).max_attempts
    except ChronoError:
        return None
