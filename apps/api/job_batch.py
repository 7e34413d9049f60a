"""Many jobs at once, by their keys: each for itself."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api import bodies, job_shapes, shapes
from apps.api.errors import problem_of, status_of
from apps.api.job_shapes import MOST_IN_BATCH
from apps.api.view import ApiView
from apps.jobs.applying import apply_each
from apps.jobs.definition import Definition
from apps.jobs.editing import Outcome
from apps.tenants.actor import Scope
from chrono.rules.errors import BadValue, ChronoError


class Batch(ApiView):
    """Jobs that a program keeps in its own files."""

    scopes: ClassVar = {"POST": Scope.WRITE}

    @extend_schema(
        operation_id="put_jobs",
        request=shapes.json(job_shapes.JobBatchRequest),
        responses={200: job_shapes.JobBatch},
    )
    def post(self, request: Request) -> Response:
        """Make up to 1,000 jobs what the items say: created, changed, or left.

        Each item is what `PUT /jobs/by-key/{key}` takes, with its key, and is refused
        by itself. Sent again it changes nothing, so it needs no Idempotency-Key: of an
        item with the problem `jobs_busy` it is not known whether it was done.
        """
        body = bodies.fields(request, known=("items", "reason"))
        reason = bodies.take_reason(body)
        parsed = [_parse(item) for item in _items(body)]
        found = apply_each(parsed, tenant=self.tenant, actor=self.actor, reason=reason)
        return Response(
            {
                "results": [
                    _result(n, *one, path=request.path)
                    for n, one in enumerate(zip(parsed, found, strict=True))
                ]
            }
        )


def _items(body: Mapping[str, Any]) -> Sequence[Any]:
    items = body.get("items")
    if not isinstance(items, list) or len(items) > MOST_IN_BATCH:
        raise BadValue(
            f"items is a list of at most {MOST_IN_BATCH:,} jobs.", field="items"
        )
    return items


def _parse(item: object) -> Definition | ChronoError:
    if not isinstance(item, Mapping):
        return BadValue("A job is an object: {…}.")
    try:
        return bodies.definition(item)
    except ChronoError as error:
        return error


def _result(
    index: int,
    parsed: Definition | ChronoError,
    found: Outcome | ChronoError,
    *,
    path: str,
) -> dict[str, Any]:
    key = parsed.key if isinstance(parsed, Definition) else None
    if isinstance(found, ChronoError):
        status, job, actions = status_of(found), None, []
        problem = problem_of(found, path=path)
    else:
        status = 201 if found.actions == ("created",) else 200
        job, actions, problem = found.job_id, [*found.actions], None
    return {
        "index": index,
        "status": status,
        "key": key,
        "id": None if job is None else str(job),
        "actions": actions,
        "problem": problem,
    }
