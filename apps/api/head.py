"""HEAD is answered as GET is, without the body."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase


class NoBodyForHead:
    """Middleware: Django leaves this to the server, and gunicorn warns of each."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        if request.method == "HEAD" and isinstance(response, HttpResponse):
            length = response.headers.get("Content-Length", str(len(response.content)))
            response.content = b""
            response.headers["Content-Length"] = length
        return response
