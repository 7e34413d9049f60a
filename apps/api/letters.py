"""Dead letters: listed, run again, discarded, and noted on."""

from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api import bodies, letter_shapes, pagination, query, shapes
from apps.api.idempotency import once
from apps.api.run_forms import errors_form, letter_form
from apps.api.view import ApiView
from apps.jobs.errors import UnknownField
from apps.jobs.json_value import check_text
from apps.jobs.manual import UNSET
from apps.jobs.rerun import Redriven, Wanted, redrive
from apps.runs import letters
from apps.runs.errors import LetterNotFound
from apps.runs.letters import LetterFilter
from apps.runtime.django_session import raw_connection
from apps.runtime.sessions import Connection
from apps.tenants.actor import Scope
from chrono.rules.errors import BadValue
from chrono.rules.instants import format_instant
from chrono.rules.keys import scheduled_for_of
from chrono.rules.states import Reason

REASONS = {reason.label: reason for reason in Reason}
LONGEST_TARGET = 2_000
_FILTER = ("job", "target", "reason", "queue", "tag", "died_after", "died_before")
_FIELDS = ("ids", "filter", "limit", "queue", "payload", "rate", "dry_run", "reason")
_PARAMETERS = (
    OpenApiParameter(
        "state",
        {"type": "string", "enum": [*letters.STATES, "all"], "default": "open"},
        description="What was done about them.",
    ),
    OpenApiParameter("job", shapes.UUID, description="Only this job's."),
    OpenApiParameter(
        "target",
        {"type": "string", "minLength": 1, "maxLength": 200},
        description="Only of runs with this target: a task's whole name, or how a url "
        "begins.",
    ),
    OpenApiParameter("reason", shapes.REASON, description="Why they died."),
    OpenApiParameter("queue", shapes.QUEUE, description="In which queue they died."),
    OpenApiParameter(
        "tag",
        {"type": "string", "minLength": 1, "maxLength": 64},
        description="Only of jobs with this whole tag.",
    ),
    OpenApiParameter(
        "died_after", shapes.INSTANT, description="Died at or after this."
    ),
    OpenApiParameter("died_before", shapes.INSTANT, description="Died before this."),
)


class DeadLetters(ApiView):
    """All dead letters of the tenant."""

    scopes: ClassVar = {"GET": Scope.READ}
    parameters: ClassVar = {
        "GET": pagination.PARAMETERS | {one.name for one in _PARAMETERS}
    }

    @extend_schema(
        operation_id="list_dead_letters",
        responses={200: letter_shapes.DeadLetterPage},
        parameters=[*_PARAMETERS, *shapes.PAGE_PARAMETERS],
    )
    def get(self, request: Request) -> Response:
        """List dead letters, newest scheduled_for first; the open ones where no state
        is asked for.
        """
        page = letters.list_letters(
            raw_connection(),
            tenant=self.tenant,
            wanted=_asked(request),
            before=pagination.cursor_of(request, _before),
            limit=pagination.limit_of(request),
        )
        return Response(
            {
                "items": [letter_form(letter) for letter in page.letters],
                "next_cursor": pagination.cursor(
                    None if page.next is None else page.next.hex
                ),
            }
        )


class DeadLetter(ApiView):
    """One dead letter."""

    scopes: ClassVar = {"GET": Scope.READ}

    @extend_schema(
        operation_id="get_dead_letter", responses={200: letter_shapes.DeadLetter}
    )
    def get(self, request: Request, run_id: str) -> Response:
        """Return the dead letter of a run, with its payload and every error."""
        return Response(_full(raw_connection(), _id(run_id), tenant=self.tenant))


class Redrive(ApiView):
    """Running dead letters again."""

    scopes: ClassVar = {"POST": Scope.OPERATE}

    @extend_schema(
        operation_id="redrive_dead_letters",
        request=shapes.json(letter_shapes.Redrive),
        responses={
            202: letter_shapes.Redriven,
            200: letter_shapes.Redriven,
        },
        parameters=[shapes.IDEMPOTENCY_KEY],
    )
    def post(self, request: Request) -> Response:
        """Run dead letters again, those that are named or that a filter fits: up to
        1,000 a call, the named ones all or none.

        Each becomes a new run of the same occurrence, in an attempt group of its own:
        by the job's definition now, with the payload of the letter. They wait in the
        catch-up lane, which has a rate of its own, and while the job is paused. 409 for
        one that was run again or discarded before. 200 for a `dry_run`, or where
        nothing is to run.
        """
        fields = bodies.fields(request, known=_FIELDS)
        reason = bodies.take_reason(fields)
        payload = fields.get("payload", UNSET)
        fields = bodies.given(fields, but="")
        dry_run = bodies.flag(fields, "dry_run")
        wanted = Wanted(
            ids=_ids(fields) if "ids" in fields else None,
            filter=_filter(fields["filter"]) if "filter" in fields else None,
            limit=fields.get("limit", letters.MOST),
            queue=fields.get("queue"),
            payload=payload,
            rate=fields.get("rate"),
        )

        def effect() -> Response:
            made = redrive(
                wanted,
                tenant=self.tenant,
                dry_run=dry_run,
                actor=self.actor,
                reason=reason,
            )
            return Response(_redriven(made), status=200 if made.id is None else 202)

        return once(request, effect)


