-- Cancel a run that waits in a timer table: its row moves to the history.
-- writes: timer | timer_far, run, occurrence, given_back
-- moves: retrying | scheduled -> cancelled
-- index: {timers} (part, ref) WHERE kind <> 1
--
-- A late occurrence is decided here: its ledger row says skipped, cancelled by a person,
-- and the run that it took off its job's number is given back.
-- It waits for a fire that has the row: passed over, a run would look as if it were
-- nowhere for as long as that fire takes. It has but one row, so nothing to deadlock on.
WITH taken AS MATERIALIZED (
    SELECT tableoid AS bucket, ctid AS tid FROM {timers}
    WHERE part = %(part)s::smallint AND ref = %(run)s::uuid AND kind <> 1
    FOR UPDATE
), moved AS (
    DELETE FROM {timers} t USING taken k
    WHERE t.tableoid = k.bucket AND t.ctid = k.tid
        AND t.part = %(part)s::smallint AND t.ref = %(run)s::uuid AND t.kind <> 1
    RETURNING t.*
), decided AS (
    INSERT INTO chrono_occurrence (
        scheduled_for, job_id, run_id, fence, version, revision, attempt_group, part,
        outcome, kind, reason
    )
    SELECT scheduled_for, job_id, ref, 0, version, revision, attempt_group, part, 2,
        kind, %(reason)s::smallint
    FROM moved WHERE kind <> 4
    ON CONFLICT DO NOTHING
), given_back AS (
    INSERT INTO chrono_given_back (part, job_id, run_id)
    SELECT part, job_id, ref FROM moved WHERE kind = 2 AND remaining IS NOT NULL
    ON CONFLICT DO NOTHING
)
INSERT INTO chrono_run (
    due_at, finished_at, id, job_id, fence, revision, tenant, part, state, reason,
    attempt
)
SELECT m.due_at, clock_timestamp(), m.ref, m.job_id, 0, m.revision,
    (SELECT j.tenant FROM chrono_job j WHERE j.id = m.job_id), m.part, 4,
    %(reason)s::smallint, m.attempt
FROM moved m
ON CONFLICT DO NOTHING
RETURNING id
