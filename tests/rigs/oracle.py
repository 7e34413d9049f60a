"""When jobs should fire, by their definitions and arithmetic of its own.

It reads the same fields that a file of jobs has, and knows only the forms that the
rigs use. A cron expression of minutes is asked of chrono.rules.oracle, which shares
nothing with what plans and fires; one with seconds has one column of steps.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from chrono.rules import oracle
from tests.rigs.ledger import Millis, to_millis
from tests.rigs.tables import JobRow

SECOND: Millis = 1_000
_UNITS = {"s": SECOND, "ms": 1, "m": 60 * SECOND}


@dataclass(frozen=True, slots=True, kw_only=True)
class Era:
    """A definition and the instants between which it decided: (after, until]."""

    definition: Mapping[str, Any]
    after: Millis
    until: Millis


@dataclass(slots=True)
class History:
    """The definitions of each job and the instants at which they changed."""

    eras: dict[str, list[Era]] = field(default_factory=dict)
    _open: dict[str, tuple[Mapping[str, Any], Millis]] = field(default_factory=dict)

    def begin(self, definition: Mapping[str, Any], job: JobRow) -> None:
        """A definition decides from the instant that the job's row tells."""
        self.end(job)
        self._open[job.key] = definition, job.activated_at

    def end(self, job: JobRow) -> None:
        """The job's definition decided up to the instant that its row tells."""
        if job.key in self._open:
            definition, after = self._open.pop(job.key)
            era = Era(definition=definition, after=after, until=job.activated_at)
            self.eras.setdefault(job.key, []).append(era)

    def end_all(self, now: Millis) -> None:
        """What is still open decided up to now."""
        for key, (definition, after) in self._open.items():
            era = Era(definition=definition, after=after, until=now)
            self.eras.setdefault(key, []).append(era)
        self._open.clear()


def iso(moment: float) -> str:
    """Return seconds as an ISO instant in UTC with milliseconds."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")


def expected(eras: Iterable[Era]) -> set[Millis]:
    """Return the instants at which a job with this history was to fire."""
    return {moment for era in eras for moment in instants(era)}


def instants(era: Era) -> list[Millis]:
    """Return the instants of one era, earliest first."""
    fields = era.definition
    if "run_at" in fields:
        found = [to_millis(fields["run_at"])]
    elif "interval" in fields:
        anchor, every = to_millis(fields["starts_at"]), _duration(fields["interval"])
        skipped = max(0, (era.after - anchor) // every)
        found = list(range(anchor + skipped * every, era.until + 1, every))
    elif fields.get("seconds"):
        found = _every_few_seconds(fields["cron"], era)
    else:
        found = list(oracle.fires({"cron": fields["cron"]}, era.after, era.until))
    return [moment for moment in found if era.after < moment <= era.until]


def _duration(text: str) -> Millis:
    match = re.fullmatch(r"(\d+)(ms|s|m)", text)
    assert match, f"the oracle cannot read {text}"
    return int(match[1]) * _UNITS[match[2]]


def _every_few_seconds(expression: str, era: Era) -> list[Millis]:
    match = re.fullmatch(r"(\d+)-59/(\d+) \* \* \* \* \*", expression)
    assert match, f"the oracle cannot read {expression}"
    first, step = int(match[1]), int(match[2])
    seconds = range(era.after // SECOND, era.until // SECOND + 1)
    return [
        second * SECOND
        for second in seconds
        if second % 60 >= first and (second % 60 - first) % step == 0
    ]
