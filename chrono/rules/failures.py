"""How many runs of a job ended dead in a row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from chrono.rules.instants import Millis
from chrono.rules.states import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A run that is over."""

    run_id: UUID
    state: int
    at: Millis


def dead_in_a_row(ended: Iterable[Ended], *, since: Millis) -> list[Ended]:
    """Return the runs that died after the last success, the last one first.

    Only what ended after ``since`` counts: a person who changed or resumed the job
    meanwhile is given a new count. What was called off neither counts nor ends a row.
    """
    dead: list[Ended] = []
    for run in sorted(ended, key=lambda one: (one.at, one.run_id), reverse=True):
        if run.at <= since or run.state == RunState.SUCCESS:
            break
        if run.state == RunState.DEAD:
            dead.append(run)
    return dead
