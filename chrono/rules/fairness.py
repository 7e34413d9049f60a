"""Fair order between tenants: start-time fair queueing anchored in wall time.

After Goyal, Vin and Cheng, "Start-time Fair Queueing" (1996). A tenant that was idle
begins where the queue stands: at the tag of the run that is next, or at the
database's clock where nothing waits. So schedulers share nothing but the queue, nobody
has saved-up credit, and whoever comes with one run does not stand behind what others
left before.
"""

from __future__ import annotations

from dataclasses import dataclass

from chrono.rules.errors import BadValue
from chrono.rules.instants import Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a tenant gets of the workers beside others, and at most."""

    weight: float = 1.0
    max_running: int | None = None
    """How many of its runs may be under way at once; None for any number."""
    max_starts: int | None = None
    """How many of its runs may begin in any second; None for any number."""


def tag(
    now: Millis, last: int, weight: float, cost: float = 1.0, head: int | None = None
) -> int:
    """Return the fair tag, in microseconds, of a tenant's next run; lowest goes first.

    `head` is the tag of the run that is next in the queue, None where nothing waits;
    `last` is the tag of the tenant's previous run (0 if none); the new tag is always
    greater. A tenant of weight 2 advances half as fast as one of weight 1, and so
    gets twice the share.
    """
    return tags(now, last, weight, 1, cost, head)[0]


def tags(
    now: Millis,
    last: int,
    weight: float,
    count: int,
    cost: float = 1.0,
    head: int | None = None,
) -> range:
    """Return the fair tags of a tenant's next so many runs, as :func:`tag` one by one.

    Of runs that are made at once only the first can be behind where the queue stands.
    """
    if not weight > 0:
        raise BadValue("A weight is greater than 0.", field="weight")
    start = now * 1000 if head is None else min(now * 1000, head)
    step = max(1, round(cost * 1000 / weight))
    first = max(start, last) + step
    return range(first, first + count * step, step)
