"""The speed while somebody keeps an old snapshot, so that no dead row can go."""

import statistics
import time
from typing import Any

import psycopg

from benchmarks.measures import measured, next_second, wait_for_runs
from benchmarks.rig import Rig, now_ms, seed_intervals
from chrono.rules.instants import Millis

OFFERED = 27_000
"""More than can be served, but not so much more that, in the end, the runs would be a
minute late: then they would be missed, and catch-up would have them."""
WARM = 20_000
"""How many runs are over before it is measured: caches and plans are warm by then."""
LAST_S = 60.0
"""The end of the hold counts: by then the most dead rows have piled up."""
RUNS = """
    SELECT count(*) FROM chrono_run
    WHERE finished_at >= to_timestamp(%s / 1000.0)
        AND finished_at < to_timestamp(%s / 1000.0)
"""


def measure(bench: Rig, *, around: float, held: float) -> dict[str, Any]:
    """Return the runs a second of default jobs before, while and after it is held."""
    with measured(bench) as stage:
        conn = stage.conn
        start = next_second(now_ms(conn))
        seed_intervals(conn, OFFERED, overlap="skip", start=start)
        wait_for_runs(conn, WARM, within=60)
        begin = now_ms(conn)
        time.sleep(around)
        taken = now_ms(conn)
        with psycopg.connect(conn.info.dsn) as other:
            other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            other.execute("SELECT count(*) FROM chrono_lease")
            time.sleep(held)
            let_go = now_ms(conn)
            other.rollback()
        time.sleep(around)
        end = now_ms(conn)
        before = _rate(conn, begin, taken)
        late = _rate(conn, max(taken, let_go - round(LAST_S * 1000)), let_go)
        after = _rate(conn, let_go, end)
        step = round(around * 1000)
        course = [
            _rate(conn, at, at + step) for at in range(taken, let_go - step + 1, step)
        ]
        died = stage.running.died()
    return {
        "held_s": held,
        "died": died,
        "before_per_s": before,
        "held_per_s": late,
        "after_per_s": after,
        "course_per_s": course,
        "kept": round(late / statistics.mean([before, after]), 2) if not died else None,
    }


def _rate(conn: psycopg.Connection[Any], begin: Millis, end: Millis) -> int:
    [(runs,)] = conn.execute(RUNS, [begin, end]).fetchall()
    return round(int(runs) * 1000 / (end - begin))
