"""Targets made ready to be called, kept by (job, revision); revisions never change.

A run with a payload of its own has a target of its own, which is not kept. Jobs whose
targets are written alike share one: reading it and making it ready costs ten times as
much as a run.
"""

import json
import logging
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from apps.runs.store import Lease, Target, Written
from apps.worker.execution import Execution, Outcome, Prepared
from chrono.rules.errors import BadValue
from chrono.rules.retry import DEFAULT, Failure, RetryPolicy, from_json, to_json

log = logging.getLogger("chrono.worker")

MOST = 50_000
"""As many jobs as a worker may meet in a second: 0.7 KB each."""
HEAVIEST = 64 * 1024 * 1024
MOST_SHARED = 1_000
HEAVIEST_SHARED = 4_096
"""A target that is heavier, written or ready, is a job's own: few others are written
alike."""

UNREADABLE: Final = object()
"""Stands for a payload that Python cannot read."""

Key = tuple[uuid.UUID, int]
New = tuple[Written, Target | None]
"""A target as it is written and as it was read; None where it need not be read."""

_USUAL_WRITTEN = to_json(DEFAULT)


class Refused:
    """A target that cannot be called as it stands; every run of it fails the same."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def run(self, execution: Execution) -> Outcome:
        """Fail for good."""
        return Failure("bad_target", self._why)


GONE = Prepared(
    call=Refused("The definition of this run is gone."),
    policy=DEFAULT,
    payload=None,
    weight=0,
)

UNUSABLE = Prepared(
    call=Refused(
        "The target could not be made ready, by a fault of Chrono's own: see the "
        "worker's log."
    ),
    policy=DEFAULT,
    payload=None,
    weight=0,
)


def read(key: Key, written: Written) -> Target:
    """Return a target; one that Python cannot read comes back as unreadable.

    A number of 5,000 digits is fit for jsonb and not for Python: its job must fail, not
    every worker that claims it.
    """
    job, revision = key
    unreadable = False
    try:
        target, retry = _parsed(written.target), _parsed(written.retry_policy)
        payload = None if written.payload is None else json.loads(written.payload)
    except (ValueError, RecursionError):
        log.warning("revision %s of job %s cannot be read", revision, job)
        target, payload, retry, unreadable = {}, None, {}, True
    return Target(
        job_id=job,
        revision=revision,
        target=target,
        payload=payload,
        retry_policy=retry,
        once=written.once,
        text=written.payload,
        size=_size(written),
        unreadable=unreadable,
    )


def with_own(target: Target, payload: Any) -> Target:
    """Return the target of a run that has a payload of its own, maybe UNREADABLE."""
    if payload is UNREADABLE:
        return replace(target, payload=None, text=None, unreadable=True)
    return replace(target, payload=payload, text=None)


def _parsed(text: str) -> Any:
    """Return what a text says that others say too; whoever gets it changes nothing."""
    return _parsed_short(text) if len(text) <= HEAVIEST_SHARED else json.loads(text)


@lru_cache(maxsize=MOST_SHARED)
def _parsed_short(text: str) -> Any:
    return json.loads(text)


def is_light(written: Written) -> bool:
    """Return whether a target is written so shortly that jobs may share it."""
    return _size(written) <= HEAVIEST_SHARED


def _size(written: Written) -> int:
    return len(written.target) + len(written.payload or "")


def is_task(target: Target) -> bool:
    """Return whether a target, checked or not, is a function in a worker."""
    fields: object = target.target
    return isinstance(fields, dict) and fields.get("kind") == "task"


class Targets:
    """The most recently used targets, bounded by number and by weight."""

    def __init__(
        self,
        prepare: Callable[[Target], Prepared],
        *,
        most: int = MOST,
        heaviest: int = HEAVIEST,
    ) -> None:
        self._prepare = prepare
        self._most = most
        self._heaviest = heaviest
        self._kept: OrderedDict[Key, Prepared] = OrderedDict()
        self._shared: dict[Written, Prepared] = {}
        self._weight = 0
        self.any_takes_context = False
        """Whether one that was ever kept takes the context."""

    def missing(self, leases: Iterable[Lease]) -> list[Key]:
        """Return the revisions that these leases need and that are not kept."""
        kept = self._kept
        return list(
            {
                key: None
                for lease in leases
                if (key := (lease.job_id, lease.revision)) not in kept
            }
        )

    def read(self, found: Mapping[Key, Written]) -> dict[Key, New]:
        """Read those of these targets that no other is ready for; takes long.

        May be called from any thread.
        """
        new: dict[Key, New] = {}
        begun: set[Written] = set()
        for key, written in found.items():
            if not is_light(written):
                new[key] = written, read(key, written)
            elif written in begun or written in self._shared:
                new[key] = written, None
            else:
                begun.add(written)
                new[key] = written, read(key, written)
        return new

    def learn(self, found: Mapping[Key, New]) -> None:
        """Make these targets ready and keep them."""
        for key, (written, target) in found.items():
            light = is_light(written)
            prepared = self._shared.get(written) if light else None
            if prepared is None:
                # What was shared a moment ago may have been let go of since.
                prepared = self.prepare(target or read(key, written))
                if light:
                    self._share(written, prepared)
            self._kept[key] = prepared
            self._weight += prepared.weight
            self.any_takes_context |= prepared.takes_context

    def may_take_context(self, written: Written) -> bool:
        """Return whether a target that is new may be a task that takes the context.

        May be called from any thread.
        """
        prepared = self._shared.get(written) if is_light(written) else None
        if prepared is None:
            return '"task"' in written.target
        return prepared.takes_context

    def prepare(self, target: Target) -> Prepared:
        """Make a target ready, not to be kept; one that fails if that cannot be."""
        try:
            return self._prepare(target)
        except Exception:
            # A fault of ours, or rows that no validation saw: it must cost this job its
            # runs, not every job its worker.
            facts = {"job": target.job_id, "revision": target.revision}
            log.exception("a target could not be made ready", extra={"facts": facts})
            return UNUSABLE

    def of(self, lease: Lease) -> Prepared:
        """Return the target of a lease; one that fails if its revision is gone."""
        key = (lease.job_id, lease.revision)
        prepared = self._kept.get(key)
        if prepared is None:
            return GONE
        self._kept.move_to_end(key)
        return prepared

    def take_context(self, key: Key) -> bool:
        """Return whether a target that is kept is a task that takes the context."""
        prepared = self._kept.get(key)
        return prepared is not None and prepared.takes_context

    def _share(self, written: Written, prepared: Prepared) -> None:
        if prepared is UNUSABLE or prepared.weight > HEAVIEST_SHARED:
            return
        if len(self._shared) >= MOST_SHARED:
            self._shared.clear()
        self._shared[written] = prepared

    def forget(self) -> None:
        """Let go of what was used longest ago, down to the bounds."""
        while len(self._kept) > self._most or self._weight > self._heaviest:
            _, prepared = self._kept.popitem(last=False)
            self._weight -= prepared.weight


def policy_of(target: Target) -> RetryPolicy:
    """Return the retry policy; the default where the stored one makes no sense."""
    if target.retry_policy == _USUAL_WRITTEN:  # Most have it, and reading costs 9 us.
        return DEFAULT
    try:
        return from_json(target.retry_policy)
    except BadValue:
        return DEFAULT
