"""A job's definition as a form: flat fields for people, and back.

The form only reads text and JSON. What is right and wrong is said by the parsers that
the API uses; their errors are put beside the field they name.
"""

import json
import zoneinfo
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from django import forms

from apps.console.pages import LONGEST_REASON, blame
from apps.console.shown import is_hidden_in, masked, unmasked
from apps.jobs.definition import (
    Definition,
    parse_definition,
    parse_schedule,
)
from apps.jobs.public import HIDDEN, definition_fields, has_chosen_start
from apps.jobs.store import Job
from apps.jobs.target import METHODS, parse_target
from apps.tenants.models import Tenant
from chrono.rules import lint, retry
from chrono.rules.durations import format_duration, parse_duration
from chrono.rules.errors import BadValue, ChronoError
from chrono.rules.instants import Millis
from chrono.rules.jitter import default_window
from chrono.rules.policy import POLICY_FIELDS
from chrono.rules.schedule import schedule_from_json
from chrono.rules.states import Priority

FIELDSETS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Job", {"fields": ["tenant", ("key", "name"), "tags"]}),
    (
        "Schedule",
        {
            "fields": [
                ("cron", "timezone"),
                ("dst_gap", "dst_fold"),
                "seconds",
                ("interval", "fixed_delay", "run_at"),
                ("starts_at", "ends_at"),
                "remaining_runs",
                ("jitter_window", "time_critical"),
            ],
            "description": "Exactly one of cron, interval, fixed delay and run at.",
        },
    ),
    ("When it is late or missed", {"fields": [("catchup_policy", "max_delay")]}),
    ("Overlap", {"fields": [("overlap_policy", "max_concurrent_runs")]}),
    (
        "Limits",
        {
            "fields": [
                ("concurrency_key", "concurrency_limit"),
                ("rate_limit", "on_limit"),
            ]
        },
    ),
    (
        "Target",
        {
            "fields": [
                ("target_kind", "task"),
                ("method", "url"),
                ("timeout", "progress_deadline", "min_items_ok"),
                "headers",
                "payload",
                ("queue", "priority"),
            ]
        },
    ),
    (
        "Delivery and retries",
        {
            "fields": [
                "delivery",
                ("max_attempts", "backoff_base", "backoff_cap"),
                "retry_on",
                "pause_on_failure",
            ]
        },
    ),
    (
        "Watching",
        {
            "fields": [("late_after", "max_runtime", "max_time_since_success")],
            "description": "What is beyond one of these is reported, and goes on.",
        },
    ),
    ("This change", {"fields": ["paused", "reason", "version", "clone_of"]}),
)
BLAMED = {
    "retry_policy.max_attempts": "max_attempts",
    "retry_policy.backoff.base_ms": "backoff_base",
    "retry_policy.backoff.cap_ms": "backoff_cap",
    "retry_policy.backoff": "backoff_base",
    "retry_policy.retry_on": "retry_on",
    "retry_policy": "max_attempts",
    "rate_limit": "rate_limit",
    "target.kind": "target_kind",
    "target.url": "url",
    "target.method": "method",
    "target.headers": "headers",
    "target.timeout": "timeout",
    "target.progress_deadline": "progress_deadline",
    "target.min_items_ok": "min_items_ok",
    "target.name": "task",
    "target": "target_kind",
    "payload": "payload",
    "max_payload_bytes": "payload",
}
"""Which field of the form shows what is wrong with which of a definition."""

_TEXTS = (
    *("cron", "timezone", "interval", "fixed_delay", "run_at"),
    *("starts_at", "ends_at", "jitter_window"),
)


def _short(help_text: str = "", **options: Any) -> forms.CharField:
    attrs = {"class": "vTextField", "autocomplete": "off", **options.pop("attrs", {})}
    return forms.CharField(
        required=False,
        widget=forms.TextInput(attrs=attrs),
        help_text=help_text,
        **options,
    )


def _number(help_text: str, **options: Any) -> forms.IntegerField:
    return forms.IntegerField(required=False, help_text=help_text, **options)


def _choice(*words: str, **options: Any) -> forms.ChoiceField:
    return forms.ChoiceField(
        choices=[(word, word) for word in words], required=False, **options
    )


