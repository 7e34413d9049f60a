"""Whether what was promised holds: each invariant asked of the database.

It may run beside everything else, on a database of any size. What it reads it reads in
batches, each in a short transaction of one snapshot that writes nothing, waits for
nobody and rests afterwards. Jobs are taken by id, each with its part of the ledger and
the plans that decided it; the history by run, the audit events by time, timers by
partition. What moves may be seen between two places: what looks lost or undecided is
looked for once more, in all places at once.

When a schedule fires is asked of `chrono.rules.oracle`, and what its jitter is worked
out a second time, so that a fault of the rules that plan is not also one of the audit.

Not asked here, since a database cannot know it: what clients were told, and what
happened at the targets. The rigs compare those.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import batched
from uuid import UUID

import psycopg

from apps.jobs import audit_store as store
from apps.jobs.audit_bounds import Bounds
from apps.jobs.audit_checks import CHECKS, CONSTRAINTS, TOLD, WHOLE, WRONG, Check, Told
from apps.jobs.audit_store import FIRST, JobRow, LedgerRow, PlannedJob, Reach, Side
from apps.jobs.audit_trial import Fences, Trial, judge_plan
from apps.runtime.sessions import Connection
from chrono.rules.instants import DAY, SECOND, Millis, format_instant
from chrono.rules.keys import PAST_ID, run_id, scheduled_for_of
from chrono.rules.partitions import PARTITIONS, partition_of

__all__ = ["CHECKS", "Finding", "Report", "Scope", "audit", "examine"]

JOBS = 100
"""How many jobs make a batch."""
ROWS = 500
"""How many ledger rows of each of them are read at once."""
RUNS = 5_000
EVENTS = 5_000
PARTS = 8
PLANNED = 2_000
SUSPECTS = 5_000
TIMEOUT: Millis = 30 * SECOND
LEDGER_KEPT: Millis = 29 * DAY
RUNS_KEPT: Millis = 6 * DAY
"""How far back is looked at all: a day less than is kept, since upkeep goes on."""
SLACK: Millis = 60 * SECOND
"""How much earlier than its plan's begin a change may have been written down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that should not be."""

    check: Check
    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.check.code} {self.check.name}: {self.subject} {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Whose rows are looked at, and how far back."""

    back: Millis = DAY
    tenant: int | None = None
    jobs: tuple[UUID, ...] | None = None

    @property
    def whole(self) -> bool:
        """Whether nobody is left out."""
        return self.tenant is None and self.jobs is None


@dataclass(slots=True, kw_only=True)
class Report:
    """What an audit came to."""

    findings: list[Finding] = field(default_factory=list)
    """At most 100 of each check."""
    counts: Counter[str] = field(default_factory=Counter)
    """How many there were of each check, by name."""
    jobs: int = 0
    occurrences: int = 0
    left_out: list[str] = field(default_factory=list)
    """What could not be asked, in words."""

    def add(self, told: Told) -> None:
        """Count a finding, and keep it unless there are many of its check."""
        name, subject, detail = told
        self.counts[name] += 1
        if self.counts[name] <= TOLD:
            [check] = [check for check in CHECKS if check.name == name]
            self.findings.append(Finding(check=check, subject=subject, detail=detail))


def audit(conn: Connection, scope: Scope | None = None) -> list[Finding]:
    """Return every finding of every check, at most 100 of each.

    ``conn`` is an autocommit session.
    """
    return examine(conn, scope or Scope()).findings


def examine(
    conn: Connection,
    scope: Scope,
    *,
    rest: Callable[[float], None] = lambda seconds: None,
    tell: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Return what an audit comes to; ``conn`` is an autocommit session.

    After each batch ``tell`` gets the report so far, and ``rest`` is called with 0. It
    is called with more where so many seconds have to pass before a second look.
    """
    with store.audit_snapshot(conn, timeout=TIMEOUT):
        server = store.audit_server(conn)
    reach = Reach(
        since=max(0, server.now - min(scope.back, LEDGER_KEPT)),
        runs_since=max(0, server.now - min(scope.back, RUNS_KEPT)),
        commit_times=server.commit_times,
        limit=TOLD,
        tenant=scope.tenant,
        jobs=scope.jobs,
    )
    report = Report(left_out=_left_out(scope, reach))
    for batch in _Pass(conn, reach, server.now, report, rest).batches(scope):
        for told in batch:
            report.add(told)
        tell(report)
        rest(0)
    return report


def _left_out(scope: Scope, reach: Reach) -> list[str]:
    said = []
    if scope.back > LEDGER_KEPT:
        said.append(f"all before {format_instant(reach.since)}: it may not be kept")
    if reach.runs_since > reach.since:
        before = format_instant(reach.runs_since)
        said.append(f"what became of runs before {before}: it may not be kept")
    if not reach.commit_times:
        said.append(
            "I4 and I5 by commits, I8 rewritten: track_commit_timestamp is off. Rows "
            "are taken in the order of their own instants, so what began before a "
            "takeover and was committed after it is not seen"
        )
    if scope.jobs is not None:
        said.append("what others are beside the runs of these jobs: limits")
    if not scope.whole:
        said.append(f"what is nobody's own: {', '.join(WHOLE)}")
    return said


class _Pass:
    """One pass over all that is asked, batch by batch."""

    def __init__(
        self,
        conn: Connection,
        reach: Reach,
        now: Millis,
        report: Report,
        rest: Callable[[float], None],
    ) -> None:
        self._conn = conn
        self._reach = reach
        self._now = now
        self._report = report
        self._rest = rest
        self._fences = Fences()
        self._unsettled: list[tuple[UUID, int, UUID]] = []

    def batches(self, scope: Scope) -> Iterator[Iterable[Told]]:
        """Iterate over what each batch found."""
        yield from self._of_server(whole=scope.whole)
        yield from self._of_jobs()
        if scope.jobs is None:
            yield from self._of_history()
        yield from self._of_timers()
        if scope.whole:
            yield from self._of_live()
        yield from self._of_events()

    @contextmanager
    def _look(self, what: str) -> Iterator[None]:
        """Open a snapshot for one batch; one that takes too long is told and left."""
        try:
            with store.audit_snapshot(self._conn, timeout=TIMEOUT):
                yield
        except (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable) as error:
            said = str(error).splitlines()[0]
            self._report.add(("answers", what, f"had no answer: {said}"))

    def _of_server(self, *, whole: bool) -> Iterator[list[Told]]:
        conn, found = self._conn, []
        with self._look("the catalogue"):
            missing = store.audit_constraints(conn, constraints=CONSTRAINTS)
            found += _as("constraints", missing)
            found += _as("recorded", store.audit_access(conn, reach=self._reach))
            if whole:
                found += _as("updates", store.audit_updates(conn))
                found += _as("strays", store.audit_strays(conn))
        yield found

    # Jobs by id, each with its plans and its part of the ledger.

    def _of_jobs(self) -> Iterator[Iterable[Told]]:
        after = FIRST
        while True:
            jobs: list[JobRow] = []
            with self._look(f"the list of jobs after {after}"):
                jobs = store.audit_jobs(
                    self._conn, reach=self._reach, after=after, limit=JOBS
                )
            if not jobs:
                break
            after = jobs[-1].id
            yield from self._of_batch(jobs)
            self._report.jobs += len(jobs)
        yield self._lost()
        yield self._fences.fallen()

    def _of_batch(self, jobs: Sequence[JobRow]) -> Iterator[list[Told]]:
        found: list[Told] = []
        trials: list[Trial] = []
        with self._look(f"the plans of jobs from {jobs[0].id} on"):
            unrecorded = store.audit_unrecorded(
                self._conn, reach=self._reach, jobs=jobs
            )
            found += _as("recorded", unrecorded)
            trials = self._trials(jobs)
        yield found
        while trials:
            rows: list[LedgerRow] = []
            with self._look(f"the ledger of jobs from {jobs[0].id} on"):
                rows = store.audit_ledger(
                    self._conn,
                    reach=self._reach,
                    jobs=[trial.job for trial in trials],
                    after=[trial.after for trial in trials],
                    rows=ROWS,
                )
                self._learn(trials, rows)
            yield [told for row in rows for told in self._hear(trials[row.place], row)]
            if self._reach.jobs is not None:
                yield self._of_runs(trials, rows)
            seen = Counter(row.place for row in rows)
            yield self._finish([t for n, t in enumerate(trials) if seen[n] < ROWS])
            trials = [trial for n, trial in enumerate(trials) if seen[n] == ROWS]

    def _trials(self, jobs: Sequence[JobRow]) -> list[Trial]:
        """Return the jobs with their plans, as the audit events tell them."""
        sides: dict[UUID, dict[int, Side]] = {job.id: {} for job in jobs}
        since = self._reach.since - SLACK
        # The newest first: what ended a plan says more of it than what began it.
        for change in store.audit_plans(self._conn, jobs=jobs, since=since):
            for side in (change.after, change.before):
                if side is not None:
                    sides[change.job_id].setdefault(side.version, side)
        wanted = {(job, side.revision) for job in sides for side in sides[job].values()}
        schedules = store.audit_revisions(self._conn, revisions=sorted(wanted))
        return [Trial(job, sides[job.id], schedules) for job in jobs]

    def _learn(self, trials: Sequence[Trial], rows: Sequence[LedgerRow]) -> None:
        """Read the schedules of revisions that nobody has asked for yet."""
        wanted = {
            (trials[row.place].job.id, row.revision)
            for row in rows
            if row.revision not in trials[row.place].schedules
        }
        if wanted:
            found = store.audit_revisions(self._conn, revisions=sorted(wanted))
            for trial in trials:
                trial.learn(found)

    def _hear(self, trial: Trial, row: LedgerRow) -> Iterator[Told]:
        job = trial.job
        trial.after = row.scheduled_for, row.attempt_group
        self._report.occurrences += row.occurrences or 1
        if row.wrong is not None:
            name, said = WRONG[row.wrong]
            moment = format_instant(row.scheduled_for)
            yield name, f"job {job.id}", f"at {moment} {said}"
        if row.fence > 0:
            self._fences.hear(job.part, row, job.id)
        if row.unsettled is not None:
            self._unsettled.append((row.unsettled, job.part, job.id))
            if len(self._unsettled) >= SUSPECTS:
                yield from self._lost()
        if row.attempt_group == 0:
            yield from trial.hear(row)

    def _finish(self, trials: Sequence[Trial]) -> list[Told]:
        """Return what is wrong with jobs whose ledger was read to its end."""
        found = [told for trial in trials for told in trial.finish()]
        missing = [(trial.job, fault) for trial in trials for fault in trial.undecided]
        suspects = [
            (job.id, job.part, fault.moment, run_id(job.id, fault.moment, 0, job.part))
            for job, fault in missing
        ]
        confirmed: set[int] = set()
        if suspects:
            with self._look("what seems undecided"):
                confirmed = store.audit_undecided(self._conn, suspects=suspects)
        return found + [
            ("decisions", f"job {missing[place][0].id}", missing[place][1].detail)
            for place in sorted(confirmed)
        ]

    def _lost(self) -> list[Told]:
        """Look in all places for runs that were not in the history."""
        suspects, self._unsettled = self._unsettled, []
        owners = {run: job for run, _, job in suspects}
        lost: list[UUID] = []
        if suspects:
            runs = [(run, part) for run, part, _ in suspects]
            with self._look("what seems lost"):
                lost = store.audit_lost(self._conn, runs=runs)
        return [
            ("lost", f"run {run}", f"of job {owners[run]} was fired and is nowhere")
            for run in lost
        ]

    def _of_runs(
        self, trials: Sequence[Trial], rows: Sequence[LedgerRow]
    ) -> list[Told]:
        """Ask about the runs of these rows."""
        found: list[Told] = []
        jobs = [trials[row.place].job for row in rows]
        runs = [
            run_id(job.id, row.scheduled_for, row.attempt_group, job.part)
            for job, row in zip(jobs, rows, strict=True)
        ]
        with self._look("the runs of the jobs asked for"):
            found = self._of_stretch(None, PAST_ID, runs)
        return found

    # The history by run, which is by time.

    def _of_history(self) -> Iterator[list[Told]]:
        low: UUID | None = None
        bounds = Bounds()
        while True:
            found: list[Told] = []
            last: UUID | None = None
            with self._look(f"the runs after {low or 'the first'}"):
                last = store.audit_run_page(
                    self._conn, reach=self._reach, after=low, limit=RUNS
                )
                found = self._of_stretch(low, last or PAST_ID, None)
                stretch = self._reach.stretch(low, last or PAST_ID, None)
                bounds.hear(store.audit_executions(self._conn, stretch=stretch))
            until = None if last is None else scheduled_for_of(last)
            yield [*found, *bounds.judge(until)]
            if last is None:
                break
            low = last
        if bounds.cut:
            self._report.left_out.append(
                "limits, where more executions were under way than can be compared"
            )

    def _of_stretch(
        self, low: UUID | None, high: UUID, runs: Sequence[UUID] | None
    ) -> list[Told]:
        conn, stretch = self._conn, self._reach.stretch(low, high, runs)
        found = _coded(store.audit_runs(conn, stretch=stretch))
        for ask in (store.audit_attempts, store.audit_effects):
            for code, subject, detail in ask(conn, stretch=stretch):
                found.append((WRONG[code][0], subject, detail))
        return found + _as("dead", store.audit_dead(conn, stretch=stretch))

    # Timers by partition, and what is on its way.

    def _of_timers(self) -> Iterator[list[Told]]:
        parts: Iterable[int] = range(PARTITIONS)
        if self._reach.jobs is not None:
            parts = sorted({partition_of(job) for job in self._reach.jobs})
        for some in batched(parts, PARTS):
            after: UUID | None = FIRST
            while after is not None:
                jobs: list[PlannedJob] = []
                with self._look(f"the timers of partitions {some[0]} to {some[-1]}"):
                    jobs = store.audit_timers(
                        self._conn,
                        reach=self._reach,
                        parts=some,
                        after=after,
                        limit=PLANNED,
                    )
                yield [told for job in jobs for told in judge_plan(job, self._now)]
                after = jobs[-1].id if len(jobs) == PLANNED else None
        yield self._overdue()

    def _overdue(self) -> list[Told]:
        """Return what is due for long in two looks: a leader may be just at it."""
        first = self._look_for_overdue()
        if not first:
            return []
        self._rest(2)
        return [
            (
                "overdue",
                f"partition {late.part}",
                f"has a timer of job {late.job_id}, due {late.seconds} s ago",
            )
            for late in self._look_for_overdue().values()
            if (late.ref, late.due_at) in first
        ]

    def _look_for_overdue(self) -> dict[tuple[UUID, Millis], store.Overdue]:
        found: list[store.Overdue] = []
        with self._look("what is overdue"):
            found = store.audit_overdue(self._conn, reach=self._reach)
        return {(late.ref, late.due_at): late for late in found}

    def _of_live(self) -> Iterator[list[Told]]:
        conn, reach = self._conn, self._reach
        found: list[Told] = []
        with self._look("the places of runs on their way"):
            found += _as("doubles", store.audit_doubles(conn, reach=reach))
        with self._look("slots"):
            found += _as("slots", store.audit_slots(conn, reach=reach))
        with self._look("runs on their way"):
            found += _coded(store.audit_live(conn, reach=reach))
        yield found

    # The audit events by time.

    def _of_events(self) -> Iterator[list[Told]]:
        after: UUID | None = None
        while True:
            found: list[Told] = []
            last: UUID | None = None
            with self._look("the audit events"):
                last, wrong = store.audit_events(
                    self._conn, reach=self._reach, after=after, limit=EVENTS
                )
                found = _as("versions", wrong)
            yield found
            if last is None:
                return
            after = last


def _as(name: str, found: Iterable[store.Found]) -> list[Told]:
    return [(name, subject, detail) for subject, detail in found]


def _coded(found: Iterable[store.Coded]) -> list[Told]:
    return [(WRONG[code][0], subject, WRONG[code][1]) for code, subject in found]
