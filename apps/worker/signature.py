"""Standard Webhooks signatures (standardwebhooks.com, v1: HMAC-SHA256)."""

import base64
import binascii
import hmac
import inspect

from chrono.rules.errors import ChronoError

PREFIX = "whsec_"


class BadSecret(ChronoError):
    """A webhook secret is whsec_ and the base64 of 24 to 64 random bytes."""


def key_of(secret: str) -> bytes:
    """Return the key inside a ``whsec_`` secret; raises :class:`BadSecret`."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not secret.startswith(PREFIX) or not 24 <= len(key) <= 64:
        raise BadSecret(inspect.getdoc(BadSecret))
    return key


def sign(key: bytes, *, message_id: str, timestamp: int, body: bytes) -> str:
    """Return one signature, as in the header ``webhook-signature``.

    ``timestamp`` is in seconds; a receiver refuses one more than five minutes off.
    """
    signed = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    return "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
