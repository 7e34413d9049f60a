"""The retry budget of a target: retries are a share of the first attempts.

A token bucket, as gRPC throttles retries, with Envoy's floor: where hardly anything is
called, a few retries go all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp

from chrono.rules.instants import SECOND, Millis

WINDOW: Millis = 60 * SECOND
"""Over this long first attempts count."""
FLOOR: Millis = 10 * SECOND
"""Within this long the floor's tokens come anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPolicy:
    """How many retries there may be."""

    ratio: float = 0.1
    """Retries for each first attempt."""
    min_concurrent: int = 5
    """How many there may be at a time whatever the traffic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What is left, and the counts that people ask for."""

    tokens: float = 0.0
    traffic: float = 0.0
    """First attempts of the last minute, those longer ago fading out."""
    at: Millis = 0
    granted: int = 0
    refused: int = 0


def spend(
    budget: Budget, *, policy: BudgetPolicy, firsts: int, wanted: int, now: Millis
) -> tuple[Budget, int]:
    """Return the budget after ``wanted`` retries asked for it, and how many may go.

    ``firsts`` are the first attempts since the last time. A new budget is full.
    """
    passed = max(0, now - budget.at)
    traffic = budget.traffic * exp(-passed / WINDOW) + firsts
    tokens = budget.tokens + policy.ratio * firsts
    tokens += policy.min_concurrent * passed / FLOOR
    tokens = min(_most(policy, traffic), tokens)
    granted = min(wanted, int(tokens))
    return (
        replace(
            budget,
            tokens=tokens - granted,
            traffic=traffic,
            at=max(now, budget.at),
            granted=budget.granted + granted,
            refused=budget.refused + wanted - granted,
        ),
        granted,
    )


def share(budget: Budget, policy: BudgetPolicy, now: Millis) -> float:
    """Return how much of the budget is left, from 0 to 1."""
    after, _ = spend(budget, policy=policy, firsts=0, wanted=0, now=now)
    most = _most(policy, after.traffic)
    return min(1.0, after.tokens / most) if most else 0.0


def _most(policy: BudgetPolicy, traffic: float) -> float:
    return max(float(policy.min_concurrent), policy.ratio * traffic)
