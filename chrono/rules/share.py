"""An even share of the partitions for each scheduler process."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from hashlib import sha256
from uuid import UUID

from chrono.rules.partitions import PARTITIONS


def target_share(members: int, partitions: int = PARTITIONS) -> int:
    """Return how many partitions a process holds at most: the even share, rounded up.

    Rounding up means that the shares always add up to every partition.
    """
    return -(-partitions // max(1, members))


def to_release(held: AbstractSet[int], members: int) -> list[int]:
    """Return the partitions above the process's share, highest numbers first."""
    surplus = len(held) - target_share(members)
    return sorted(held, reverse=True)[: max(0, surplus)]


def to_try(
    held: AbstractSet[int],
    taken_by_others: AbstractSet[int],
    members: int,
    seed: int | str | UUID,
) -> list[int]:
    """Return the free partitions to try now, best first, at most up to the share.

    Processes with different seeds order the free partitions differently (rendezvous
    hashing), so that those which start together seldom want the same lock.
    """
    room = target_share(members) - len(held)
    if room <= 0:
        return []
    free = (p for p in range(PARTITIONS) if p not in held and p not in taken_by_others)
    return sorted(free, key=lambda p: sha256(f"{seed}:{p}".encode()).digest())[:room]
