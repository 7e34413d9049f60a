"""One execution as the worker holds it, and the ways it can end."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from apps.runs.store import Lease, Missed, Settlement
from apps.worker.notebook import Notebook
from apps.worker.onces import Once
from apps.worker.storable import storable_error, storable_result
from apps.worker.tails import Tail
from chrono import tasks
from chrono.rules.instants import Millis, from_millis
from chrono.rules.items import too_few
from chrono.rules.keys import scheduled_for_of
from chrono.rules.retry import (
    FREE_INTERRUPTIONS,
    Failure,
    RetryAt,
    RetryPolicy,
    charged,
    decide,
)
from chrono.rules.states import Reason, RunState
from chrono.tasks import Context

INTERRUPTED = "The worker stopped before the run had ended; what it did is unknown."
UNDONE = "The worker stopped before the run had ended; its transaction was rolled back."
AGAIN = 0
"""The state of a settlement that is none: the run goes back to wait."""
STOPPED_OFTEN = "Its worker was stopped more than {} times while it ran."
_REASONS = {
    "timeout": Reason.TIMED_OUT,
    "process_crash": Reason.PROCESS_CRASH,
    "worker_lost": Reason.WORKER_LOST,
}
"""Of attempts that failed in a way that has a word of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """It did what it should; ``result`` is anything, storable or not."""

    result: Any = None


PLAIN = Success()


@dataclass(frozen=True, slots=True, kw_only=True)
class HandBack:
    """It did not run to its end, by no fault of its own: no attempt is spent.

    ``begun`` says that its handler was called, and interrupted.
    """

    wait: Millis = 0
    reason: Reason = Reason.WORKER_LOST
    begun: bool = False


