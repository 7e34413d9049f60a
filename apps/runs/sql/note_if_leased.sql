-- Keep what running runs tell of their progress, where the lease still holds.
-- writes: progress
-- moves: nothing
-- index: chrono_lease_pkey chrono_progress_pkey
-- locks: the leases, and never waits for one
--
-- The lock keeps the lease from being ended before this is committed: without it what
-- a lost attempt tells could be written over what the next one goes on from. Comes back
-- with all that still have a lease, and whether each was written; one that somebody
-- else has locked is told again. An empty text says that progress was told, no text
-- that it was not.
WITH told AS MATERIALIZED (
    SELECT * FROM unnest(
        %(runs)s::uuid[], %(tokens)s::uuid[], %(shares)s::float8[], %(texts)s::text[],
        %(checkpoints)s::text[]
    ) AS t (run_id, token, share, text, checkpoint)
), held AS MATERIALIZED (
    SELECT run_id, part, token, attempt FROM chrono_lease
    WHERE run_id = ANY(%(runs)s::uuid[]) AND token = ANY(%(tokens)s::uuid[])
    FOR NO KEY UPDATE SKIP LOCKED
), noted AS (
    INSERT INTO chrono_progress AS p (
        run_id, part, attempt, share, text, checkpoint, checkpoint_at
    )
    SELECT h.run_id, h.part, h.attempt, t.share, t.text, t.checkpoint::jsonb,
        CASE WHEN t.checkpoint IS NOT NULL THEN clock_timestamp() END
    FROM held h JOIN told t ON t.run_id = h.run_id AND t.token = h.token
    ON CONFLICT (run_id, part) DO UPDATE SET
        noted_at = excluded.noted_at,
        attempt = excluded.attempt,
        share = CASE WHEN excluded.text IS NULL AND excluded.attempt = p.attempt
            THEN p.share ELSE excluded.share END,
        text = CASE WHEN excluded.text IS NULL AND excluded.attempt = p.attempt
            THEN p.text ELSE excluded.text END,
        checkpoint = coalesce(excluded.checkpoint, p.checkpoint),
        checkpoint_at = coalesce(excluded.checkpoint_at, p.checkpoint_at)
    RETURNING run_id
)
SELECT l.run_id, EXISTS (SELECT FROM noted n WHERE n.run_id = l.run_id)
FROM chrono_lease l
WHERE l.run_id = ANY(%(runs)s::uuid[]) AND l.token = ANY(%(tokens)s::uuid[])
