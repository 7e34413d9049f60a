"""The shapes of jobs in requests and answers, as JSON Schema."""

from drf_spectacular.utils import OpenApiParameter

from apps.api import shapes
from apps.api.shapes import (
    ANYTHING,
    FLAG,
    INSTANT,
    PRIORITY,
    QUEUE,
    REASON,
    STATE,
    STATUS,
    TEXT,
    UUID,
    WHOLE,
    Schema,
    nullable,
    record,
    ref,
)
from apps.jobs.definition import MOST_TAGS
from apps.jobs.target import METHODS
from chrono.rules.policy import (
    CATCHUP_POLICIES,
    DEFAULT,
    DELIVERIES,
    MOST_CONCURRENT,
    MOST_FAILURES,
    MOST_OF_A_KEY,
    MOST_OF_A_PERIOD,
    MOST_REMAINING,
    ON_LIMIT,
    OVERLAP_ALIASES,
    OVERLAP_POLICIES,
)
from chrono.rules.policy import LONGEST_KEY as LONGEST_CONCURRENCY_KEY
from chrono.rules.retry import SELECTABLE
from chrono.rules.schedule import KINDS
from chrono.rules.watch import WatchKind

JOB_STATES = ("active", "paused", "ended", "deleted")
NAME: Schema = {"type": "string", "maxLength": 200}
TAG: Schema = {"type": "string", "pattern": "^[a-z0-9_.:/-]{1,50}$"}
KEY: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": 200,
    "description": "Unique in the tenant; never changes.",
    "examples": ["nightly-report"],
}
DURATION: Schema = {"type": "string", "examples": ["60s"]}
OVERLAP: Schema = {
    "type": "string",
    "enum": list(OVERLAP_POLICIES),
    "default": "skip",
    "description": "What becomes of an occurrence while earlier runs are not over.",
}
ALIASES = sorted(
    spelt
    for name in OVERLAP_ALIASES
    for spelt in {name, name.title(), name.upper()}
    if spelt not in OVERLAP_POLICIES
)
OVERLAP_REQUEST: Schema = {
    **OVERLAP,
    "enum": [*OVERLAP_POLICIES, *ALIASES],
    "description": f"{OVERLAP['description']} Words of other schedulers are read, too: "
    "forbid and cancel_newest as skip, replace and cancel_in_progress as cancel_other, "
    "queue as buffer_all, allow as allow_all.",
}
CATCHUP: Schema = {
    "type": "string",
    "enum": list(CATCHUP_POLICIES),
    "default": DEFAULT.catchup_policy,
    "description": "What becomes of occurrences missed by more than a minute: none "
    "runs, the newest runs for all, all run, or those within `max_delay`.",
}
DELIVERY: Schema = {
    "type": "string",
    "enum": list(DELIVERIES),
    "default": DEFAULT.delivery,
    "description": "Of a run whose worker is lost: it begins again, or is `unknown` "
    "until a person resolves it. A job that is delivered at most once has one attempt, "
    "whatever its retry_policy says.",
}
SWITCHES: dict[str, Schema] = {
    "max_delay": {
        **DURATION,
        "description": "An occurrence that could not begin within this is skipped.",
    },
    "max_concurrent_runs": {
        "type": "integer",
        "minimum": 1,
        "maximum": MOST_CONCURRENT,
        "description": "How many runs may be live; where left out 1, and any number "
        "for allow_all.",
    },
    "remaining_runs": {
        "type": "integer",
        "minimum": 1,
        "maximum": MOST_REMAINING,
        "description": "After so many runs of its schedule the job has ended. Another "
        "number counts anew.",
    },
    "pause_on_failure": {
        "type": "integer",
        "minimum": 1,
        "maximum": MOST_FAILURES,
        "description": "After so many dead runs in a row the job is paused.",
    },
    "late_after": {
        **DURATION,
        "description": "A run that has not begun so long after it was due is reported.",
    },
    "max_runtime": {
        **DURATION,
        "description": "An attempt that takes longer is reported; it is not ended.",
    },
    "max_time_since_success": {
        **DURATION,
        "description": "A job without a success for so long is reported.",
    },
    "concurrency_key": {
        **TEXT,
        "minLength": 1,
        "maxLength": LONGEST_CONCURRENCY_KEY,
        "description": "Its runs count together with those of the tenant's other jobs "
        "that name the same key. {payload.a.b} is filled from a run's payload.",
        "examples": ["payroll-provider", "employer-{payload.employer.id}"],
    },
    "concurrency_limit": {
        "type": "integer",
        "minimum": 1,
        "maximum": MOST_OF_A_KEY,
        "description": "Its runs are let in while fewer of the key's, of whatever job, "
        "are ready or in execution; 1 where left out.",
    },
    "rate_limit": {
        **record(
            {
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MOST_OF_A_PERIOD,
                },
                "period": {**DURATION, "examples": ["1m"]},
            }
        ),
        "description": "How many runs may begin within any stretch of this length: of "
        "the key, where there is one, else of the job.",
    },
}
ON_LIMIT_SHOWN: Schema = {
    "type": "string",
    "enum": list(ON_LIMIT),
    "default": "wait",
    "description": "What becomes of a run above the rate: it waits, or is skipped.",
}
"""Policies that are off where they are left out."""
WHY: Schema = {
    "type": ["string", "null"],
    "maxLength": 1000,
    "description": "Why this is done: for the audit, not kept with the job.",
}
HTTP = record(
    {
        "kind": {"type": "string", "enum": ["http"]},
        "url": {
            "type": "string",
            "maxLength": 2048,
            "examples": ["https://example.org/hooks/report"],
        },
        "method": {"type": "string", "enum": list(METHODS), "default": "POST"},
        "headers": {
            "type": "object",
            "additionalProperties": {"type": "string", "maxLength": 2000},
            "maxProperties": 50,
            "description": "Shown with their values to who may write, hidden else.",
        },
        "timeout": {"type": ["string", "null"], "examples": ["30s"]},
    },
    required=["kind", "url"],
)
TASK = record(
    {
        "kind": {"type": "string", "enum": ["task"]},
        "name": {**TEXT, "maxLength": 200},
        "timeout": {
            "type": ["string", "null"],
            "description": "How long one attempt may take; without it, as long as it "
            "likes. Then it failed as timed_out, and is tried again.",
            "examples": ["15m"],
        },
        "progress_deadline": {
            "type": ["string", "null"],
            "description": "How long an attempt may tell neither progress nor a "
            "checkpoint. Then it failed as timed_out, and is tried again.",
            "examples": ["90s"],
        },
        "min_items_ok": {
            "type": "integer",
            "minimum": 0,
            "maximum": 1_000_000_000,
            "default": 0,
            "description": "The least `items_ok` in its result with which an attempt "
            "is a success.",
        },
    },
    required=["kind", "name"],
)
TARGET: Schema = {"oneOf": [HTTP, TASK], "description": "What a run calls."}
RETRY: Schema = record(
    {
        "max_attempts": {"type": "integer", "minimum": 1, "maximum": 1000},
        "backoff": record(
            {
                "base_ms": {"type": "integer", "minimum": 0},
                "cap_ms": {"type": "integer", "minimum": 0},
                "jitter": {"type": "string", "enum": ["full"]},
            },
            required=[],
        ),
        "retry_on": {
            "type": "array",
            "items": {"type": "string", "enum": list(SELECTABLE)},
        },
        "budget": {
            **record(
                {
                    "ratio": {"type": "number", "minimum": 0, "maximum": 1},
                    "min_concurrent": {
                        "type": "integer",
                        "minimum": 0,
                        "maximum": 1_000,
                    },
                },
                required=[],
            ),
            "description": "Of all retries to the same target: this share of the first "
            "attempts of the last minute, and a few whatever their number. Left out "
            "where it is 0.1 and 5.",
        },
        "circuit_breaker": {
            **record(
                {
                    "failure_threshold": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": 10_000,
                    },
                    "open_duration_s": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": 86_400,
                    },
                    "half_open_probes": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": 100,
                    },
                },
                required=[],
            ),
            "description": "After how many failures in a row the target is left alone, "
            "for how long, and how many runs probe it then. Left out where it is 20, "
            "30 and 1.",
        },
    },
    required=[],
)
COMMON: dict[str, Schema] = {
    "name": NAME,
    "tags": {
        "type": "array",
        "items": TAG,
        "maxItems": MOST_TAGS,
        "uniqueItems": True,
        "description": "Short words to find jobs by; shown sorted.",
        "examples": [["payroll", "region:eu"]],
    },
    **shapes.SCHEDULE,
    "jitter_window": {
        **DURATION,
        "description": "Runs are due up to this much after their nominal instant, each "
        "job by its own fixed offset. Where left out: a minute, or half the period.",
    },
    "overlap_policy": OVERLAP,
    "catchup_policy": CATCHUP,
    "on_limit": ON_LIMIT_SHOWN,
    "delivery": DELIVERY,
    "queue": {**QUEUE, "pattern": "^[a-z0-9_.-]{1,64}$", "default": "default"},
    "priority": {**PRIORITY, "default": "normal"},
}
REQUEST: dict[str, Schema] = {
    **{name: nullable(schema) for name, schema in (COMMON | SWITCHES).items()},
    "overlap_policy": nullable(OVERLAP_REQUEST),
    "time_critical": {**nullable(FLAG), "description": "No jitter at all."},
    "target": TARGET,
    "payload": {"description": "Any JSON of up to 256 KiB and 32 levels."},
    "retry_policy": nullable(RETRY),
    "paused": nullable(FLAG),
}
ONE_KIND: list[Schema] = [
    {"required": [one], "properties": {one: TEXT}} for one in KINDS
]
SHOWN: dict[str, Schema] = {
    **COMMON,
    **{name: nullable(schema) for name, schema in SWITCHES.items()},
}
MOST_IN_BATCH = 1_000
ACTIONS = ["created", "changed", "paused", "resumed", "unchanged"]
SENT: dict[str, object] = {
    "key": "nightly-report",
    "name": "Report for the morning",
    "cron": "30 2 * * *",
    "timezone": "Europe/Berlin",
    "target": {"kind": "http", "url": "https://example.org/hooks/report"},
    "payload": {"format": "pdf"},
}

