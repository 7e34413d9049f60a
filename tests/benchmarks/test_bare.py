"""The bare statements are the product's, with all that they ask for."""

import threading
from collections.abc import Callable

import pytest

from benchmarks import bare
from tests.support import pg
from tests.worker.support import wait_for


def test_what_the_bare_fire_makes_ready_the_bare_work_settles(
    database: str,
    connect: Callable[..., pg.Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bare, "JOBS", 500)
    conn = connect()
    bare._seed(conn, database)
    go, end, counted = threading.Barrier(2), threading.Event(), [0, 0]
    sides = [
        threading.Thread(target=bare._fire, args=(database, go, end, True, counted)),
        threading.Thread(target=bare._work, args=(database, go, end, counted, 1)),
    ]
    for side in sides:
        side.start()
    try:
        due = bare.JOBS * bare.ROUNDS
        wait_for(lambda: counted == [due, due], timeout=20)
    finally:
        go.abort()
        end.set()
        for side in sides:
            side.join(10)
    settled = conn.execute("SELECT count(*) FROM chrono_run").fetchone()
    assert settled == (due,)
