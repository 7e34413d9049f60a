"""Where the pages of jobs and runs are, and what an address names."""

from uuid import UUID

from django.http import Http404
from django.urls import reverse

from apps.jobs import store
from apps.jobs.store import Job
from apps.runtime.django_session import raw_connection

JOB = "chrono_jobs_job_change"
RUN = "chrono_console_run_change"


def read_id(text: str | None) -> UUID:
    """Return the id in an address. Raises Http404 for what is none."""
    try:
        return UUID(text or "")
    except ValueError:
        raise Http404 from None


def load_job(object_id: str) -> Job:
    """Return the job that an address names, deleted or not. Raises Http404."""
    found = store.load_jobs(raw_connection(), jobs=[read_id(object_id)])
    if not found:
        raise Http404
    return found[0]


def job_page(job: UUID) -> str:
    """Return the address of a job's page."""
    return reverse(f"admin:{JOB}", args=[job])
