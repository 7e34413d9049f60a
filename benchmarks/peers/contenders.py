"""Who is measured: how many jobs make a run of some seconds, and when all are over."""

from dataclasses import dataclass
from enum import Enum, auto


class Program(Enum):
    """What a peer is started by."""

    PYTHON = auto()
    NODE = auto()
    OURS = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A job system."""

    jobs: tuple[int, int]
    """How many jobs a run of throughput has, with default and with best settings."""
    unfinished: str
    """Counts the jobs that its own tables do not show as finished."""
    program: Program = Program.PYTHON


CONTENDERS = {
    "chrono": Contender(
        jobs=(20_000, 40_000),
        unfinished="SELECT (SELECT count(*) FROM chrono_ready) "
        "+ (SELECT count(*) FROM chrono_lease)",
        program=Program.OURS,
    ),
    "pgqueuer": Contender(
        jobs=(20_000, 50_000), unfinished="SELECT count(*) FROM pgqueuer"
    ),
    "oban": Contender(
        jobs=(8_000, 12_000),
        unfinished="SELECT count(*) FROM oban_jobs WHERE state <> 'completed'",
    ),
    "pgboss": Contender(
        jobs=(20, 100_000),
        unfinished="SELECT count(*) FROM pgboss.job "
        "WHERE state IN ('created', 'active')",
        program=Program.NODE,
    ),
    "graphile": Contender(
        jobs=(5_000, 120_000),
        unfinished="SELECT count(*) FROM graphile_worker._private_jobs",
        program=Program.NODE,
    ),
    "awa": Contender(
        jobs=(4_000, 40_000),
        unfinished="SELECT count(*) FROM awa.jobs WHERE state <> 'completed'",
    ),
    "dbos": Contender(
        jobs=(1_000, 5_000),
        unfinished="SELECT count(*) FROM dbos.workflow_status "
        "WHERE status <> 'SUCCESS'",
    ),
    "procrastinate": Contender(
        jobs=(2_000, 3_000),
        unfinished="SELECT count(*) FROM procrastinate_jobs "
        "WHERE status IN ('todo', 'doing')",
    ),
    "djangotasks": Contender(
        jobs=(1_000, 1_000),
        unfinished="SELECT count(*) FROM django_tasks_database_dbtaskresult "
        "WHERE status <> 'SUCCESSFUL'",
    ),
}
