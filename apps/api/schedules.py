"""What a schedule would do, before anybody saves it."""

from collections.abc import Mapping
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api import bodies, shapes
from apps.api.forecast import counted
from apps.api.view import ApiView
from apps.jobs import forecast
from apps.jobs.definition import parse_schedule, parse_tags
from apps.runtime.django_session import raw_connection
from apps.runtime.store import read_clock
from apps.tenants.actor import Scope
from apps.tenants.directory import find_timezone
from chrono.rules import lint, policy
from chrono.rules.durations import format_duration
from chrono.rules.errors import BadValue
from chrono.rules.instants import Millis, format_instant, parse_instant
from chrono.rules.lint import Finding
from chrono.rules.preview import Fire, foresee
from chrono.rules.schedule import SCHEDULE_FIELDS, CronSchedule
from chrono.rules.suggest import Suggestion, parse_clock
from chrono.rules.words import describe

ABOUT = ("tags", "delivery")
"""What of a job is no schedule and yet looked at."""
KNOWN = SCHEDULE_FIELDS | {
    *("jitter_window", "time_critical", "after", "count"),
    *ABOUT,
}
USUAL = 10
MOST = 100
WANTED = {"cron", "timezone", "seconds", "earliest", "latest", "count"}


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
        schedule, window = parse_schedule(
            fields, anchor=after, timezone=find_timezone(conn, tenant=self.tenant)
        )
        count = bodies.whole(fields, "count", least=1, most=MOST, default=USUAL)
        found = foresee(schedule, after=after, count=count)
        load = None
        if found.fires:
            load = forecast.measure_load(conn, found.fires[0].at, tenant=self.tenant)
        return Response(
            {
                "text": found.text,
                "jitter_window": format_duration(window),
                "fires": [_fire(fire, window) for fire in found.fires],
                "warnings": [
                    {"code": one.code, "text": one.text}
                    for one in (*found.warnings, *_of_delivery(fields))
                ],
                "load_at_first": load,
            }
        )


class Suggest(ApiView):
    """Minutes in which a cron would meet fewer other runs."""

    scopes: ClassVar = {"POST": Scope.READ}

    @extend_schema(
        operation_id="suggest_schedule",
        request=shapes.json(shapes.SuggestRequest),
        responses={200: shapes.Suggestions},
    )
    def post(self, request: Request) -> Response:
        """Say which minutes have the least load, beside that of the wanted cron.

        The days and how often it fires in an hour stay as they are. With `earliest` and
        `latest`, for a cron that fires once a day, its time moves between them. Looked
        at are eight days from now, or around the first fire of a cron that is seldom.
        """
        fields = bodies.fields(request, known=WANTED)
        conn = raw_connection()
        wanted, _ = parse_schedule(
            {name: fields[name] for name in fields if name in SCHEDULE_FIELDS},
            anchor=0,
            timezone=find_timezone(conn, tenant=self.tenant),
        )
        if not isinstance(wanted, CronSchedule):
            raise BadValue("Only a cron has minutes to choose from.", field="cron")
        found = forecast.suggest(
            conn,
            wanted,
            tenant=self.tenant,
            now=int(read_clock(conn)),
            between=_between(fields),
            count=bodies.whole(fields, "count", least=1, most=20, default=5),
        )
        stretch = found.forecast.stretch
        return Response(
            {
                "wanted": _suggestion(found.wanted),
                "suggestions": [_suggestion(one) for one in found.others],
                "from": format_instant(stretch.start),
                "to": format_instant(stretch.end),
                **counted(found.forecast),
            }
        )


def _of_delivery(fields: Mapping[str, Any]) -> list[Finding]:
    given = {name: fields[name] for name in ABOUT if fields.get(name) is not None}
    tags, delivery = parse_tags(given.get("tags", [])), policy.from_json(given).delivery
    return lint.of_delivery(tags, delivery)


def _between(fields: Mapping[str, Any]) -> tuple[int, int] | None:
    given = {name: fields.get(name) for name in ("earliest", "latest")}
    if all(value is None for value in given.values()):
        return None
    for name, value in given.items():
        if not isinstance(value, str):
            raise BadValue(f"{name} is a time of day, as 01:30.", field=name)
    first, last = (parse_clock(str(given[name]), field=name) for name in given)
    return first, last


def _suggestion(one: Suggestion) -> dict[str, Any]:
    return {
        "cron": one.schedule.expression,
        "text": describe(one.schedule),
        "first": format_instant(one.first),
        "busiest": one.busiest,
        "mean": one.mean,
    }


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
