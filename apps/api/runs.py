"""Runs: one, a list, its attempts, and calling one off."""

from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api import bodies, pagination, query, shapes
from apps.api.idempotency import repeatable
from apps.api.view import ApiView
from apps.runs import selectors
from apps.runs.cancel import cancel_by
from apps.runs.errors import RunNotFound
from apps.runs.selectors import Filter, Key
from apps.runs.store import AttemptRow, JobRunKey, RunDetail, RunRow
from apps.runtime.django_session import raw_connection
from apps.tenants.actor import Scope
from chrono.rules import retry
from chrono.rules.errors import ChronoError
from chrono.rules.instants import Millis, format_instant
from chrono.rules.keys import scheduled_for_of
from chrono.rules.lease import LEASE_TTL
from chrono.rules.states import Priority, Reason, RunState, TimerKind, status_of

STATES = tuple(state.label for state in RunState)
STATUSES = tuple(dict.fromkeys(status_of(state) for state in RunState))


class Runs(ApiView):
    """All runs of the tenant, newest first."""

    scopes: ClassVar = {"GET": Scope.READ}
    parameters: ClassVar = {
        "GET": pagination.PARAMETERS
        | {"job", "state", "status", "queue", "scheduled_after", "scheduled_before"}
    }

    @extend_schema(
        operation_id="list_runs",
        responses={200: shapes.RunPage},
        parameters=[
            OpenApiParameter("job", shapes.UUID, description="Only runs of this job."),
            shapes.words_parameter("state", STATES, "Only runs in these states."),
            shapes.words_parameter("status", STATUSES, "Only runs of these statuses."),
            OpenApiParameter("queue", shapes.QUEUE, description="Only this queue's."),
            OpenApiParameter(
                "scheduled_after",
                shapes.INSTANT,
                description="Only runs whose scheduled_for is at or after this.",
            ),
            OpenApiParameter(
                "scheduled_before",
                shapes.INSTANT,
                description="Only runs whose scheduled_for is before this.",
            ),
            *shapes.PAGE_PARAMETERS,
        ],
    )
    def get(self, request: Request) -> Response:
        """List runs, newest scheduled_for first.

        Occurrences that were skipped have no run; they are listed with `job`.
        """
        wanted = _filter(request)
        page = selectors.list_runs(
            raw_connection(),
            tenant=self.tenant,
            wanted=wanted,
            after=_after(request, by_ledger=wanted.by_ledger),
            limit=pagination.limit_of(request),
        )
        return Response(
            {
                "items": [short_form(row) for row in page.rows],
                "next_cursor": pagination.cursor(_key(page.next)),
            }
        )


class Run(ApiView):
    """One run."""

    scopes: ClassVar = {"GET": Scope.READ}

    @extend_schema(operation_id="get_run", responses={200: shapes.Run})
    def get(self, request: Request, run_id: str) -> Response:
        """Return a run, wherever it is in its life."""
        found = selectors.get_run(raw_connection(), _id(run_id), tenant=self.tenant)
        return Response(full_form(*found))


class Attempts(ApiView):
    """A run's attempts."""

    scopes: ClassVar = {"GET": Scope.READ}

    @extend_schema(operation_id="list_attempts", responses={200: shapes.AttemptList})
    def get(self, request: Request, run_id: str) -> Response:
        """Return a run's attempts, first to last; the last may be under way."""
        conn, run = raw_connection(), _id(run_id)
        row, _ = selectors.get_run(conn, run, tenant=self.tenant)
        failed = selectors.list_attempts(conn, run)
        return Response({"items": attempts_form(row, failed)})


class Cancel(ApiView):
    """Calling a run off."""

    scopes: ClassVar = {"POST": Scope.OPERATE}

    @extend_schema(
        operation_id="cancel_run",
        request=shapes.json(shapes.Cancel),
        responses={200: shapes.Run, 202: shapes.Run},
        parameters=[shapes.IDEMPOTENCY_KEY],
    )
    def post(self, request: Request, run_id: str) -> Response:
        """Call a run off.

        200: it is cancelled, and was not begun or had failed before. 202: it is under
        way, and its worker is told within ten seconds. A run that is over answers 409,
        one that is cancelled already 200.
        """
        fields = bodies.fields(request, known=("reason",))
        reason = bodies.text(fields, "reason", most=1000)
        run = _id(run_id)

        def effect() -> Response:
            conn = raw_connection()
            state = cancel_by(
                conn, run, tenant=self.tenant, actor=self.actor, reason=reason
            )
            found = selectors.get_run(conn, run, tenant=self.tenant)
            status = 202 if state is RunState.RUNNING else 200
            return Response(full_form(*found), status=status)

        return repeatable(request, effect)


