"""The rigs' Python tasks: each call one JSON line, on disk before the task succeeds.

Each process writes a file of its own, so that no two lines ever mix.
"""

import asyncio
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import chrono
from chrono.tasks import Context
from examples.receiver import Ledger

_lock = threading.Lock()
_ledgers: dict[int, tuple[Ledger, asyncio.Task[None]]] = {}


@chrono.task(name="rig.note")
async def note(payload: Any, context: Context) -> None:
    """Note the call; calls that come together share one fsync."""
    pid = os.getpid()
    if pid not in _ledgers:
        ledger = Ledger(_path("async"))
        _ledgers[pid] = ledger, asyncio.ensure_future(ledger.write_forever())
    await _ledgers[pid][0].append(_entry(payload, context))


@chrono.task(name="rig.linger")
async def linger(payload: Any, context: Context) -> None:
    """Note the call, and take as many seconds as the payload says."""
    await note(payload, context)
    await asyncio.sleep(payload["seconds"])


@chrono.task(name="rig.note_in_thread")
def note_in_thread(payload: Any, context: Context) -> str:
    """Note the call from one of the worker's threads."""
    line = json.dumps(_entry(payload, context)).encode() + b"\n"
    with _lock, _path("thread").open("ab") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
    return "noted"


def _path(kind: str) -> Path:
    return Path(os.environ["CHRONO_RIG_FOLDER"]) / f"tasks-{kind}-{os.getpid()}.jsonl"


def _entry(payload: Any, context: Context) -> dict[str, object]:
    return {
        "at_ms": int(time.time() * 1000),
        "job": payload["job"],
        "key": context.key,
        "attempt": context.attempt,
        "fence": context.fence,
        "scheduled_for": context.scheduled_for.isoformat(),
    }
