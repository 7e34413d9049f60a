"""The shapes of dead letters, and of what has runs run again."""

from apps.api.job_shapes import WHY
from apps.api.shapes import (
    ANYTHING,
    FLAG,
    INSTANT,
    QUEUE,
    REASON,
    TEXT,
    UUID,
    WHOLE,
    Schema,
    nullable,
    record,
    ref,
)
from apps.jobs.rerun import MOST_RATE
from apps.runs.letters import MOST, STATES

DeadLetter: Schema = ref("DeadLetter")
DeadLetterPage: Schema = ref("DeadLetterPage")
Redrive: Schema = ref("Redrive")
Redriven: Schema = ref("Redriven")
Discard: Schema = ref("Discard")
Discarded: Schema = ref("Discarded")
LetterNote: Schema = ref("LetterNote")
Retry: Schema = ref("Retry")

_STATE: Schema = {
    "type": "string",
    "enum": list(STATES),
    "description": "What was done about it: nothing yet, run again, or discarded.",
}
_IDS: Schema = {
    "type": "array",
    "items": UUID,
    "minItems": 1,
    "maxItems": MOST,
    "description": "Of the runs that died.",
}
_ITEM: dict[str, Schema] = {
    "run_id": {**UUID, "description": "The run that died."},
    "job_id": UUID,
    "job_key": TEXT,
    "job_deleted": FLAG,
    "state": _STATE,
    "reason": REASON,
    "scheduled_for": INSTANT,
    "died_at": INSTANT,
    "attempt": {**WHOLE, "description": "How many attempts it had."},
    "queue": TEXT,
    "revision": WHOLE,
    "error": {**TEXT, "description": "How the last attempt's error begins."},
    "rerun_as": {**nullable(UUID), "description": "The run that ran it again."},
    "closed_at": nullable(INSTANT),
    "closed_by": nullable(TEXT),
    "note": nullable(TEXT),
    "noted_at": nullable(INSTANT),
    "noted_by": nullable(TEXT),
}
_NOTE: Schema = {"type": "string", "maxLength": 1000}

COMPONENTS: dict[str, Schema] = {
    "DeadLetterItem": record(_ITEM),
    "DeadLetterPage": record(
        {
            "items": {"type": "array", "items": ref("DeadLetterItem")},
            "next_cursor": nullable(TEXT),
        }
    ),
    "DeadLetter": record(
        {
            **_ITEM,
            "payload": ANYTHING,
            "errors": {
                "type": "array",
                "description": "Of every attempt that failed, first to last.",
                "items": record(
                    {
                        "attempt": nullable(WHOLE),
                        "reason": nullable(REASON),
                        "error": nullable(TEXT),
                        "finished_at": nullable(INSTANT),
                        "log": {
                            **nullable(TEXT),
                            "description": "What the last attempt logged last.",
                        },
                    }
                ),
            },
        }
    ),
    "Redrive": {
        **record(
            {
                "ids": nullable(_IDS),
                "filter": {
                    **record(
                        {
                            "job": nullable(UUID),
                            "target": nullable(TEXT),
                            "reason": nullable(REASON),
                            "queue": nullable(QUEUE),
                            "tag": nullable(TEXT),
                            "died_after": nullable(INSTANT),
                            "died_before": nullable(INSTANT),
                        },
                        required=[],
                    ),
                    "type": ["object", "null"],
                    "description": "Those that fit all of it and are open, of jobs "
                    "that are not deleted; {} fits all of these.",
                },
                "limit": nullable(
                    {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": MOST,
                        "description": "How many at most of those that the filter "
                        "fits; 1,000 where left out.",
                    }
                ),
                "queue": {
                    **nullable(QUEUE),
                    "description": "Another queue than that of the job.",
                },
                "payload": {
                    "description": "Another payload than the letter's; for one id."
                },
                "rate": {
                    **nullable({"type": "integer", "minimum": 1, "maximum": MOST_RATE}),
                    "description": "How many begin a second at most.",
                },
                "dry_run": nullable(FLAG),
                "reason": WHY,
            },
            required=[],
        ),
        "description": "Exactly one of ids and filter.",
        "examples": [
            {"filter": {"reason": "attempts_exhausted"}, "dry_run": True},
        ],
    },
    "Redriven": record(
        {
            "id": {**nullable(UUID), "description": "null for a dry run, or no runs."},
            "count": WHOLE,
            "items": {
                "type": "array",
                "description": "In the order in which the new runs begin.",
                "items": record(
                    {
                        "run_id": {**UUID, "description": "The run that died."},
                        "job_key": TEXT,
                        "scheduled_for": INSTANT,
                        "rerun_as": {
                            **nullable(UUID),
                            "description": "The new run; null for a dry run.",
                        },
                    }
                ),
            },
            "more": {
                **FLAG,
                "description": "Whether the filter may fit more than these: repeat it.",
            },
        }
    ),
    "Discard": record(
        {"ids": _IDS, "note": {**_NOTE, "minLength": 1}}, required=["ids", "note"]
    ),
    "Discarded": record({"discarded": WHOLE}),
    "LetterNote": record({"note": nullable(_NOTE)}),
    "Retry": {
        **record(
            {
                "payload": {"description": "In place of the run's own."},
                "queue": {
                    **nullable(QUEUE),
                    "description": "Another queue than that of the job.",
                },
                "reason": WHY,
            },
            required=[],
        ),
        "examples": [{"payload": {"month": 4}, "reason": "the month was wrong"}],
    },
}
