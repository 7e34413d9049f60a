"""A log of takeovers in the rig's database, and what the ledger says beside it.

Stale is a row of the ledger written under a fence whose successor's takeover had been
committed before. Both instants are the server's own: `track_commit_timestamp`. Fence 0
is an edit's skip: no leader wrote it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.pg import Connection

LOG = """
    CREATE TABLE rig_takeover (
        part smallint NOT NULL, fence bigint NOT NULL, owner text NOT NULL
    );
    CREATE FUNCTION rig_log_takeover() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO rig_takeover VALUES (NEW.id, NEW.fence, NEW.owner);
        RETURN NULL;
    END $$;
    CREATE TRIGGER rig_takeover AFTER UPDATE OF fence ON chrono_partition
        FOR EACH ROW EXECUTE FUNCTION rig_log_takeover();
"""
COMMITTED = "pg_catalog.pg_xact_commit_timestamp"
"""The server's own clock, whatever the product is shown."""
HOLD = "SELECT FROM chrono_partition WHERE id = ANY(%s) ORDER BY id FOR UPDATE"
RAISE = """
    UPDATE chrono_partition SET term = gen_random_uuid(),
        fence = greatest(fence + 1, nextval('chrono_fence'))
    WHERE id = ANY(%s) RETURNING id, fence, owner
"""
STALE = f"""
    SELECT o.part, o.fence, t.fence FROM chrono_occurrence o
    JOIN rig_takeover t ON t.part = o.part AND t.fence > o.fence
    WHERE o.fence > 0 AND o.scheduled_for >= to_timestamp(%s)
        AND {COMMITTED}(o.xmin) > {COMMITTED}(t.xmin)
"""
FIRST_FIRES = f"""
    SELECT o.part, extract(epoch FROM min({COMMITTED}(o.xmin)))::float8
    FROM unnest(%s::smallint[], %s::bigint[]) AS f (part, fence)
    JOIN chrono_job j ON j.part = f.part AND j.deleted_at IS NULL AND NOT j.paused
    JOIN chrono_occurrence o ON o.job_id = j.id AND o.part = f.part
        AND o.scheduled_for >= to_timestamp(%s)
        AND o.fence > f.fence AND o.outcome = 1
    GROUP BY o.part
"""

FIRES_SINCE = f"""
    SELECT o.part, extract(epoch FROM min({COMMITTED}(o.xmin)))::float8
    FROM chrono_job j
    JOIN chrono_occurrence o ON o.job_id = j.id AND o.part = j.part
        AND o.scheduled_for >= to_timestamp(%s) AND o.outcome = 1
    WHERE j.deleted_at IS NULL AND NOT j.paused
        AND {COMMITTED}(o.xmin) >= to_timestamp(%s)
    GROUP BY o.part
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """A partition as somebody leads it."""

    part: int
    fence: int
    owner: str

    @property
    def pid(self) -> int:
        """The process id of who leads it."""
        return int(self.owner.split(":")[-2])


def log_takeovers(conn: Connection) -> None:
    """Log every change of a fence from now on."""
    conn.execute(LOG)


def read_led(conn: Connection) -> list[Led]:
    """Return all partitions as they are led now."""
    rows = conn.execute("SELECT id, fence, owner FROM chrono_partition").fetchall()
    return [Led(part=part, fence=fence, owner=owner) for part, fence, owner in rows]


def hold(conn: Connection, partitions: Sequence[Led]) -> None:
    """Lock the rows of these partitions until the transaction ends."""
    conn.execute(HOLD, [[led.part for led in partitions]])


def raise_fences(conn: Connection, partitions: Sequence[Led]) -> list[Led]:
    """Begin a term in these partitions in nobody's name; return them as they are."""
    rows = conn.execute(RAISE, [[led.part for led in partitions]]).fetchall()
    return [Led(part=part, fence=fence, owner=owner) for part, fence, owner in rows]


def read_first_fires(
    conn: Connection, old: Sequence[Led], since: float = 0.0
) -> dict[int, float]:
    """Return, for each of these partitions, when a later leader's first fire committed.

    In seconds, of occurrences since then; a partition without one is left out.
    """
    rows = conn.execute(
        FIRST_FIRES, [[led.part for led in old], [led.fence for led in old], since]
    ).fetchall()
    return dict(rows)


def read_fires_since(
    conn: Connection, moment: float, since: float = 0.0
) -> dict[int, float]:
    """Return when each partition's first fire since a moment was committed.

    In seconds, of occurrences since ``since``.
    """
    return dict(conn.execute(FIRES_SINCE, [since, moment]).fetchall())


def read_stale(conn: Connection, since: float = 0.0) -> list[str]:
    """Return what was written by a leader after its successor's takeover.

    Of occurrences since a moment, in seconds.
    """
    rows = conn.execute(STALE, [since]).fetchall()
    return [
        f"partition {part}: fence {fence} after the takeover with {successor}"
        for part, fence, successor in rows
    ]


def read_taken(conn: Connection, since: float = 0.0) -> list[tuple[int, int]]:
    """Return partition and fence of each takeover since then, by their commits."""
    rows = conn.execute(
        "SELECT part, fence FROM rig_takeover "
        f"WHERE {COMMITTED}(xmin) >= to_timestamp(%s) "
        f"ORDER BY {COMMITTED}(xmin)",
        [since],
    ).fetchall()
    return [(part, fence) for part, fence in rows]


def read_parts_with_jobs(conn: Connection, prefix: str = "") -> set[int]:
    """Return the partitions that have a job that comes due and whose key begins so."""
    rows = conn.execute(
        "SELECT DISTINCT part FROM chrono_job "
        "WHERE NOT paused AND deleted_at IS NULL AND starts_with(key, %s)",
        [prefix],
    ).fetchall()
    return {part for (part,) in rows}
