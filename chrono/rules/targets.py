"""What a target is called where calls to it are counted: its server, or its task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from chrono.rules.errors import BadValue

_PORTS = {"http": 80, "https": 443}
LONGEST = 300


def identity(target: Mapping[str, Any]) -> str:
    """Return `scheme://host:port` of an http target, the name of a task.

    Empty for a target that cannot be called: nothing is counted of it.
    """
    match target.get("kind"):
        case "http":
            return _server(target.get("url")) or ""
        case "task":
            name = target.get("name")
            return name if isinstance(name, str) and len(name) <= LONGEST else ""
        case _:
            return ""


def parse_identity(text: object) -> str:
    """Return the identity that a person wrote, an address standing for its server.

    Raises BadValue where it is neither an address nor a task's name.
    """
    if not isinstance(text, str) or not 0 < len(text) <= 2048 or not text.isprintable():
        raise BadValue(
            "A target is an address as https://example.org, or a task's name.",
            field="target",
        )
    if "://" not in text:
        if len(text) > LONGEST:
            raise BadValue(
                f"A task's name has at most {LONGEST} characters.", field="target"
            )
        return text
    server = _server(text)
    if server is None:
        raise BadValue(
            "A target's address begins with https:// and names a host.", field="target"
        )
    return server


def _server(url: object) -> str | None:
    if not isinstance(url, str):
        return None
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not host or len(host) > LONGEST - 20:
        return None
    if ":" in host:
        host = f"[{host}]"
    return f"{parts.scheme}://{host}:{port or _PORTS[parts.scheme]}"
