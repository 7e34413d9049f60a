"""Who acts when somebody does something in the admin, and when that is."""

from django.http import HttpRequest

from apps.runtime.django_session import raw_connection
from apps.runtime.store import read_clock
from apps.tenants.actor import Actor
from chrono.logs import request_id
from chrono.rules.instants import Millis


def actor_of(request: HttpRequest) -> Actor:
    """Return the person who is logged in, as the audit names them."""
    return Actor.user(request.user.get_username(), request_id=request_id.get())


def now_of(request: HttpRequest) -> Millis:
    """Return the database's time, read once a request."""
    known: Millis | None = getattr(request, "chrono_now", None)
    if known is None:
        known = int(read_clock(raw_connection()))
        request.chrono_now = known  # type: ignore[attr-defined]
    return known
