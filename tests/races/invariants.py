"""The audit: what must hold in every snapshot, whatever moves at that moment."""

from tests.support.pg import Connection

# One statement, so one snapshot. A run may be in `run` and in one more place only while
# it is withdrawn: cancelled, its row not yet taken out of where it lay.
AUDIT = """
WITH place AS MATERIALIZED (
    SELECT ref AS run, 'timer' AS name FROM chrono_timer WHERE kind <> 1
    UNION ALL SELECT ref, 'far' FROM chrono_timer_far WHERE kind <> 1
    UNION ALL SELECT run_id, 'ready' FROM chrono_ready
    UNION ALL SELECT run_id, 'lease' FROM chrono_lease
    UNION ALL SELECT run_id, 'parked' FROM chrono_parked
    UNION ALL SELECT run_id, 'blocked' FROM chrono_blocked
    UNION ALL SELECT id, 'run' FROM chrono_run
), run AS (
    SELECT run, count(*) AS n, string_agg(name, '+' ORDER BY name) AS names
    FROM place GROUP BY run
)
SELECT 'a run is in ' || names, run::text FROM run
WHERE n > 1 AND NOT (
    n = 2 AND names LIKE '%run%'
    AND EXISTS (SELECT FROM chrono_withdrawn w WHERE w.run_id = run.run)
)
UNION ALL
SELECT 'a fired run is nowhere', o.run_id::text
FROM chrono_occurrence o LEFT JOIN run ON run.run = o.run_id
WHERE o.outcome = 1 AND run.run IS NULL
UNION ALL
SELECT 'a skipped occurrence has a run', o.run_id::text
FROM chrono_occurrence o JOIN run ON run.run = o.run_id
LEFT JOIN chrono_run r ON r.id = o.run_id
WHERE o.outcome = 2 AND (r.state IS NULL OR r.state NOT IN (4, 5))
    -- A manual run of the same job and instant has its own group, so its own id.
UNION ALL
SELECT 'an occurrence is twice in the ledger', job_id || ' ' || scheduled_for
FROM chrono_occurrence
GROUP BY part, job_id, scheduled_for, attempt_group HAVING count(*) > 1
UNION ALL
SELECT 'a row has a fence that was never handed out', o.run_id::text
FROM chrono_occurrence o JOIN chrono_partition p ON p.id = o.part
WHERE o.fence > p.fence
UNION ALL
SELECT 'a row lies in a default leaf', run_id::text FROM chrono_occurrence_default
UNION ALL
SELECT 'a row lies in a default leaf', id::text FROM chrono_run_default
"""

# Every job with a plan that has not ended has exactly one timer of its version.
PLANNED = """
SELECT 'a job has ' || count(t.ref) || ' timers of its version', j.id::text
FROM chrono_job j LEFT JOIN (
    SELECT part, ref, version FROM chrono_timer WHERE kind = 1
    UNION ALL SELECT part, ref, version FROM chrono_timer_far WHERE kind = 1
) t ON t.part = j.part AND t.ref = j.id AND t.version = j.version
WHERE NOT j.paused AND j.deleted_at IS NULL
GROUP BY j.id HAVING count(t.ref) <> 1
"""


def violations(conn: Connection) -> list[tuple[str, str]]:
    """Return (what is wrong, of what) as one snapshot has it; nothing if all is well.

    ``conn`` is an ordinary session: planner switches of a hot one would slow it down.
    """
    return [(what, whose) for what, whose in conn.execute(AUDIT).fetchall()]


def unplanned(conn: Connection) -> list[tuple[str, str]]:
    """Return the jobs in force that have no timer of their version, or several.

    Only where every job has a plan without an end.
    """
    return [(what, whose) for what, whose in conn.execute(PLANNED).fetchall()]