def short_form(row: RunRow) -> dict[str, Any]:
    """Return a run as a list shows it."""
    state = selectors.state_of(row)
    retrying = row.kind == TimerKind.RETRY
    ended = row.finished_at
    return {
        "id": str(row.id),
        "job_id": str(row.job_id),
        "job_key": row.job_key,
        "status": status_of(state),
        "state": state.label,
        "reason": selectors.reason_of(row),
        "cancel_requested": row.cancel or state is RunState.CANCELLED,
        "scheduled_for": format_instant(scheduled_for_of(row.id)),
        "due_at": _instant(row.due_at),
        "dispatched_at": _instant(row.dispatched_at),
        "started_at": _instant(row.started_at),
        "finished_at": _instant(ended),
        "dispatch_lag_ms": _between(row.due_at, row.dispatched_at),
        "start_lag_ms": _between(row.due_at, row.started_at),
        "duration_ms": _between(row.started_at, ended),
        "attempt": row.attempt,
        "next_retry_at": _instant(row.due_at) if retrying else None,
        "queue": row.queue,
        "priority": None if row.priority is None else Priority(row.priority).label,
        "revision": row.revision,
        "partition": row.part,
        "fence": row.fence,
        "worker": None if row.worker is None else str(row.worker),
    }


def full_form(row: RunRow, detail: RunDetail) -> dict[str, Any]:
    """Return a run with everything that is public."""
    running = row.place == "lease" and detail.beat_at is not None
    trigger = row.kind if detail.trigger is None else detail.trigger
    error = None
    if detail.error is not None and detail.error_reason is not None:
        error = {
            "reason": Reason(detail.error_reason).label,
            "message": detail.error,
            "at": _instant(detail.error_at),
        }
    return {
        **short_form(row),
        "trigger": None if trigger is None else _TRIGGERS.get(trigger),
        "attempt_group": detail.attempt_group,
        "max_attempts": _max_attempts(detail),
        "lease_until": _instant(detail.beat_at + LEASE_TTL)
        if running and detail.beat_at is not None
        else None,
        "idempotency_key": str(row.id),
        "payload": detail.payload,
        "result": detail.result,
        "checkpoint": detail.checkpoint,
        "error": error,
    }


def attempts_form(row: RunRow, failed: list[AttemptRow]) -> list[dict[str, Any]]:
    """Return the failed attempts, and the one that did not fail or has not ended."""
    shown = [
        {
            "attempt": one.attempt,
            "outcome": "failed",
            "reason": Reason(one.reason).label,
            "started_at": _instant(one.started_at),
            "finished_at": _instant(one.finished_at),
            "duration_ms": one.finished_at - one.started_at,
            "error": one.error,
            "worker": str(one.worker),
            "fence": one.fence,
        }
        for one in failed
    ]
    told = {one.attempt for one in failed}
    if row.started_at is None or row.attempt is None or row.attempt in told:
        return shown
    state = selectors.state_of(row)
    last = {
        "attempt": row.attempt,
        "outcome": state.label,
        "reason": selectors.reason_of(row),
        "started_at": _instant(row.started_at),
        "finished_at": _instant(row.finished_at),
        "duration_ms": _between(row.started_at, row.finished_at),
        "error": None,
        "worker": None if row.worker is None else str(row.worker),
        "fence": row.fence,
    }
    return [*shown, last]


_TRIGGERS = {int(kind): word for kind, word in selectors.TRIGGERS.items()}


def _filter(request: Request) -> Filter:
    states = query.words(request, "state", known=STATES)
    statuses = query.words(request, "status", known=STATUSES)
    wanted: frozenset[RunState] | None = None
    if states is not None:
        wanted = frozenset(RunState[word.upper()] for word in states)
    if statuses is not None:
        of_status = frozenset[RunState]().union(
            *(selectors.states_of_status(word) for word in statuses)
        )
        wanted = of_status if wanted is None else wanted & of_status
    return Filter(
        job=query.identifier(request, "job"),
        states=wanted,
        queue=query.text(request, "queue", most=64),
        since=query.instant(request, "scheduled_after"),
        until=query.instant(request, "scheduled_before"),
    )


def _after(request: Request, *, by_ledger: bool) -> Key | None:
    def read(value: Any) -> Key:
        if by_ledger:
            moment, group = map(int, value)
            if not (0 <= moment < 1 << 48 and -1 <= group < 1 << 31):
                raise ValueError
            return JobRunKey(scheduled_for=moment, attempt_group=group)
        return UUID(int=int(value, 16))

    return pagination.cursor_of(request, read)


def _key(key: Key | None) -> object:
    if isinstance(key, JobRunKey):
        return [key.scheduled_for, key.attempt_group]
    return None if key is None else key.hex


def _id(text: str) -> UUID:
    found = query.uuid_of(text)
    if found is None:
        raise RunNotFound
    return found


def _instant(moment: Millis | None) -> str | None:
    return None if moment is None else format_instant(moment)


def _between(start: Millis | None, end: Millis | None) -> int | None:
    return None if start is None or end is None else end - start


def _max_attempts(detail: RunDetail) -> int | None:
    if detail.retry_policy is None:
        return None
    try:
        return retry.from_json(detail.retry_policy).max_attempts
    except ChronoError:
        return None
