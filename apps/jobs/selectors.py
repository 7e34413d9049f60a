"""Jobs in their public form, read for somebody."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from apps.jobs import store
from apps.jobs.errors import JobNotFound
from apps.jobs.planning import LEDGER_KEPT
from apps.jobs.public import NEXT_RUNS, job_fields
from apps.runtime.sessions import Connection
from apps.tenants.actor import Actor, Scope
from chrono.rules.instants import Millis


def get_job(
    conn: Connection, job_id: UUID, *, actor: Actor, now: Millis | None = None
) -> dict[str, Any]:
    """Return a job's public form, a deleted one's too. Raises JobNotFound."""
    found = read_jobs(conn, [job_id], actor=actor, now=now)
    if not found:
        raise JobNotFound(f"There is no job {job_id}.")
    return found[0]


def read_jobs(
    conn: Connection,
    job_ids: Sequence[UUID],
    *,
    actor: Actor,
    runs: int = NEXT_RUNS,
    now: Millis | None = None,
) -> list[dict[str, Any]]:
    """Return the public forms of those of these jobs that the actor sees, in order.

    Each with its next ``runs`` instants. Only who may write sees the values of headers.
    """
    loaded = store.load_jobs(conn, jobs=job_ids, tenant=actor.tenant)
    if not loaded:
        return []
    now = store.read_instant(conn).now if now is None else now
    decided = store.read_decided(conn, jobs=loaded, since=now - LEDGER_KEPT)
    last_runs = store.list_last_runs(conn, jobs=loaded)
    found = {job.id: job for job in loaded}
    return [
        job_fields(
            found[job_id],
            decided=decided[job_id],
            last_run=last_runs.get(job_id),
            now=now,
            runs=runs,
            secrets=actor.may(Scope.WRITE),
        )
        for job_id in job_ids
        if job_id in found
    ]
