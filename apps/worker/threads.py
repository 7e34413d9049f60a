"""The threads of one life of a worker, and the sessions that they opened."""

from concurrent.futures import ThreadPoolExecutor

from psycopg.pq import TransactionStatus

from apps.runtime.sessions import Connection
from apps.worker.lines import sever


class Threads(ThreadPoolExecutor):
    """Runs plain functions; a thread keeps its session from one to the next."""

    def __init__(self, size: int) -> None:
        super().__init__(size, "task")
        self._sessions: set[Connection] = set()
        self._ended = False

    def keep(self, conn: Connection) -> None:
        """Have a session of one of the threads closed when they end, at once if so."""
        if self._ended:
            conn.close()
            return
        self._sessions = {one for one in self._sessions if not one.closed} | {conn}

    def end(self) -> None:
        """Let the threads end, without waiting, and close their sessions.

        One in the middle of a transaction gets an error, and rolls back.
        """
        self._ended = True
        self.shutdown(wait=False, cancel_futures=True)
        for conn in self._sessions:
            if conn.closed:
                continue
            if conn.info.transaction_status == TransactionStatus.IDLE:
                conn.close()
            else:
                sever(conn)
