"""What a job does about missed and overlapping occurrences, failures and delays.

The policies that are no part of the schedule, as values; their JSON form is that of a
job's flat fields, with what is default left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, cast, get_args

from chrono.rules import key_template
from chrono.rules.durations import format_duration, parse_duration
from chrono.rules.errors import BadValue
from chrono.rules.instants import DAY, SECOND, Millis

type CatchupPolicy = Literal["skip", "run_once", "run_all", "deadline"]
type OverlapPolicy = Literal[
    "skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other", "allow_all"
]

type Delivery = Literal["at_least_once", "at_most_once"]
type OnLimit = Literal["wait", "drop"]

CATCHUP_POLICIES: tuple[str, ...] = get_args(CatchupPolicy.__value__)
OVERLAP_POLICIES: tuple[str, ...] = get_args(OverlapPolicy.__value__)
DELIVERIES: tuple[str, ...] = get_args(Delivery.__value__)
ON_LIMIT: tuple[str, ...] = get_args(OnLimit.__value__)
MOST_CONCURRENT = 1_000
MOST_REMAINING = 1_000_000
MOST_FAILURES = 100
MOST_OF_A_KEY = 1_000
MOST_OF_A_PERIOD = 1_000
LONGEST_KEY = key_template.LONGEST
FILLED_KEY = "filled_key"
"""In the JSON of a revision beside a concurrency_key with holes: what the job's own
payload makes of it."""
LONGEST_PERIOD: Millis = DAY

OVERLAP_ALIASES = {
    "forbid": "skip",
    "replace": "cancel_other",
    "allow": "allow_all",
    "queue": "buffer_all",
    "cancel_newest": "skip",
    "cancel_in_progress": "cancel_other",
}
"""What other schedulers call an overlap policy, read in any case."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """How many runs may begin within any stretch of time of this length."""

    limit: int
    period: Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The policies of one job; a field that is None is switched off."""

    catchup_policy: CatchupPolicy = "run_once"
    """What becomes of occurrences missed by more than a minute."""
    delivery: Delivery = "at_least_once"
    """Whether a run whose worker was lost is begun again, or waits for a person."""
    max_delay: Millis | None = None
    """How long after its due instant an occurrence may still begin."""
    max_concurrent_runs: int | None = None
    """How many runs may be live; None is 1, and no bound for allow_all."""
    remaining_runs: int | None = None
    """How many runs of the schedule there are before it ends."""
    pause_on_failure: int | None = None
    """After how many dead runs in a row the job is paused."""
    late_after: Millis | None = None
    """How long after its due instant a run that has not begun is reported."""
    max_runtime: Millis | None = None
    """How long an attempt may take before it is reported."""
    max_time_since_success: Millis | None = None
    """How long the job may go without a success before that is reported."""
    concurrency_key: str | None = None
    """What its runs share with those of other jobs of the tenant; may have holes that
    the payload fills."""
    concurrency_limit: int | None = None
    """Fewer runs of the key than this are under way when one is let in; None is 1."""
    rate_limit: RateLimit | None = None
    """How many runs may begin; of the key, where there is one, else of the job."""
    on_limit: OnLimit = "wait"
    """What becomes of a run above the rate."""


DEFAULT = Policy()
POLICY_FIELDS = frozenset(field.name for field in fields(Policy))
_DURATIONS = ("max_delay", "late_after", "max_runtime", "max_time_since_success")
_NUMBERS = {
    "max_concurrent_runs": MOST_CONCURRENT,
    "remaining_runs": MOST_REMAINING,
    "pause_on_failure": MOST_FAILURES,
    "concurrency_limit": MOST_OF_A_KEY,
}


def from_json(data: Mapping[str, Any]) -> Policy:
    """Return the policies written in a job's fields; other fields are not looked at.

    What is left out or null is default. Raises BadValue naming the field at fault.
    """
    if POLICY_FIELDS.isdisjoint(data):
        return DEFAULT
    policy = Policy(
        catchup_policy=cast(
            CatchupPolicy, _word(data, "catchup_policy", CATCHUP_POLICIES)
        ),
        delivery=cast(Delivery, _word(data, "delivery", DELIVERIES)),
        **{name: _duration(data, name) for name in _DURATIONS},
        **{name: _number(data, name, most) for name, most in _NUMBERS.items()},
        concurrency_key=_key(data),
        rate_limit=_rate(data),
        on_limit=cast(OnLimit, _word(data, "on_limit", ON_LIMIT)),
    )
    if policy.concurrency_limit is not None and policy.concurrency_key is None:
        raise BadValue(
            "concurrency_limit is of a concurrency_key, and there is none.",
            field="concurrency_limit",
        )
    if policy.on_limit == "drop" and policy.rate_limit is None:
        raise BadValue(
            "on_limit drop is about a rate_limit, and there is none.", field="on_limit"
        )
    if policy.catchup_policy == "deadline" and policy.max_delay is None:
        raise BadValue(
            "catchup_policy deadline needs max_delay: how late a run may begin.",
            field="max_delay",
        )
    return policy


