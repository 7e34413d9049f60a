"""The job that has a key: what a program keeps in its own files."""

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api import bodies, etags, job_shapes, shapes
from apps.api.job_answers import LOCATION, answer, created, shown
from apps.api.job_shapes import header
from apps.api.view import ApiView
from apps.jobs import selectors
from apps.jobs.applying import put_job
from apps.jobs.errors import JobNotFound, VersionConflict
from apps.jobs.json_value import check_text
from apps.runtime.django_session import raw_connection
from apps.tenants.actor import Scope
from chrono.rules.errors import BadValue


class JobByKey(ApiView):
    """The job that has a key."""

    scopes: ClassVar = {"GET": Scope.READ, "PUT": Scope.WRITE}

    @extend_schema(
        operation_id="get_job_by_key",
        responses={200: job_shapes.Job, 304: None},
        parameters=[
            job_shapes.IF_NONE_MATCH,
            header("ETag", job_shapes.ETAG, "Its version.", 200),
        ],
    )
    def get(self, request: Request, key: str) -> Response:
        """Return the job that has this key."""
        conn = raw_connection()
        found = selectors.find_key(conn, _key(key), tenant=self.tenant)
        return shown(request, selectors.get_job(conn, found, actor=self.actor))

    @extend_schema(
        operation_id="put_job",
        request=shapes.json(job_shapes.JobByKeyRequest),
        responses={200: job_shapes.Job, 201: job_shapes.Job},
        parameters=[
            job_shapes.if_match(required=False),
            LOCATION,
            header("ETag", job_shapes.ETAG, "Its version now.", 200, 201),
        ],
    )
    def put(self, request: Request, key: str) -> Response:
        """Make the job with this key what the body says: created, changed, or left.

        What the body leaves out gets its default, but for `paused`, which stays as it
        is. With If-Match the job must be there.
        """
        version = etags.optional_version(request)
        fields = bodies.mapping(request)
        reason = bodies.take_reason(fields)
        if fields.setdefault("key", key) != key:
            raise BadValue("The key is the one in the address.", field="key")
        definition = bodies.definition(fields)
        if "If-Match" in request.headers and version is None:
            _must_be_there(definition.key, tenant=self.tenant)
        outcome = put_job(
            definition,
            if_match=version,
            tenant=self.tenant,
            actor=self.actor,
            reason=reason,
        )
        if outcome.actions == ("created",):
            return created(outcome.job_id, actor=self.actor)
        return answer(outcome.job_id, actor=self.actor)


def _key(text: str) -> str:
    try:
        return check_text(text, field="key", most=200)
    except BadValue:
        raise JobNotFound("There is no job with this key.") from None


def _must_be_there(key: str, *, tenant: int) -> None:
    try:
        selectors.find_key(raw_connection(), key, tenant=tenant)
    except JobNotFound:
        raise VersionConflict(
            f"There is no job with the key {key}.", field="If-Match"
        ) from None
