-- Write how a target stands, in the transaction that locked its row.
-- writes: target
-- index: chrono_target_pkey
UPDATE chrono_target SET
    state = %(state)s::smallint,
    failures = %(failures)s::integer,
    changed_at = to_timestamp(%(changed_at)s::bigint / 1000.0::float8),
    seen_at = to_timestamp(%(now)s::bigint / 1000.0::float8),
    probe_at = to_timestamp(%(probe_at)s::bigint / 1000.0::float8),
    probes = %(probes)s::uuid[],
    let_in = %(let_in)s::integer,
    failure_threshold = %(failure_threshold)s::integer,
    open_duration_s = %(open_duration_s)s::integer,
    half_open_probes = %(half_open_probes)s::smallint,
    tokens = %(tokens)s::float8,
    traffic = %(traffic)s::float8,
    budget_at = to_timestamp(%(budget_at)s::bigint / 1000.0::float8),
    granted = %(granted)s::bigint,
    refused = %(refused)s::bigint,
    ratio = %(ratio)s::float8,
    min_concurrent = %(min_concurrent)s::integer,
    changed_by = %(changed_by)s::text,
    note = %(note)s::text
WHERE tenant = %(tenant)s::integer AND name = %(name)s::text COLLATE "C"