LAST_RUN = record(
    {
        "id": UUID,
        "status": STATUS,
        "state": STATE,
        "reason": nullable(REASON),
        "scheduled_for": INSTANT,
        "finished_at": nullable(INSTANT),
    }
)
STATED: dict[str, Schema] = {
    "id": UUID,
    "key": KEY,
    "paused": FLAG,
    "state": {
        "type": "string",
        "enum": [*JOB_STATES, "broken"],
        "description": "ended: nothing is left to fire. broken: its schedule, as it is "
        "stored, cannot be read; schedule_text says why.",
    },
    "version": {**WHOLE, "description": "Rises with every change; an ETag names it."},
    "revision": {**WHOLE, "description": "Of the definition in force."},
    "schedule_text": {**TEXT, "description": "The schedule as a sentence."},
    "pause_note": TEXT,
    "paused_until": nullable(INSTANT),
    "paused_by": TEXT,
    "runs_left": {
        **nullable(WHOLE),
        "description": "How many of `remaining_runs` are left; null where it has none.",
    },
    "next_run_at": {**nullable(INSTANT), "description": "Nominal."},
    "next_due_at": {**nullable(INSTANT), "description": "With the job's jitter."},
    "last_run": {**LAST_RUN, "type": ["object", "null"]},
    "skipped_count": {
        **WHOLE,
        "description": "Occurrences of the last 30 days that were decided not to run.",
    },
    "missed_count": {
        **WHOLE,
        "description": "Occurrences of the last 30 days that were missed by more than "
        "a minute, whether they ran later or not.",
    },
    "counts_capped": {
        **FLAG,
        "description": "Whether only the newest were counted, some 1,000 rows.",
    },
    "created_at": INSTANT,
    "updated_at": INSTANT,
    "deleted_at": nullable(INSTANT),
}
ITEM_TARGET = record(
    {
        "kind": {"type": "string", "enum": ["http", "task"]},
        "url": TEXT,
        "method": TEXT,
        "name": TEXT,
    },
    required=[],
)
_ALWAYS = [
    *STATED,
    *("name", "tags", "jitter_window", "overlap_policy", "queue", "priority"),
    *("catchup_policy", "delivery", "on_limit", *SWITCHES),
]


