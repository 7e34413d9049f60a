"""The questions of the audit: what each asks, how it is told, and what to do then."""

from dataclasses import dataclass

TOLD = 100
"""How many findings of one check are told, and of one job looked for."""

type Told = tuple[str, str, str]
"""A check's name, a subject, and what is wrong with it."""

CONSTRAINTS = {
    "chrono_api_key": (
        "chrono_api_key_digest",
        "chrono_api_key_id",
        "chrono_api_key_instants",
        "chrono_api_key_pkey",
        "chrono_api_key_replaces",
        "chrono_api_key_scopes",
    ),
    "chrono_attempt": ("chrono_attempt_pkey",),
    "chrono_attempt_kept": ("chrono_attempt_kept_pkey",),
    "chrono_audit_event": (
        "chrono_audit_event_action",
        "chrono_audit_event_actor_kind",
        "chrono_audit_event_append_only",
        "chrono_audit_event_pkey",
        "chrono_audit_event_sides",
    ),
    "chrono_backfill": (
        "chrono_backfill_pkey",
        "chrono_backfill_range",
    ),
    "chrono_blocked": ("chrono_blocked_pkey",),
    "chrono_breach": ("chrono_breach_pkey",),
    "chrono_dead_letter": ("chrono_dead_letter_pkey",),
    "chrono_death": ("chrono_death_pkey",),
    "chrono_dispatch_state": (
        "chrono_dispatch_state_pkey",
        "chrono_dispatch_state_single",
        "chrono_dispatch_state_slice",
    ),
    "chrono_given_back": ("chrono_given_back_pkey",),
    "chrono_job": (
        "chrono_job_inserted",
        "chrono_job_instants",
        "chrono_job_key",
        "chrono_job_part",
        "chrono_job_paused_until",
        "chrono_job_pkey",
        "chrono_job_removed",
        "chrono_job_tags",
        "chrono_job_tenant",
        "chrono_job_updated",
    ),
    "chrono_job_count": (
        "chrono_job_count_jobs",
        "chrono_job_count_pkey",
    ),
    "chrono_job_event": (
        "chrono_job_event_kind",
        "chrono_job_event_pkey",
    ),
    "chrono_job_revision": (
        "chrono_job_revision_instants",
        "chrono_job_revision_key",
        "chrono_job_revision_payload_depth",
        "chrono_job_revision_payload_size",
        "chrono_job_revision_pkey",
        "chrono_job_revision_sizes",
    ),
    "chrono_lease": (
        "chrono_lease_checkpoint",
        "chrono_lease_pkey",
    ),
    "chrono_lease_end": ("chrono_lease_end_pkey",),
    "chrono_occurrence": (
        "chrono_occurrence_outcome",
        "chrono_occurrence_pkey",
        "chrono_occurrence_range",
        "chrono_occurrence_scheduled_for",
    ),
    "chrono_once": (
        "chrono_once_key",
        "chrono_once_pkey",
        "chrono_once_result",
    ),
    "chrono_parked": ("chrono_parked_pkey",),
    "chrono_partition": (
        "chrono_partition_id",
        "chrono_partition_pkey",
    ),
    "chrono_pass": ("chrono_pass_pkey",),
    "chrono_plan_end": (
        "chrono_plan_end_pkey",
        "chrono_plan_end_remaining",
    ),
    "chrono_progress": (
        "chrono_progress_checkpoint",
        "chrono_progress_pkey",
        "chrono_progress_share",
        "chrono_progress_text",
    ),
    "chrono_queue_pause": (
        "chrono_queue_pause_id",
        "chrono_queue_pause_pkey",
    ),
    "chrono_request_key": (
        "chrono_request_key_fingerprint",
        "chrono_request_key_key",
        "chrono_request_key_pkey",
    ),
    "chrono_rerun": (
        "chrono_rerun_of",
        "chrono_rerun_pkey",
    ),
    "chrono_resolution": (
        "chrono_resolution_pkey",
        "chrono_resolution_state",
    ),
    "chrono_run": (
        "chrono_run_pkey",
        "chrono_run_result",
        "chrono_run_state",
    ),
    "chrono_run_input": (
        "chrono_run_input_payload",
        "chrono_run_input_pkey",
        "chrono_run_input_some",
    ),
    "chrono_run_kept": (
        "chrono_run_kept_pkey",
        "chrono_run_result",
        "chrono_run_state",
    ),
    "chrono_slot": ("chrono_slot_pkey",),
    "chrono_target": (
        "chrono_target_id",
        "chrono_target_name",
        "chrono_target_pkey",
        "chrono_target_probes",
        "chrono_target_state",
    ),
    "chrono_tenant": (
        "chrono_tenant_instants",
        "chrono_tenant_job_quotas",
        "chrono_tenant_name",
        "chrono_tenant_name_key",
        "chrono_tenant_pkey",
        "chrono_tenant_quotas",
        "chrono_tenant_weight",
    ),
    "chrono_timer": (
        "chrono_timer_due_at",
        "chrono_timer_key",
        "chrono_timer_kind",
        "chrono_timer_part",
        "chrono_timer_scheduled_for",
    ),
    "chrono_timer_far": (
        "chrono_timer_due_at",
        "chrono_timer_far_part_due_at_ref_kind_version_idx",
        "chrono_timer_kind",
        "chrono_timer_part",
        "chrono_timer_scheduled_for",
    ),
    "chrono_watched": ("chrono_watched_pkey",),
    "chrono_withdrawn": ("chrono_withdrawn_pkey",),
    "chrono_worker": ("chrono_worker_pkey",),
}
"""By table: its keys, unique indexes, limits and triggers, all that there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One question: its invariant's code, what should be so, what to do if not."""

    code: str
    name: str
    says: str
    do: str


