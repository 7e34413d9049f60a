"""A tenant's quotas of jobs and payloads. None has any unless an admin sets them.

**Jobs.** A tenant with `max_jobs` has a row in `chrono_job_count`: how many of its jobs
are not deleted. A trigger of the database keeps it in the transaction of each change:
a create costs the same with ten jobs as with a million, and whatever makes or deletes
jobs is counted, old code beside this, too. Who adds jobs writes them first and then
looks at the number: from its change to the commit the row is locked, so of two creates
at the last place one waits for the other, and is refused. So the creates of a tenant
with the quota queue, and no others: where none has one, a create looks at an empty
table and locks nothing. Counting at each create, up to the quota, would need no row;
but it takes a lock as well, and a tenant near a large quota would pay for all its jobs
each time.

The number is right from the start because nobody writes jobs while it is counted:
:func:`change_quotas` locks the table against that, for a quarter of a second at most. A
tenant with more jobs than are counted in that time gets no quota of them.

**Payloads.** A payload is measured where it is given: with a job, and only where it is
another than the job's so far, or with a run. What is stored already stays and runs.
"""

from dataclasses import asdict, dataclass
from typing import Any

import psycopg

from apps.jobs import store
from apps.jobs.errors import JobsBusy, QuotaExceeded
from apps.jobs.json_value import SIZE, fits
from apps.jobs.store import Terms
from apps.jobs.transactions import open_change
from apps.runtime.sessions import Connection
from apps.tenants.actor import Actor, Scope
from apps.tenants.directory import change_tenant, check_quota
from apps.tenants.errors import Forbidden, TenantNotFound

MOST_JOBS = 10_000_000
MOST_BYTES = SIZE
_WHO = "have an admin raise it under Tenants."


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """What a tenant may have at most; None for any number."""

    max_jobs: int | None = None
    """Jobs that are not deleted."""
    max_payload_bytes: int | None = None
    """Bytes of JSON of a job's or a run's payload."""


def change_quotas(
    tenant: int, quotas: Quotas, *, actor: Actor, reason: str = ""
) -> bool:
    """Set a tenant's quotas of jobs and payloads; return whether they changed.

    What it has beyond them stays. Raises Forbidden, TenantNotFound, BadValue, or
    JobsBusy where the first `max_jobs` would hold up edits of jobs: their table isn't
    free within 200 ms (a change of jobs, a VACUUM, an ANALYZE or a new index has it),
    or the tenant's jobs aren't counted within 250 ms.
    """
    actor.require(Scope.ADMIN)
    if actor.tenant is not None:
        raise Forbidden("Whoever belongs to a tenant does not set its quotas.")
    check_quota(quotas.max_jobs, most=MOST_JOBS, field="max_jobs")
    check_quota(quotas.max_payload_bytes, most=MOST_BYTES, field="max_payload_bytes")
    with open_change() as opened:
        conn = opened.conn
        changed = change_tenant(tenant, asdict(quotas), actor=actor, reason=reason)
        if not changed:
            return False
        if quotas.max_jobs is None:
            store.end_count(conn, tenant=tenant)
        elif read_terms(conn, tenant=tenant).jobs is None:
            _begin_count(conn, tenant)
    return True


def read_terms(conn: Connection, *, tenant: int) -> Terms:
    """Return under which terms a tenant has its jobs. Raises TenantNotFound."""
    terms = store.read_terms(conn, tenant=tenant)
    if terms is None:
        raise TenantNotFound
    return terms


def check_room(terms: Terms, *, more: int = 0) -> None:
    """Raise QuotaExceeded where a tenant has too many jobs, with so many more.

    The terms that were read before are a hint, which costs nothing; those read in the
    transaction that has written the jobs, with none more, are the verdict.
    """
    if terms.max_jobs is None or terms.jobs is None:
        return
    if terms.jobs + more > terms.max_jobs:
        raise QuotaExceeded(
            f"The quota max_jobs of this tenant is {terms.max_jobs:,}, and this would "
            f"make it {terms.jobs + more:,} jobs: delete some that are not needed, or "
            f"{_WHO}",
            field="max_jobs",
        )


def check_payload(terms: Terms, payload: Any) -> None:
    """Raise QuotaExceeded where a payload is longer than a tenant's may be."""
    most = terms.max_payload_bytes
    if most is not None and payload is not None and not fits(payload, size=most):
        raise QuotaExceeded(
            f"The quota max_payload_bytes of this tenant is {most:,} bytes of JSON: "
            f"shorten the payload, or {_WHO}",
            field="max_payload_bytes",
        )


def check_own_payload(conn: Connection, payload: Any, *, tenant: int) -> None:
    """Do that for a payload that is given with a run."""
    check_payload(read_terms(conn, tenant=tenant), payload)


def _begin_count(conn: Connection, tenant: int) -> None:
    """Count a tenant's jobs from now on. Raises JobsBusy, which says why."""
    store.hurry(conn)
    try:
        store.hold_jobs(conn)
        store.begin_count(conn, tenant=tenant)
    except psycopg.errors.LockNotAvailable as error:
        raise JobsBusy(
            "Another change of jobs, or a VACUUM, an ANALYZE or a new index of "
            "chrono_job, goes on: nothing was changed, try again after it.",
            field="max_jobs",
        ) from error
    except psycopg.errors.QueryCanceled as error:
        raise JobsBusy(
            "The tenant's jobs could not be counted in a quarter of a second, and for "
            "longer no edit shall wait: nothing was changed. Try again when the server "
            "has less to do; a VACUUM of chrono_job makes it faster.",
            field="max_jobs",
        ) from error
