"""What a run calls: an http address or a Python task, checked and with its defaults."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from apps.jobs.errors import NotSupportedYet, UnknownField
from apps.jobs.json_value import check_text
from chrono.rules.durations import format_duration, parse_duration
from chrono.rules.errors import BadValue
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND, Millis

METHODS = ("POST", "PUT", "PATCH", "GET", "DELETE", "HEAD")
DEFAULT_TIMEOUT: Millis = MINUTE
SHORTEST_TIMEOUT: Millis = SECOND // 10
LONGEST_TIMEOUT: Millis = HOUR
SHORTEST_PROGRESS_DEADLINE: Millis = SECOND
LONGEST_TASK: Millis = 30 * DAY
LONGEST_URL = 2048
MOST_HEADERS = 50
MOST_ITEMS = 1_000_000_000

_FIELDS = {
    "http": ("kind", "url", "method", "headers", "timeout"),
    "task": ("kind", "name", "timeout", "progress_deadline", "min_items_ok"),
}
_LATER = ("command", "workflow", "external")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\x80-\xff\t]{0,2000}")
_TASK_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,199}")
# What the worker writes itself, and what frames a request.
_RESERVED = re.compile(
    r"(?i)host|connection|content-length|transfer-encoding|te|trailer|upgrade|expect"
    r"|keep-alive|proxy-.*|idempotency-key|chrono-.*|webhook-.*"
)


def parse_target(value: object) -> dict[str, Any]:
    """Return the target with all its fields; raise BadValue naming the one at fault."""
    if not isinstance(value, Mapping):
        raise BadValue("A target is an object with kind http or task.", field="target")
    kind = value.get("kind")
    if kind in _LATER:
        raise NotSupportedYet(
            f"Targets of kind {kind} are not supported yet; use http or task.",
            field="target.kind",
        )
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise BadValue("A target's kind is http or task.", field="target.kind")
    fields = _FIELDS[kind]
    for name in value:
        if name not in fields:
            raise UnknownField(
                f"A target of kind {kind} has no field {name}; "
                f"it has {', '.join(fields)}.",
                field=f"target.{name}",
            )
    return _http(value) if kind == "http" else _task(value)


def _task(value: Mapping[str, Any]) -> dict[str, Any]:
    name = value.get("name")
    if not isinstance(name, str) or not _TASK_NAME.fullmatch(name):
        raise BadValue(
            "A task's name is letters, digits and _ . : -, at most 200.",
            field="target.name",
        )
    target = {"kind": "task", "name": name}
    for limit, least in (
        ("timeout", SHORTEST_TIMEOUT),
        ("progress_deadline", SHORTEST_PROGRESS_DEADLINE),
    ):
        if value.get(limit) is not None:
            target[limit] = _duration(
                value[limit], name=limit, least=least, most=LONGEST_TASK
            )
    items = value.get("min_items_ok", 0)
    if type(items) is not int or not 0 <= items <= MOST_ITEMS:
        raise BadValue(
            f"min_items_ok is a whole number from 0 to {MOST_ITEMS}.",
            field="target.min_items_ok",
        )
    return target | ({"min_items_ok": items} if items else {})


def _http(value: Mapping[str, Any]) -> dict[str, Any]:
    method = value.get("method", "POST")
    if not isinstance(method, str) or method.upper() not in METHODS:
        raise BadValue(f"method is one of {', '.join(METHODS)}.", field="target.method")
    return {
        "kind": "http",
        "url": _url(value.get("url")),
        "method": method.upper(),
        "headers": _headers(value.get("headers", {})),
        "timeout": _timeout(value.get("timeout")),
    }


def _url(value: object) -> str:
    field = "target.url"
    return _checked_url(check_text(value, field=field, most=LONGEST_URL))


@lru_cache(maxsize=1024)
def _checked_url(url: str) -> str:
    field = "target.url"
    refused = BadValue("A url begins with https:// and names a host.", field=field)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise refused from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise refused
    if " " in url:
        raise refused
    if parts.username is not None or parts.password is not None:
        raise BadValue("A url has no user and no password; use headers.", field=field)
    if parts.fragment:
        raise BadValue("A url has no part after #; it is never sent.", field=field)
    return url


def _headers(value: object) -> dict[str, str]:
    field = "target.headers"
    if not isinstance(value, Mapping) or len(value) > MOST_HEADERS:
        raise BadValue(
            f"headers is an object of at most {MOST_HEADERS} names and texts.",
            field=field,
        )
    seen: set[str] = set()
    for name, text in value.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise BadValue("A header's name is letters, digits and -.", field=field)
        if _RESERVED.fullmatch(name):
            raise BadValue(f"The header {name} is written by Chrono.", field=field)
        if name.lower() in seen:
            raise BadValue(f"The header {name} is given twice.", field=field)
        if not isinstance(text, str) or not _HEADER_VALUE.fullmatch(text):
            raise BadValue(f"The header {name} is one line of text.", field=field)
        seen.add(name.lower())
    return dict(value)


def _timeout(value: object) -> str:
    if value is None:
        return format_duration(DEFAULT_TIMEOUT)
    return _duration(
        value, name="timeout", least=SHORTEST_TIMEOUT, most=LONGEST_TIMEOUT
    )


def _duration(value: object, *, name: str, least: Millis, most: Millis) -> str:
    field = f"target.{name}"
    if not isinstance(value, str):
        raise BadValue(f"{name} is a duration as text: 30s.", field=field)
    duration = parse_duration(value, field=field)
    if not least <= duration <= most:
        raise BadValue(
            f"A {name} is between {format_duration(least)} and "
            f"{format_duration(most)}.",
            field=field,
        )
    return format_duration(duration)
