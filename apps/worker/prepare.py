"""Making a target ready, by its kind."""

import sys
from collections.abc import Mapping
from dataclasses import replace

from apps.runs.store import Target
from apps.runtime.clock import Clock
from apps.worker.children import Children
from apps.worker.execution import Call, Prepared
from apps.worker.handlers.http import Transport, prepare_http
from apps.worker.handlers.task import limits_of, prepare_task
from apps.worker.handlers.transaction import TransactionCall
from apps.worker.targets import Refused, is_task, policy_of
from apps.worker.threads import Threads
from chrono.rules.errors import BadValue
from chrono.rules.targets import identity
from chrono.tasks import Registry


class Prepare:
    """Makes targets ready with what this process has at hand."""

    def __init__(
        self,
        *,
        registry: Registry,
        threads: Threads,
        transport: Transport,
        clock: Clock,
        webhook_key: bytes | None,
        children: Children | None = None,
    ) -> None:
        self._registry = registry
        self._threads = threads
        self._transport = transport
        self._clock = clock
        self._webhook_key = webhook_key
        self._children = children

    def __call__(self, target: Target) -> Prepared:
        """Return the target ready to be called."""
        fields = target.target
        task = is_task(target)
        try:
            timeout, deadline = limits_of(fields) if task else (None, None)
            call = self._call(target)
        except BadValue as error:
            timeout, deadline, call = None, None, Refused(error.message)
        policy = policy_of(target)
        return Prepared(
            call=call,
            policy=replace(policy, max_attempts=1) if target.once else policy,
            payload=target.payload,
            # The payload is kept as a value and as text, and once more as a body.
            weight=1_000 + 3 * target.size,
            once=target.once,
            transactional=isinstance(call, TransactionCall),
            target=sys.intern(identity(target.target)),
            takes_context=task and self._takes_context(fields.get("name")),
            timeout=timeout,
            progress_deadline=deadline,
            min_items_ok=_min_items_of(fields) if task else 0,
        )

    def _takes_context(self, name: object) -> bool:
        task = self._registry.get(name) if isinstance(name, str) else None
        return task is not None and task.wants_context

    def _call(self, target: Target) -> Call:
        if target.unreadable:
            return Refused(
                "The target or its payload cannot be read: it holds a number of more "
                "than 4,300 digits, or is nested too deeply. Change the job, or run it "
                "with another payload."
            )
        match target.target.get("kind"):
            case "task":
                return prepare_task(
                    target,
                    registry=self._registry,
                    threads=self._threads,
                    children=self._children,
                )
            case "http":
                return prepare_http(
                    target,
                    transport=self._transport,
                    clock=self._clock,
                    key=self._webhook_key,
                )
            case _:
                return Refused(
                    "The target is of a kind that this worker does not know. Deploy "
                    "the code that has it to the workers of this queue, and redrive "
                    "the run."
                )


def _min_items_of(fields: Mapping[str, object]) -> int:
    value = fields.get("min_items_ok")
    return value if type(value) is int else 0