INTERRUPTION = HandBack(begun=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """It was called off."""

    reason: Reason = Reason.OPERATOR


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """It succeeded, and the transaction of its effects settled it."""


type Outcome = Success | Failure | HandBack | Cancelled | Settled


class Call(Protocol):
    """A target made ready to be called for one run after the other."""

    async def run(self, execution: "Execution") -> Outcome:
        """Carry out one execution. Raises nothing but CancelledError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """All that executing a revision of a job needs."""

    call: Call
    policy: RetryPolicy
    payload: Any
    weight: int
    """About how many bytes it takes to keep this."""
    once: bool = False
    """Whether it is begun at most once: interrupted, it is unknown and not retried."""
    transactional: bool = False
    """Whether what it does is undone unless it settles its run itself."""
    target: str = ""
    """The identity by which calls are counted; empty where they are not."""
    takes_context: bool = False
    """Whether what it calls may tell something, and go on from what was told."""
    timeout: Millis | None = None
    """How long an execution may take, where the call itself does not see to it."""
    progress_deadline: Millis | None = None
    """How long an execution may tell nothing."""
    min_items_ok: int = 0
    """How many items a result must say were done, to be a success."""


class Execution:
    """A lease in this process, from its claim until its settle is answered."""

    __slots__ = (
        "checkpoint",
        "context",
        "ending",
        "has_notes",
        "kill",
        "lease",
        "missed",
        "notebook",
        "once",
        "prepared",
        "settled",
        "spared",
        "stop",
        "tail",
        "task",
    )

    def __init__(
        self, lease: Lease, prepared: Prepared, missed: Missed | None = None
    ) -> None:
        self.lease = lease
        self.prepared = prepared
        self.missed = missed
        self.checkpoint: Any = None
        """What an earlier attempt says to go on from."""
        self.has_notes = False
        """Whether an earlier attempt told anything."""
        self.notebook: Notebook | None = None
        self.once: Once | None = None
        """Keeps what its handler does once."""
        self.context: Context | None = None
        self.task: asyncio.Task[None] | None = None
        self.stop: Callable[[], None] | None = None
        """Asks the handler to stop, where cancelling the coroutine is not the way."""
        self.kill: Callable[[], None] | None = None
        """Ends the handler for certain, where there is a way."""
        self.ending: Outcome | None = None
        self.tail: Tail | None = None
        """The last of what its handler logged."""
        self.settled = False
        self.spared = 0

    @property
    def is_running(self) -> bool:
        """Whether its handler has not returned, settled or not."""
        return self.task is not None

    @property
    def leaves_notes(self) -> bool:
        """Whether the database may have something that it told."""
        book = self.notebook
        return self.has_notes or (book is not None and book.told_at is not None)

    def open_context(self) -> Context:
        """Return the context for a handler that asked for one."""
        lease = self.lease
        self.context = Context(
            run_id=str(lease.run_id),
            key=str(lease.run_id),
            job_id=str(lease.job_id),
            attempt=lease.attempt,
            scheduled_for=from_millis(scheduled_for_of(lease.run_id)),
            fence=lease.fence,
            missed=None if self.missed is None else _told(self.missed),
            last_checkpoint=self.checkpoint,
            cancelled=self.ending is not None,
            notes=self.notebook,
            onces=self.once,
        )
        return self.context

    def end(self, outcome: Outcome) -> None:
        """Call the handler off; unless it succeeds all the same, this is its outcome.

        A coroutine is cancelled. A thread cannot be: it sees ``cancelled`` if it looks,
        and is told when it tells something.
        """
        self.ending = outcome
        if self.context is not None:
            self.context.cancelled = True
        if self.stop is not None:
            self.stop()
        elif self.task is not None:
            self.task.cancel()

    def outcome(self, found: Outcome) -> Outcome:
        """Return what counts: what was found, or the ending it was given before.

        A success does in spite of the ending, but for one of a function that was told
        by its context: it may have returned half-way because of that.
        """
        if isinstance(found, Success):
            wrong = too_few(found.result, least=self.prepared.min_items_ok)
            found = found if wrong is None else Failure("exception", wrong)
        if self.ending is None or isinstance(found, Settled):
            return found
        return found if isinstance(found, Success) and not self.is_told else self.ending

    @property
    def is_told(self) -> bool:
        """Whether a function was told by its context that it is called off."""
        told = self.stop is not None and self.context is not None
        return told and self.ending is not None


def settlement_of(
    execution: Execution, outcome: Outcome, *, now: Millis, draw: float
) -> Settlement:
    """Return what to write for an outcome; it never holds what Postgres refuses.

    ``draw`` is uniform in [0, 1) and spreads the retry.
    """
    run_id, token = execution.lease.run_id, execution.lease.token
    match outcome:
        case Success(result=None):
            return Settlement(run_id=run_id, token=token)
        case Success(result=result):
            return Settlement(
                run_id=run_id, token=token, result=storable_result(result)
            )
        case HandBack(begun=True) if execution.prepared.once:
            return _interrupted(execution)
        case HandBack(begun=True):
            often = Failure("worker_lost", STOPPED_OFTEN.format(FREE_INTERRUPTIONS))
            spent = _failed(execution, often, now=now, draw=draw)
            return hand_back(run_id, token)._replace(charged=spent)
        case HandBack(wait=wait, reason=reason):
            due = now + wait if wait else 0
            return hand_back(run_id, token, due=due, reason=reason)
        case Cancelled(reason=reason):
            return Settlement(
                run_id=run_id, token=token, state=RunState.CANCELLED, reason=reason
            )
        case Failure():
            return _failed(execution, outcome, now=now, draw=draw)
        case Settled():
            raise ValueError("what is settled is not settled again")


def hand_back(
    run_id: uuid.UUID,
    token: uuid.UUID,
    *,
    due: Millis = 0,
    reason: Reason = Reason.WORKER_LOST,
) -> Settlement:
    """Return the settlement that offers a run again at ``due``, 0 being at once."""
    return Settlement(
        run_id=run_id, token=token, state=AGAIN, reason=reason, spent=0, due=due
    )


def _interrupted(execution: Execution) -> Settlement:
    """Return the settlement of a run that is not begun again."""
    if not execution.prepared.transactional:
        return _unknown(execution, Reason.WORKER_LOST, INTERRUPTED)
    # This ends its lease, without which its transaction is not committed.
    return Settlement(
        run_id=execution.lease.run_id,
        token=execution.lease.token,
        state=RunState.DEAD,
        reason=Reason.WORKER_LOST,
        error=UNDONE,
    )


def _unknown(execution: Execution, reason: Reason, error: str) -> Settlement:
    """Return the settlement of a run that may have had its effect, or a part of it."""
    return Settlement(
        run_id=execution.lease.run_id,
        token=execution.lease.token,
        state=RunState.UNKNOWN,
        reason=reason,
        error=error,
    )


def _told(missed: Missed) -> tasks.Missed:
    return tasks.Missed(
        first=from_millis(missed.first),
        last=from_millis(missed.last),
        count=missed.count,
    )


def _failed(
    execution: Execution, failure: Failure, *, now: Millis, draw: float
) -> Settlement:
    lease, prepared = execution.lease, execution.prepared
    verdict = decide(
        failure,
        policy=prepared.policy,
        attempt=charged(lease.attempt, spared=execution.spared),
        now=now,
        draw=draw,
    )
    error = storable_error(failure.message)
    if prepared.once and failure.kind == "process_crash":
        return _unknown(execution, Reason.PROCESS_CRASH, error)
    if isinstance(verdict, RetryAt):
        return Settlement(
            run_id=lease.run_id,
            token=lease.token,
            state=AGAIN,
            reason=_REASONS.get(failure.kind, Reason.ATTEMPT_FAILED),
            due=verdict.at,
            error=error,
        )
    return Settlement(
        run_id=lease.run_id,
        token=lease.token,
        state=RunState.DEAD,
        reason=verdict.reason,
        error=error,
    )