CHECKS = (
    Check(
        code="I1",
        name="constraints",
        says="the keys, limits and triggers that promises rest on are in force (I15)",
        do="Make it again as its migration has it; until then let no scheduler run.",
    ),
    Check(
        code="I1",
        name="ids",
        says="a run's id is that of its occurrence, so there is one run of each",
        do="Look for a second run of this instant, and at its target.",
    ),
    Check(
        code="I1",
        name="orphans",
        says="every run has its row in the ledger, and none that was skipped ran",
        do="Let no scheduler run until it is known who makes runs past the ledger.",
    ),
    Check(
        code="I2",
        name="versions",
        says="what was acknowledged is there: each job at the version last told",
        do="A failover or a restore lost changes: the audit events say which.",
    ),
    Check(
        code="I3",
        name="decisions",
        says="each occurrence of each plan up to the last decided one has exactly one "
        "decision, and no other instant has one",
        do="Run by hand what is undecided; read the log of its partition's leader.",
    ),
    Check(
        code="I3",
        name="plans",
        says="an enabled job has one timer, for its first undecided occurrence; a "
        "paused or deleted one has none",
        do="Pause the job and resume it: that plans it anew.",
    ),
    Check(
        code="I3",
        name="lost",
        says="no fired run is nowhere",
        do="Run the job by hand for this instant.",
    ),
    Check(
        code="I3",
        name="slots",
        says="no slot is held by a run that is nowhere",
        do="Its job skips until the slot is deleted; then run it by hand.",
    ),
    Check(
        code="I4",
        name="fences",
        says="no fence is above its partition's, and none falls from commit to commit",
        do="Let one scheduler run alone; after a failover see what commits were lost.",
    ),
    Check(
        code="I5",
        name="terms",
        says="nobody fired in a term that was over",
        do="End the scheduler whose term was over; compare the runs at their targets.",
    ),
    Check(
        code="I6",
        name="attempts",
        says="attempts count 1 to n without a gap, n at most what the policy allows "
        "besides deaths of processes",
        do="Read the run's page and its workers' logs.",
    ),
    Check(
        code="I7",
        name="overlaps",
        says="no attempt begins before the last ended",
        do="Two workers had one run: see at its target what was done twice.",
    ),
    Check(
        code="I8",
        name="updates",
        says="no row of the history, the ledger, timers or ready was ever updated",
        do="Somebody changed rows by hand: find out who, and which.",
    ),
    Check(
        code="I8",
        name="rewritten",
        says="no final row was written again after its time",
        do="Somebody changed rows by hand, or copied them: find out who.",
    ),
    Check(
        code="I8",
        name="doubles",
        says="no run is in two places, but for withdrawn ones",
        do="Cancel the run where it waits; see at its target what was done twice.",
    ),
    Check(
        code="I9",
        name="results",
        says="a run that succeeded has one accepted end: no attempt of it failed then "
        "or later",
        do="Two workers settled one run: see at its target what was done twice.",
    ),
    Check(
        code="I10",
        name="instants",
        says="nothing is early: scheduled, due, ready, started, ended, in this order",
        do="Compare the clocks of the database's servers, above all after a failover.",
    ),
    Check(
        code="I10",
        name="jitter",
        says="what is due is due at its instant plus its job's jitter, never before",
        do="Pause the job and resume it: that plans it anew.",
    ),
    Check(
        code="I11",
        name="dead",
        says="a dead run has its error and its dead letter",
        do="Run the job by hand: without its dead letter it cannot be run again.",
    ),
    Check(
        code="I11",
        name="unknown",
        says="only a run that may be begun once is unknown, with its error",
        do="See at its target what became of it, and resolve it.",
    ),
    Check(
        code="I12",
        name="effects",
        says="a run that may be begun once had one attempt, and waits for no other",
        do="Cancel it where it waits; see at its target what was done twice.",
    ),
    Check(
        code="I13",
        name="limits",
        says="never were more runs of a job, a key or a tenant in execution at once "
        "than may be",
        do="See at its target whether they were in each other's way.",
    ),
    Check(
        code="I14",
        name="recorded",
        says="every change by somebody has its audit event in the same transaction",
        do="Somebody changed rows by hand, or restored them: find out who.",
    ),
    Check(
        code="I15",
        name="strays",
        says="the default leaves are empty",
        do="See whether upkeep runs: it moves the rows when it makes their day.",
    ),
    Check(
        code="I16",
        name="overdue",
        says="where a partition is led, nothing due lies undecided for two seconds",
        do="See whether its leader is overloaded or hangs; ended, another takes over.",
    ),
    Check(
        code="-",
        name="answers",
        says="the database answered each batch in time",
        do="Ask again when there is less to do, or for less: --since, --jobs.",
    ),
)
"""Every question, in the order in which it is told."""

