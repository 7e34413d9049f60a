"""Targets: which are sick, how much of their retry budget is left, and their switch."""

from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api import bodies, gate_shapes, pagination, query, shapes
from apps.api.errors import BadParameter
from apps.api.idempotency import once
from apps.api.view import ApiView
from apps.runs import target_store as store
from apps.runs import targets
from apps.runtime.django_session import raw_connection
from apps.runtime.store import read_clock
from apps.tenants.actor import Scope
from chrono.rules.breaker import BreakerState
from chrono.rules.errors import BadValue
from chrono.rules.targets import parse_identity

_STATES = {state.label: state for state in BreakerState}


class Targets(ApiView):
    """Targets that failed, or that somebody looked after."""

    scopes: ClassVar = {"GET": Scope.READ}
    parameters: ClassVar = {"GET": pagination.PARAMETERS | {"state", "target"}}

    @extend_schema(
        operation_id="list_targets",
        responses={200: gate_shapes.TargetPage},
        parameters=[
            OpenApiParameter(
                "state",
                {"type": "string", "enum": list(_STATES)},
                description="Only those whose circuit stands so.",
            ),
            OpenApiParameter(
                "target",
                {"type": "string"},
                description="Only this one: a task's name, or any address of its "
                "server.",
            ),
            *shapes.PAGE_PARAMETERS,
        ],
    )
    def get(self, request: Request) -> Response:
        """List targets by name, each with its circuit and its retry budget.

        A target is a task, or a server as `https://example.org:443`. One that has not
        failed for a day, and whose circuit is closed, is not listed.
        """
        conn = raw_connection()
        limit = pagination.limit_of(request)
        after = pagination.cursor_of(request, str) or ""
        found = store.list_targets(
            conn,
            tenant=self.tenant,
            after=(self.tenant, after),
            limit=limit + 1,
            state=_state(request),
            name=_name(request),
        )
        now = int(read_clock(conn))
        items = [
            targets.public_form(row, waiting=waiting, now=now)
            for row, waiting in found[:limit]
        ]
        following = found[limit - 1][0].name if len(found) > limit else None
        return Response({"items": items, "next_cursor": pagination.cursor(following)})


class OpenCircuit(ApiView):
    """Shutting a target to all calls."""

    scopes: ClassVar = {"POST": Scope.OPERATE}

    @extend_schema(
        operation_id="open_circuit",
        request=shapes.json(gate_shapes.Switch),
        responses={200: gate_shapes.Target},
        parameters=[shapes.IDEMPOTENCY_KEY],
    )
    def post(self, request: Request) -> Response:
        """Call a target no more until its circuit is closed by hand.

        Runs that come due wait as `parked` with the reason `circuit_open`; their
        attempts are not spent, and nothing probes. Calls under way go on.
        """
        return _switch(request, self, targets.open_circuit)


class CloseCircuit(ApiView):
    """Letting calls to a target begin again."""

    scopes: ClassVar = {"POST": Scope.OPERATE}

    @extend_schema(
        operation_id="close_circuit",
        request=shapes.json(gate_shapes.Switch),
        responses={200: gate_shapes.Target},
        parameters=[shapes.IDEMPOTENCY_KEY],
    )
    def post(self, request: Request) -> Response:
        """Have a target called again: what waits is let in at a rate that rises.

        Its state is `closing` until nothing waits any more.
        """
        return _switch(request, self, targets.close_circuit)


def _switch(request: Request, view: ApiView, command: Any) -> Response:
    fields = bodies.fields(request, known=("target", "reason"))
    reason = bodies.take_reason(fields)
    name = parse_identity(fields.get("target"))

    def effect() -> Response:
        conn = raw_connection()
        row = command(conn, name, tenant=view.tenant, actor=view.actor, reason=reason)
        [(row, waiting)] = store.list_targets(
            conn, tenant=view.tenant, after=(view.tenant, ""), limit=1, name=row.name
        )
        now = int(read_clock(conn))
        return Response(targets.public_form(row, waiting=waiting, now=now))

    return once(request, effect)


def _state(request: Request) -> BreakerState | None:
    word = query.word(request, "state", known=_STATES)
    return None if word is None else _STATES[word]


def _name(request: Request) -> str | None:
    given = query.text(request, "target", most=2_048)
    if given is None:
        return None
    try:
        return parse_identity(given)
    except BadValue as error:
        raise BadParameter(error.message, field="target") from None
