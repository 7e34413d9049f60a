"""How long to wait before the next attempt: exponential backoff with full jitter.

Full jitter as in Marc Brooker, "Exponential Backoff And Jitter" (AWS Architecture
Blog, 2015): a uniform draw from nothing to the exponential bound spreads a crowd of
retries best.
"""

from __future__ import annotations

from chrono.rules.instants import Millis


def full_jitter(
    failed_attempts: int, base_ms: Millis, cap_ms: Millis, draw: float
) -> Millis:
    """Return a wait in [0, min(cap, base * 2 ** (failed attempts - 1))].

    `failed_attempts` counts from 1; `draw` is uniform in [0, 1).
    """
    return int(ceiling(failed_attempts, base_ms, cap_ms) * draw)


def ceiling(failed_attempts: int, base_ms: Millis, cap_ms: Millis) -> Millis:
    """Return the longest wait that full_jitter can draw for this attempt."""
    if failed_attempts < 1:
        raise ValueError("failed_attempts counts from 1")
    # Past 2**62 every base of a millisecond or more is above every cap.
    doublings = min(failed_attempts - 1, 62)
    return min(cap_ms, base_ms << doublings)
