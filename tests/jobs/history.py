"""A history laid straight into the tables: of jobs that fire every ten seconds."""

from psycopg.types.json import Jsonb

from apps.jobs.audit import Scope, audit
from apps.jobs.commands import create_job
from apps.runs.days import ensure_days
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND, format_instant
from chrono.rules.keys import run_id, uuid7
from chrono.rules.partitions import partition_of
from tests.support.definitions import definition

FENCE = 7
EVERY = 10 * SECOND


def prepare(ledger):
    """Make day leaves and a leadership; return the database's time."""
    [(now,)] = ledger.rows(
        "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    )
    ensure_days(ledger.conn, now=now)
    ledger.conn.execute("UPDATE chrono_partition SET fence = %s", [FENCE])
    return now


def make_history(ledger, born):
    """Make a job of every ten seconds that fired twice: one settled, one leased."""
    job = create_job(definition(interval="10s", max_concurrent_runs=9), now=born).job_id
    fire(ledger, job, born + EVERY)
    leased = ledger.fired(job, born + 2 * EVERY, fence=FENCE)
    lease(ledger, leased, born + 2 * EVERY)
    plan(ledger, job, born + 3 * EVERY)
    return job


def make_jobs(ledger, count, *, born):
    """Make hourly jobs that fired and were settled each hour since they were made."""
    jobs = [uuid7(born, number.to_bytes(10)) for number in range(count)]
    parts = [partition_of(job) for job in jobs]
    schedule = Jsonb({"interval": "1h", "starts_at": format_instant(born + MINUTE)})
    moments = [born + MINUTE + hour * HOUR for hour in range(2)]
    ledger.conn.execute(
        """
        INSERT INTO chrono_job (id, tenant, key, name, part, version, revision, epoch,
            activated_at, paused, pause_note, created_at, updated_at)
        SELECT j, 1, j::text, '', p, 1, 1, 0, t, false, '', t, t
        FROM unnest(%s::uuid[], %s::smallint[]) AS u (j, p),
            to_timestamp(%s / 1000.0) AS t
        """,
        [jobs, parts, born - DAY],
    )
    ledger.conn.execute(
        """
        INSERT INTO chrono_job_revision (job_id, revision, schedule, jitter_window,
            overlap_policy, queue, priority, target, retry_policy, created_at)
        SELECT j, 1, %s, 0, 'allow_all', 'default', 2, '{}', '{}',
            to_timestamp(%s / 1000.0) FROM unnest(%s::uuid[]) AS j
        """,
        [schedule, born - DAY, jobs],
    )
    for moment in moments:
        runs = [
            run_id(job, moment, 0, part) for job, part in zip(jobs, parts, strict=True)
        ]
        rows = "unnest(%s::uuid[], %s::smallint[], %s::uuid[]) AS u (j, p, r), "
        at = "to_timestamp(%s / 1000.0) AS t"
        ledger.conn.execute(
            "INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence, "
            "version, revision, part, outcome, kind) "
            f"SELECT t, j, r, %s, 1, 1, p, 1, 1 FROM {rows}{at}",
            [FENCE, jobs, parts, runs, moment],
        )
        ledger.conn.execute(
            "INSERT INTO chrono_run (id, part, due_at, dispatched_at, started_at, "
            "finished_at, job_id, fence, revision, tenant, state, attempt) "
            f"SELECT r, p, t, t, t, now(), j, %s, 1, 1, 1, 1 FROM {rows}{at}",
            [FENCE, jobs, parts, runs, moment],
        )
    ledger.conn.execute(
        "INSERT INTO chrono_timer_far (due_at, scheduled_for, ref, job_id, version, "
        "revision, part, kind) SELECT t, t, j, j, 1, 1, p, 1 "
        "FROM unnest(%s::uuid[], %s::smallint[]) AS u (j, p), "
        "to_timestamp(%s / 1000.0) AS t",
        [jobs, parts, moments[-1] + HOUR],
    )


def fire(ledger, job, moment, **more):
    """Write an occurrence as fired, its run as settled, and the next timer."""
    run = ledger.fired(job, moment, **{"fence": FENCE, **more})
    settle(ledger, run, moment, job=job)
    plan(ledger, job, moment + EVERY)
    return run


def plan(ledger, job, moment, *, late=0, version=None):
    """Replace the job's timer."""
    ledger.conn.execute("DELETE FROM chrono_timer_far WHERE ref = %s", [job])
    ledger.conn.execute(
        """
        INSERT INTO chrono_timer_far
            (due_at, scheduled_for, ref, job_id, version, revision, part, kind)
        SELECT to_timestamp(%s / 1000.0), to_timestamp(%s / 1000.0), id, id,
            coalesce(%s, version), revision, part, 1
        FROM chrono_job WHERE id = %s
        """,
        [moment + late, moment, version, job],
    )


def settle(ledger, run, due, *, job=None, state=1):
    ledger.conn.execute(
        """
        INSERT INTO chrono_run (id, part, due_at, dispatched_at, started_at,
            finished_at, job_id, fence, revision, tenant, state, attempt)
        SELECT %s, part, to_timestamp(%s / 1000.0), to_timestamp(%s / 1000.0),
            to_timestamp(%s / 1000.0), greatest(now(), to_timestamp(%s / 1000.0)), id,
            %s, 1, 1, %s, 1
        FROM chrono_job WHERE coalesce(id = %s, true) LIMIT 1
        """,
        [run, due, due, due + 1, due + 2, FENCE, state, job],
    )


def lease(ledger, run, due):
    ledger.conn.execute(
        """
        INSERT INTO chrono_lease (run_id, part, due_at, dispatched_at, started_at,
            job_id, tag, fence, revision, tenant, priority, attempt, queue, token,
            worker)
        SELECT %s, part, to_timestamp(%s / 1000.0), to_timestamp(%s / 1000.0), now(),
            id, 1, %s, 1, 1, 2, 1, 'default', gen_random_uuid(), gen_random_uuid()
        FROM chrono_job LIMIT 1
        """,
        [run, due, due, FENCE],
    )


def fail(ledger, run, attempt, *, ended="started_at"):
    """Write a failed attempt of a run; ``ended`` counts from the lease's begin."""
    ledger.conn.execute(
        f"""
        INSERT INTO chrono_attempt (run_id, part, attempt, started_at, finished_at,
            worker, fence, reason, error)
        SELECT %s, part, %s, {ended} - interval '9 s', {ended}, gen_random_uuid(), 0,
            20, 'no'
        FROM chrono_lease LIMIT 1
        """,
        [run, attempt],
    )


def ready(ledger):
    """Put the leased run into ready, too."""
    ledger.conn.execute(
        "INSERT INTO chrono_ready (due_at, dispatched_at, run_id, job_id, tag, fence, "
        "revision, tenant, part, priority, attempt, slice, queue) SELECT due_at, "
        "dispatched_at, run_id, job_id, tag, fence, revision, tenant, part, priority, "
        "attempt, 0, queue FROM chrono_lease"
    )


def skip(ledger, job, first, last=None, *, count=None, fence=FENCE, reason=5):
    """Write a skipped occurrence, or several as one row."""
    ledger.conn.execute(
        """
        INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence, version,
            revision, part, outcome, kind, reason, occurrences, last_scheduled_for)
        SELECT to_timestamp(%s / 1000.0), id, %s, %s, version, revision, part, 2, 1, %s,
            %s, to_timestamp(%s / 1000.0) FROM chrono_job WHERE id = %s
        """,
        [
            first,
            run_id(job, first, 0, partition_of(job)),
            fence,
            reason,
            count,
            last,
            job,
        ],
    )


def found(ledger, **scope):
    """Return the checks that found something, with all that is said.

    But for the check of updates: the server tells it of what a test wrote by hand a
    second later, so that chance would say whether it finds that.
    """
    findings = [
        each
        for each in audit(ledger.conn, Scope(**scope))
        if each.check.name != "updates"
    ]
    return {finding.check.name for finding in findings}, findings


def one(ledger, name):
    """Return what the only finding says, as of `found`; it is of this check."""
    names, [finding] = found(ledger)
    assert names == {name}
    return f"{finding.subject} {finding.detail}"


def commit_times(ledger):
    [(on,)] = ledger.rows("SELECT current_setting('track_commit_timestamp') = 'on'")
    return on
