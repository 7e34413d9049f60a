-- Make rows for targets that have none yet; their circuits are closed.
-- writes: target
-- index: chrono_target_pkey
INSERT INTO chrono_target (
    tenant, name, changed_at, seen_at, failure_threshold, open_duration_s,
    half_open_probes, ratio, min_concurrent
)
SELECT w.tenant, w.name, clock_timestamp(), clock_timestamp(), 20, 30, 1, 0.1, 5
FROM unnest(%(tenants)s::integer[], %(names)s::text[]) AS w (tenant, name)
ON CONFLICT DO NOTHING
