"""What every view of the API does before and after its own part."""

from collections.abc import Mapping
from typing import Any, ClassVar

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.api.authentication import principal_of
from apps.api.errors import LengthRequired
from apps.api.query import check_names
from apps.tenants.actor import Actor, Scope
from chrono.logs import request_id

BODIES = ("POST", "PUT", "PATCH", "DELETE")


class ApiView(APIView):
    """A resource: says which scope and which parameters each method takes."""

    http_method_names = [  # noqa: RUF012 (as Django declares it)
        "get",
        "head",
        "post",
        "put",
        "patch",
        "delete",
    ]
    metadata_class = None
    scopes: ClassVar[Mapping[str, Scope]] = {}
    parameters: ClassVar[Mapping[str, frozenset[str]]] = {}
    """The names that the address may have, for each method that takes some."""
    repeated: ClassVar[frozenset[str]] = frozenset()
    """Those of them that may be there several times."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse what no method of ours would read."""
        if "Transfer-Encoding" in request.headers:
            raise LengthRequired
        if request.method in BODIES:
            # Read here: a body that is too large is refused before it is parsed.
            _ = request._request.body  # noqa: SLF001
        super().initial(request, *args, **kwargs)
        method = "GET" if request.method == "HEAD" else str(request.method)
        known = self.parameters.get(method, frozenset())
        check_names(request, known, repeated=self.repeated)

    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Response:
        """Keep answers out of everybody's caches but the client's own."""
        done = super().finalize_response(request, response, *args, **kwargs)
        done.headers.setdefault(
            "Cache-Control",
            "private, no-cache" if done.has_header("ETag") else "no-store",
        )
        done.headers.setdefault("Vary", "Authorization")
        return done

    @property
    def tenant(self) -> int:
        """The tenant of the key."""
        return principal_of(self.request).tenant

    @property
    def actor(self) -> Actor:
        """Who acts, with the id of this request."""
        return principal_of(self.request).actor(request_id=request_id.get())
