"""Values as a page shows them: instants, lags, JSON without secrets, differences.

Everything that came from outside is escaped here or by the templates; nothing is
marked safe that was not built by `format_html`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.jobs.public import CHANGED, HIDDEN
from chrono.rules.instants import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    Millis,
    format_instant,
    to_millis,
)

NOTHING = "–"
LONGEST_TEXT = 20_000
"""Characters of one value that a page shows."""
_SECRET = re.compile(
    r"(?i)pass(word|wd|phrase)?$|secret|token|credential|authorization|cookie"
    r"|api[-_]?key|private[-_]?key|access[-_]?key|^auth$|signature|^pin$|^cvv"
)
_GOOD = {"success", "active"}
_BAD = {"dead", "failed", "unknown", "broken"}
_BUSY = {"pending", "running", "ready", "retrying", "parked", "scheduled", "waiting"}


def instant(moment: Millis | datetime | None, now: Millis) -> SafeString | str:
    """Return an instant in UTC and how far it lies from now."""
    if moment is None:
        return NOTHING
    millis = to_millis(moment) if isinstance(moment, datetime) else moment
    text = format_instant(millis)
    return format_html(
        '<time datetime="{}">{} <abbr title="UTC">Z</abbr></time> '
        '<span class="quiet chrono-ago">{}</span>',
        text,
        text.removesuffix("Z").replace("T", " "),
        relative(millis - now),
    )


def relative(distance: Millis) -> str:
    """Return how far an instant lies from now in one rounded unit."""
    size = abs(distance)
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s")):
        if size >= 2 * unit or (unit == SECOND and size >= unit):
            text = f"{size // unit} {name}"
            return f"in {text}" if distance > 0 else f"{text} ago"
    return "now"


def lag(length: Millis | None) -> str:
    """Return a length of time for people: ms below ten seconds."""
    if length is None:
        return NOTHING
    if abs(length) < 10 * SECOND:
        return f"{length} ms"
    seconds = length // SECOND
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (seconds, "s")]
    return " ".join(f"{count} {unit}" for count, unit in parts if count)


def state(word: str, reason: str | None = None) -> SafeString:
    """Return a state as a badge, with its reason."""
    tone = (
        "good"
        if word in _GOOD
        else "bad"
        if word in _BAD
        else "busy"
        if word in _BUSY
        else "calm"
    )
    badge = format_html('<span class="chrono-state chrono-{}">{}</span>', tone, word)
    if reason is None:
        return badge
    return format_html("{} {}", badge, reason.replace("_", " "))


def link(name: str, text: object, *args: object, query: str = "") -> SafeString:
    """Return a link to a page of the admin."""
    address = reverse(f"admin:{name}", args=[str(arg) for arg in args])
    return format_html('<a href="{}{}">{}</a>', address, query, text)


def code(text: object) -> SafeString:
    """Return text in the fixed font."""
    return format_html("<code>{}</code>", text)


def masked(value: Any) -> Any:
    """Return JSON with what its name says is secret hidden."""
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if _is_secret(name, inner) else masked(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [masked(inner) for inner in value]
    return value


def unmasked(value: Any, old: Any) -> Any:
    """Return JSON in which what was hidden is again what it was in the old value."""
    if isinstance(value, Mapping):
        known = old if isinstance(old, Mapping) else {}
        return {
            name: known[name]
            if inner == HIDDEN and name in known
            else unmasked(inner, known.get(name))
            for name, inner in value.items()
        }
    if isinstance(value, list):
        known_items = old if isinstance(old, list) else []
        return [
            unmasked(inner, known_items[n] if n < len(known_items) else None)
            for n, inner in enumerate(value)
        ]
    return value


def is_hidden_in(value: Any) -> bool:
    """Tell whether something in JSON is still hidden."""
    if isinstance(value, Mapping):
        return any(map(is_hidden_in, value.values()))
    if isinstance(value, list):
        return any(map(is_hidden_in, value))
    return bool(value == HIDDEN)


def json_text(value: Any) -> str:
    """Return JSON for people, its secrets hidden; empty for none, cut where long."""
    if value is None:
        return ""
    return cut(json.dumps(masked(value), indent=2, ensure_ascii=False))


def cut(text: str) -> str:
    """Return a text that does not fill the page."""
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}\n… {len(text) - LONGEST_TEXT} characters more"


def target(fields: Mapping[str, Any]) -> str:
    """Return what a job calls on one line; an address's query may hold a secret."""
    if fields.get("kind") == "task":
        return f"task {fields.get('name', '')}"
    url = str(fields.get("url", "")).split("?", 1)[0]
    return f"{fields.get('method', '')} {url}".strip() or NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One field before and after."""

    path: str
    before: str
    after: str


def differences(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> list[Difference]:
    """Return the fields that differ, by their path; all of what was made or is gone."""
    old, new = dict(_leaves(masked(before))), dict(_leaves(masked(after)))
    return [
        Difference(path=path, before=old.get(path, ""), after=new.get(path, ""))
        for path in dict.fromkeys([*old, *new])
        if old.get(path) != new.get(path)
    ]


def lines(values: Sequence[object]) -> SafeString:
    """Return values below each other."""
    return format_html_join("", "<div>{}</div>", ((value,) for value in values))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else str(name))
    elif value is not None or path:
        text = (
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        )
        yield path, cut(text)


def _is_secret(name: str, value: Any) -> bool:
    # A number of tokens or a switch named so is no secret, nor is what stands for one.
    return isinstance(value, str) and value != CHANGED and bool(_SECRET.search(name))
