"""Making a target ready, by its kind."""

import json
import sys
from concurrent.futures import Executor

from apps.runs.store import Target
from apps.runtime.clock import Clock
from apps.worker.execution import Call, Prepared
from apps.worker.handlers.http import Transport, prepare_http
from apps.worker.handlers.task import prepare_task
from apps.worker.targets import Refused, policy_of
from chrono.rules.targets import identity
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
        return Prepared(
            call=self._call(target),
            policy=policy_of(target),
            payload=target.payload,
            # The payload is kept as a value and as text, and once more as a body.
            weight=1_000 + 3 * len(json.dumps([target.target, target.payload])),
            target=sys.intern(identity(target.target)),
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
