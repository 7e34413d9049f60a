"""The API's own description: the document in the repository, and a page that shows it.

The document is written by `make openapi` and checked against the views by a test; what
is served is that file, so a client reads what was reviewed.
"""

import functools

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

FILE = settings.BASE_DIR / "docs" / "openapi.json"


@require_safe
def schema(request: HttpRequest) -> HttpResponse:
    """Return the OpenAPI document."""
    return HttpResponse(_document(), content_type="application/vnd.oai.openapi+json")


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Return the page that shows the document; nothing of it comes from elsewhere."""
    return render(request, "api/docs.html")


@functools.cache
def _document() -> bytes:
    return bytes(FILE.read_bytes())
