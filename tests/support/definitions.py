"""Definitions of jobs with defaults, for tests that are about something else."""

from typing import Any

from apps.jobs.definition import Definition, parse_definition

TASK = {"kind": "task", "name": "tests.nothing"}


def definition(**fields: Any) -> Definition:
    """Return a definition: a task with key `nightly`, unless told otherwise."""
    return parse_definition({"key": "nightly", "target": TASK, **fields})
