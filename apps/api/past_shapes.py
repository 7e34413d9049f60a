"""The shapes of what is asked of a job's past: backfills and explanations."""

from apps.api.job_shapes import WHY
from apps.api.shapes import (
    FLAG,
    INSTANT,
    TEXT,
    UUID,
    WHOLE,
    Schema,
    nullable,
    record,
    ref,
)
from apps.jobs.backfill import MOST_RATE

NewBackfill: Schema = ref("NewBackfill")
Planned: Schema = ref("Planned")
BackfillPage: Schema = ref("BackfillPage")
CancelledBackfill: Schema = ref("CancelledBackfill")
Explanation: Schema = ref("Explanation")
Reschedule: Schema = ref("Reschedule")
Resolve: Schema = ref("Resolve")

VERDICTS = (
    "run",
    "skipped",
    "no_occurrence",
    "to_come",
    "undecided",
    "paused",
    "ended",
    "deleted",
    "not_yet_created",
    "forgotten",
    "broken",
)

_BACKFILL: dict[str, Schema] = {
    "id": UUID,
    "from": INSTANT,
    "to": INSTANT,
    "revision": {**WHOLE, "description": "Whose schedule and payload it uses."},
    "runs": {**WHOLE, "description": "How many runs it made."},
    "waiting": {**WHOLE, "description": "How many of them were not let in yet."},
    "created_at": INSTANT,
    "created_by": TEXT,
    "cancelled_at": nullable(INSTANT),
    "cancelled_by": TEXT,
}

COMPONENTS: dict[str, Schema] = {
    "NewBackfill": {
        **record(
            {
                "from": {**INSTANT, "description": "The first instant of the range."},
                "to": {**INSTANT, "description": "The range ends before it."},
                "order": nullable({"enum": ["oldest", "newest"], "type": "string"}),
                "reprocess": {
                    **nullable(
                        {"enum": ["none", "failed", "completed"], "type": "string"}
                    ),
                    "description": "Which occurrences that have a run are run again.",
                },
                "rate": nullable(
                    {"type": "integer", "minimum": 1, "maximum": MOST_RATE}
                ),
                "dry_run": nullable(FLAG),
                "reason": WHY,
            },
            required=["from", "to"],
        ),
        "examples": [
            {"from": "2026-11-28T00:00:00Z", "to": "2026-11-29T00:00:00Z"},
        ],
    },
    "Planned": record(
        {
            "id": {**nullable(UUID), "description": "null for a dry run, or no runs."},
            "revision": _BACKFILL["revision"],
            "occurrences": {
                "type": "array",
                "items": INSTANT,
                "description": "What runs, in its order.",
            },
            "passed_over": {
                **WHOLE,
                "description": "Occurrences of the range that have a run already.",
            },
        }
    ),
    "BackfillPage": record(
        {
            "items": {"type": "array", "items": record(_BACKFILL)},
            "next_cursor": nullable(TEXT),
        }
    ),
    "CancelledBackfill": record({"cancelled": WHOLE}),
    "Resolve": record(
        {
            "outcome": {"type": "string", "enum": ["success", "failed"]},
            "reason": {
                "type": "string",
                "minLength": 1,
                "maxLength": 1000,
                "description": "How it is known what became of the run.",
            },
        }
    ),
    "Reschedule": record({"due_at": INSTANT, "reason": WHY}, required=["due_at"]),
    "Explanation": record(
        {
            "at": INSTANT,
            "verdict": {"type": "string", "enum": list(VERDICTS)},
            "text": {**TEXT, "description": "The answer in plain words."},
            "reason": {
                **nullable(TEXT),
                "description": "Why it was skipped, or what holds the run.",
            },
            "mismatches": {
                "type": "array",
                "items": record(
                    {"field": TEXT, "column": nullable(TEXT), "text": TEXT}
                ),
                "description": "What of the schedule does not match the instant.",
            },
            "run": {
                "description": "The run, where there is one.",
                "oneOf": [ref("RunItem"), {"type": "null"}],
            },
            "previous": {
                **nullable(INSTANT),
                "description": "The occurrence before, by the schedule in force then.",
            },
            "next": nullable(INSTANT),
        }
    ),
}
