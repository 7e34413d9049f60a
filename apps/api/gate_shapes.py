"""The shapes of gates: circuits and retry budgets of targets, pauses of queues."""

from apps.api.shapes import (
    FLAG,
    INSTANT,
    QUEUE,
    TEXT,
    UUID,
    WHOLE,
    Schema,
    nullable,
    record,
    ref,
)
from chrono.rules.breaker import BreakerState

Target: Schema = ref("TargetState")
TargetPage: Schema = ref("TargetPage")
Switch: Schema = ref("CircuitSwitch")
Queue: Schema = ref("QueueState")
QueuePage: Schema = ref("PausedQueuePage")
QueueSwitch: Schema = ref("QueueSwitch")

COMPONENTS: dict[str, Schema] = {
    "TargetState": record(
        {
            "target": {
                **TEXT,
                "description": "A task's name, or a server with its port.",
                "examples": ["https://example.org:443"],
            },
            "state": {
                "type": "string",
                "enum": [state.label for state in BreakerState],
                "description": "`open`: nothing is called. `half_open`: the probes "
                "are. `closing`: what waits is let in at a rate that rises.",
            },
            "since": INSTANT,
            "failures": {**WHOLE, "description": "In a row, up to now."},
            "next_probe_at": {
                **nullable(INSTANT),
                "description": "When an open circuit is probed, once a run waits; null "
                "where a person opened it.",
            },
            "probes": {
                "type": "array",
                "items": UUID,
                "description": "The runs that probe now.",
            },
            "manual": {**FLAG, "description": "Whether a person opened it."},
            "changed_by": {**TEXT, "description": "Who; empty where nobody did."},
            "note": TEXT,
            "waiting": {
                **WHOLE,
                "description": "How many runs are held; 10000 stands for that many or "
                "more.",
            },
            "budget": record(
                {
                    "left": {
                        "type": "number",
                        "description": "How much of the retry budget, from 0 to 1.",
                    },
                    "granted": {**WHOLE, "description": "Retries that could go."},
                    "refused": {
                        **WHOLE,
                        "description": "Retries that were put off for want of budget.",
                    },
                }
            ),
        }
    ),
    "TargetPage": record(
        {
            "items": {"type": "array", "items": Target},
            "next_cursor": nullable(TEXT),
        }
    ),
    "QueueState": record(
        {
            "queue": QUEUE,
            "paused": FLAG,
            "paused_at": nullable(INSTANT),
            "paused_by": TEXT,
            "note": TEXT,
            "held": {
                **WHOLE,
                "description": "How many runs are held; 10000 stands for that many or "
                "more.",
            },
        }
    ),
    "PausedQueuePage": record(
        {
            "items": {"type": "array", "items": Queue},
            "next_cursor": nullable(TEXT),
        }
    ),
    "QueueSwitch": record(
        {
            "reason": {
                "type": ["string", "null"],
                "maxLength": 1_000,
                "description": "Kept with the pause and in the audit.",
            },
        },
        required=[],
    ),
    "CircuitSwitch": record(
        {
            "target": {
                **TEXT,
                "description": "A task's name, or any address of its server.",
                "examples": ["https://example.org", "reports.send"],
            },
            "reason": {
                "type": ["string", "null"],
                "maxLength": 1_000,
                "description": "Kept with the target and in the audit.",
            },
        },
        required=["target"],
    ),
}
