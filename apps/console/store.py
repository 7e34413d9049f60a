"""The statements of this room, one function a file: they look, and write nothing."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apps.runtime import sql
from apps.runtime.locks import PARTITION_LOCKS
from apps.runtime.sessions import Connection
from chrono.rules.instants import Millis

_SQL = {
    name: sql.load("console", name)
    for name in ("list_led", "list_occurrences", "list_payloads")
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OccurrenceRow:
    """One row of the ledger."""

    scheduled_for: Millis
    attempt_group: int
    decided_at: Millis
    run_id: uuid.UUID | None
    outcome: int
    reason: int | None
    kind: int
    fence: int
    version: int
    revision: int
    occurrences: int | None
    """How many equal skips it stands for; None for one."""
    last_for: Millis | None


def list_occurrences(
    conn: Connection,
    *,
    job: uuid.UUID,
    part: int,
    before: tuple[Millis, int],
    outcome: int | None,
    reason: int | None,
    limit: int,
) -> list[OccurrenceRow]:
    """Return a job's occurrences before an instant and attempt group, newest first."""
    rows = _SQL["list_occurrences"].run(
        conn,
        {
            "job": job,
            "part": part,
            "before": before[0],
            "group": before[1],
            "outcome": outcome,
            "reason": reason,
            "limit": limit,
        },
    )
    names = list(OccurrenceRow.__dataclass_fields__)
    return [OccurrenceRow(**dict(zip(names, row, strict=True))) for row in rows]


def list_payloads(
    conn: Connection, *, job: uuid.UUID, revisions: Sequence[int]
) -> dict[int, Any]:
    """Return the payloads of some of a job's revisions, of those that have one."""
    rows = _SQL["list_payloads"].run(conn, {"job": job, "revisions": list(revisions)})
    return {revision: json.loads(payload) for revision, payload in rows}


def list_led(conn: Connection) -> set[int]:
    """Return the partitions that are led right now."""
    rows = _SQL["list_led"].run(conn, {"partitions": PARTITION_LOCKS})
    return {part for (part,) in rows}
