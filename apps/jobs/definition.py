"""A job's definition: read from flat fields, checked whole, and written back.

`parse_definition` is the only way in: the command line and the API give it the same
fields. What it returns can be saved; every error names the field at fault.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any
from uuid import UUID

from apps.jobs.errors import NotSupportedYet, UnknownField
from apps.jobs.json_value import check_json, check_text
from apps.jobs.target import parse_target
from chrono.rules import policy, retry
from chrono.rules.durations import format_duration, parse_duration
from chrono.rules.errors import BadSchedule, BadValue
from chrono.rules.instants import HOUR, Millis
from chrono.rules.jitter import default_window
from chrono.rules.key_template import check_template, filled
from chrono.rules.policy import POLICY_FIELDS, OverlapPolicy, Policy
from chrono.rules.schedule import (
    KINDS,
    SCHEDULE_FIELDS,
    CronSchedule,
    FixedDelay,
    Interval,
    Once,
    Schedule,
    period,
    resolve,
    schedule_from_json,
    schedule_to_json,
    validate,
)
from chrono.rules.states import Priority, priority_from_name

LONGEST_KEY = 200
LONGEST_NAME = 200
MOST_TAGS = 20
WIDEST_JITTER: Millis = HOUR

FIELDS = (
    SCHEDULE_FIELDS
    | POLICY_FIELDS
    | {
        "key",
        "name",
        "tags",
        "target",
        "payload",
        "jitter_window",
        "time_critical",
        "overlap_policy",
        "queue",
        "priority",
        "retry_policy",
        "paused",
    }
)
_LATER = frozenset(
    {
        "pause_note",
        "paused_until",
        "unique_key",
        "unique_for",
        "on_conflict",
        "lease_ttl",
        "heartbeat_every",
    }
)
_ELSEWHERE = {
    "transactional": "transactional belongs to the task, not to the job: "
    "@chrono.task(name=…, transactional=True)."
}
_CRON_ONLY = ("timezone", "seconds", "dst_gap", "dst_fold")
_QUEUE = re.compile(r"[a-z0-9_.-]{1,64}")
_TAG = re.compile(r"[a-z0-9_.:/-]{1,50}")
_NOBODY = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What one job does, when, and under which policies; valid as it stands."""

    key: str
    name: str
    tags: tuple[str, ...]
    """Sorted, each once."""
    schedule: Schedule
    """As written: H not yet resolved, an interval without `starts_at` not yet
    anchored. :meth:`schedule_of` gives the job's own."""
    anchored: bool
    """Whether the anchor of an interval or a delay was given."""
    zoned: bool
    """Whether the time zone of a cron was given; UTC stands for one that was not."""
    jitter_window: Millis
    overlap_policy: OverlapPolicy
    policy: Policy
    queue: str
    priority: Priority
    target: dict[str, Any]
    payload: Any
    retry_policy: dict[str, Any]
    paused: bool | None
    """None leaves it as it is; a new job then runs."""

    def in_zone(self, timezone: str) -> "Definition":
        """Return the definition with a time zone where it has a cron that names none.

        Raises NeverFires for a cron that has no time in this zone.
        """
        if self.zoned or not isinstance(self.schedule, CronSchedule):
            return self
        schedule = replace(self.schedule, timezone=timezone)
        validate(resolve(schedule, _NOBODY))
        return replace(self, schedule=schedule, zoned=True)

    def schedule_of(self, job_id: UUID, *, created_at: Millis) -> Schedule:
        """Return the schedule of this job: H by its id, intervals from its creation.

        Raises BadSchedule for one that ends before it can begin.
        """
        schedule = resolve(self.schedule, job_id)
        if isinstance(schedule, Interval | FixedDelay) and not self.anchored:
            if schedule.ends_at is not None and schedule.ends_at < created_at:
                raise BadSchedule(
                    "ends_at lies before the creation of the job, from which it "
                    "counts: give a later ends_at, or a starts_at.",
                    field="ends_at",
                )
            return replace(schedule, anchor=created_at)
        return schedule

    def schedule_json(self, job_id: UUID, *, created_at: Millis) -> dict[str, Any]:
        """Return the job's schedule for its revision; `written` is the text with H."""
        schedule = self.schedule_of(job_id, created_at=created_at)
        fields = schedule_to_json(schedule)
        if isinstance(self.schedule, CronSchedule) and schedule != self.schedule:
            fields["written"] = self.schedule.expression
        return fields


