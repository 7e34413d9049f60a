"""Runs that count against their job's overlap bound besides the schedule's own.

A slot is live while its run is not in the history: fire asks for both, so a settle or
a cancel writes nothing of it, and what is forgotten here has had no effect before.
"""

from apps.runs import store
from apps.runtime.sessions import Connection


def clear(conn: Connection) -> int:
    """Forget the slots of settled runs; return how many."""
    return store.forget_settled_slots(conn) if store.has_slots(conn) else 0


def clear_lost(conn: Connection) -> int:
    """Forget slots whose run is nowhere, which no history tells; return how many."""
    return store.forget_lost_slots(conn) if store.has_slots(conn) else 0
