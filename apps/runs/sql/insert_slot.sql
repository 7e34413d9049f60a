-- Have a run count against its job's overlap bound until it is settled.
-- writes: slot
INSERT INTO chrono_slot (part, job_id, run_id)
VALUES (%(part)s::smallint, %(job)s::uuid, %(run)s::uuid)
ON CONFLICT DO NOTHING
