"""How many runs are to come, bin by bin."""

from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api import query, shapes
from apps.api.errors import BadParameter
from apps.api.view import ApiView
from apps.jobs import forecast
from apps.runtime.django_session import raw_connection
from apps.runtime.store import read_clock
from apps.tenants.actor import Scope
from chrono.rules.durations import parse_duration
from chrono.rules.errors import BadValue
from chrono.rules.forecast import WIDTHS, Stretch, stretch_of
from chrono.rules.instants import Millis, format_instant

MOST_BINS = 1_440
USUAL_BINS = 60


class Forecast(ApiView):
    """The runs of a stretch of time to come."""

    scopes: ClassVar = {"GET": Scope.READ}
    parameters: ClassVar = {"GET": frozenset({"from", "to", "for", "per", "after_job"})}

    @extend_schema(
        operation_id="forecast",
        responses={200: shapes.Forecast},
        parameters=[
            OpenApiParameter(
                "per",
                {"type": "string", "enum": list(WIDTHS), "default": "minute"},
                description="How wide a bin is.",
            ),
            OpenApiParameter("from", shapes.INSTANT, description="Now where left out."),
            OpenApiParameter(
                "to",
                shapes.INSTANT,
                description=f"The end, which is not in it; {USUAL_BINS} bins "
                "later where both ends are left out.",
            ),
            OpenApiParameter(
                "for",
                {"type": "string", "maxLength": 40, "examples": ["24h"]},
                description="A duration from the beginning of the first bin, in "
                "place of `to`.",
            ),
            OpenApiParameter(
                "after_job",
                shapes.UUID,
                description="The `last_job` of an answer that was broken off: the "
                "counts of both add up.",
            ),
        ],
    )
    def get(self, request: Request) -> Response:
        """Count the runs that the tenant's schedules will bring.

        `nominal` goes by the instants of the schedules, `due` by when they are due once
        jitter has moved them. Paused jobs, manual runs and retries are not counted, and
        what was skipped ahead is. Bins are whole seconds, minutes or hours of UTC;
        at most 1,440 of them.
        """
        conn = raw_connection()
        found = forecast.foretell(
            conn,
            tenant=self.tenant,
            stretch=_stretch(request, now=int(read_clock(conn))),
            after=query.identifier(request, "after_job"),
        )
        return Response(
            {
                "from": format_instant(found.stretch.start),
                "to": format_instant(found.stretch.end),
                **counted(found),
                "last_job": None if found.last_job is None else str(found.last_job),
                "bins": [
                    {"at": format_instant(at), "nominal": nominal, "due": due}
                    for at, nominal, due in found.rows()
                ],
            }
        )


def counted(found: forecast.Forecast) -> dict[str, Any]:
    """Return whose runs a forecast has, and whose not."""
    return {
        "jobs": found.jobs,
        "unpredictable": found.unpredictable,
        "broken": found.broken,
        "truncated": found.last_job is not None,
    }


def _stretch(request: Request, *, now: Millis) -> Stretch:
    width = WIDTHS[_per(request)]
    start = query.instant(request, "from")
    start = (now if start is None else start) // width * width
    end, length = query.instant(request, "to"), _length(request)
    if end is not None and length is not None:
        query.refuse("for", "stands in place of to; leave one of them out")
    if end is None:
        end = start + (USUAL_BINS * width if length is None else length)
    try:
        return stretch_of(start=start, end=end, width=width, most=MOST_BINS)
    except BadValue as error:
        named = "to" if length is None else "for"
        raise BadParameter(error.message, field=named) from None


def _per(request: Request) -> str:
    return query.word(request, "per", known=WIDTHS) or "minute"


def _length(request: Request) -> Millis | None:
    value = query.text(request, "for", most=40)
    try:
        return None if value is None else parse_duration(value)
    except BadValue as error:
        raise BadParameter(f"for: {error.message}", field="for") from None
