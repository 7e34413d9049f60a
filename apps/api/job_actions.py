"""What is done to a job by a verb: run, pause, resume, skip the next, restore."""

from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api import bodies, etags, job_shapes, shapes
from apps.api.idempotency import once
from apps.api.job_answers import answer, id_of, tag_of
from apps.api.job_shapes import LOCATION, header
from apps.api.run_forms import full_form
from apps.api.view import ApiView
from apps.jobs import commands
from apps.jobs import selectors as jobs
from apps.jobs.manual import UNSET, run_now
from apps.runs import selectors as runs
from apps.runtime.django_session import raw_connection
from apps.tenants.actor import Scope
from chrono.rules.instants import format_instant
from chrono.rules.states import priority_from_name

_CHANGES = [
    shapes.IDEMPOTENCY_KEY,
    job_shapes.if_match(required=False),
    header("ETag", job_shapes.ETAG, "The job's version now.", 200),
]


class RunNow(ApiView):
    """Running a job beside its schedule."""

    scopes: ClassVar = {"POST": Scope.OPERATE}

    @extend_schema(
        operation_id="run_job",
        request=shapes.json(job_shapes.RunNow),
        responses={202: shapes.Run},
        parameters=[
            shapes.IDEMPOTENCY_KEY,
            header("Location", LOCATION, "The run's address.", 202),
        ],
    )
    def post(self, request: Request, job_id: str) -> Response:
        """Run a job at once, paused or not, whatever its schedule has under way.

        409 where the job skips overlaps and as many runs that somebody asked for are
        under way as may be; with `beside` it runs all the same. Send an
        Idempotency-Key: repeated with it, the request gets the same run.
        """
        job = id_of(job_id)
        fields = bodies.fields(
            request, known=("payload", "priority", "beside", "reason")
        )
        reason = bodies.take_reason(fields)
        priority = fields.get("priority")
        wanted = None if priority is None else priority_from_name(priority)
        beside = bodies.flag(fields, "beside")

        def effect() -> Response:
            made = run_now(
                job,
                payload=fields.get("payload", UNSET),
                priority=wanted,
                actor=self.actor,
                reason=reason,
                beside=beside,
            )
            found = runs.get_run(raw_connection(), made.run_id, tenant=self.tenant)
            address = f"/api/v1/runs/{made.run_id}"
            return Response(
                full_form(*found), status=202, headers={"Location": address}
            )

        return once(request, effect)


class Pause(ApiView):
    """Pausing a job."""

    scopes: ClassVar = {"POST": Scope.WRITE}

    @extend_schema(
        operation_id="pause_job",
        request=shapes.json(job_shapes.Pause),
        responses={200: job_shapes.Job},
        parameters=_CHANGES,
    )
    def post(self, request: Request, job_id: str) -> Response:
        """Plan nothing more of a job until it is resumed, by hand or at `until`.

        Runs under way go on. A paused job gets the note and the end that are given.
        """
        job = id_of(job_id)
        fields = bodies.fields(request, known=("note", "until", "reason"))
        reason = bodies.take_reason(fields)
        note = bodies.text(fields, "note", most=bodies.LONGEST_NOTE)
        until = bodies.instant(fields, "until")
        version = etags.optional_version(request)
        return _changed(
            request,
            job,
            self,
            lambda: commands.pause_job(
                job,
                note=note,
                until=until,
                if_match=version,
                actor=self.actor,
                reason=reason,
            ),
        )


class Resume(ApiView):
    """Ending a pause."""

    scopes: ClassVar = {"POST": Scope.WRITE}

    @extend_schema(
        operation_id="resume_job",
        request=shapes.json(job_shapes.Reason),
        responses={200: job_shapes.Job},
        parameters=_CHANGES,
    )
    def post(self, request: Request, job_id: str) -> Response:
        """Plan a paused job from now on; what the pause left out is not made up for."""
        return _reasoned(request, id_of(job_id), self, commands.resume_job)


class Restore(ApiView):
    """Bringing a deleted job back."""

    scopes: ClassVar = {"POST": Scope.WRITE}

    @extend_schema(
        operation_id="restore_job",
        request=shapes.json(job_shapes.Reason),
        responses={200: job_shapes.Job},
        parameters=_CHANGES,
    )
    def post(self, request: Request, job_id: str) -> Response:
        """Bring a deleted job back, paused; 409 where it is not deleted."""
        return _reasoned(request, id_of(job_id), self, commands.restore_job)


class SkipNext(ApiView):
    """Leaving occurrences out."""

    scopes: ClassVar = {"POST": Scope.WRITE}

    @extend_schema(
        operation_id="skip_next",
        request=shapes.json(job_shapes.SkipNext),
        responses={200: job_shapes.Skipped},
        parameters=_CHANGES,
    )
    def post(self, request: Request, job_id: str) -> Response:
        """Leave out a job's next occurrences, one where `count` is left out."""
        job = id_of(job_id)
        fields = bodies.fields(request, known=("count", "reason"))
        reason = bodies.take_reason(fields)
        count = bodies.whole(
            fields, "count", least=1, most=commands.LONGEST_SKIP, default=1
        )
        version = etags.optional_version(request)

        def effect() -> Response:
            outcome = commands.skip_next(
                job, count=count, if_match=version, actor=self.actor, reason=reason
            )
            found = jobs.get_job(raw_connection(), job, actor=self.actor)
            skipped = [format_instant(moment) for moment in outcome.skipped]
            return Response(
                {"skipped": skipped, "job": found}, headers={"ETag": tag_of(found)}
            )

        return once(request, effect)


def _reasoned(
    request: Request, job: UUID, view: ApiView, command: Callable[..., Any]
) -> Response:
    """Carry out a command that takes nothing but a reason."""
    reason = bodies.take_reason(bodies.fields(request, known=("reason",)))
    version = etags.optional_version(request)
    return _changed(
        request,
        job,
        view,
        lambda: command(job, if_match=version, actor=view.actor, reason=reason),
    )


def _changed(
    request: Request, job: UUID, view: ApiView, command: Callable[[], Any]
) -> Response:
    """Carry out a command once; return the job as it is then."""

    def effect() -> Response:
        command()
        return answer(job, actor=view.actor)

    return once(request, effect)