Job: Schema = ref("Job")
JobPage: Schema = ref("JobPage")
JobRequest: Schema = ref("JobRequest")
JobByKeyRequest: Schema = ref("JobByKeyRequest")
JobBatchRequest: Schema = ref("JobBatchRequest")
JobBatch: Schema = ref("JobBatch")
JobPatch: Schema = ref("JobPatch")
DeletedJob: Schema = ref("DeletedJob")
NextList: Schema = ref("NextList")
RevisionPage: Schema = ref("RevisionPage")
EventPage: Schema = ref("EventPage")
Reason: Schema = ref("Reason")
Pause: Schema = ref("Pause")
SkipNext: Schema = ref("SkipNext")
Skipped: Schema = ref("Skipped")
RunNow: Schema = ref("RunNow")
LOCATION: Schema = {"type": "string", "examples": ["/api/v1/runs/{id}"]}


def header(name: str, schema: Schema, said: str, *statuses: int) -> OpenApiParameter:
    """Return a header of the answers with these statuses."""
    return OpenApiParameter(
        name, schema, location="header", description=said, response=list(statuses)
    )


def if_match(*, required: bool) -> OpenApiParameter:
    """Return the header that names the version which a change is made to."""
    return OpenApiParameter(
        "If-Match",
        {
            "type": "string",
            "pattern": r'^(\*|(W/)?"[!#-~]*")$',
            "examples": ['"v7"'],
        },
        location="header",
        required=required,
        description="The ETag last read, or `*` for any version. Where the job has "
        "another by now the answer is 412.",
    )


IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match",
    {"type": "string", "examples": ['"v7.5f1c9a02"']},
    location="header",
    description="The ETag last read: where nothing has changed the answer is 304.",
)
ETAG: Schema = {"type": "string", "examples": ['"v7.5f1c9a02"']}

COMPONENTS: dict[str, Schema] = {
    "Job": record(
        {
            **STATED,
            **SHOWN,
            "target": TARGET,
            "payload": ANYTHING,
            "retry_policy": RETRY,
            "next_runs": {"type": "array", "items": INSTANT, "maxItems": 5},
        },
        required=[*_ALWAYS, "target", "payload", "retry_policy", "next_runs"],
    ),
    "JobItem": record(
        {**STATED, **SHOWN, "target": ITEM_TARGET}, required=[*_ALWAYS, "target"]
    ),
    "JobPage": record(
        {
            "items": {"type": "array", "items": ref("JobItem")},
            "next_cursor": nullable(TEXT),
        }
    ),
    "JobRequest": {
        **record(
            {"key": KEY, **REQUEST, "reason": WHY},
            required=["key", "target"],
        ),
        "oneOf": ONE_KIND,
        "description": "A job: exactly one of cron, interval, fixed_delay and run_at, "
        "and what belongs to it; null stands for left out.",
        "examples": [SENT],
    },
    "JobByKeyRequest": {
        **record({"key": nullable(KEY), **REQUEST, "reason": WHY}, required=["target"]),
        "oneOf": ONE_KIND,
        "description": "The whole job; its key stands in the address.",
        "examples": [{k: v for k, v in SENT.items() if k != "key"}],
    },
    "JobBatchRequest": {
        **record(
            {
                "items": {
                    "type": "array",
                    "items": ANYTHING,
                    "maxItems": MOST_IN_BATCH,
                    "description": "Jobs as in `POST /jobs`, each with a key of its "
                    "own. One that is wrong is refused by itself, so they are not "
                    "checked here.",
                },
                "reason": WHY,
            },
            required=["items"],
        ),
        "examples": [{"items": [SENT]}],
    },
    "JobBatch": record(
        {
            "results": {
                "type": "array",
                "items": record(
                    {
                        "index": {**WHOLE, "description": "From 0."},
                        "status": {
                            "type": "integer",
                            "description": "201 made, 200 changed or left, else as "
                            "of the problem.",
                        },
                        "key": nullable(TEXT),
                        "id": nullable(UUID),
                        "actions": {
                            "type": "array",
                            "items": {"type": "string", "enum": ACTIONS},
                        },
                        "problem": {
                            "oneOf": [shapes.Problem, {"type": "null"}],
                            "description": "Its pointers begin at the item.",
                        },
                    }
                ),
            }
        }
    ),
    "JobPatch": {
        **record(
            {
                **REQUEST,
                "target": {"type": "object", "description": "A part of it is enough."},
                "reason": WHY,
            },
            required=[],
        ),
        "description": "A merge patch (RFC 7396): what is left out stays as it is, "
        "null gives a field its default.",
        "examples": [{"cron": "30 3 * * *", "reason": "after the backup"}],
    },
    "DeletedJob": record(
        {
            "id": UUID,
            "key": KEY,
            "state": {"type": "string", "enum": ["deleted"]},
            "version": WHOLE,
            "deleted_at": INSTANT,
        }
    ),
    "NextList": record(
        {
            "items": {
                "type": "array",
                "items": record(
                    {
                        "scheduled_for": {**INSTANT, "description": "Nominal."},
                        "due_at": {**INSTANT, "description": "With the jitter."},
                        "local": {**TEXT, "description": "In the job's time zone."},
                        "note": {
                            **nullable(TEXT),
                            "description": "What a clock change does to it.",
                        },
                    }
                ),
            }
        }
    ),
    "RevisionPage": record(
        {
            "items": {
                "type": "array",
                "items": record(
                    {
                        "revision": WHOLE,
                        "created_at": INSTANT,
                        **{n: s for n, s in SHOWN.items() if n not in ("name", "tags")},
                        "target": TARGET,
                        "retry_policy": RETRY,
                        "payload_bytes": {
                            **WHOLE,
                            "description": "Length of the payload; 0 for none.",
                        },
                    },
                    required=["revision", "created_at", "target", "payload_bytes"],
                ),
            },
            "next_cursor": nullable(TEXT),
        }
    ),
    "EventPage": record(
        {
            "items": {
                "type": "array",
                "items": record(
                    {
                        "id": WHOLE,
                        "at": INSTANT,
                        "kind": {
                            "type": "string",
                            "enum": [kind.label for kind in WatchKind],
                            "description": "late: a run has not begun. long: an "
                            "attempt takes too long. no_success: the job did not "
                            "succeed for too long.",
                        },
                        "over": {
                            **FLAG,
                            "description": "False where it was noticed, true where it "
                            "is over.",
                        },
                        "run_id": nullable(UUID),
                        "detail": {**TEXT, "description": "For people."},
                    }
                ),
            },
            "next_cursor": nullable(TEXT),
        }
    ),
    "Reason": record({"reason": WHY}, required=[]),
    "Pause": {
        **record(
            {
                "note": {
                    "type": ["string", "null"],
                    "maxLength": 1000,
                    "description": "Shown beside the job while it is paused.",
                },
                "until": {
                    **nullable(INSTANT),
                    "description": "When it is resumed of itself; never, if left out.",
                },
                "reason": WHY,
            },
            required=[],
        ),
        "examples": [{"note": "The printer is away.", "until": "2026-12-01T08:00:00Z"}],
    },
    "SkipNext": record(
        {
            "count": nullable({"type": "integer", "minimum": 1, "maximum": 100}),
            "reason": WHY,
        },
        required=[],
    ),
    "Skipped": record(
        {"skipped": {"type": "array", "items": INSTANT}, "job": ref("Job")}
    ),
    "RunNow": {
        **record(
            {
                "payload": {"description": "In place of the job's, for this run."},
                "priority": nullable(PRIORITY),
                "beside": {
                    "type": "boolean",
                    "default": False,
                    "description": "Also while another run by hand is under way.",
                },
                "reason": WHY,
            },
            required=[],
        ),
        "examples": [{"payload": {"format": "csv"}, "reason": "asked for by phone"}],
    },
}
