"""What belongs to a job: its next occurrences, its runs, its revisions."""

from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api import job_shapes, pagination, query, runs, shapes
from apps.api.job_answers import id_of
from apps.api.view import ApiView
from apps.jobs import selectors
from apps.runtime.django_session import raw_connection
from apps.tenants.actor import Scope

USUAL = 10
MOST = 100


class Next(ApiView):
    """A job's next occurrences."""

    scopes: ClassVar = {"GET": Scope.READ}
    parameters: ClassVar = {"GET": frozenset({"n", "after"})}

    @extend_schema(
        operation_id="list_next",
        responses={200: job_shapes.NextList},
        parameters=[
            OpenApiParameter(
                "n",
                {"type": "integer", "minimum": 1, "maximum": MOST, "default": USUAL},
                description="How many at most.",
            ),
            OpenApiParameter(
                "after",
                shapes.INSTANT,
                description="Only those after this; the next ones where left out.",
            ),
        ],
    )
    def get(self, request: Request, job_id: str) -> Response:
        """Say when a job will fire: nominal, due with its jitter, and local.

        A paused job has none before the end of its pause.
        """
        items = selectors.list_next(
            raw_connection(),
            id_of(job_id),
            actor=self.actor,
            count=query.number(request, "n", least=1, most=MOST, default=USUAL),
            after=query.instant(request, "after"),
        )
        return Response({"items": items})


class JobRuns(ApiView):
    """The runs of a job."""

    scopes: ClassVar = {"GET": Scope.READ}
    parameters: ClassVar = {
        "GET": pagination.PARAMETERS | {one.name for one in runs.FILTERS}
    }

    @extend_schema(
        operation_id="list_job_runs",
        responses={200: shapes.RunPage},
        parameters=[*runs.FILTERS, *shapes.PAGE_PARAMETERS],
    )
    def get(self, request: Request, job_id: str) -> Response:
        """List a job's runs and skipped occurrences, newest scheduled_for first.

        A deleted job's, too.
        """
        job = selectors.find_job(raw_connection(), id_of(job_id), actor=self.actor)
        return runs.page_of(request, tenant=self.tenant, job=job.id)


class Revisions(ApiView):
    """How a job was defined."""

    scopes: ClassVar = {"GET": Scope.READ}
    parameters: ClassVar = {"GET": pagination.PARAMETERS}

    @extend_schema(
        operation_id="list_revisions",
        responses={200: job_shapes.RevisionPage},
        parameters=shapes.PAGE_PARAMETERS,
    )
    def get(self, request: Request, job_id: str) -> Response:
        """List a job's definitions, newest first, without payloads; a deleted job's,
        too. Values of headers are hidden.
        """
        items, following = selectors.list_revisions(
            raw_connection(),
            id_of(job_id),
            actor=self.actor,
            before=pagination.cursor_of(request, _before),
            limit=pagination.limit_of(request),
        )
        return Response({"items": items, "next_cursor": pagination.cursor(following)})


class Events(ApiView):
    """What was noticed of a job."""

    scopes: ClassVar = {"GET": Scope.READ}
    parameters: ClassVar = {"GET": pagination.PARAMETERS}

    @extend_schema(
        operation_id="list_events",
        responses={200: job_shapes.EventPage},
        parameters=shapes.PAGE_PARAMETERS,
    )
    def get(self, request: Request, job_id: str) -> Response:
        """List what was noticed of a job, newest first: runs that do not begin or end,
        and that it does not succeed. A deleted job's, too.

        Each is told when it is noticed, and once more when it is over.
        """
        items, following = selectors.list_events(
            raw_connection(),
            id_of(job_id),
            actor=self.actor,
            before=pagination.cursor_of(request, _before_event),
            limit=pagination.limit_of(request),
        )
        return Response({"items": items, "next_cursor": pagination.cursor(following)})


def _before(value: Any) -> int:
    return _number(value, below=1 << 31)


def _before_event(value: Any) -> int:
    return _number(value, below=1 << 63)


def _number(value: Any, *, below: int) -> int:
    number = int(value)
    if not 1 <= number < below:
        raise ValueError
    return number
