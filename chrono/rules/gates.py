"""What the gates are called behind which runs of several jobs wait.

A gate's key names all that is needed to let somebody in: whose it is, what it is of,
and its limit, so who lets in has no job to read. Jobs with the same key and limit share
a gate; those with the same key and another limit have one of their own, and count
together with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from chrono.rules.fairness import Share
from chrono.rules.instants import SECOND, Millis
from chrono.rules.policy import Policy
from chrono.rules.states import Reason


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate of one tenant: what it is for, and of what it is the gate."""

    reason: Reason
    tenant: int
    name: str
    """The target, the queue, the limit and the key."""

    @property
    def key(self) -> str:
        """Return the text by which its rows are found."""
        return f"{self.reason.label}/{self.tenant}/{self.name}"

    @property
    def shared(self) -> str:
        """Return what it has in common with the gates that it counts together with.

        For how many there are at once, that is all but the limit.
        """
        if self.reason is not Reason.CONCURRENCY_LIMIT:
            return self.key
        _, _, of = self.name.partition("/")
        return f"{self.reason.label}/{self.tenant}/*/{of}"


@dataclass(frozen=True, slots=True)
class Limit:
    """What the gate of a limit lets in."""

    limit: int
    period: Millis
    """Within this long; 0 where it is about how many there are at once."""
    drops: bool
    """Whether what is above it is skipped."""
    of: str
    """The key, the job or the tenant."""


_KINDS = {
    one.label: one
    for one in (
        Reason.CIRCUIT_OPEN,
        Reason.QUEUE_PAUSED,
        Reason.RATE_LIMIT,
        Reason.CONCURRENCY_LIMIT,
    )
}
TENANT = "tenant"
LIMITS = frozenset({Reason.RATE_LIMIT, Reason.CONCURRENCY_LIMIT})
"""Gates that are never open: each run is let in by itself."""


def limits_of(
    policy: Policy, *, tenant: int, job: UUID, share: Share | None = None
) -> tuple[Gate, ...]:
    """Return the gates that each run of a job has to pass, in their order.

    Those of its tenant's quotas come after its own of the same kind: who waits for its
    tenant's turn has its key's place already.
    """
    gates = []
    key = policy.concurrency_key
    if policy.rate_limit is not None:
        rate, of = policy.rate_limit, f"job {job}" if key is None else f"key {key}"
        name = f"{rate.limit}/{rate.period}/{policy.on_limit}/{of}"
        gates.append(Gate(Reason.RATE_LIMIT, tenant, name))
    if share is not None and share.max_starts is not None:
        name = f"{share.max_starts}/{SECOND}/wait/{TENANT}"
        gates.append(Gate(Reason.RATE_LIMIT, tenant, name))
    if key is not None:
        name = f"{policy.concurrency_limit or 1}/{key}"
        gates.append(Gate(Reason.CONCURRENCY_LIMIT, tenant, name))
    if share is not None and share.max_running is not None:
        # A key is never empty.
        gates.append(Gate(Reason.CONCURRENCY_LIMIT, tenant, f"{share.max_running}/"))
    return tuple(gates)


def limit_of(gate: Gate) -> Limit:
    """Return what the gate of a limit lets in; ValueError for another gate."""
    if gate.reason is Reason.RATE_LIMIT:
        limit, period, on_limit, of = gate.name.split("/", 3)
        return Limit(int(limit), int(period), on_limit == "drop", of)
    limit, of = gate.name.split("/", 1)
    return Limit(int(limit), 0, False, f"key {of}" if of else TENANT)


def written(gates: Sequence[Gate]) -> str:
    """Return gates as one text, as they are given to a statement; empty for none."""
    return "\n".join(gate.key for gate in gates)


def parse_gate(key: str) -> Gate | None:
    """Return the gate of a key; None for one that is not of this kind."""
    kind, _, rest = key.partition("/")
    tenant, _, name = rest.partition("/")
    if kind not in _KINDS or not tenant.isdecimal():
        return None
    gate = Gate(_KINDS[kind], int(tenant), name)
    if gate.reason in LIMITS:
        try:
            limit_of(gate)
        except ValueError:
            return None
    return gate
