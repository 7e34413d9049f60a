"""Queues: which are paused, and their switch."""

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api import bodies, gate_shapes, pagination, shapes
from apps.api.errors import NotFound
from apps.api.idempotency import once
from apps.api.view import ApiView
from apps.jobs.definition import check_queue
from apps.queue import store
from apps.queue.store import PauseRow
from apps.runs import pauses
from apps.runtime.django_session import raw_connection
from apps.tenants.actor import Scope
from chrono.rules.errors import BadValue
from chrono.rules.instants import format_instant


class PausedQueues(ApiView):
    """The queues that are paused."""

    scopes: ClassVar = {"GET": Scope.READ}
    parameters: ClassVar = {"GET": pagination.PARAMETERS}

    @extend_schema(
        operation_id="list_paused_queues",
        responses={200: gate_shapes.QueuePage},
        parameters=shapes.PAGE_PARAMETERS,
    )
    def get(self, request: Request) -> Response:
        """List the tenant's paused queues by name, with how many runs each holds."""
        limit = pagination.limit_of(request)
        found = store.list_pauses(
            raw_connection(),
            tenant=self.tenant,
            after=(self.tenant, pagination.cursor_of(request, str) or ""),
            limit=limit + 1,
            count=True,
        )
        following = found[limit - 1].queue if len(found) > limit else None
        return Response(
            {
                "items": [_form(row) for row in found[:limit]],
                "next_cursor": pagination.cursor(following),
            }
        )


class PauseQueue(ApiView):
    """Pausing a queue."""

    scopes: ClassVar = {"POST": Scope.OPERATE}

    @extend_schema(
        operation_id="pause_queue",
        request=shapes.json(gate_shapes.QueueSwitch),
        responses={200: gate_shapes.Queue},
        parameters=[shapes.IDEMPOTENCY_KEY],
    )
    def post(self, request: Request, queue: str) -> Response:
        """Hand no run of a queue out until it is resumed.

        Of the tenant's runs: another's in a queue of this name go on. What is due waits
        as `parked` with the reason `queue_paused`; what is running goes on. A paused
        queue keeps its pause.
        """
        name = _name(queue)
        reason = bodies.take_reason(bodies.fields(request, known=("reason",)))

        def effect() -> Response:
            row = pauses.pause(
                raw_connection(),
                name,
                tenant=self.tenant,
                actor=self.actor,
                reason=reason,
            )
            return Response(_form(row))

        return once(request, effect)


class ResumeQueue(ApiView):
    """Ending the pause of a queue."""

    scopes: ClassVar = {"POST": Scope.OPERATE}

    @extend_schema(
        operation_id="resume_queue",
        request=shapes.json(gate_shapes.QueueSwitch),
        responses={200: gate_shapes.Queue},
        parameters=[shapes.IDEMPOTENCY_KEY],
    )
    def post(self, request: Request, queue: str) -> Response:
        """Hand the runs of a queue out again, the first due first.

        One that is not paused stays as it is.
        """
        name = _name(queue)
        reason = bodies.take_reason(bodies.fields(request, known=("reason",)))

        def effect() -> Response:
            pauses.resume(
                raw_connection(),
                name,
                tenant=self.tenant,
                actor=self.actor,
                reason=reason,
            )
            return Response(_not_paused(name))

        return once(request, effect)


def _name(queue: str) -> str:
    try:
        return check_queue(queue)
    except BadValue as error:
        raise NotFound(error.message) from None


def _form(row: PauseRow) -> dict[str, Any]:
    return {
        "queue": row.queue,
        "paused": True,
        "paused_at": format_instant(row.paused_at),
        "paused_by": row.paused_by,
        "note": row.note,
        "held": row.held,
    }


def _not_paused(name: str) -> dict[str, Any]:
    return {
        "queue": name,
        "paused": False,
        "paused_at": None,
        "paused_by": "",
        "note": "",
        "held": 0,
    }