def in_force(data: Mapping[str, Any]) -> Policy:
    """Return the policies of a stored revision, with its key as its payload fills it.

    Raises BadValue as :func:`from_json` does.
    """
    policy = from_json(data)
    key = data.get(FILLED_KEY)
    return policy if key is None else replace(policy, concurrency_key=str(key))


def to_json(policy: Policy) -> dict[str, Any]:
    """Return a job's flat fields of what is not default in the policies."""
    if policy == DEFAULT:
        return {}
    shown = all_fields(policy)
    default = all_fields(DEFAULT)
    return {name: value for name, value in shown.items() if value != default[name]}


def all_fields(policy: Policy) -> dict[str, Any]:
    """Return the policies as a job's flat fields, defaults too."""
    shown = {name: getattr(policy, name) for name in sorted(POLICY_FIELDS)}
    for name in _DURATIONS:
        if shown[name] is not None:
            shown[name] = format_duration(shown[name])
    if policy.rate_limit is not None:
        shown["rate_limit"] = {
            "limit": policy.rate_limit.limit,
            "period": format_duration(policy.rate_limit.period),
        }
    return shown


def overlap_from_name(value: object) -> OverlapPolicy:
    """Return the overlap policy of a name, or of one that other schedulers use.

    Raises BadValue for anything else.
    """
    name = (
        OVERLAP_ALIASES.get(value.lower(), value) if isinstance(value, str) else value
    )
    if name not in OVERLAP_POLICIES:
        raise BadValue(
            f"overlap_policy is one of {', '.join(OVERLAP_POLICIES)}.",
            field="overlap_policy",
        )
    return cast(OverlapPolicy, name)


def _word(data: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str:
    value = data.get(name)
    if value is None:
        return str(getattr(DEFAULT, name))
    if not isinstance(value, str) or value not in known:
        raise BadValue(f"{name} is one of {', '.join(known)}.", field=name)
    return value


def _duration(data: Mapping[str, Any], name: str) -> Any:
    value = data.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadValue(f"{name} is a duration as text: 15m.", field=name)
    length = parse_duration(value, field=name)
    if length < SECOND:
        raise BadValue(f"{name} is at least 1s.", field=name)
    return length


def _number(data: Mapping[str, Any], name: str, most: int) -> Any:
    value = data.get(name)
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= most:
        raise BadValue(f"{name} is a whole number from 1 to {most}.", field=name)
    return value


def _key(data: Mapping[str, Any]) -> str | None:
    value = data.get("concurrency_key")
    if value is None:
        return None
    if (
        not isinstance(value, str)
        or not 0 < len(value) <= LONGEST_KEY
        or not value.isprintable()
    ):
        raise BadValue(
            f"concurrency_key is text of 1 to {LONGEST_KEY} printable characters.",
            field="concurrency_key",
        )
    return value


def _rate(data: Mapping[str, Any]) -> RateLimit | None:
    value = data.get("rate_limit")
    if value is None:
        return None
    field = "rate_limit"
    if isinstance(value, str) and "/" in value:
        count, _, length = value.partition("/")
        number = int(count) if count.isdecimal() and len(count) < 9 else count
        value = {"limit": number, "period": length}
    if not isinstance(value, Mapping) or set(value) != {"limit", "period"}:
        raise BadValue(
            'rate_limit is an object: {"limit": 10, "period": "1m"}.', field=field
        )
    limit = value["limit"]
    if type(limit) is not int or not 1 <= limit <= MOST_OF_A_PERIOD:
        raise BadValue(
            f"limit is a whole number from 1 to {MOST_OF_A_PERIOD}.",
            field=f"{field}.limit",
        )
    period = parse_duration(value["period"], field=f"{field}.period")
    if not SECOND <= period <= LONGEST_PERIOD:
        raise BadValue("period is between 1s and 1d.", field=f"{field}.period")
    return RateLimit(limit, period)
