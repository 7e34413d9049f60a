"""How answers show a job: with its ETag, its address, or that it is gone."""

from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api import etags, query
from apps.api.errors import CONTENT_TYPE, problem_of
from apps.api.job_shapes import header
from apps.api.shapes import Schema
from apps.jobs import selectors
from apps.jobs.errors import JobDeleted, JobNotFound
from apps.runtime.django_session import raw_connection
from apps.tenants.actor import Actor

BASE = "/api/v1/jobs"
VOLATILE = (
    *("state", "next_run_at", "next_due_at", "next_runs", "last_run"),
    "runs_left",
)
"""What of a job's answer changes while its version does not."""
_ADDRESS: Schema = {
    "type": "string",
    "examples": [f"{BASE}/01940000-0000-7000-8000-000000000001"],
}
LOCATION = header("Location", _ADDRESS, "The job's address.", 201)


def id_of(text: str) -> UUID:
    """Return the id of a job in an address; raises JobNotFound for what is none."""
    found = query.uuid_of(text)
    if found is None:
        raise JobNotFound
    return found


def tag_of(fields: dict[str, Any]) -> str:
    """Return the ETag of a job's public form."""
    beside = [fields[name] for name in VOLATILE]
    return etags.etag(fields["version"], beside=beside)


def answer(job_id: UUID | None, *, actor: Actor) -> Response:
    """Return a job as it is now, with its ETag."""
    if job_id is None:
        raise JobNotFound
    fields = selectors.get_job(raw_connection(), job_id, actor=actor)
    return Response(fields, headers={"ETag": tag_of(fields)})


def created(job_id: UUID | None, *, actor: Actor) -> Response:
    """Return a new job as it was created, with its ETag and its address."""
    if job_id is None:
        raise JobNotFound
    fields = selectors.get_new_job(raw_connection(), job_id, actor=actor)
    headers = {"ETag": tag_of(fields), "Location": f"{BASE}/{job_id}"}
    return Response(fields, status=201, headers=headers)


def shown(request: Request, fields: dict[str, Any]) -> Response:
    """Return a job that was read, 304 where the client has it, 410 where it is gone."""
    if fields["deleted_at"] is not None:
        gone = JobDeleted(
            f"The job was deleted at {fields['deleted_at']}; restore it first."
        )
        body = problem_of(gone, path=request.path)
        return Response(
            {**body, "deleted_at": fields["deleted_at"]},
            status=410,
            content_type=CONTENT_TYPE,
        )
    tag = tag_of(fields)
    if etags.unchanged(request, tag):
        return Response(status=304, headers={"ETag": tag})
    return Response(fields, headers={"ETag": tag})
