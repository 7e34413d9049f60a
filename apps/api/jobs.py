"""Jobs: create, list, get, change, delete."""

from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api import bodies, etags, job_shapes, pagination, query, shapes
from apps.api.errors import BadParameter
from apps.api.idempotency import once
from apps.api.job_answers import LOCATION, answer, created, id_of, shown
from apps.api.job_shapes import header
from apps.api.parsers import MERGE_PATCH
from apps.api.view import ApiView
from apps.jobs import commands, selectors
from apps.jobs.definition import MOST_TAGS, check_tag
from apps.jobs.store import Chosen
from apps.runtime.django_session import raw_connection
from apps.tenants.actor import Scope
from chrono.rules.errors import BadValue
from chrono.rules.states import Priority, priority_from_name

PRIORITIES = tuple(one.label for one in Priority)
_TEXT = {"type": "string", "minLength": 1, "maxLength": 200}


class Jobs(ApiView):
    """All jobs of the tenant, newest first."""

    scopes: ClassVar = {"GET": Scope.READ, "POST": Scope.WRITE}
    parameters: ClassVar = {
        "GET": pagination.PARAMETERS
        | {"q", "state", "queue", "key", "tag", "target", "priority"}
    }
    repeated = frozenset({"tag"})

    @extend_schema(
        operation_id="list_jobs",
        responses={200: job_shapes.JobPage},
        parameters=[
            OpenApiParameter(
                "q",
                {"type": "string", "minLength": 1, "maxLength": 100},
                description="Only jobs with this in key, name, tags, target or "
                "schedule, in any case; or with this id.",
            ),
            shapes.words_parameter(
                "state",
                job_shapes.JOB_STATES,
                "Only jobs in these states; all but deleted ones where left out.",
            ),
            OpenApiParameter("queue", shapes.QUEUE, description="Only this queue's."),
            OpenApiParameter("key", _TEXT, description="Only the job with this key."),
            OpenApiParameter(
                "tag",
                {"type": "array", "items": job_shapes.TAG, "maxItems": MOST_TAGS},
                description="Only jobs with this tag; given several times, with all of "
                "these.",
                explode=True,
                style="form",
            ),
            OpenApiParameter(
                "target",
                _TEXT,
                description="Only jobs of the task with this name, or whose url begins "
                "with this.",
            ),
            OpenApiParameter(
                "priority", shapes.PRIORITY, description="Only of this priority."
            ),
            *shapes.PAGE_PARAMETERS,
        ],
    )
    def get(self, request: Request) -> Response:
        """List jobs in short form, newest first.

        A page may be short, even empty, and yet have a `next_cursor`: after so many
        jobs that a filter leaves out it is given back.
        """
        page = selectors.list_jobs(
            raw_connection(),
            tenant=self.tenant,
            actor=self.actor,
            chosen=_chosen(request),
            key=query.text(request, "key"),
            after=pagination.cursor_of(request, _after),
            limit=pagination.limit_of(request),
        )
        following = None if page.next is None else page.next.hex
        return Response(
            {"items": page.items, "next_cursor": pagination.cursor(following)}
        )

    @extend_schema(
        operation_id="create_job",
        request=shapes.json(job_shapes.JobRequest),
        responses={201: job_shapes.Job},
        parameters=[
            shapes.IDEMPOTENCY_KEY,
            LOCATION,
            header("ETag", job_shapes.ETAG, "Its version.", 201),
        ],
    )
    def post(self, request: Request) -> Response:
        """Create a job and plan its first occurrence.

        A key that another job has answers 409. A `run_at` up to a day back runs at
        once; one further back is refused.
        """
        fields = bodies.mapping(request)
        reason = bodies.take_reason(fields)
        definition = bodies.definition(fields)

        def effect() -> Response:
            outcome = commands.create_job(
                definition, tenant=self.tenant, actor=self.actor, reason=reason
            )
            return created(outcome.job_id, actor=self.actor)

        return once(request, effect)


class Job(ApiView):
    """One job."""

    scopes: ClassVar = {
        "GET": Scope.READ,
        "PATCH": Scope.WRITE,
        "DELETE": Scope.WRITE,
    }

    @extend_schema(
        operation_id="get_job",
        responses={200: job_shapes.Job, 304: None},
        parameters=[
            job_shapes.IF_NONE_MATCH,
            header("ETag", job_shapes.ETAG, "Its version.", 200),
        ],
    )
    def get(self, request: Request, job_id: str) -> Response:
        """Return a job; 410 with `deleted_at` for one that is deleted."""
        fields = selectors.get_job(raw_connection(), id_of(job_id), actor=self.actor)
        return shown(request, fields)

    @extend_schema(
        operation_id="change_job",
        request={
            "application/json": job_shapes.JobPatch,
            MERGE_PATCH: job_shapes.JobPatch,
        },
        responses={200: job_shapes.Job},
        parameters=[
            job_shapes.if_match(required=True),
            header("ETag", job_shapes.ETAG, "Its version now.", 200),
        ],
    )
    def patch(self, request: Request, job_id: str) -> Response:
        """Change the fields that a merge patch names, all at once.

        Another schedule or jitter window begins a new plan; what came due before is
        decided by the old one. A patch that changes nothing leaves the version alone.
        """
        job, version = id_of(job_id), etags.required_version(request)
        fields = bodies.mapping(request)
        reason = bodies.take_reason(fields)
        commands.patch_job(
            job, fields, if_match=version, actor=self.actor, reason=reason
        )
        return answer(job, actor=self.actor)

    @extend_schema(
        operation_id="delete_job",
        request=shapes.json(job_shapes.Reason),
        responses={200: job_shapes.DeletedJob},
        parameters=[job_shapes.if_match(required=False)],
    )
    def delete(self, request: Request, job_id: str) -> Response:
        """Delete a job; its history stays, and it can be restored.

        Waiting runs are cancelled, its key is free. Deleted again it stays as it is,
        with the same answer.
        """
        job, version = id_of(job_id), etags.optional_version(request)
        reason = bodies.take_reason(bodies.fields(request, known=("reason",)))
        conn, actor = raw_connection(), self.actor
        if selectors.find_job(conn, job, actor=actor).deleted_at is None:
            commands.delete_job(job, if_match=version, actor=actor, reason=reason)
        fields = selectors.get_job(conn, job, actor=actor)
        names = ("id", "key", "state", "version", "deleted_at")
        return Response({name: fields[name] for name in names})


def _chosen(request: Request) -> Chosen:
    states = query.words(request, "state", known=job_shapes.JOB_STATES)
    priority = query.word(request, "priority", known=PRIORITIES)
    return Chosen(
        states=None if states is None else frozenset(states),
        queue=query.text(request, "queue", most=64),
        tags=_tags(request),
        priority=None if priority is None else priority_from_name(priority),
        target=query.text(request, "target"),
        words=query.text(request, "q", most=100),
    )


def _tags(request: Request) -> tuple[str, ...]:
    given = request.query_params.getlist("tag")
    if len(given) > MOST_TAGS:
        query.refuse("tag", f"is there at most {MOST_TAGS} times")
    try:
        return tuple(check_tag(tag) for tag in given)
    except BadValue as error:
        raise BadParameter(error.message, field="tag") from None


def _after(value: Any) -> UUID:
    return UUID(int=int(value, 16))
