"""Fair order between tenants: start-time fair queueing anchored in wall time.

After Goyal, Vin and Cheng, "Start-time Fair Queueing" (1996), with the database's
clock in place of a shared virtual time: nothing is shared between schedulers, and
a tenant that was idle begins at now rather than with saved-up credit.
"""

from __future__ import annotations

from chrono.rules.errors import BadValue
from chrono.rules.instants import Millis


def tag(now: Millis, last: int, weight: float, cost: float = 1.0) -> int:
    """Return the fair tag, in microseconds, of a tenant's next run; lowest goes first.

    `last` is the tag of the tenant's previous run (0 if none); the new tag is always
    greater. A tenant of weight 2 advances half as fast as one of weight 1, and so
    gets twice the share.
    """
    if not weight > 0:
        raise BadValue("A weight is greater than 0.", field="weight")
    return max(now * 1000, last) + max(1, round(cost * 1000 / weight))
