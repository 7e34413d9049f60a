"""One id a request: taken from outside or made, sent back, and in every log line."""

import logging
import re
import time
import uuid
from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase

from chrono.logs import request_id

HEADER = "X-Request-Id"
_FORM = re.compile(r"[A-Za-z0-9._:-]{1,128}")
# What machines ask every few seconds is no news.
_QUIET = ("/livez", "/readyz", "/static/")

log = logging.getLogger("chrono.web")


class RequestIds:
    """Middleware: stands first, so that every answer and every line has the id."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        given = request.headers.get(HEADER, "")
        chosen = given if _FORM.fullmatch(given) else uuid.uuid4().hex
        token = request_id.set(chosen)
        began = time.perf_counter()
        try:
            response = self._get_response(request)
            response.headers[HEADER] = chosen
            self._tell(request, response, time.perf_counter() - began)
        finally:
            request_id.reset(token)
        return response

    @staticmethod
    def _tell(request: HttpRequest, response: HttpResponseBase, seconds: float) -> None:
        level = logging.DEBUG if request.path.startswith(_QUIET) else logging.INFO
        # The path alone: a query may hold what is nobody else's.
        facts = {
            "method": request.method,
            "path": request.path[:200],
            "status": response.status_code,
            "ms": round(seconds * 1000, 1),
        }
        log.log(level, "answered", extra={"facts": facts})
