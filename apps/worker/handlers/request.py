"""What a target of kind http asks for, checked before anything is sent."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from chrono.rules.durations import parse_duration
from chrono.rules.errors import BadValue
from chrono.rules.instants import HOUR, MINUTE, Millis

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
BODILESS = frozenset({"GET", "HEAD"})
DEFAULT_TIMEOUT: Millis = MINUTE
LONGEST_TIMEOUT: Millis = HOUR
MOST_HEADERS = 50

# Those that frame the message or name its way, and those that are ours to set.
_TAKEN = frozenset(
    {
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "accept-encoding",
        "user-agent",
        "idempotency-key",
    }
)
_TAKEN_PREFIXES = ("chrono-", "webhook-", "proxy-")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VALUE = re.compile(r"[\t\x20-\x7e]{0,4096}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request but for the headers that differ from run to run."""

    method: str
    url: str
    plain: bool
    """Whether it goes without TLS."""
    headers: Mapping[str, str]
    body: bytes
    timeout: Millis


def request_of(target: Mapping[str, Any], body: bytes) -> Request:
    """Return the request that a target describes; raises BadValue naming the fault."""
    url = target.get("url")
    if not isinstance(url, str):
        raise BadValue("The target has no URL.", field="target.url")
    method = target.get("method", "POST")
    if not isinstance(method, str) or method.upper() not in METHODS:
        raise BadValue(
            f"The method is one of {', '.join(sorted(METHODS))}.", field="target.method"
        )
    method = method.upper()
    body = b"" if method in BODILESS else body
    return Request(
        method=method,
        url=url,
        plain=_is_plain(url),
        headers=_headers(target.get("headers"), typed=bool(body)),
        body=body,
        timeout=_timeout(target.get("timeout")),
    )


def _is_plain(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadValue("The URL is not valid.", field="target.url") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise BadValue("The URL begins with https:// and a host.", field="target.url")
    if parts.username is not None or parts.password is not None:
        raise BadValue("The URL holds no user and password.", field="target.url")
    return parts.scheme == "http"


def _headers(given: object, *, typed: bool) -> dict[str, str]:
    headers = {"Content-Type": "application/json"} if typed else {}
    if given is None:
        return headers
    if not isinstance(given, Mapping) or len(given) > MOST_HEADERS:
        raise BadValue(
            f"headers is an object of at most {MOST_HEADERS}.", field="target.headers"
        )
    for name, value in given.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise BadValue("A header's name is not valid.", field="target.headers")
        if name.lower() in _TAKEN or name.lower().startswith(_TAKEN_PREFIXES):
            raise BadValue(f"The header {name} is Chrono's.", field="target.headers")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise BadValue(
                f"The value of the header {name} is not printable ASCII.",
                field="target.headers",
            )
        if name.lower() == "content-type":
            name = "Content-Type"
        headers[name] = value
    return headers


def _timeout(given: object) -> Millis:
    if given is None:
        return DEFAULT_TIMEOUT
    if not isinstance(given, str):
        raise BadValue("The timeout is a text as 30s.", field="target.timeout")
    timeout = parse_duration(given, field="target.timeout")
    if not 0 < timeout <= LONGEST_TIMEOUT:
        raise BadValue("The timeout is at most 1h.", field="target.timeout")
    return timeout
