"""What a key may do at an address."""

from typing import TYPE_CHECKING

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from apps.api.authentication import principal_of
from apps.api.errors import KeyMissing
from apps.tenants.actor import Scope

if TYPE_CHECKING:
    from rest_framework.views import APIView  # Imports this module for its defaults.


class HasScope(BasePermission):
    """Lets a key in that has the scope which the view names for the method.

    A method without a scope is no method of the view.
    """

    def has_permission(self, request: Request, view: "APIView") -> bool:
        """Return True; raises KeyMissing, and Forbidden where the scopes fall short."""
        method = "GET" if request.method == "HEAD" else str(request.method)
        scopes: dict[str, Scope] = getattr(view, "scopes", {})
        if method not in scopes:
            view.http_method_not_allowed(request)
        if request.auth is None:
            raise KeyMissing
        principal_of(request).actor().require(scopes[method])
        return True