class JobForm(forms.Form):
    """What one job does, when, and under which policies."""

    tenant = forms.ChoiceField(required=False)
    key = _short("One word for programs; it never changes.", max_length=400)
    name = _short("For people.", max_length=400)
    tags = _short(
        "Short words to find it by, with spaces or commas between: payroll region:eu.",
        max_length=4000,
    )

    cron = _short(
        "Five columns, as 30 2 * * *, or @daily, @every 90s.",
        max_length=2000,
        attrs={"class": "vTextField chrono-code"},
    )
    timezone = _short(
        "Left out: the tenant's; a cron that has one keeps it.",
        max_length=200,
        label="Time zone",
        attrs={"list": "zones"},
    )
    seconds = forms.BooleanField(required=False, label="Six columns, seconds first")
    dst_gap = forms.ChoiceField(
        required=False,
        label="If its time does not exist",
        choices=[
            ("shift", "fire right after the gap (shift)"),
            ("skip", "leave it out (skip)"),
        ],
    )
    dst_fold = forms.ChoiceField(
        required=False,
        label="If its time comes twice",
        choices=[
            ("first", "fire the first time"),
            ("second", "fire the second time"),
            ("both", "fire both times"),
        ],
    )
    interval = _short("Every so often: 90s, 15m, 2h.", max_length=200)
    fixed_delay = _short(
        "So long after the end of each run: 5m.", max_length=200, label="Fixed delay"
    )
    starts_at = _short(
        "No run before it, as 2026-11-29T15:00:00Z. Intervals and delays count from "
        "it, or else from the job's creation.",
        max_length=200,
        label="Starts at",
    )
    ends_at = _short(
        "No run after it; one at it still.", max_length=200, label="Ends at"
    )
    remaining_runs = _number(
        "It has ended after so many runs; another number counts anew."
    )
    run_at = _short(
        "Once, at an instant: 2026-11-29T15:00:00Z.", max_length=200, label="Run at"
    )
    jitter_window = _short(
        "By how much a run may be late, to spread load; left out, the default of the "
        "schedule.",
        max_length=200,
    )
    time_critical = forms.BooleanField(
        required=False, label="Time critical: no jitter at all"
    )

    catchup_policy = forms.ChoiceField(
        required=False,
        label="Of what was missed by more than a minute",
        choices=[
            ("run_once", "the newest runs, for all of them (run once)"),
            ("run_all", "all run, oldest first (run all)"),
            ("deadline", "those within the longest delay run (deadline)"),
            ("skip", "none runs (skip)"),
        ],
    )
    max_delay = _short(
        "What could not begin within this is skipped.",
        max_length=200,
        label="Longest delay",
    )
    overlap_policy = forms.ChoiceField(
        required=False,
        label="While earlier runs are not over",
        choices=[
            ("skip", "do not run (skip)"),
            ("buffer_one", "let one wait (buffer one)"),
            ("buffer_all", "let all wait, up to 100 (buffer all)"),
            ("cancel_other", "cancel the earlier ones, then run (cancel other)"),
            ("terminate_other", "end the earlier ones at once (terminate other)"),
            ("allow_all", "run beside them (allow all)"),
        ],
    )
    max_concurrent_runs = _number("1 where left out, but any for allow all.")
    concurrency_key = _short(
        "Its runs count together with those of jobs that name the same key; "
        "{payload.name} is filled from a run's payload.",
        max_length=400,
    )
    concurrency_limit = _number(
        "Let in while fewer of the key are under way; 1 where left out."
    )
    rate_limit = _short(
        "How many may begin in how long, as 10/1m: of the key, else of this job.",
        max_length=200,
    )
    on_limit = _choice("wait", "drop", label="Above the rate")

    target_kind = _choice("http", "task", label="Kind")
    method = _choice(*METHODS)
    url = _short(max_length=4000, label="URL")
    headers = forms.CharField(
        required=False,
        max_length=100_000,
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
        help_text=(
            f"One a line, Name: value. Stored values show as {HIDDEN} and stay as "
            "they are while they do."
        ),
    )
    timeout = _short(
        "60s where left out for http; a task then has as long as it likes.",
        max_length=200,
    )
    progress_deadline = _short(
        "How long a task may tell neither progress nor a checkpoint.", max_length=200
    )
    min_items_ok = _number(
        "A task whose result says a smaller items_ok, or none, has failed. 0 asks for "
        "nothing.",
        label="Items at least",
    )
    task = _short("The name of a Python task, for the kind task.", max_length=400)
    payload = forms.CharField(
        required=False,
        max_length=300_000,
        strip=True,
        widget=forms.Textarea(
            attrs={"rows": 5, "class": "vLargeTextField", "spellcheck": "false"}
        ),
        help_text=f"JSON. What is named like a secret shows as {HIDDEN}.",
    )

    queue = _short(max_length=200)
    priority = _choice(*(one.label for one in Priority))
    delivery = forms.ChoiceField(
        required=False,
        label="If the worker of a run is lost",
        choices=[
            ("at_least_once", "the run begins again (at least once)"),
            ("at_most_once", "the run waits for a person (at most once)"),
        ],
        help_text=(
            "At most once: a run has one attempt. For what must not happen twice at a "
            "target that does not honour the idempotency key, such as payroll."
        ),
    )
    max_attempts = forms.IntegerField(required=False, label="Attempts at most")
    backoff_base = _short(max_length=100, label="First wait up to")
    backoff_cap = _short(max_length=100, label="Waits at most")
    retry_on = forms.MultipleChoiceField(
        required=False,
        label="Try again after",
        choices=[(one, one.replace("_", " ")) for one in retry.SELECTABLE],
        widget=forms.CheckboxSelectMultiple,
    )
    pause_on_failure = _number("The job is paused after so many dead runs in a row.")
    late_after = _short("After it was due: 5m.", max_length=200, label="Not begun")
    max_runtime = _short("Of an attempt: 90m.", max_length=200, label="Not over")
    max_time_since_success = _short("36h.", max_length=200, label="No success")

    paused = forms.BooleanField(required=False, label="Begin paused")
    reason = _short("Optional; it is kept in the audit.", max_length=LONGEST_REASON)
    version = forms.IntegerField(required=False, widget=forms.HiddenInput)
    clone_of = forms.UUIDField(required=False, widget=forms.HiddenInput)

    def __init__(
        self,
        *args: Any,
        job: Job | None = None,
        source: Job | None = None,
        **options: Any,
    ) -> None:
        """Take the job that is edited, or for a new one that it is a clone of."""
        super().__init__(*args, **options)
        self.job = job
        self.old = source if job is None else job
        if job is not None:
            for name in ("tenant", "paused"):
                del self.fields[name]
            self.fields["key"].disabled = True
            return
        rows = [(str(one.pk), one.name) for one in Tenant.objects.order_by("pk")[:500]]
        self.fields["tenant"].choices = rows  # type: ignore[attr-defined]
        if len(rows) == 1:
            self.fields["tenant"].widget = forms.HiddenInput()
            self.fields["tenant"].initial = rows[0][0]

    def groups(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the groups of fields that this form has."""
        return [
            (
                name,
                {
                    **options,
                    "fields": [
                        one
                        for one in options["fields"]
                        if not isinstance(one, str) or one in self.fields
                    ],
                },
            )
            for name, options in FIELDSETS
        ]

    def definition(self) -> Definition | None:
        """Return the valid definition; None where fields now have their errors."""
        fields = self._whole()
        for parse in (
            lambda: parse_schedule(fields, anchor=0),
            lambda: parse_target(fields["target"]),
        ):
            self._tried(parse)
        found = None if self.errors else self._tried(lambda: parse_definition(fields))
        return None if self.errors else found

    def schedule_fields(self) -> dict[str, Any]:
        """Return the fields that say when, as far as they are given."""
        given = self.cleaned_data
        fields: dict[str, Any] = {
            name: given[name] for name in _TEXTS if given.get(name)
        }
        if given.get("time_critical"):
            fields["time_critical"] = True
        # The form always has these; a definition has them with a cron only.
        if fields.get("cron") and not fields["cron"].startswith("@every"):
            fields["seconds"] = bool(given.get("seconds"))
            for name in ("dst_gap", "dst_fold"):
                fields[name] = given.get(name, "")
        elif fields.get("timezone") == "UTC":
            del fields["timezone"]
        return fields

    def surprises(self) -> list[lint.Finding]:
        """Return what may surprise about the job besides its schedule."""
        given = self.cleaned_data
        return lint.of_delivery(_words(given.get("tags")), given.get("delivery", ""))

    def tenant_id(self) -> int | None:
        """Return whose job it is or will be; None where that is not chosen yet."""
        if self.job is not None:
            return self.job.tenant
        chosen = self.cleaned_data.get("tenant")
        return int(chosen) if chosen else None

    def _tried(self, parse: Any) -> Any:
        try:
            return parse()
        except ChronoError as error:
            shown = {message for found in self.errors.values() for message in found}
            if error.message not in shown:
                blame(self, error, BLAMED)
            return None

    def _whole(self) -> dict[str, Any]:
        given = self.cleaned_data
        fields = {
            **self.schedule_fields(),
            "key": given.get("key", "") if self.job is None else self.job.key,
            "name": given.get("name", ""),
            "tags": _words(given.get("tags")),
            "target": self._target(),
            "payload": self._payload(),
            "queue": given.get("queue") or "default",
            "priority": given.get("priority"),
            "overlap_policy": given.get("overlap_policy"),
            "retry_policy": self._retry_policy(),
            **{
                name: given[name]
                for name in POLICY_FIELDS
                if given.get(name) not in (None, "")
            },
        }
        if given.get("paused"):
            fields["paused"] = True
        return fields

    def _target(self) -> dict[str, Any]:
        given = self.cleaned_data
        if given.get("target_kind") == "task":
            task = {"kind": "task", "name": given.get("task", "")}
            limits = ("timeout", "progress_deadline", "min_items_ok")
            return task | {n: given[n] for n in limits if given.get(n)}
        target = {
            "kind": "http",
            "method": given.get("method", ""),
            "url": self._url(),
            "headers": self._headers(),
        }
        if given.get("timeout"):
            target["timeout"] = given["timeout"]
        return target

    def _old_target(self) -> Mapping[str, Any]:
        return {} if self.old is None else self.old.definition.target

    def _moves(self) -> bool:
        """Tell whether it is sent to a host that has not had its secrets yet."""
        if self.cleaned_data.get("target_kind") == "task":
            return False
        return _origin(self._url()) != _origin(str(self._old_target().get("url", "")))

    def _url(self) -> str:
        url = str(self.cleaned_data.get("url", ""))
        old = str(self._old_target().get("url", ""))
        return old if old and url == hidden_query(old) else url

    def _headers(self) -> dict[str, str]:
        old = self._old_target().get("headers") or {}
        headers: dict[str, str] = {}
        for line in self.cleaned_data.get("headers", "").splitlines():
            if not line.strip():
                continue
            name, colon, value = line.partition(":")
            name, value = name.strip(), value.strip()
            if not colon:
                self.add_error("headers", f"{line[:60]} is not Name: value.")
            elif value == HIDDEN and (name not in old or self._moves()):
                self.add_error("headers", f"Write the value of {name[:60]}.")
            elif name in headers:
                self.add_error("headers", f"The header {name[:60]} is given twice.")
            headers[name] = old.get(name, value) if value == HIDDEN else value
        return headers

    def _payload(self) -> Any:
        text = self.cleaned_data.get("payload", "")
        try:
            value = read_json(text)
        except BadValue as error:
            self.add_error("payload", error.message)
            return None
        if self.old is not None and not self._moves():
            value = unmasked(value, self.old.definition.payload)
        if is_hidden_in(value):
            self.add_error("payload", f"Write a value in place of {HIDDEN}.")
        return value

    def _retry_policy(self) -> dict[str, Any]:
        given = self.cleaned_data
        # What the form does not show stays as it is.
        old = {} if self.old is None else self.old.definition.retry_policy
        policy: dict[str, Any] = {
            name: old[name] for name in ("budget", "circuit_breaker") if name in old
        }
        policy["retry_on"] = list(given.get("retry_on", []))
        if given.get("max_attempts") is not None:
            policy["max_attempts"] = given["max_attempts"]
        backoff = {}
        for name, field in (("base_ms", "backoff_base"), ("cap_ms", "backoff_cap")):
            if not given.get(field):
                continue
            try:
                backoff[name] = parse_duration(given[field], field=field)
            except ChronoError as error:
                self.add_error(field, error.message)
        if backoff:
            policy["backoff"] = backoff
        return policy


def _words(text: str | None) -> list[str]:
    return (text or "").replace(",", " ").split()


def initial_of(job: Job, *, clone: bool = False) -> dict[str, Any]:
    """Return what the form shows of a job; for a clone under another key."""
    fields = definition_fields(job)
    target, policy = fields["target"], retry.from_json(fields["retry_policy"])
    payload = fields["payload"]
    initial = {
        name: fields.get(name, "")
        for name in (*_TEXTS, "key", "name", "queue", "priority", "overlap_policy")
    }
    policies = {name: fields[name] for name in POLICY_FIELDS}
    if (rate := policies["rate_limit"]) is not None:
        policies["rate_limit"] = f"{rate['limit']}/{rate['period']}"
    return {
        **initial_of_new(),
        **initial,
        **policies,
        "tags": " ".join(job.tags),
        "key": f"{job.key}-copy"[:200] if clone else job.key,
        "tenant": str(job.tenant),
        "seconds": fields.get("seconds", False),
        "dst_gap": fields.get("dst_gap", "shift"),
        "dst_fold": fields.get("dst_fold", "first"),
        "starts_at": fields["starts_at"] if has_chosen_start(job) else "",
        "jitter_window": _jitter_of(job),
        "target_kind": target.get("kind", "http"),
        "method": target.get("method", "POST"),
        "url": hidden_query(target.get("url", "")),
        "headers": "\n".join(
            f"{name}: {HIDDEN}" for name in target.get("headers") or {}
        ),
        "timeout": target.get("timeout", ""),
        "progress_deadline": target.get("progress_deadline", ""),
        "min_items_ok": target.get("min_items_ok", 0),
        "task": target.get("name", ""),
        "payload": ""
        if payload is None
        else json.dumps(masked(payload), indent=2, ensure_ascii=False),
        "max_attempts": policy.max_attempts,
        "backoff_base": format_duration(policy.base_ms),
        "backoff_cap": format_duration(policy.cap_ms),
        "retry_on": list(policy.retry_on),
        "version": job.changes,
        "clone_of": job.id if clone else None,
    }


def initial_of_new() -> dict[str, Any]:
    """Return what the form of a new job begins with."""
    policy = retry.RetryPolicy()
    return {
        "dst_gap": "shift",
        "dst_fold": "first",
        "method": "POST",
        "queue": "default",
        "priority": Priority.NORMAL.label,
        "max_attempts": policy.max_attempts,
        "backoff_base": format_duration(policy.base_ms),
        "backoff_cap": format_duration(policy.cap_ms),
        "retry_on": list(policy.retry_on),
    }


def read_json(text: str) -> Any:
    """Return the JSON in a field; blank is None. Raises BadValue with the place."""
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise BadValue(f"This is no JSON: {error.msg}, {place}.") from None
    except (ValueError, RecursionError):
        raise BadValue("This JSON is nested too deep, or has a huge number.") from None


def hidden_query(url: str) -> str:
    """Return an address whose query is hidden: it may hold a secret."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query=HIDDEN)) if parts.query else url


def _origin(url: str) -> str:
    try:
        return url[: url.index("/", url.index("//") + 2)]
    except ValueError:
        return url.split("?", 1)[0]


@cache
def zones() -> list[str]:
    """Return the names of time zones that people choose from."""
    return sorted(
        name
        for name in zoneinfo.available_timezones()
        if name == "UTC" or ("/" in name and not name.startswith(("Etc/", "SystemV/")))
    )


def _jitter_of(job: Job) -> str:
    """Return the jitter window, blank where it is the schedule's default."""
    window: Millis = job.definition.jitter_window
    try:
        default = default_window(schedule_from_json(job.definition.schedule))
    except ChronoError:
        return ""
    return "" if window == default else format_duration(window)
