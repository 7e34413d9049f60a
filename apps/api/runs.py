"""Runs: one, a list, its attempts, and calling one off."""

from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api import (
    bodies,
    letter_shapes,
    pagination,
    past_shapes,
    query,
    shapes,
)
from apps.api.idempotency import once, repeatable
from apps.api.job_shapes import KEY, LOCATION, header
from apps.api.run_forms import attempts_form, full_form, short_form
from apps.api.view import ApiView
from apps.jobs.definition import LONGEST_KEY
from apps.jobs.errors import JobNotFound
from apps.jobs.manual import UNSET
from apps.jobs.rerun import retry_run
from apps.jobs.selectors import find_key
from apps.runs import selectors
from apps.runs.cancel import cancel_by, terminate_by
from apps.runs.errors import RunNotFound
from apps.runs.reschedule import reschedule
from apps.runs.resolve import OUTCOMES, resolve
from apps.runs.selectors import Filter, Key
from apps.runs.store import JobRunKey
from apps.runtime.django_session import raw_connection
from apps.runtime.sessions import Connection
from apps.tenants.actor import Scope
from chrono.rules.errors import BadValue
from chrono.rules.states import Reason, RunState, status_of

NO_JOB = UUID(int=0)
MODES = ("cancel", "terminate")
STATES = tuple(state.label for state in RunState)
STATUSES = tuple(dict.fromkeys(status_of(state) for state in RunState))
FILTERS = (
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
)


class Runs(ApiView):
    """All runs of the tenant, newest first."""

    scopes: ClassVar = {"GET": Scope.READ}
    parameters: ClassVar = {
        "GET": pagination.PARAMETERS
        | {"job", "job_key"}
        | {one.name for one in FILTERS}
    }

    @extend_schema(
        operation_id="list_runs",
        responses={200: shapes.RunPage},
        parameters=[
            OpenApiParameter("job", shapes.UUID, description="Only runs of this job."),
            OpenApiParameter(
                "job_key",
                KEY,
                description="Only runs of the job that has this key now.",
            ),
            *FILTERS,
            *shapes.PAGE_PARAMETERS,
        ],
    )
    def get(self, request: Request) -> Response:
        """List runs, newest scheduled_for first.

        Occurrences that were skipped have no run; they are listed with `job`.
        """
        job = query.identifier(request, "job")
        key = query.text(request, "job_key", most=LONGEST_KEY)
        if key is not None:
            job = self._job_of(key, wanted=job)
        return page_of(request, tenant=self.tenant, job=job)

    def _job_of(self, key: str, *, wanted: UUID | None) -> UUID:
        """Return the job with a key; where it is not there or not the one wanted, an id
        that no job has: then nothing is listed.
        """
        try:
            found = find_key(raw_connection(), key, tenant=self.tenant)
        except JobNotFound:
            return NO_JOB
        return found if wanted in (None, found) else NO_JOB


class Run(ApiView):
    """One run."""

    scopes: ClassVar = {"GET": Scope.READ}

    @extend_schema(operation_id="get_run", responses={200: shapes.Run})
    def get(self, request: Request, run_id: str) -> Response:
        """Return a run, wherever it is in its life."""
        return Response(_full(raw_connection(), _id(run_id), tenant=self.tenant))


