"""Tasks that have one effect each, and die at a named point where they are told to.

A payload's `die` names the point; the first attempt dies there, by SIGKILL to its own
worker, after a line on disk that says so. All that runs beside it dies with it.
"""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django.db
from django.db import transaction

import chrono
from chrono.tasks import Context
from tests.rigs.tasks import note_in_thread

TRANSACTIONAL = ("before", "written", "settled", "committed")
"""Before the effect; after it; between the settle and the commit; after the commit."""
AT_MOST_ONCE = ("before", "written")


@chrono.task(name="rig.effect_in_transaction", transactional=True)
def effect_in_transaction(payload: Any, context: Context) -> str:
    """Write one row, in the transaction that settles the run."""
    die = _death(payload, context)
    die("before")
    with django.db.connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO rig_effect (job, key, attempt) VALUES (%s, %s, %s)",
            [payload["job"], context.key, context.attempt],
        )
    die("written")
    if payload.get("die") == "settled" and context.attempt == 1:
        # Django's commit of this thread's session is the next thing after the settle.
        django.db.connection._commit = lambda: die("settled")  # type: ignore[attr-defined]
    transaction.on_commit(lambda: die("committed"))
    return "written"


@chrono.task(name="rig.effect_at_most_once")
def effect_at_most_once(payload: Any, context: Context) -> str:
    """Note the call in the ledger."""
    die = _death(payload, context)
    die("before")
    note_in_thread(payload, context)
    die("written")
    return "noted"


def _death(payload: Any, context: Context) -> Callable[[str], None]:
    def die(point: str) -> None:
        if payload.get("die") != point or context.attempt != 1:
            return
        line = json.dumps({"job": payload["job"], "point": point}).encode() + b"\n"
        path = Path(os.environ["CHRONO_RIG_FOLDER"]) / f"deaths-{os.getpid()}.jsonl"
        with path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        os.kill(os.getpid(), signal.SIGKILL)

    return die
