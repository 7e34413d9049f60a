"""What Django itself refuses: JSON where a machine asked, a plain page elsewhere."""

import re

from django.http import HttpRequest, HttpResponse
from django.views import defaults

from apps.api.errors import NotFound, answer_of
from chrono.rules.errors import ChronoError

_PAGES = re.compile(r"/(?:admin|console|static)(?:/|$)")


class BadRequest(ChronoError):
    """The request cannot be read, or its Host is not one of this server's."""

    code = "bad_request"


class InternalError(ChronoError):
    """Something here is broken; the log has it under the request_id."""

    code = "internal_error"


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer a request that was refused before a view saw it."""
    if _for_people(request):
        return defaults.bad_request(request, exception)
    return answer_of(request, BadRequest())


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer for an address where nothing is."""
    if _for_people(request):
        return defaults.page_not_found(request, exception)
    return answer_of(request, NotFound())


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer after an exception that nobody expected; the log has it."""
    if _for_people(request):
        return defaults.server_error(request)
    return answer_of(request, InternalError())


def _for_people(request: HttpRequest) -> bool:
    return _PAGES.match(request.path) is not None
