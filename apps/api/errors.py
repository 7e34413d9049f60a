"""Every refusal as one problem document (RFC 9457): rooms', DRF's and Django's own.

`code` is the stable word for machines, `errors` names what of the request is at fault:
a `pointer` into the body, a `parameter` of the address, a `header`, or a tenant's
`quota`.
"""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import psycopg
from django import db
from django.core.exceptions import RequestDataTooBig
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    JsonResponse,
    UnreadablePostError,
)
from rest_framework import exceptions
from rest_framework.response import Response

from apps.jobs.errors import QuotaExceeded, VersionConflict
from apps.tenants.errors import Forbidden
from chrono.logs import request_id
from chrono.rules.errors import BadValue, ChronoError

log = logging.getLogger("chrono.web")

CONTENT_TYPE = "application/problem+json"

STATUS = {
    "bad_request": 400,
    "bad_body": 400,
    "bad_cursor": 400,
    "bad_header": 400,
    "bad_parameter": 400,
    "unknown_parameter": 400,
    "key_missing": 401,
    "key_refused": 401,
    "key_malformed": 401,
    "key_unknown": 401,
    "key_revoked": 401,
    "key_expired": 401,
    "forbidden": 403,
    "not_found": 404,
    "job_not_found": 404,
    "run_not_found": 404,
    "dead_letter_not_found": 404,
    "key_not_found": 404,
    "tenant_not_found": 404,
    "method_not_allowed": 405,
    "job_deleted": 410,
    "key_taken": 409,
    "job_not_deleted": 409,
    "nothing_to_skip": 409,
    "key_replaced": 409,
    "tenant_name_taken": 409,
    "illegal_move": 409,
    "run_finished": 409,
    "run_not_waiting": 409,
    "run_not_finished": 409,
    "not_to_terminate": 409,
    "run_rerun_already": 409,
    "run_under_way": 409,
    "dead_letter_closed": 409,
    "run_not_resolvable": 409,
    "run_resolved": 409,
    "request_in_progress": 409,
    "length_required": 411,
    "version_conflict": 412,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "request_mismatch": 422,
    "precondition_required": 428,
    "quota": 429,
    "too_many_requests": 429,
    "internal_error": 500,
    "jobs_busy": 503,
    "database_unavailable": 503,
}
"""The HTTP status of each code; a BadValue that is not named here is a 422."""

RETRY_AFTER = {
    "jobs_busy": "1",
    "request_in_progress": "1",
    "database_unavailable": "5",
}


class NotFound(ChronoError):
    """There is nothing at this address."""

    code = "not_found"


class MethodNotAllowed(ChronoError):
    """This address does not take that method."""

    code = "method_not_allowed"


class UnsupportedMediaType(ChronoError):
    """A body is JSON: send Content-Type: application/json."""

    code = "unsupported_media_type"


class KeyMissing(ChronoError):
    """No API key was sent: add the header Authorization: Bearer and the key."""

    code = "key_missing"


class TooManyRequests(ChronoError):
    """Too many requests; wait before the next."""

    code = "too_many_requests"


class BadParameter(ChronoError):
    """A parameter of the address has a wrong value."""

    code = "bad_parameter"


class UnknownParameter(ChronoError):
    """The address has a parameter that nothing here reads."""

    code = "unknown_parameter"


class BadHeader(ChronoError):
    """A header of the request has a wrong value."""

    code = "bad_header"


class BadBody(ChronoError):
    """The body is not the JSON that is accepted here."""

    code = "bad_body"


class BodyTooLarge(ChronoError):
    """The body is larger than 1 MiB."""

    code = "body_too_large"


class LengthRequired(ChronoError):
    """The request does not say how long its body is: send Content-Length."""

    code = "length_required"


class PreconditionRequired(ChronoError):
    """A change needs If-Match with the ETag last read, or * for any version."""

    code = "precondition_required"