WHOLE = ("slots", "updates", "doubles", "strays")
"""What is asked only where nothing is left out."""

WRONG = {
    "early": ("instants", "was fired before its instant"),
    "infinite": ("instants", "has an infinite instant"),
    "due": ("instants", "was due before its instant"),
    "ready": ("instants", "was ready before it was due"),
    "started": ("instants", "was started before it was due"),
    "claimed": ("instants", "was started before it was ready"),
    "ended": ("instants", "ended before it was started"),
    "jitter": ("jitter", "was due before its instant and its job's jitter"),
    "fence": ("fences", "has a fence above its partition's"),
    "deposed": ("terms", "was fired in a term that was over"),
    "id": ("ids", "has a run whose id is another's"),
    "group": ("ids", "is a manual run in the schedule's own group"),
    "orphan": ("orphans", "has no row in the ledger"),
    "skipped": ("orphans", "was skipped, and there is a run"),
    "attempt": ("attempts", "has more attempts than its policy allows"),
    "gap": ("attempts", ""),
    "beyond": ("attempts", ""),
    "overlap": ("overlaps", ""),
    "backwards": ("overlaps", ""),
    "accepted": ("results", ""),
    "begun": ("effects", ""),
    "again": ("effects", "may be begun once, was, and is to be begun again"),
    "unknown": ("unknown", ""),
    "rewritten": ("rewritten", "was written again after its time"),
    "unrecorded": ("recorded", "was written without an audit event"),
}
"""What the statements call a fault: its check, and how it is told."""
