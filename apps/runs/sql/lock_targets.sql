-- Lock the rows of some targets until the transaction ends; tell how each stands.
-- writes: nothing
-- locks: target rows in the order given FOR UPDATE
-- index: chrono_target_pkey
SELECT t.tenant, t.name, t.state, t.failures, t.changed_at, t.probe_at, t.probes, t.let_in,
    t.failure_threshold, t.open_duration_s, t.half_open_probes, t.tokens, t.traffic,
    t.budget_at, t.granted, t.refused, t.ratio, t.min_concurrent, t.changed_by, t.note, clock_timestamp()
FROM unnest(%(tenants)s::integer[], %(names)s::text[]) AS w (tenant, name)
CROSS JOIN LATERAL (
    SELECT * FROM chrono_target t
    WHERE t.tenant = w.tenant AND t.name = w.name COLLATE "C"
    OFFSET 0 FOR UPDATE
) t
