"""What an audit event tells, as a value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One change: of what, and how the object looked before and after it.

    ``action`` is ``<kind>.<verb>``, as ``job.create``. ``before`` is None for what was
    made, ``after`` for what is gone. Both are the public form, without secrets.
    """

    tenant: int
    action: str
    object_kind: str
    object_id: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    reason: str = ""