class Unavailable(ChronoError):
    """The database does not answer in time; nothing was changed, try again."""

    code = "database_unavailable"


def answer(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Return the answer to an exception of a view; None for one nobody expected."""
    known = known_as(error)
    if known is None:
        return None
    request = context["request"]
    response = Response(
        problem_of(known, path=request.path),
        status=status_of(known),
        content_type=CONTENT_TYPE,
    )
    for name, value in _headers(known).items():
        response.headers[name] = value
    return response


def known_as(error: Exception) -> ChronoError | None:
    """Return what an exception means to a client, None for a fault of ours."""
    if isinstance(error, ChronoError):
        return error
    if isinstance(error, Http404 | exceptions.NotFound):
        return NotFound()
    if isinstance(error, RequestDataTooBig):
        return BodyTooLarge()
    if isinstance(error, UnreadablePostError):
        return BadBody("The body ended before its length.")
    if isinstance(error, psycopg.OperationalError | db.OperationalError):
        log.warning("the database refused: %s", " ".join(str(error).split())[:300])
        return Unavailable()
    known = _OF_DRF.get(type(error))
    return None if known is None else known()


def problem_of(error: ChronoError, *, path: str) -> dict[str, Any]:
    """Return the problem document that tells of an error."""
    return problem(
        error.code,
        error.message,
        status=status_of(error),
        path=path,
        errors=_places(error),
    )


def status_of(error: ChronoError) -> int:
    """Return the HTTP status that tells of an error."""
    if error.code in STATUS:
        return STATUS[error.code]
    return 422 if isinstance(error, BadValue) else 400


def problem(
    code: str,
    detail: str,
    *,
    status: int | None = None,
    path: str = "",
    errors: list[dict[str, str]] | None = None,
) -> dict[str, Any]:
    """Return the problem document of a code."""
    number = STATUS[code] if status is None else status
    return {
        "type": f"/problems/{code.replace('_', '-')}",
        "title": HTTPStatus(number).phrase,
        "status": number,
        "detail": detail,
        "instance": path,
        "code": code,
        "errors": errors or [],
        "request_id": request_id.get(),
    }


def answer_of(request: HttpRequest, error: ChronoError) -> HttpResponse:
    """Return the problem of an error for a request that never came to a view."""
    return JsonResponse(
        problem_of(error, path=request.path),
        status=status_of(error),
        content_type=CONTENT_TYPE,
    )


def pointer(field: str) -> str:
    """Return a field's name, with dots between its parts, as a JSON pointer."""
    return "".join(
        "/" + part.replace("~", "~0").replace("/", "~1") for part in field.split(".")
    )


def _headers(known: ChronoError) -> dict[str, str]:
    headers = {}
    if known.code in RETRY_AFTER:
        headers["Retry-After"] = RETRY_AFTER[known.code]
    if status_of(known) == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="chrono"'
    return headers


def _places(error: ChronoError) -> list[dict[str, str]]:
    if error.field is None:
        return []
    kind = next((k for of, k in _PLACES if isinstance(error, of)), "pointer")
    place = pointer(error.field) if kind == "pointer" else error.field
    return [{kind: place, "code": error.code, "detail": error.message}]


_PLACES: tuple[tuple[type[ChronoError], str], ...] = (
    (BadParameter, "parameter"),
    (UnknownParameter, "parameter"),
    (BadHeader, "header"),
    (PreconditionRequired, "header"),
    (VersionConflict, "header"),
    (QuotaExceeded, "quota"),
)
_OF_DRF: dict[type[Exception], type[ChronoError]] = {
    exceptions.NotAuthenticated: KeyMissing,
    exceptions.AuthenticationFailed: KeyMissing,
    exceptions.PermissionDenied: Forbidden,
    exceptions.MethodNotAllowed: MethodNotAllowed,
    exceptions.UnsupportedMediaType: UnsupportedMediaType,
    exceptions.ParseError: BadBody,
    exceptions.Throttled: TooManyRequests,
}
