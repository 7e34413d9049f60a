"""Making a target ready, by its kind."""

import json
from concurrent.futures import Executor
from dataclasses import replace

from apps.runs.store import Target
from apps.runtime.clock import Clock
from apps.worker.execution import Call, Prepared
from apps.worker.handlers.http import Transport, prepare_http
from apps.worker.handlers.task import prepare_task
from apps.worker.targets import Refused, policy_of
from chrono.tasks import Registry


class Prepare:
    """Makes targets ready with what this process has at hand."""

    def __init__(
        self,
        *,
        registry: Registry,
        threads: Executor,
        transport: Transport,
        clock: Clock,
        webhook_key: bytes | None,
    ) -> None:
        self._registry = registry
        self._threads = threads
        self._transport = transport
        self._clock = clock
        self._webhook_key = webhook_key

    def __call__(self, target: Target) -> Prepared:
        """Return the target ready to be called."""
        policy = policy_of(target)
        return Prepared(
            call=self._call(target),
            policy=replace(policy, max_attempts=1) if target.once else policy,
            payload=target.payload,
            # The payload is kept as a value and as text, and once more as a body.
            weight=1_000 + 3 * len(json.dumps([target.target, target.payload])),
            once=target.once,
        )

    def _call(self, target: Target) -> Call:
        match target.target.get("kind"):
            case "task":
                return prepare_task(
                    target, registry=self._registry, threads=self._threads
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
                    "The target is of a kind that this worker does not know."
                )
