"""Functions called inside the transaction that settles their run.

What they write to Chrono's database and the success of their run are committed
together or not at all, so it happens exactly once: whoever lost the lease finds no
lease to settle, and rolls back.
"""

import contextlib
import logging
from typing import Any

import django.db
import psycopg
from psycopg.pq import TransactionStatus

from apps.runs import store
from apps.runtime import django_session
from apps.runtime.sessions import Connection
from apps.worker.execution import (
    INTERRUPTION,
    Execution,
    HandBack,
    Outcome,
    Settled,
    Success,
    settlement_of,
)
from apps.worker.handlers.function import Arguments, call_in_thread, ending_of
from apps.worker.tails import with_log
from apps.worker.threads import Threads
from chrono.rules.instants import SECOND, Millis
from chrono.rules.retry import Failure
from chrono.rules.states import Reason
from chrono.tasks import Task

log = logging.getLogger("chrono.worker")

NO_DATABASE_WAIT: Millis = SECOND
ENDED = (
    "The task ended the transaction it is called in. It is committed after the task "
    "has returned: leave out commit() and rollback(), or do without transactional=True."
)
BROKEN = (
    "A statement failed in the transaction, and the task went on. Put what may fail "
    "into a `with transaction.atomic():` of its own."
)
GIVEN_UP = "The task had its transaction rolled back by set_rollback(True)."
ELSEWHERE = (
    "Django's default database is not the one that this worker serves: a transactional "
    "task can write only there."
)


class _Rollback(BaseException):
    """Ends the transaction without a trace; a task's `except` is not in its way."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


class TransactionCall:
    """A plain function in a transaction on Django's connection of its thread."""

    def __init__(self, task: Task, arguments: Arguments, threads: Threads) -> None:
        self._function = task.function
        self._arguments = arguments
        self._threads = threads

    async def run(self, execution: Execution) -> Outcome:
        """Call the function in a thread, in its transaction, and wait for both.

        What it did is rolled back if it was called off.
        """
        return await call_in_thread(
            self._call, execution, self._arguments, self._threads
        )

    def _call(self, execution: Execution, arguments: tuple[Any, ...]) -> Outcome:
        begun = committed = False

        def commit() -> None:
            nonlocal committed
            committed = True

        try:
            django_session.renew()
            self._threads.keep(django_session.raw_connection())
            if execution.prepared.once:
                _mark(execution)
            with django_session.enclose(committed=commit) as conn:
                transaction = _open(conn, execution)
                begun = True
                with django_session.refuse_writes_elsewhere():
                    result = self._function(*arguments)
                if execution.is_told:
                    # Half of what it was to do, perhaps: nobody knows how far it got.
                    raise _Rollback(Success())
                wanted = execution.outcome(Success(result=result))
                if isinstance(wanted, Failure):
                    raise _Rollback(wanted)
                _check(conn, transaction)
                _settle(conn, execution, result)
        except _Rollback as rollback:
            return rollback.outcome
        except BaseException as error:
            if committed:
                facts = {"run": execution.lease.run_id}
                log.exception("on_commit of a task failed", extra={"facts": facts})
                return Settled()
            if not begun and isinstance(error, psycopg.Error | django.db.Error):
                log.warning("no transaction for a task: %s", error)
                return HandBack(wait=NO_DATABASE_WAIT, reason=Reason.NO_HANDLER)
            # Where the answer of the commit was lost this says nothing: if it was made,
            # the lease is gone, and so is what is settled now.
            return ending_of(error, execution)
        return Settled()


def _mark(execution: Execution) -> None:
    """Have whoever finds the worker dead know that nothing was done.

    For a run that is not begun again: any other one is, whatever it did.
    """
    lease = execution.lease
    with contextlib.suppress(psycopg.errors.UndefinedTable):  # Said when it begins.
        store.mark_transactional(
            django_session.raw_connection(),
            run=lease.run_id,
            part=lease.part,
            token=lease.token,
        )


def _open(conn: Connection, execution: Execution) -> str:
    """Begin the transaction and return its id, with the lease looked at."""
    lease = execution.lease
    try:
        look = store.begin_effects(
            conn, run=lease.run_id, part=lease.part, token=lease.token, job=lease.job_id
        )
    except psycopg.errors.UndefinedTable:
        raise _Rollback(Failure("exception", ELSEWHERE)) from None
    if not look.known:
        raise _Rollback(Failure("exception", ELSEWHERE))
    if not look.held:
        raise _Rollback(INTERRUPTION)
    if execution.context is not None:
        execution.context.connection = conn
    if execution.once is not None:
        execution.once.join(conn)
    return look.transaction


def _check(conn: Connection, transaction: str) -> None:
    """Raise unless all that the task did is in the transaction, ready to commit."""
    if conn.closed:
        raise _Rollback(Failure("exception", "The task's session with Postgres ended."))
    if conn.info.transaction_status == TransactionStatus.INERROR:
        raise _Rollback(Failure("exception", BROKEN))
    if django_session.is_rolling_back():
        raise _Rollback(Failure("exception", GIVEN_UP))
    if store.read_transaction(conn) != transaction:
        # What it committed itself would happen again.
        raise _Rollback(Failure("non_retryable", ENDED))


def _settle(conn: Connection, execution: Execution, result: Any) -> None:
    """Settle the run in the same transaction; roll back if its lease is lost."""
    success = settlement_of(execution, Success(result=result), now=0, draw=0.0)
    if execution.tail is not None:
        success = with_log(success, execution.tail)
    if not store.settle_if_leased(conn, [success], horizon=0):
        raise _Rollback(INTERRUPTION)
