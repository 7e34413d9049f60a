"""The work of a benchmark: none, sleep, or a line in a ledger outside the database."""

import asyncio
import functools
import os
import uuid
from collections import Counter
from pathlib import Path

import chrono
from chrono.tasks import Context

FOLDER = "CHRONO_BENCH_FOLDER"
ID_BYTES = 16


@chrono.task(name="benchmarks.nothing")
async def nothing(payload: object) -> None:
    """Return at once."""


@chrono.task(name="benchmarks.asleep")
async def asleep(payload: dict[str, float]) -> None:
    """Take as many seconds as the payload says, and nothing else."""
    await asyncio.sleep(payload["seconds"])


@chrono.task(name="benchmarks.noted")
async def noted(payload: object, context: Context) -> None:
    """Write the run's id into this process's ledger."""
    os.write(_ledger(), uuid.UUID(context.run_id).bytes)


@functools.cache
def _ledger() -> int:
    path = Path(os.environ[FOLDER]) / f"noted-{os.getpid()}"
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def read_ledgers(folder: Path) -> Counter[bytes]:
    """Return how often each run, by the bytes of its id, was executed."""
    seen: Counter[bytes] = Counter()
    for path in folder.glob("noted-*"):
        ids = path.read_bytes()
        seen.update(
            ids[start : start + ID_BYTES] for start in range(0, len(ids), ID_BYTES)
        )
    return seen
