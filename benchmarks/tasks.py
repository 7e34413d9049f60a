"""The work of a benchmark: none."""

import chrono


@chrono.task(name="benchmarks.nothing")
async def nothing(payload: object) -> None:
    """Return at once."""
