"""Settling a batch of executions, those among them that their worker's end stopped."""

import uuid
from collections.abc import Sequence
from contextlib import suppress

from psycopg.errors import UniqueViolation

from apps.runs import store, worker_store
from apps.runs.store import Settlement
from apps.runtime.sessions import Connection
from chrono.rules.instants import Millis
from chrono.rules.retry import is_charged


def settle(
    conn: Connection, batch: Sequence[Settlement], *, horizon: Millis
) -> set[uuid.UUID]:
    """Settle a batch; return the runs whose lease held. The others' results are void.

    ``conn`` is a hot session in no transaction: interruptions are counted in the same
    transaction, and charged to runs that had too many. A batch without costs nothing
    more.
    """
    if all(s.is_plain for s in batch):
        with suppress(UniqueViolation):  # It was cancelled over its open claim.
            return store.settle_successes(conn, batch)
    stopped = [(s.run_id, s.token) for s in batch if s.charged is not None]
    if not stopped:
        return store.settle_if_leased(conn, batch, horizon=horizon)
    with conn.transaction():
        times = worker_store.note_interruptions_if_leased(conn, stopped)
        counted = [_charged(s, times.get(s.run_id, 0)) for s in batch]
        return store.settle_if_leased(conn, counted, horizon=horizon)


def _charged(settlement: Settlement, times: int) -> Settlement:
    if settlement.charged is None or not is_charged(times):
        return settlement
    return settlement.charged._replace(log=settlement.log)
