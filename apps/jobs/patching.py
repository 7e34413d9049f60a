"""Merge patches (RFC 7396) over the definition of a job as it is.

What a patch does not name stays, and null gives a field its default. Fields that only
made sense beside what the patch replaces go with it: a job moved from cron to an
interval loses its time zone, one moved to a fixed delay its catch-up policy, one moved
to another kind of target its url. What makes sense beside both stays: an end, and a
start that somebody chose.
"""

from collections.abc import Mapping
from typing import Any

from apps.jobs.definition import Definition, check_names, parse_definition
from apps.jobs.public import READ_ONLY, definition_fields, has_chosen_start
from apps.jobs.store import Job
from chrono.rules.errors import BadValue, ChronoError
from chrono.rules.jitter import WIDEST_DEFAULT, default_window
from chrono.rules.schedule import KINDS, SCHEDULE_FIELDS, schedule_from_json

DEPTH = 40
_BOUNDS = ("starts_at", "ends_at")
_REFUSED_BY = {
    "fixed_delay": ("catchup_policy", "max_delay"),
    "run_at": (*_BOUNDS, "remaining_runs"),
}
"""What a schedule of a kind does not go with."""


def patched(job: Job, patch: Mapping[str, Any]) -> Definition:
    """Return the definition that a job gets by a patch.

    Raises BadValue or a subclass with the field at fault, read-only ones included.
    """
    if not isinstance(patch, Mapping):
        raise BadValue("A patch is an object with named fields.")
    for name in READ_ONLY:
        if name in patch:
            raise BadValue(f"{name} is not changed by a patch.", field=name)
    check_names(patch)
    base = definition_fields(job)
    _drop_schedule(base, patch, job)
    _drop_jitter(base, patch, job)
    _drop_target(base, patch)
    _drop_attempts(base, patch)
    return parse_definition(_merged(base, patch, 0))


def _drop_schedule(base: dict[str, Any], patch: Mapping[str, Any], job: Job) -> None:
    given = [kind for kind in KINDS if patch.get(kind) is not None]
    if not given:
        return
    text = patch.get("cron")
    cron = isinstance(text, str) and not text.strip().startswith("@every")
    same = given == ["cron"] and cron if "cron" in base else given[0] in base
    if same:
        return
    if not has_chosen_start(job):
        base.pop("starts_at", None)
    for name in (*SCHEDULE_FIELDS.difference(_BOUNDS), *_REFUSED_BY.get(given[0], ())):
        base.pop(name, None)


def _drop_jitter(base: dict[str, Any], patch: Mapping[str, Any], job: Job) -> None:
    """A default follows the schedule; what somebody chose stays."""
    moved = any(name in patch for name in SCHEDULE_FIELDS)
    if (moved and _is_default(job)) or patch.get("time_critical") is True:
        base.pop("jitter_window")


def _is_default(job: Job) -> bool:
    """Whether nobody need have chosen the job's jitter window."""
    window = job.definition.jitter_window
    try:
        return window == default_window(schedule_from_json(job.definition.schedule))
    except ChronoError:
        # Of a schedule that cannot be read it may be the default, if it is short.
        return window <= WIDEST_DEFAULT


def _drop_target(base: dict[str, Any], patch: Mapping[str, Any]) -> None:
    target = patch.get("target")
    if (
        isinstance(target, Mapping)
        and target.get("kind", base["target"]["kind"]) != (base["target"]["kind"])
    ):
        del base["target"]


def _drop_attempts(base: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """A job that is no longer delivered at most once gets the default attempts."""
    if base["delivery"] == "at_most_once" and (
        patch.get("delivery", base["delivery"]) != base["delivery"]
    ):
        base["retry_policy"] = {
            name: value
            for name, value in base["retry_policy"].items()
            if name != "max_attempts"
        }


def _merged(base: object, patch: object, depth: int) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    if depth > DEPTH:
        raise BadValue(f"A patch is nested at most {DEPTH} levels deep.")
    merged = dict(base) if isinstance(base, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value, depth + 1)
    return merged
