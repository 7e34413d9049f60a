"""What is asked of a job's past: run it again, say why it was as it was."""

from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api import bodies, pagination, past_shapes, query, shapes
from apps.api.errors import BadParameter
from apps.api.idempotency import once
from apps.api.job_answers import id_of
from apps.api.run_forms import short_form
from apps.api.view import ApiView
from apps.jobs import backfill, explain
from apps.jobs.errors import JobNotFound
from apps.jobs.store import BackfillRow
from apps.runtime.django_session import raw_connection
from apps.tenants.actor import Scope
from chrono.rules.errors import BadValue
from chrono.rules.instants import Millis, format_instant

_FIELDS = ("from", "to", "order", "reprocess", "rate", "dry_run", "reason")


class Backfills(ApiView):
    """Running a range of the past."""

    scopes: ClassVar = {"GET": Scope.READ, "POST": Scope.OPERATE}
    parameters: ClassVar = {"GET": pagination.PARAMETERS}

    @extend_schema(
        operation_id="list_backfills",
        responses={200: past_shapes.BackfillPage},
        parameters=shapes.PAGE_PARAMETERS,
    )
    def get(self, request: Request, job_id: str) -> Response:
        """List a job's backfills, newest first, each with what of it still waits."""
        limit = pagination.limit_of(request)
        found = backfill.list_backfills(
            id_of(job_id),
            actor=self.actor,
            before=pagination.cursor_of(request, _before),
            limit=limit + 1,
        )
        following = found[limit - 1].id.hex if len(found) > limit else None
        return Response(
            {
                "items": [_item(row) for row in found[:limit]],
                "next_cursor": pagination.cursor(following),
            }
        )

    @extend_schema(
        operation_id="backfill_job",
        request=shapes.json(past_shapes.NewBackfill),
        responses={202: past_shapes.Planned, 200: past_shapes.Planned},
        parameters=[shapes.IDEMPOTENCY_KEY],
    )
    def post(self, request: Request, job_id: str) -> Response:
        """Run the occurrences of a range that is over, each once.

        By the schedule in force now. What has a run is passed over, unless `reprocess`
        says otherwise; the plan goes on untouched. At most 10,000 occurrences of the
        last 30 days. The runs wait in the catch-up lane, which has a rate of its own,
        and while the job is paused. 200 for a `dry_run`, or where nothing is to run.
        """
        job = id_of(job_id)
        fields = bodies.fields(request, known=_FIELDS)
        reason = bodies.take_reason(fields)
        fields = bodies.given(fields, but="")
        dry_run = bodies.flag(fields, "dry_run")
        wanted = backfill.Range(
            start=_instant(fields, "from"),
            end=_instant(fields, "to"),
            order=fields.get("order", "oldest"),
            reprocess=fields.get("reprocess", "none"),
            rate=fields.get("rate"),
        )

        def effect() -> Response:
            made = backfill.backfill_job(
                job, wanted, dry_run=dry_run, actor=self.actor, reason=reason
            )
            return Response(
                {
                    "id": None if made.id is None else str(made.id),
                    "revision": made.revision,
                    "occurrences": [format_instant(at) for at in made.occurrences],
                    "passed_over": made.passed_over,
                },
                status=200 if made.id is None else 202,
            )

        return once(request, effect)


class CancelBackfill(ApiView):
    """Calling a backfill off."""

    scopes: ClassVar = {"POST": Scope.OPERATE}

    @extend_schema(
        operation_id="cancel_backfill",
        request=shapes.json(shapes.Cancel),
        responses={200: past_shapes.CancelledBackfill},
        parameters=[shapes.IDEMPOTENCY_KEY],
    )
    def post(self, request: Request, job_id: str, backfill_id: str) -> Response:
        """Cancel the runs of a backfill that still wait; what has begun goes on."""
        job = id_of(job_id)
        found = query.uuid_of(backfill_id)
        if found is None:
            raise JobNotFound(f"The job has no backfill {backfill_id[:60]}.")
        reason = bodies.take_reason(bodies.fields(request, known=("reason",)))

        def effect() -> Response:
            count = backfill.cancel_backfill(
                job, found, actor=self.actor, reason=reason
            )
            return Response({"cancelled": count})

        return once(request, effect)


class Explain(ApiView):
    """Why a job ran, or did not."""

    scopes: ClassVar = {"GET": Scope.READ}
    parameters: ClassVar = {"GET": frozenset({"at"})}

    @extend_schema(
        operation_id="explain_job",
        responses={200: past_shapes.Explanation},
        parameters=[
            OpenApiParameter(
                "at",
                shapes.INSTANT,
                required=True,
                description="The nominal instant, without the job's jitter.",
            )
        ],
    )
    def get(self, request: Request, job_id: str) -> Response:
        """Say why a job ran at an instant, or did not: the field of the schedule that
        does not match, the reason of a skip, or what holds the run now.
        """
        at = query.instant(request, "at")
        if at is None:
            raise BadParameter("at is the instant that is asked about.", field="at")
        found = explain.explain(
            raw_connection(), id_of(job_id), at=at, actor=self.actor
        )
        return Response(
            {
                "at": format_instant(found.at),
                "verdict": found.verdict,
                "text": found.text,
                "reason": found.reason,
                "mismatches": [
                    {"field": one.field, "column": one.column, "text": one.text}
                    for one in found.mismatches
                ],
                "run": None if found.run is None else short_form(found.run),
                "previous": _text(found.previous),
                "next": _text(found.following),
            }
        )


def _item(row: BackfillRow) -> dict[str, Any]:
    return {
        "id": str(row.id),
        "from": format_instant(row.start),
        "to": format_instant(row.end),
        "revision": row.revision,
        "runs": row.runs,
        "waiting": row.waiting,
        "created_at": format_instant(row.created_at),
        "created_by": row.created_by,
        "cancelled_at": _text(row.cancelled_at),
        "cancelled_by": row.cancelled_by,
    }


def _instant(fields: dict[str, Any], name: str) -> Millis:
    found = bodies.instant(fields, name)
    if found is None:
        raise BadValue(f"{name} is missing: an instant.", field=name)
    return found


def _before(value: Any) -> UUID:
    return UUID(int=int(value, 16))


def _text(moment: Millis | None) -> str | None:
    return None if moment is None else format_instant(moment)