def parse_definition(data: Mapping[str, Any]) -> Definition:
    """Return the definition written in flat fields, defaults filled in.

    Raises BadValue or a subclass with the name of the field at fault; unknown fields
    are refused with the closest known one.
    """
    if not isinstance(data, Mapping):
        raise BadValue("A definition is an object with named fields.")
    check_names(data)
    schedule = _schedule(data)
    policies = _policy(data, schedule)
    payload = _payload(data.get("payload"))
    if policies.concurrency_key is not None:
        check_template(policies.concurrency_key, field="concurrency_key")
        filled(policies.concurrency_key, payload, field="concurrency_key")
    return Definition(
        key=check_text(data.get("key"), field="key", most=LONGEST_KEY),
        name=check_text(data.get("name", ""), field="name", most=LONGEST_NAME, least=0),
        tags=parse_tags(data.get("tags", [])),
        schedule=schedule,
        anchored=data.get("starts_at") is not None,
        zoned=data.get("timezone") is not None,
        jitter_window=_jitter_window(data, resolve(schedule, _NOBODY)),
        overlap_policy=policy.overlap_from_name(data.get("overlap_policy", "skip")),
        policy=policies,
        queue=check_queue(data.get("queue", "default")),
        priority=priority_from_name(data.get("priority", "normal")),
        target=parse_target(data.get("target")),
        payload=payload,
        retry_policy=_retry_policy(data, policies),
        paused=None if data.get("paused") is None else _flag(data, "paused"),
    )


def parse_schedule(
    data: Mapping[str, Any], *, anchor: Millis, timezone: str = "UTC"
) -> tuple[Schedule, Millis]:
    """Return the schedule and the jitter window that a definition's fields mean.

    An interval or a delay without `starts_at` counts from ``anchor``, a cron without
    `timezone` is read in the one given here; no H is resolved. Raises as
    :func:`parse_definition` does, for these fields alone.
    """
    schedule = _schedule(data, anchor=anchor)
    if isinstance(schedule, CronSchedule) and data.get("timezone") is None:
        schedule = replace(schedule, timezone=timezone)
        validate(resolve(schedule, _NOBODY))
    return schedule, _jitter_window(data, resolve(schedule, _NOBODY))


def check_tag(value: object, *, field: str = "tags") -> str:
    """Return a tag as it is. Raises BadValue where it is none, with the right form."""
    if not isinstance(value, str):
        raise BadValue("A tag is text; put a number in quotes.", field=field)
    if _TAG.fullmatch(value):
        return value
    lower = value.lower()
    if _TAG.fullmatch(lower):
        raise BadValue(f"A tag is lower case: {lower}, not {value}.", field=field)
    raise BadValue(
        f"{value[:60]!r} is no tag: 1 to 50 characters of a-z, 0-9, _ . : / and -.",
        field=field,
    )


def check_names(data: Mapping[str, Any]) -> None:
    """Raise UnknownField or NotSupportedYet for a field that no definition has."""
    if FIELDS.issuperset(data):
        return
    for name in data:
        if name in FIELDS:
            continue
        shown = str(name)[:60]
        if name in _ELSEWHERE:
            raise UnknownField(_ELSEWHERE[name], field=name)
        if name in _LATER:
            raise NotSupportedYet(f"{shown} is not supported yet.", field=shown)
        close = difflib.get_close_matches(shown, sorted(FIELDS), n=1)
        hint = f"; is it {close[0]}?" if close else "."
        raise UnknownField(f"A definition has no field {shown}{hint}", field=shown)


