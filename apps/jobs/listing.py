"""A list of jobs as text, YAML or JSON, and the definitions in it."""

import json
from collections.abc import Mapping
from typing import Any

import yaml

from apps.jobs.applying import Removal, Wanted
from apps.jobs.definition import LONGEST_KEY, parse_definition
from apps.jobs.json_value import check_text
from chrono.rules.errors import BadValue, ChronoError


class BadList(ChronoError):
    """The file is no list of jobs."""

    code = "bad_list"


class _Loader(yaml.SafeLoader):
    """Safe YAML in which an instant stays the text that somebody wrote."""


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag != "tag:yaml.org,2002:timestamp"
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_list(text: str) -> list[Wanted]:
    """Return what a list of jobs asks for.

    Each entry is a definition; with `deleted: true` the job of its key shall not exist.
    Raises BadList where it is no list, or for the first bad entry, naming its number
    (from 1), key and field.
    """
    entries = _parse(text)
    if not isinstance(entries, list):
        raise BadList("It is not a list of jobs: begin each with `- key: …`.")
    return [_entry(number, entry) for number, entry in enumerate(entries, start=1)]


def _parse(text: str) -> object:
    try:
        # Ten times faster than reading JSON as YAML, and YAML refuses its tabs.
        return json.loads(text)
    except ValueError:
        pass
    except RecursionError:
        raise BadList("It is nested too deep.") from None
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 (a SafeLoader)
    except yaml.YAMLError as error:
        raise BadList(f"It is neither YAML nor JSON: {_where(error)}.") from None
    except RecursionError:
        raise BadList("It is nested too deep.") from None


def _entry(number: int, entry: object) -> Wanted:
    try:
        if not isinstance(entry, Mapping):
            raise BadValue("A job is an object with named fields.")
        return _wanted(entry)
    except BadValue as error:
        key = entry.get("key") if isinstance(entry, Mapping) else None
        place = f"Entry {number}"
        place += f" ({key})" if isinstance(key, str) else ""
        place += f", {error.field}" if error.field else ""
        raise BadList(f"{place}: {error.message}", field=error.field) from None


def _wanted(entry: Mapping[Any, Any]) -> Wanted:
    fields = dict(entry)
    deleted = fields.pop("deleted", False)
    if not isinstance(deleted, bool):
        raise BadValue("deleted is true or false.", field="deleted")
    if deleted:
        key = check_text(fields.get("key"), field="key", most=LONGEST_KEY)
        return Removal(key=key)
    return parse_definition(fields)


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}, {problem}" if mark is not None else str(problem)
