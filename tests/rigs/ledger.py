"""What really happened: the ledgers of the receiver and of the tasks.

They are written outside the database, each line on disk before the effect is answered.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

Millis = int


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One call that arrived: a request, or a task's execution."""

    at: Millis
    job: str
    key: str
    """The idempotency key."""
    attempt: int
    fence: int
    scheduled_for: Millis
    succeeded: bool
    headers: dict[str, str] = field(default_factory=dict)
    """Of a request; empty for a task."""
    body: str = ""

    @property
    def is_request(self) -> bool:
        """Whether it came over HTTP."""
        return bool(self.headers)


def read_requests(path: Path) -> list[Effect]:
    """Return the receiver's ledger."""
    effects = []
    for line in _lines(path):
        headers: dict[str, str] = line["headers"]
        effects.append(
            Effect(
                at=line["at_ms"],
                job=json.loads(line["body"])["job"],
                key=line["key"],
                attempt=int(headers["chrono-attempt"]),
                fence=int(headers["chrono-fence"]),
                scheduled_for=to_millis(headers["chrono-scheduled-for"]),
                succeeded=200 <= line["status"] < 300,
                headers=headers,
                body=line["body"],
            )
        )
    return effects


def read_tasks(folder: Path, prefix: str = "") -> list[Effect]:
    """Return what all workers' tasks noted of the jobs whose key begins so."""
    return [
        Effect(
            at=line["at_ms"],
            job=line["job"],
            key=line["key"],
            attempt=line["attempt"],
            fence=line["fence"],
            scheduled_for=to_millis(line["scheduled_for"]),
            succeeded=True,
        )
        for path in sorted(folder.glob("tasks-*.jsonl"))
        for line in _lines(path, f'"{prefix}')
    ]


def to_millis(text: str) -> Millis:
    """Return an ISO instant with its offset as epoch milliseconds."""
    moment = datetime.fromisoformat(text)
    assert moment.tzinfo is not None, f"{text} has no offset"
    return round(moment.timestamp() * 1000)


def _lines(path: Path, having: str = "") -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text().splitlines():
            if having in line:
                yield json.loads(line)
