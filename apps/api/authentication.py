"""Who asks: the API key in `Authorization: Bearer`, and nothing else.

No cookie opens the API, so no page of another site can make a browser call it.
"""

from typing import cast

from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from apps.api.errors import BadHeader
from apps.tenants import keys
from apps.tenants.keys import Principal

HEADER = "Authorization"
LONGEST = 200


def principal_of(request: Request) -> Principal:
    """Return whom a key let in; for a view that nobody else gets to."""
    return cast(Principal, request.auth)


class KeyAuthentication(BaseAuthentication):
    """Sets ``request.auth`` to the key's Principal; ``request.user`` stays None."""

    def authenticate(self, request: Request) -> tuple[None, Principal] | None:
        """Return the caller, or None where no key is sent.

        Raises BadHeader for another scheme, and KeyRefused's subclasses.
        """
        given = request.headers.get(HEADER)
        if given is None:
            return None
        scheme, _, text = given.partition(" ")
        text = text.strip()
        if scheme.lower() != "bearer" or not text or len(text) > LONGEST:
            raise BadHeader(
                f"{HEADER} is the word Bearer, a space and the API key.", field=HEADER
            )
        return None, keys.verify(text)

    def authenticate_header(self, request: Request) -> str:
        """Return what a refusal asks for."""
        return 'Bearer realm="chrono"'
