"""Tasks that are executed in a process of their own."""

import json
import logging
from typing import Any

from apps.worker.asks import Answerer
from apps.worker.child import describe
from apps.worker.children import Child, Children, NoChild
from apps.worker.execution import Execution, HandBack, Outcome, Success
from apps.worker.frames import BadFrame
from apps.worker.handlers.function import COME_AGAIN
from apps.worker.tails import Tail
from chrono.rules.instants import SECOND
from chrono.rules.retry import FAILURE_KINDS, Failure
from chrono.tasks import NotStorable, Task

log = logging.getLogger("chrono.worker")

NO_CHILD_WAIT = 10 * SECOND


class ProcessCall:
    """A function, plain or a coroutine's, in a process that can be killed."""

    def __init__(self, task: Task, payload: Any, children: Children) -> None:
        self._task = task
        self._payload = payload
        self._children = children

    async def run(self, execution: Execution) -> Outcome:
        """Execute it in a process and wait for its end, or for the process's."""
        try:
            child = await self._children.take()
        except NoChild as error:
            facts = {"run": execution.lease.run_id, "wait_ms": NO_CHILD_WAIT}
            log.error(
                "no process for a task, its run is handed back: %s",
                error,
                extra={"facts": facts},
            )
            return HandBack(wait=NO_CHILD_WAIT)
        execution.stop = child.cancel

        def kill() -> None:
            # Its run may be settled before its end is heard.
            _keep_output(execution, child)
            child.kill()

        execution.kill = kill
        reusable = False
        try:
            outcome, reusable = await self._call(child, execution)
            _keep_output(execution, child)
        finally:
            # One that was called off may have been cut off anywhere.
            if reusable and execution.ending is None:
                self._children.give_back(child)
            else:
                self._children.end(child)
        return outcome

    async def _call(self, child: Child, execution: Execution) -> tuple[Outcome, bool]:
        context = execution.open_context()
        order = {
            "task": self._task.name,
            "payload": self._payload,
            "memory": self._task.memory,
            "context": describe(context),
        }
        if not self._task.wants_context:
            # It cannot know that it is called off, so its success is one.
            execution.context = None
        try:
            child.begin(order)
        except BadFrame as error:
            return Failure("bad_target", f"The payload cannot be sent: {error}."), True
        answerer = Answerer(child, execution.once)
        said = await _hear_out(child, execution, answerer)
        await answerer.over()
        if said is None:
            return Failure("process_crash", await child.obituary()), False
        if said.get("busy") is True and not execution.prepared.once:
            return COME_AGAIN, said.get("reusable") is True
        return _outcome(said), said.get("reusable") is True


async def _hear_out(
    child: Child, execution: Execution, answerer: Answerer
) -> dict[str, Any] | None:
    """Return what a process says in the end; None where it is gone without."""
    while (said := await child.hear()) is not None:
        if said.get("is") == "note":
            _note(execution, said)
        elif said.get("is") == "ask":
            answerer.begin(said)
        elif said.get("is") == "done":
            return said
    return None


def _keep_output(execution: Execution, child: Child) -> None:
    """Keep what was printed last, which has what was logged."""
    if (printed := child.output.tail()) and execution.tail is None:
        execution.tail = Tail()
        execution.tail.write(printed)


def _note(execution: Execution, said: dict[str, Any]) -> None:
    book = execution.notebook
    if book is None:
        return
    try:
        if isinstance(said.get("checkpoint"), str):
            book.checkpoint(json.loads(said["checkpoint"]))
        if isinstance(said.get("text"), str):
            book.progress(said.get("share"), said["text"])
    except (NotStorable, ValueError, RecursionError):
        # The process has checked it already: this is none of ours.
        log.warning("a note of run %s makes no sense", execution.lease.run_id)


def _outcome(said: dict[str, Any]) -> Outcome:
    kind = said.get("kind")
    if kind is None:
        return Success(result=said.get("result"))
    known = kind if kind in FAILURE_KINDS else "exception"
    return Failure(known, str(said.get("message")))
