"""What the gates are called behind which runs of several jobs wait."""

from __future__ import annotations

from dataclasses import dataclass

from chrono.rules.states import Reason


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate of one tenant: what it is for, and of what it is the gate."""

    reason: Reason
    tenant: int
    name: str
    """The target, the queue, or the key."""

    @property
    def key(self) -> str:
        """Return the text by which its rows are found."""
        return f"{self.reason.label}/{self.tenant}/{self.name}"


_KINDS = {one.label: one for one in (Reason.CIRCUIT_OPEN, Reason.QUEUE_PAUSED)}


def parse_gate(key: str) -> Gate | None:
    """Return the gate of a key; None for one that is not of this kind."""
    kind, _, rest = key.partition("/")
    tenant, _, name = rest.partition("/")
    if kind not in _KINDS or not tenant.isdecimal():
        return None
    return Gate(_KINDS[kind], int(tenant), name)