class Attempts(ApiView):
    """A run's attempts."""

    scopes: ClassVar = {"GET": Scope.READ}

    @extend_schema(operation_id="list_attempts", responses={200: shapes.AttemptList})
    def get(self, request: Request, run_id: str) -> Response:
        """Return a run's attempts, first to last; the last may be under way."""
        conn, run = raw_connection(), _id(run_id)
        row, detail = selectors.get_run(conn, run, tenant=self.tenant)
        failed = selectors.list_attempts(conn, run)
        return Response({"items": attempts_form(row, failed, log=detail.log)})


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

        One that was told to stop and still runs can be ended from `terminate_from` on,
        a minute later, with the mode `terminate`; before that the answer is 409.
        """
        fields = bodies.fields(request, known=("reason", "mode"))
        reason = bodies.take_reason(fields)
        mode = fields.get("mode") or MODES[0]
        if mode not in MODES:
            raise BadValue(f"mode is one of {', '.join(MODES)}.", field="mode")
        run = _id(run_id)

        def effect() -> Response:
            conn = raw_connection()
            act = terminate_by if mode == "terminate" else cancel_by
            state = act(conn, run, tenant=self.tenant, actor=self.actor, reason=reason)
            status = 202 if state is RunState.RUNNING else 200
            return Response(_full(conn, run, tenant=self.tenant), status=status)

        return repeatable(request, effect)


class Retry(ApiView):
    """Running a run again."""

    scopes: ClassVar = {"POST": Scope.OPERATE}

    @extend_schema(
        operation_id="retry_run",
        request=shapes.json(letter_shapes.Retry),
        responses={202: shapes.Run},
        parameters=[
            shapes.IDEMPOTENCY_KEY,
            header("Location", LOCATION, "The new run's address.", 202),
        ],
    )
    def post(self, request: Request, run_id: str) -> Response:
        """Run the occurrence of a run that is over again: at once, as a new run.

        It has another id, and so another idempotency key: what was done is done again.
        It goes by the job's definition now, with the run's own payload unless another
        is given. The two runs name each other: `rerun_as` and `rerun_of`. A run is run
        again once; what came of that can be run again in turn. 409 for one that is not
        over, or was run again already.
        """
        run = _id(run_id)
        fields = bodies.fields(request, known=("payload", "queue", "reason"))
        reason = bodies.take_reason(fields)

        def effect() -> Response:
            made = retry_run(
                run,
                payload=fields.get("payload", UNSET),
                queue=fields.get("queue"),
                actor=self.actor,
                reason=reason,
            )
            return Response(
                _full(raw_connection(), made, tenant=self.tenant),
                status=202,
                headers={"Location": f"/api/v1/runs/{made}"},
            )

        return once(request, effect)


class Resolve(ApiView):
    """Saying what became of a run."""

    scopes: ClassVar = {"POST": Scope.OPERATE}

    @extend_schema(
        operation_id="resolve_run",
        request=shapes.json(past_shapes.Resolve),
        responses={200: shapes.Run},
        parameters=[shapes.IDEMPOTENCY_KEY],
    )
    def post(self, request: Request, run_id: str) -> Response:
        """Say what became of a run that is unknown, or dead: `success` or `failed`.

        It is shown as that from then on, with the reason `resolved`; who said so and
        why is in `resolution`. 409 for a run in another state, or one that was resolved
        otherwise.
        """
        run = _id(run_id)
        fields = bodies.fields(request, known=("outcome", "reason"))
        reason = bodies.take_reason(fields)
        outcome = fields.get("outcome")
        if not isinstance(outcome, str) or outcome not in OUTCOMES:
            raise BadValue("outcome is success or failed.", field="outcome")

        def effect() -> Response:
            conn = raw_connection()
            resolve(
                conn,
                run,
                outcome=OUTCOMES[outcome],
                tenant=self.tenant,
                actor=self.actor,
                reason=reason,
            )
            return Response(_full(conn, run, tenant=self.tenant))

        return once(request, effect)


class Reschedule(ApiView):
    """Moving a run that waits."""

    scopes: ClassVar = {"POST": Scope.OPERATE}

    @extend_schema(
        operation_id="reschedule_run",
        request=shapes.json(past_shapes.Reschedule),
        responses={200: shapes.Run},
        parameters=[shapes.IDEMPOTENCY_KEY],
    )
    def post(self, request: Request, run_id: str) -> Response:
        """Have a run that waits for its time, a retry or a gate come due at another
        instant; at once for one that is over. Its `scheduled_for` stays.

        409 for one that waits for nothing but a worker, runs, or is over.
        """
        run = _id(run_id)
        fields = bodies.fields(request, known=("due_at", "reason"))
        reason = bodies.take_reason(fields)
        due_at = bodies.instant(fields, "due_at")
        if due_at is None:
            raise BadValue("due_at is missing: an instant.", field="due_at")

        def effect() -> Response:
            conn = raw_connection()
            reschedule(
                conn,
                run,
                due_at=due_at,
                tenant=self.tenant,
                actor=self.actor,
                reason=reason,
            )
            return Response(_full(conn, run, tenant=self.tenant))

        return once(request, effect)


def _full(conn: Connection, run: UUID, *, tenant: int) -> dict[str, Any]:
    row, detail = selectors.get_run(conn, run, tenant=tenant)
    said = None
    if row.reason == Reason.RESOLVED:
        said = selectors.find_resolution(conn, run)
    return full_form(row, detail, said)


def page_of(request: Request, *, tenant: int, job: UUID | None) -> Response:
    """Return a page of a tenant's runs, or of one job's, by the request's filters."""
    wanted = _filter(request, job)
    page = selectors.list_runs(
        raw_connection(),
        tenant=tenant,
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


def _filter(request: Request, job: UUID | None) -> Filter:
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
        job=job,
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