def _schedule(data: Mapping[str, Any], *, anchor: Millis = 0) -> Schedule:
    for name in (*KINDS, "starts_at", "ends_at"):
        value = data.get(name)
        # An empty list is not left out either, though both are false.
        if value is not None and not isinstance(value, str):
            raise BadSchedule(f"{name} is text.", field=name)
        if value == "":
            raise BadValue(f"{name} is empty.", field=name)
    schedule = schedule_from_json(data, anchor=anchor)
    if not isinstance(schedule, CronSchedule):
        for name in _CRON_ONLY:
            if data.get(name) is not None:
                raise BadValue(f"{name} belongs to a cron schedule.", field=name)
    if isinstance(schedule, Once):
        for name in ("starts_at", "ends_at"):
            if data.get(name) is not None:
                raise BadValue(f"A job with run_at has no {name}.", field=name)
    validate(resolve(schedule, _NOBODY))
    return schedule


def _jitter_window(data: Mapping[str, Any], schedule: Schedule) -> Millis:
    field = "jitter_window"
    given = data.get(field)
    time_critical = _flag(data, "time_critical")
    if given is None:
        return 0 if time_critical else default_window(schedule)
    if not isinstance(given, str):
        raise BadValue("jitter_window is a duration as text: 60s.", field=field)
    window = parse_duration(given, field=field)
    if time_critical and window:
        raise BadValue("A time_critical job has no jitter_window.", field=field)
    if window > WIDEST_JITTER:
        raise BadValue(
            f"jitter_window is at most {format_duration(WIDEST_JITTER)}.", field=field
        )
    between = period(schedule)
    if between is not None and window > between // 2:
        raise BadValue(
            "jitter_window is at most half the time between two fires, here "
            f"{format_duration(between // 2)}.",
            field=field,
        )
    return window


def _policy(data: Mapping[str, Any], schedule: Schedule) -> Policy:
    policies = policy.from_json(data)
    alone = "A job with run_at has one occurrence"
    if isinstance(schedule, Once) and policies.remaining_runs is not None:
        raise BadValue(f"{alone}, and no remaining_runs.", field="remaining_runs")
    if isinstance(schedule, FixedDelay):
        for name in ("catchup_policy", "max_delay"):
            if getattr(policies, name) != getattr(policy.DEFAULT, name):
                raise BadValue(
                    f"A fixed_delay counts from the end of a run and misses nothing: "
                    f"it has no {name}.",
                    field=name,
                )
    return policies


def _retry_policy(data: Mapping[str, Any], policies: Policy) -> dict[str, Any]:
    """Return the policy; a job that is delivered at most once has one attempt.

    So it is stored, and a program that knows nothing of delivery tries no second time.
    """
    retries = retry.from_json(data.get("retry_policy", {}))
    if policies.delivery == "at_most_once":
        retries = replace(retries, max_attempts=1)
    return retry.to_json(retries)


def check_queue(value: object) -> str:
    """Return a queue's name; raises BadValue for what is none."""
    if not isinstance(value, str) or not _QUEUE.fullmatch(value):
        raise BadValue(
            "A queue's name is a-z, 0-9, _ . and -, at most 64.", field="queue"
        )
    return value


def parse_tags(value: object) -> tuple[str, ...]:
    """Return a job's tags, sorted. Raises BadValue for what is no list of them."""
    field = "tags"
    if not isinstance(value, list):
        raise BadValue("tags is a list of words.", field=field)
    if len(value) > MOST_TAGS:
        raise BadValue(f"A job has at most {MOST_TAGS} tags.", field=field)
    tags = sorted(check_tag(tag) for tag in value)
    for tag, following in pairwise(tags):
        if tag == following:
            raise BadValue(f"The tag {tag} is there twice.", field=field)
    return tuple(tags)


def _payload(value: object) -> object:
    check_json(value, field="payload")
    return value


def _flag(data: Mapping[str, Any], name: str) -> bool:
    value = data.get(name, False)
    if not isinstance(value, bool):
        raise BadValue(f"{name} is true or false.", field=name)
    return value
