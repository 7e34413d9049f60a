"""What happens after a failed attempt: another one, or the dead-letter queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from chrono.rules.backoff import full_jitter
from chrono.rules.breaker import BreakerPolicy
from chrono.rules.budget import BudgetPolicy
from chrono.rules.durations import LONGEST
from chrono.rules.errors import BadValue
from chrono.rules.instants import Millis
from chrono.rules.states import Reason

type FailureKind = Literal[
    "timeout",
    "connect_failure",
    "5xx",
    "4xx",
    "throttled",
    "exception",
    "worker_lost",
    "process_crash",
    "no_handler",
    "bad_target",
    "non_retryable",
]

FAILURE_KINDS: frozenset[str] = frozenset(get_args(FailureKind.__value__))
"""Every kind of failure: `throttled` is 408, 425, 429; `4xx` any other 4xx; `exception`
a task handler's; `bad_target` a target that cannot be called as it stands."""

SELECTABLE: tuple[str, ...] = ("timeout", "5xx", "connect_failure")
"""The kinds that `retry_on` switches; the others are always or never tried again."""

_ALWAYS = frozenset(
    {"throttled", "exception", "worker_lost", "process_crash", "no_handler"}
)
_MOST_ATTEMPTS = 1000
FREE_INTERRUPTIONS = 10
"""So often a run may be stopped with its worker before that spends attempts."""


DEFAULT_BUDGET = BudgetPolicy()
DEFAULT_BREAKER = BreakerPolicy()


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how far apart a run is tried."""

    max_attempts: int = 6
    """All attempts, the first included."""
    base_ms: Millis = 1_000
    """The longest wait before the first retry; it doubles with each further one."""
    cap_ms: Millis = 900_000
    """The longest wait there is, Retry-After included."""
    retry_on: tuple[str, ...] = SELECTABLE
    budget: BudgetPolicy = DEFAULT_BUDGET
    circuit_breaker: BreakerPolicy = DEFAULT_BREAKER


DEFAULT = RetryPolicy()


@dataclass(frozen=True, slots=True)
class Failure:
    """How an attempt ended when it did not succeed."""

    kind: str
    """One of FAILURE_KINDS."""
    message: str
    retry_after: Millis | None = None
    """The wait the target asked for, in milliseconds from now, or None."""
    status: int | None = None
    """The HTTP status, where there was one."""

    def __post_init__(self) -> None:
        if self.kind not in FAILURE_KINDS:
            raise BadValue(f"{self.kind} is not a kind of failure.", field="kind")


@dataclass(frozen=True, slots=True)
class RetryAt:
    """Try again at this instant."""

    at: Millis


@dataclass(frozen=True, slots=True)
class Bury:
    """Give up: the run is dead."""

    reason: Reason


type Verdict = RetryAt | Bury


def charged(attempt: int, *, spared: int) -> int:
    """Return which attempt this is of those that count: some were nobody's fault."""
    return max(1, attempt - spared)


def is_charged(interruptions: int) -> bool:
    """Return whether the last of so many interruptions spends an attempt."""
    return interruptions > FREE_INTERRUPTIONS


def decide(
    failure: Failure, *, policy: RetryPolicy, attempt: int, now: Millis, draw: float
) -> Verdict:
    """Return what to do after attempt number `attempt` (from 1) failed.

    `draw` is uniform in [0, 1). A target's Retry-After is honoured up to the cap.
    """
    if failure.kind not in _ALWAYS and failure.kind not in policy.retry_on:
        return Bury(Reason.NON_RETRYABLE)
    if attempt >= policy.max_attempts:
        return Bury(Reason.ATTEMPTS_EXHAUSTED)
    wait = full_jitter(attempt, policy.base_ms, policy.cap_ms, draw)
    if failure.retry_after is not None:
        wait = max(wait, min(failure.retry_after, policy.cap_ms))
    return RetryAt(now + wait)


def unaffordable(
    retry: RetryAt, *, policy: RetryPolicy, now: Millis, draw: float
) -> RetryAt:
    """Return when a retry goes for which the target's budget has nothing left.

    Between half the policy's cap and the cap, spread by `draw` in [0, 1).
    """
    half = policy.cap_ms // 2
    return RetryAt(max(retry.at, now + half + int((policy.cap_ms - half) * draw)))


def says_how_it_is(kind: FailureKind | str) -> bool | None:
    """Return what a kind of failure says of its target: whether it is well.

    None where it says nothing of it.
    """
    match kind:
        case "timeout" | "connect_failure" | "5xx" | "exception":
            return False
        case "4xx":
            return True
        case _:
            return None


