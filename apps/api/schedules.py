"""What a schedule would do, before anybody saves it."""

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api import bodies, shapes, store
from apps.api.view import ApiView
from apps.jobs.definition import parse_schedule
from apps.runtime.django_session import raw_connection
from apps.runtime.store import read_clock
from apps.tenants.actor import Scope
from chrono.rules.durations import format_duration
from chrono.rules.errors import BadValue
from chrono.rules.instants import MINUTE, Millis, format_instant, parse_instant
from chrono.rules.preview import Fire, foresee
from chrono.rules.schedule import SCHEDULE_FIELDS

KNOWN = SCHEDULE_FIELDS | {"jitter_window", "time_critical", "after", "count"}
USUAL = 10
MOST = 100


class Preview(ApiView):
    """A schedule's fires to come."""

    scopes: ClassVar = {"POST": Scope.READ}

    @extend_schema(
        operation_id="preview_schedule",
        request=shapes.json(shapes.PreviewRequest),
        responses={200: shapes.Preview},
    )
    def post(self, request: Request) -> Response:
        """Show a schedule as a sentence, its next fires, and what may surprise."""
        fields = bodies.fields(request, known=KNOWN)
        conn = raw_connection()
        after = _after(fields.get("after"), now=int(read_clock(conn)))
        schedule, window = parse_schedule(fields, anchor=after)
        count = bodies.whole(fields, "count", least=1, most=MOST, default=USUAL)
        found = foresee(schedule, after=after, count=count)
        load = None
        if found.fires:
            start = found.fires[0].at // MINUTE * MINUTE
            load = store.measure_minute(
                conn, tenant=self.tenant, start=start, end=start + MINUTE
            )
        return Response(
            {
                "text": found.text,
                "jitter_window": format_duration(window),
                "fires": [_fire(fire, window) for fire in found.fires],
                "warnings": [
                    {"code": one.code, "text": one.text} for one in found.warnings
                ],
                "load_at_first": load,
            }
        )


def _after(value: object, *, now: Millis) -> Millis:
    if value is None:
        return now
    if not isinstance(value, str):
        raise BadValue("after is an instant as text.", field="after")
    return parse_instant(value, field="after")


def _fire(fire: Fire, window: Millis) -> dict[str, Any]:
    return {
        "scheduled_for": format_instant(fire.at),
        "due_before": format_instant(fire.at + window),
        "local": fire.local,
        "note": fire.note,
    }
