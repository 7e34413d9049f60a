"""One line per log record: `key=value` text, or JSON with `CHRONO_LOG=json`.

Facts beside the message travel as `extra={"facts": {...}}`. Whatever a record holds,
it stays one line: control characters are escaped, so that text from outside can
neither forge a second line nor move a terminal's cursor.
"""

import json
import logging
import re
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import override

# C0, DEL, C1, the two Unicode line ends, and the marks that turn text around.
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@+,%-]+")

LONGEST = 8_192
"""Characters of a message that are shown: one of megabytes would hold up everybody."""

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The request that this thread answers; each record made meanwhile names it."""


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def one_line(text: str) -> str:
    """Return the text with control characters escaped and lone surrogates replaced."""
    return _CONTROL.sub(_escape, text.encode(errors="replace").decode())


def _message(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]} [and {len(text) - LONGEST} characters more]"


def _instant(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _facts(record: logging.LogRecord) -> Mapping[str, object]:
    facts = getattr(record, "facts", None)
    known = dict(facts) if isinstance(facts, Mapping) else {}
    if request := request_id.get():
        known["request_id"] = request
    return known


def _trouble(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    """Return the record's traceback, if it has one."""
    if record.exc_info:
        return formatter.formatException(record.exc_info)
    return record.exc_text


def _value(value: object) -> str:
    """Return the value as text that ends at the next space."""
    text = one_line(str(value))
    if _PLAIN.fullmatch(text):
        return text
    return '"' + text.replace('"', '\\"') + '"'


class TextFormatter(logging.Formatter):
    """`2026-11-29T15:02:11.204Z INFO apps.worker claimed runs=12`"""

    @override
    def format(self, record: logging.LogRecord) -> str:
        parts = [
            _instant(record),
            record.levelname,
            record.name,
            one_line(_message(record)),
        ]
        parts += [f"{key}={_value(value)}" for key, value in _facts(record).items()]
        trouble = _trouble(self, record)
        if trouble:
            parts.append(f"trace={_value(trouble)}")
        return " ".join(parts)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: at, level, logger, message, then the facts."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "at": _instant(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        entry |= {key: fact for key, fact in _facts(record).items() if key not in entry}
        trouble = _trouble(self, record)
        if trouble:
            entry["trace"] = trouble
        # ensure_ascii escapes every control character and lone surrogate.
        return json.dumps(entry, ensure_ascii=True, default=str)