def to_json(policy: RetryPolicy) -> dict[str, Any]:
    """Return the policy in the shape of a job's `retry_policy`.

    `budget` and `circuit_breaker` are left out where they are the default.
    """
    of_target: dict[str, Any] = {}
    if policy.budget != DEFAULT_BUDGET:
        of_target["budget"] = asdict(policy.budget)
    if policy.circuit_breaker != DEFAULT_BREAKER:
        of_target["circuit_breaker"] = asdict(policy.circuit_breaker)
    return {
        "max_attempts": policy.max_attempts,
        "backoff": {
            "base_ms": policy.base_ms,
            "cap_ms": policy.cap_ms,
            "jitter": "full",
        },
        "retry_on": list(policy.retry_on),
        **of_target,
    }


def from_json(data: Mapping[str, Any]) -> RetryPolicy:
    """Return the policy written in a job's `retry_policy`; what is left out is DEFAULT.

    Raises BadValue naming the field at fault, unknown fields included.
    """
    if data == {}:
        return DEFAULT
    top = _object(data, "retry_policy", _SHAPE)
    backoff = _object(top.get("backoff", {}), "retry_policy.backoff", _BACKOFF)
    if backoff.get("jitter", "full") != "full":
        raise BadValue("The only jitter is full.", field="retry_policy.backoff.jitter")
    policy = RetryPolicy(
        max_attempts=_integer(
            top, "max_attempts", "retry_policy", DEFAULT.max_attempts, 1, _MOST_ATTEMPTS
        ),
        base_ms=_integer(
            backoff, "base_ms", "retry_policy.backoff", DEFAULT.base_ms, 0, LONGEST
        ),
        cap_ms=_integer(
            backoff, "cap_ms", "retry_policy.backoff", DEFAULT.cap_ms, 0, LONGEST
        ),
        retry_on=_retry_on(top.get("retry_on", DEFAULT.retry_on)),
        budget=_budget(top.get("budget", {})),
        circuit_breaker=_breaker(top.get("circuit_breaker", {})),
    )
    if policy.cap_ms < policy.base_ms:
        raise BadValue(
            "cap_ms is not less than base_ms.", field="retry_policy.backoff.cap_ms"
        )
    return policy


_SHAPE = frozenset({"max_attempts", "backoff", "budget", "retry_on", "circuit_breaker"})
_BACKOFF = frozenset({"base_ms", "cap_ms", "jitter"})
_BUDGET = frozenset({"ratio", "min_concurrent"})
_BREAKER = frozenset({"failure_threshold", "open_duration_s", "half_open_probes"})


def _budget(value: object) -> BudgetPolicy:
    path, default = "retry_policy.budget", DEFAULT_BUDGET
    given = _object(value, path, _BUDGET)
    ratio = given.get("ratio", default.ratio)
    if type(ratio) not in (int, float) or not 0 <= ratio <= 1:
        raise BadValue("ratio is a number from 0 to 1.", field=f"{path}.ratio")
    return BudgetPolicy(
        ratio=float(ratio),
        min_concurrent=_integer(
            given, "min_concurrent", path, default.min_concurrent, 0, 1_000
        ),
    )


def _breaker(value: object) -> BreakerPolicy:
    path, default = "retry_policy.circuit_breaker", DEFAULT_BREAKER
    given = _object(value, path, _BREAKER)
    return BreakerPolicy(
        failure_threshold=_integer(
            given, "failure_threshold", path, default.failure_threshold, 1, 10_000
        ),
        open_duration_s=_integer(
            given, "open_duration_s", path, default.open_duration_s, 1, 86_400
        ),
        half_open_probes=_integer(
            given, "half_open_probes", path, default.half_open_probes, 1, 100
        ),
    )


def _object(value: object, path: str, known: frozenset[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadValue(f"{path} is an object.", field=path)
    for name in value:
        if name not in known:
            raise BadValue(
                f"{path} has no field {name}; it has {', '.join(sorted(known))}.",
                field=f"{path}.{name}",
            )
    return value


def _integer(
    data: Mapping[str, Any], name: str, path: str, default: int, least: int, most: int
) -> int:
    value = data.get(name, default)
    if type(value) is not int or not least <= value <= most:
        raise BadValue(
            f"{name} is a whole number from {least} to {most}.", field=f"{path}.{name}"
        )
    return value


def _retry_on(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or any(v not in SELECTABLE for v in value):
        raise BadValue(
            f"retry_on is a list of {', '.join(SELECTABLE)}.",
            field="retry_policy.retry_on",
        )
    return tuple(kind for kind in SELECTABLE if kind in value)
