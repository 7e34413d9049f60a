"""Commands in threads, each with a session of its own."""

import threading

from django.db import connection


def in_session(call, *args, **options):
    """Call, and close this thread's session."""
    try:
        return call(*args, **options)
    finally:
        connection.close()


def in_thread(background, call, *args, **options):
    """Run in a thread; return its future and the server's pid of its session."""
    pid, told = [], threading.Event()

    def run():
        try:
            connection.ensure_connection()
            pid.append(connection.connection.info.backend_pid)
            told.set()
            return call(*args, **options)
        finally:
            connection.close()

    future = background(run)
    assert told.wait(5)
    return future, pid[0]
