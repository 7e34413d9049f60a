"""The shapes of requests and answers as JSON Schema, for the OpenAPI document.

A view says which it takes and gives; tests and the fuzzer hold the answers to them.
"""

from collections.abc import Sequence
from typing import Any

from drf_spectacular.utils import OpenApiParameter

from chrono.rules import policy
from chrono.rules.states import Priority, Reason, RunState, status_of

type Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """Return a reference to a named shape."""
    return {"$ref": f"#/components/schemas/{name}"}


def json(schema: Schema) -> Schema:
    """Return what a view names as its request: a body of JSON."""
    return {"application/json": schema}


def nullable(schema: Schema) -> Schema:
    """Return the schema that allows null besides."""
    if "enum" in schema:
        return {
            **schema,
            "type": [schema["type"], "null"],
            "enum": [*schema["enum"], None],
        }
    return {**schema, "type": [schema["type"], "null"]}


def record(
    properties: dict[str, Schema], *, required: Sequence[str] | None = None
) -> Schema:
    """Return the schema of an object with these properties and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else list(required),
        "additionalProperties": False,
    }


TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
UUID: Schema = {"type": "string", "format": "uuid"}
INSTANT: Schema = {
    "type": "string",
    "format": "date-time",
    "examples": ["2026-11-29T15:00:00Z"],
}
QUEUE: Schema = {"type": "string", "maxLength": 64, "minLength": 1}
ANYTHING: Schema = {"description": "Any JSON value."}

STATE: Schema = {"type": "string", "enum": [state.label for state in RunState]}
STATUS: Schema = {
    "type": "string",
    "enum": list(dict.fromkeys(status_of(state) for state in RunState)),
}
REASON: Schema = {"type": "string", "enum": [reason.label for reason in Reason]}
PRIORITY: Schema = {"type": "string", "enum": [one.label for one in Priority]}


def words_parameter(
    name: str, words: Sequence[str], description: str
) -> OpenApiParameter:
    """Return the parameter that takes one or more of these words with commas."""
    one = "|".join(words)
    return OpenApiParameter(
        name,
        {"type": "string", "pattern": f"^({one})(,({one}))*$"},
        description=f"{description} One or more, with commas.",
    )


PAGE_PARAMETERS = [
    OpenApiParameter(
        "limit",
        {"type": "integer", "minimum": 1, "maximum": 500, "default": 50},
        description="How many items at most.",
    ),
    OpenApiParameter(
        "cursor",
        {"type": "string", "minLength": 1, "maxLength": 200},
        description="The `next_cursor` of the page before, with the same filters.",
    ),
]
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
    location="header",
    description="Sent again with the same key, the request has no second effect and "
    "gets the first answer, for 24 hours.",
)

RUN_SHORT: dict[str, Schema] = {
    "id": UUID,
    "job_id": UUID,
    "job_key": TEXT,
    "status": STATUS,
    "state": STATE,
    "reason": nullable(REASON),
    "cancel_requested": FLAG,
    "scheduled_for": INSTANT,
    "due_at": nullable(INSTANT),
    "dispatched_at": nullable(INSTANT),
    "started_at": nullable(INSTANT),
    "finished_at": nullable(INSTANT),
    "dispatch_lag_ms": nullable(WHOLE),
    "start_lag_ms": nullable(WHOLE),
    "duration_ms": nullable(WHOLE),
    "attempt": nullable(WHOLE),
    "next_retry_at": nullable(INSTANT),
    "queue": nullable(TEXT),
    "priority": nullable(PRIORITY),
    "revision": WHOLE,
    "partition": WHOLE,
    "fence": nullable(WHOLE),
    "worker": nullable(UUID),
}
Run: Schema = ref("Run")
RunPage: Schema = ref("RunPage")
AttemptList: Schema = ref("AttemptList")
Cancel: Schema = ref("Cancel")
Preview: Schema = ref("Preview")
PreviewRequest: Schema = ref("PreviewRequest")
Suggestions: Schema = ref("Suggestions")
SuggestRequest: Schema = ref("SuggestRequest")
Forecast: Schema = ref("Forecast")
LongRunningPage: Schema = ref("LongRunningPage")
Problem: Schema = ref("Problem")

SCHEDULE: dict[str, Schema] = {
    "cron": {
        "type": "string",
        "maxLength": 256,
        "description": "Five columns, six with `seconds`, or `@daily`, `@every 90s`.",
        "examples": ["30 9 * * 1-5"],
    },
    "timezone": {
        "type": "string",
        "description": "An IANA name; a new job's is its tenant's where left out.",
        "examples": ["Europe/Berlin"],
    },
    "seconds": {"type": "boolean", "description": "Six columns, seconds first."},
    "dst_gap": {
        "type": "string",
        "enum": ["shift", "skip"],
        "description": "On a day that lacks its time: fire right after the gap "
        "(shift, where left out), or not.",
    },
    "dst_fold": {
        "type": "string",
        "enum": ["first", "second", "both"],
        "description": "On a day that has its time twice; first where left out.",
    },
    "interval": {
        "type": "string",
        "description": "A duration: 90s, 15m, 2h or PT1H30M.",
        "examples": ["15m"],
    },
    "fixed_delay": {
        "type": "string",
        "description": "A duration, counted from the end of each run.",
        "examples": ["5m"],
    },
    "starts_at": {
        **INSTANT,
        "description": "No run before it. An interval counts from it and a fixed delay "
        "runs first at it; both from the job's creation where left out.",
    },
    "ends_at": {**INSTANT, "description": "No run after it; one at it still."},
    "run_at": {**INSTANT, "description": "A single instant."},
}

COUNTED: dict[str, Schema] = {
    "jobs": {"type": "integer", "description": "How many jobs were counted."},
    "unpredictable": {
        "type": "integer",
        "description": "How many jobs were left out because they have a fixed delay.",
    },
    "broken": {
        "type": "integer",
        "description": "How many were left out because their schedule cannot be read.",
    },
    "truncated": {
        "type": "boolean",
        "description": "Whether it would have taken too long, and older jobs are left "
        "out.",
    },
}
SUGGESTION: Schema = record(
    {
        "cron": TEXT,
        "text": {"type": "string", "description": "The same as a sentence."},
        "first": {**INSTANT, "description": "When it would fire first."},
        "busiest": {
            "type": "integer",
            "description": "The most runs that are due in a minute in which it fires.",
        },
        "mean": {"type": "number", "description": "How many that are on average."},
    }
)
CLOCK: Schema = {
    "type": ["string", "null"],
    "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$",
    "examples": ["01:30"],
}

COMPONENTS: dict[str, Schema] = {
    "Problem": {
        "type": "object",
        "description": "Why a request was refused (RFC 9457).",
        "properties": {
            "type": TEXT,
            "title": TEXT,
            "status": WHOLE,
            "detail": TEXT,
            "instance": TEXT,
            "code": {"type": "string", "description": "The stable word for machines."},
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "description": "What is at fault: one of pointer (into the body), "
                    "parameter, header and quota (of the tenant).",
                    "properties": {
                        "pointer": TEXT,
                        "parameter": TEXT,
                        "header": TEXT,
                        "quota": TEXT,
                        "code": TEXT,
                        "detail": TEXT,
                    },
                    "required": ["code", "detail"],
                    "additionalProperties": False,
                },
            },
            "request_id": TEXT,
            "deleted_at": {**INSTANT, "description": "Of a job that is deleted."},
        },
        "required": [
            "type",
            "title",
            "status",
            "detail",
            "instance",
            "code",
            "errors",
            "request_id",
        ],
        "additionalProperties": False,
    },
    "RunItem": record(RUN_SHORT),
    "Run": record(
        {
            **RUN_SHORT,
            "trigger": nullable(
                {
                    "type": "string",
                    "enum": ["schedule", "catchup", "manual", "backfill", "redrive"],
                }
            ),
            "attempt_group": nullable(WHOLE),
            "max_attempts": nullable(WHOLE),
            "lease_until": nullable(INSTANT),
            "idempotency_key": TEXT,
            "payload": ANYTHING,
            "result": ANYTHING,
            "checkpoint": {
                "description": "What an attempt told last for the next one to go on "
                "from. Gone after a success or a cancel."
            },
            "progress": {
                **record(
                    {
                        "share": nullable({"type": "number"}),
                        "text": TEXT,
                        "at": INSTANT,
                        "attempt": WHOLE,
                    }
                ),
                "type": ["object", "null"],
                "description": "What the run told last of itself: a share from 0 to 1, "
                "a text, or only a checkpoint. Gone after a success or a cancel.",
            },
            "error": {
                **record({"reason": REASON, "message": TEXT, "at": nullable(INSTANT)}),
                "type": ["object", "null"],
                "description": "Of the last attempt that failed.",
            },
            "resolution": {
                **record(
                    {
                        "outcome": {"type": "string", "enum": ["success", "failed"]},
                        "by": TEXT,
                        "reason": TEXT,
                        "at": INSTANT,
                    }
                ),
                "type": ["object", "null"],
                "description": "What a person said became of an unknown or dead run.",
            },
            "missed_from": {
                **nullable(INSTANT),
                "description": "Of a run that stands for several missed occurrences: "
                "the first one's scheduled_for.",
            },
            "missed_to": {**nullable(INSTANT), "description": "The last one's."},
            "missed_count": {
                **nullable(WHOLE),
                "description": "How many they are, its own included.",
            },
            "terminate_from": {
                **nullable(INSTANT),
                "description": "From when a run that was told to stop, and still runs, "
                "may be terminated.",
            },
            "rerun_of": {
                **nullable(UUID),
                "description": "The run of the same occurrence that it runs again.",
            },
            "rerun_as": {
                **nullable(UUID),
                "description": "The run that ran it again.",
            },
        }
    ),
    "RunPage": record(
        {
            "items": {"type": "array", "items": ref("RunItem")},
            "next_cursor": nullable(TEXT),
        }
    ),
    "AttemptList": record(
        {
            "items": {
                "type": "array",
                "items": record(
                    {
                        "attempt": WHOLE,
                        "outcome": STATE,
                        "reason": nullable(REASON),
                        "started_at": INSTANT,
                        "finished_at": nullable(INSTANT),
                        "duration_ms": nullable(WHOLE),
                        "error": nullable(TEXT),
                        "worker": nullable(UUID),
                        "fence": nullable(WHOLE),
                        "log": {
                            **nullable(TEXT),
                            "description": "What its handler logged last: of a success "
                            "1 KiB, of others 8.",
                        },
                    }
                ),
            }
        }
    ),
    "Cancel": record(
        {
            "mode": nullable({"type": "string", "enum": ["cancel", "terminate"]}),
            "reason": nullable(
                {"type": "string", "maxLength": 1000, "description": "For the audit."}
            ),
        },
        required=[],
    ),
    "PreviewRequest": {
        **record(
            {
                **{name: nullable(schema) for name, schema in SCHEDULE.items()},
                "jitter_window": {
                    "type": ["string", "null"],
                    "description": "A duration; what a job would have where left out.",
                },
                "time_critical": FLAG,
                "after": nullable({**INSTANT, "description": "Now where left out."}),
                "tags": nullable(
                    {
                        "type": "array",
                        "items": TEXT,
                        "description": "The job's: some ask for another delivery.",
                    }
                ),
                "delivery": nullable(
                    {"type": "string", "enum": list(policy.DELIVERIES)}
                ),
                "count": nullable({"type": "integer", "minimum": 1, "maximum": 100}),
            },
            required=[],
        ),
        "description": "A schedule's fields: exactly one of cron, interval, "
        "fixed_delay and run_at, and what belongs to it; null stands for left out.",
    },
    "Preview": record(
        {
            "text": {"type": "string", "description": "The schedule as a sentence."},
            "jitter_window": TEXT,
            "fires": {
                "type": "array",
                "items": record(
                    {
                        "scheduled_for": INSTANT,
                        "due_before": {
                            **INSTANT,
                            "description": "The jitter ends here at the latest.",
                        },
                        "local": TEXT,
                        "note": nullable(TEXT),
                    }
                ),
            },
            "warnings": {
                "type": "array",
                "items": record({"code": TEXT, "text": TEXT}),
            },
            "load_at_first": {
                **nullable(WHOLE),
                "description": "How many of the tenant's planned fires are due in the "
                "minute of the first; 10000 stands for that many or more.",
            },
        }
    ),
    "SuggestRequest": record(
        {
            "cron": SCHEDULE["cron"],
            "timezone": nullable(SCHEDULE["timezone"]),
            "seconds": nullable(FLAG),
            "earliest": {
                **CLOCK,
                "description": "With `latest`: the part of the day that will do, both "
                "ends in it, by the clocks of `timezone`. Midnight may lie in it.",
            },
            "latest": CLOCK,
            "count": nullable({"type": "integer", "minimum": 1, "maximum": 20}),
        },
        required=["cron"],
    ),
    "Suggestions": record(
        {
            "wanted": SUGGESTION,
            "suggestions": {
                "type": "array",
                "items": SUGGESTION,
                "description": "The least loaded first; 5 where `count` is left out.",
            },
            "from": INSTANT,
            "to": {**INSTANT, "description": "Until when the load was looked at."},
            **COUNTED,
        }
    ),
    "Forecast": record(
        {
            "from": {**INSTANT, "description": "Where the first bin begins."},
            "to": {**INSTANT, "description": "Where the last bin ends."},
            **COUNTED,
            "last_job": {
                **nullable(UUID),
                "description": "Where it is truncated, the last job that was counted.",
            },
            "bins": {
                "type": "array",
                "items": record({"at": INSTANT, "nominal": WHOLE, "due": WHOLE}),
            },
        }
    ),
    "LongRunningPage": record(
        {
            "items": {
                "type": "array",
                "items": record(
                    {
                        "job_id": UUID,
                        "job_key": TEXT,
                        "name": TEXT,
                        "period_ms": {
                            "type": "integer",
                            "description": "The least time between two fires.",
                        },
                        "runs": {
                            "type": "integer",
                            "description": "How many recent successes were looked at, "
                            "20 at most.",
                        },
                        "longer": {
                            "type": "integer",
                            "description": "How many of them took longer than the "
                            "period.",
                        },
                        "median_ms": WHOLE,
                        "longest_ms": WHOLE,
                        "longest_run": {
                            **UUID,
                            "description": "The run that took longest.",
                        },
                    }
                ),
            },
            "next_cursor": nullable(TEXT),
        }
    ),
}
