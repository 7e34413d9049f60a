"""What the end of a hammering tells: the ledger, the decisions, the runs."""

import uuid
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from chrono.rules.instants import Millis
from chrono.rules.states import Reason, RunState
from tests.races import invariants, oracle
from tests.races.oracle import Era, History
from tests.support.pg import Connection

NEVER = 2**62

# What each job was from when on; written by whoever writes the job.
LOG = """
    CREATE TABLE definition_log (
        n bigserial, job_id uuid, part int, version int, revision int, active boolean,
        begin_at timestamptz, written_at timestamptz
    );
    CREATE FUNCTION log_definition() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO definition_log (job_id, part, version, revision, active, begin_at,
            written_at)
        VALUES (NEW.id, NEW.part, NEW.version, NEW.revision,
            NOT NEW.paused AND NEW.deleted_at IS NULL, NEW.activated_at,
            NEW.updated_at);
        RETURN NULL;
    END $$;
    CREATE TRIGGER log_definition AFTER INSERT OR UPDATE ON chrono_job
    FOR EACH ROW EXECUTE FUNCTION log_definition();
"""


@dataclass(slots=True)
class Seen:
    """What the actors noted, each instant on the monotonic clock of their process."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: deque[str] = field(default_factory=deque)
    claims: deque[tuple[float, uuid.UUID]] = field(default_factory=deque)
    """When each claim was sent, and what it got."""
    cancels: deque[tuple[float, uuid.UUID, RunState]] = field(default_factory=deque)
    """When each cancel was answered, and how."""
    results: deque[uuid.UUID] = field(default_factory=deque)
    """Runs whose final settle was accepted."""


def check(conn: Connection, seen: Seen) -> Iterator[str]:
    """Give all that the end tells to be wrong."""
    yield from (f"audit at the end: {found}" for found in invariants.violations(conn))
    seen.counts.update(count_reasons(conn))
    yield from check_ledger(conn, seen)
    yield from check_decisions(conn)
    yield from check_runs(conn, seen)


def count_reasons(conn: Connection) -> Counter[str]:
    """Return how often each reason stands in the ledger and in the history."""
    rows = conn.execute(
        "SELECT reason, count(*) FROM ("
        "SELECT reason FROM chrono_occurrence UNION ALL "
        "SELECT reason FROM chrono_run) r WHERE reason > 0 GROUP BY 1"
    )
    return Counter({f"ledger: {Reason(reason).label}": n for reason, n in rows})


def check_ledger(conn: Connection, seen: Seen) -> Iterator[str]:
    """Compare the ledger with what the definitions alone say."""
    for job, eras in read_eras(conn).items():
        if eras[-1].active:
            yield f"{job} is still in force"
            continue
        history = History(job, eras)
        rows = oracle.read(conn, job)
        seen.counts["oracle: occurrences"] += len(history.expected(NEVER))
        for difference in oracle.differences(history, rows, NEVER):
            yield f"{job}: {difference}, of {eras}"


def read_eras(conn: Connection) -> dict[uuid.UUID, list[Era]]:
    """Return the planning versions of each job, from the log of its row."""
    eras: defaultdict[uuid.UUID, list[Era]] = defaultdict(list)
    for job, version, active, begin, schedule in conn.execute(
        """
        SELECT DISTINCT ON (l.job_id, l.version) l.job_id, l.version, l.active,
            (extract(epoch FROM l.begin_at) * 1000)::bigint, r.schedule
        FROM definition_log l JOIN chrono_job_revision r
            ON r.job_id = l.job_id AND r.revision = l.revision
        ORDER BY l.job_id, l.version, l.n
        """
    ):
        every, anchor = interval_of(schedule)
        eras[job].append(
            Era(begin=begin, every=every, anchor=anchor, version=version, active=active)
        )
    return eras


def interval_of(schedule: dict[str, Any]) -> tuple[Millis, Millis]:
    """Read an interval of whole seconds and its anchor as the revision has them."""
    anchor = datetime.fromisoformat(schedule["starts_at"]).timestamp()
    return int(schedule["interval"].removesuffix("s")) * 1_000, round(anchor * 1_000)


# Nothing is decided under a definition that another one had replaced by then. An edit
# reads its instant under the lock that a fire holds, so one is before the other; what
# lies within a millisecond of an edit cannot be told apart.
STALE = """
    SELECT o.job_id, o.scheduled_for, o.kind, o.version, o.revision, o.outcome,
        f.version, f.revision, f.active
    FROM chrono_occurrence o CROSS JOIN LATERAL (
        SELECT * FROM definition_log l
        WHERE l.job_id = o.job_id AND l.written_at < o.decided_at
        ORDER BY l.n DESC LIMIT 1
    ) f
    WHERE o.fence > 0 AND NOT EXISTS (
        SELECT FROM definition_log l WHERE l.job_id = o.job_id
            AND l.written_at BETWEEN o.decided_at - interval '2 ms'
                AND o.decided_at + interval '1 ms'
    ) AND (
        (o.kind = 1 AND (o.version <> f.version OR o.revision <> f.revision
            OR NOT f.active))
        OR (o.kind = 2 AND o.outcome = 1 AND NOT f.active)
    )
"""


def check_decisions(conn: Connection) -> Iterator[str]:
    """Give what was fired by a definition no longer in force."""
    for row in conn.execute(STALE):
        yield f"decided by a stale definition: {row}"


def check_runs(conn: Connection, seen: Seen) -> Iterator[str]:
    """Give runs that never ended, ended twice, or went on after their cancel."""
    states = dict(conn.execute("SELECT id, state FROM chrono_run").fetchall())
    for (run,) in conn.execute(
        "SELECT run_id FROM chrono_occurrence WHERE outcome = 1"
    ):
        if run not in states:
            yield f"{run} was fired and never ended"
    twice = [run for run, n in Counter(seen.results).items() if n > 1]
    yield from (f"{run} was settled for good twice" for run in twice)
    answered: dict[uuid.UUID, float] = {}
    for at, run, answer in seen.cancels:
        if answer == RunState.CANCELLED:
            answered.setdefault(run, at)
            if states.get(run) != RunState.CANCELLED:
                yield f"{run} was cancelled and is {states.get(run)}"
        elif answer != RunState.RUNNING and states.get(run) != answer:
            yield f"{run} had ended as {answer}, is {states.get(run)}"
    for sent, run in seen.claims:
        if sent > answered.get(run, float("inf")):
            yield f"{run} was claimed after its cancel was answered"