class Discard(ApiView):
    """Closing dead letters."""

    scopes: ClassVar = {"POST": Scope.OPERATE}

    @extend_schema(
        operation_id="discard_dead_letters",
        request=shapes.json(letter_shapes.Discard),
        responses={200: letter_shapes.Discarded},
        parameters=[shapes.IDEMPOTENCY_KEY],
    )
    def post(self, request: Request) -> Response:
        """Close dead letters that nothing is to be done about, with a note why: all
        that are named or none. The runs stay dead, and the letters as long as others.
        """
        fields = bodies.fields(request, known=("ids", "note"))
        runs = _ids(fields)
        note = bodies.text(fields, "note", most=bodies.LONGEST_NOTE)

        def effect() -> Response:
            count = letters.discard(raw_connection(), runs, note=note, actor=self.actor)
            return Response({"discarded": count})

        return once(request, effect)


class Note(ApiView):
    """Noting on a dead letter."""

    scopes: ClassVar = {"POST": Scope.OPERATE}

    @extend_schema(
        operation_id="note_dead_letter",
        request=shapes.json(letter_shapes.LetterNote),
        responses={200: letter_shapes.DeadLetter},
        parameters=[shapes.IDEMPOTENCY_KEY],
    )
    def post(self, request: Request, run_id: str) -> Response:
        """Put a note on a dead letter in place of the one it has; null takes it away.
        Earlier ones are in the audit.
        """
        run = _id(run_id)
        fields = bodies.fields(request, known=("note",))
        if "note" not in fields:
            raise BadValue("note is missing: a text, or null.", field="note")
        note = bodies.text(fields, "note", most=bodies.LONGEST_NOTE)

        def effect() -> Response:
            conn = raw_connection()
            letters.write_note(conn, run, note=note, actor=self.actor)
            return Response(_full(conn, run, tenant=self.tenant))

        return once(request, effect)


def _full(conn: Connection, run: UUID, *, tenant: int) -> dict[str, Any]:
    letter, payload, errors = letters.get_letter(conn, run, tenant=tenant)
    return {**letter_form(letter), "payload": payload, "errors": errors_form(errors)}


def _asked(request: Request) -> LetterFilter:
    """Return the filter that the address asks for."""
    state = query.word(request, "state", known=(*letters.STATES, "all")) or "open"
    reason = query.word(request, "reason", known=REASONS)
    return LetterFilter(
        state=next((one for one in letters.STATES if one == state), None),
        job=query.identifier(request, "job"),
        target=query.text(request, "target"),
        reason=None if reason is None else REASONS[reason],
        queue=query.text(request, "queue", most=64),
        tag=query.text(request, "tag", most=64),
        since=query.instant(request, "died_after"),
        until=query.instant(request, "died_before"),
    )


def _filter(given: Any) -> LetterFilter:
    """Return the filter of a body."""
    if not isinstance(given, dict):
        raise BadValue("filter is an object: {} fits all that is open.", field="filter")
    for name in given:
        if name not in _FILTER:
            raise UnknownField(
                f"There is no filter {name[:60]}; there are {', '.join(_FILTER)}.",
                field=f"filter.{name[:60]}",
            )
    fields = {f"filter.{k}": v for k, v in given.items() if v is not None}
    reason = fields.get("filter.reason")
    if reason is not None and (not isinstance(reason, str) or reason not in REASONS):
        raise BadValue(
            f"filter.reason is one of {', '.join(REASONS)}.", field="filter.reason"
        )
    job = fields.get("filter.job")
    for name, most in (("target", LONGEST_TARGET), ("queue", 64), ("tag", 64)):
        if f"filter.{name}" in fields:
            check_text(fields[f"filter.{name}"], field=f"filter.{name}", most=most)
    return LetterFilter(
        living=True,
        job=None if job is None else _uuid(job, "filter.job"),
        target=fields.get("filter.target"),
        reason=None if reason is None else REASONS[reason],
        queue=fields.get("filter.queue"),
        tag=fields.get("filter.tag"),
        since=bodies.instant(fields, "filter.died_after"),
        until=bodies.instant(fields, "filter.died_before"),
    )


def _ids(fields: dict[str, Any]) -> tuple[UUID, ...]:
    given = fields.get("ids")
    if not isinstance(given, list) or not 1 <= len(given) <= letters.MOST:
        raise BadValue(
            f"ids is a list of 1 to {letters.MOST:,} ids of runs.", field="ids"
        )
    return tuple(_uuid(one, f"ids.{n}") for n, one in enumerate(given))


def _uuid(value: Any, field: str) -> UUID:
    found = query.uuid_of(value) if isinstance(value, str) else None
    if found is None:
        raise BadValue(f"{field} is a UUID.", field=field)
    return found


def _id(text: str) -> UUID:
    found = query.uuid_of(text)
    if found is None:
        raise LetterNotFound
    return found


def _redriven(made: Redriven) -> dict[str, Any]:
    reruns: tuple[UUID | None, ...] = made.runs or (None,) * len(made.letters)
    return {
        "id": None if made.id is None else str(made.id),
        "count": len(made.letters),
        "items": [
            {
                "run_id": str(letter.run_id),
                "job_key": letter.job_key,
                "scheduled_for": format_instant(scheduled_for_of(letter.run_id)),
                "rerun_as": None if rerun is None else str(rerun),
            }
            for letter, rerun in zip(made.letters, reruns, strict=True)
        ],
        "more": made.more,
    }


def _before(value: Any) -> UUID:
    return UUID(int=int(value, 16))
