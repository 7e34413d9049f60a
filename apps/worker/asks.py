"""What isolated tasks do once: their process asks, the worker has the database.

The process waits for each answer. What one asked for that died is done all the same,
under its lease, before its run is settled: the store is as a killed worker leaves it.
Where the worker killed it, its run is settled after a while whatever is still not done:
30 s behind a deadline or a cancel, a second when the worker stops.
"""

import asyncio
import itertools
import logging
import queue
from collections.abc import Callable
from typing import Any

import psycopg

from apps.worker.children import Child
from apps.worker.onces import Once
from apps.worker.storable import storable_result
from chrono.rules.errors import ChronoError
from chrono.tasks import Done, OnceBusy, Per, RunCancelled

log = logging.getLogger("chrono.worker")

_ERRORS: dict[str, type[BaseException]] = {
    "busy": OnceBusy,
    "cancelled": RunCancelled,
    "value": ValueError,
    "away": psycopg.OperationalError,
    "refused": psycopg.Error,
    "chrono": ChronoError,
}
"""What a thread would see raised, the narrower before the wider."""
_FAULT = "A fault of Chrono's own, {}: see the worker's log."
_numbers = itertools.count()


class Asker:
    """The process's part, for one execution; may be called from any thread."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._waiting: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._over = False

    def take(self, name: str, *, per: Per, ttl: str) -> Done | None:
        """Take a key, or return what was done under it; raises as a worker's does."""
        said = self._ask("take", name=name, per=per, ttl=ttl)
        return Done(result=said["result"]) if said["done"] else None

    def finish(self, name: str, result: Any, *, per: Per, ttl: str) -> Any:
        """Keep what came of it; return that as it is kept. Raises as a worker's."""
        kept = storable_result(result)
        self._ask("finish", name=name, result=kept, per=per, ttl=ttl)
        return kept

    def release(self, name: str, *, per: Per) -> None:
        """Give a key back under which nothing was done."""
        self._ask("release", name=name, per=per)

    def hear(self, answer: dict[str, Any]) -> None:
        """Take an answer of the worker's."""
        waiting = self._waiting.pop(answer["to"], None)
        if waiting is not None:
            waiting.put(answer)

    def close(self) -> None:
        """Ask no more: the execution is over, whoever still has its context."""
        self._over = True

    def _ask(self, what: str, **given: Any) -> dict[str, Any]:
        if self._over:
            raise RunCancelled
        number = next(_numbers)
        # Without a worker there is no answer, and then no process either.
        waiting = self._waiting[number] = queue.SimpleQueue()
        self._send({"is": "ask", "number": number, "what": what, "given": given})
        answer = waiting.get()
        error = answer.get("error")
        if error is not None:
            raise _ERRORS.get(error, RuntimeError)(answer["words"])
        return answer


class Answerer:
    """The worker's part, for one execution in a process. Make it on its loop."""

    def __init__(self, child: Child, once: Once | None) -> None:
        self._child = child
        self._once = once
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, asked: dict[str, Any]) -> None:
        """Do what is asked, in a thread, and answer."""
        task = asyncio.get_running_loop().create_task(self._answer(asked))
        if not task.done():
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def over(self) -> None:
        """Wait until all that was asked is done.

        The process may be dead. Its run is settled behind this, so that whoever takes
        it next finds what was finished.
        """
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _answer(self, asked: dict[str, Any]) -> None:
        answer = {"do": "answer", "to": asked.get("number")}
        try:
            answer |= await asyncio.to_thread(self._do, asked["what"], asked["given"])
        except (Exception, RunCancelled) as error:  # noqa: BLE001  (told to who asked)
            answer |= _told(error)
        self._child.answer(answer)

    def _do(self, what: str, given: dict[str, Any]) -> dict[str, Any]:
        if self._once is None:
            raise LookupError("a task without a context asks")
        if what == "take":
            done = self._once.take(**given)
            return {"done": done is not None, "result": done and done.result}
        if what == "finish":
            self._once.finish(**given)
        elif what == "release":
            self._once.release(**given)
        else:
            raise LookupError(what)
        return {}


def _told(error: BaseException) -> dict[str, Any]:
    for name, kind in _ERRORS.items():
        if isinstance(error, kind):
            return {"error": name, "words": str(error)}
    log.error("a process asked, and answering went wrong", exc_info=error)
    return {"error": "fault", "words": _FAULT.format(type(error).__name__)}
