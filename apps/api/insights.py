"""What the runs of jobs say about their schedules."""

from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api import pagination, shapes
from apps.api.view import ApiView
from apps.jobs import insights
from apps.jobs.insights import LongRunning
from apps.runtime.django_session import raw_connection
from apps.runtime.store import read_clock
from apps.tenants.actor import Scope


class LongRunningJobs(ApiView):
    """Jobs whose runs take longer than their period."""

    scopes: ClassVar = {"GET": Scope.READ}
    parameters: ClassVar = {"GET": pagination.PARAMETERS}

    @extend_schema(
        operation_id="list_long_running",
        responses={200: shapes.LongRunningPage},
        parameters=shapes.PAGE_PARAMETERS,
    )
    def get(self, request: Request) -> Response:
        """List the jobs of whose recent runs some took longer than their period.

        The next run then came before the last was over. Looked at are the last 20 runs
        of a job's schedule within seven days, those of them that succeeded. Paused jobs
        are left out. A page may be short, even empty, and yet have a `next_cursor`:
        after 500 jobs it is given back.
        """
        conn = raw_connection()
        page = insights.list_long_running(
            conn,
            tenant=self.tenant,
            now=int(read_clock(conn)),
            after=pagination.cursor_of(request, _after),
            limit=pagination.limit_of(request),
        )
        following = None if page.next is None else page.next.hex
        return Response(
            {
                "items": [_item(one) for one in page.items],
                "next_cursor": pagination.cursor(following),
            }
        )


def _item(one: LongRunning) -> dict[str, Any]:
    return {
        "job_id": str(one.job_id),
        "job_key": one.key,
        "name": one.name,
        "period_ms": one.period,
        "runs": one.runs.runs,
        "longer": one.runs.longer,
        "median_ms": one.runs.median,
        "longest_ms": one.runs.longest,
        "longest_run": str(one.runs.longest_run),
    }


def _after(value: Any) -> UUID:
    return UUID(int=int(value, 16))
