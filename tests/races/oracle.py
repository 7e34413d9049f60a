"""What the ledger should say, worked out from the history of each definition alone.

It shares nothing with the product: a job is a list of what was true from when on, and
an occurrence is a multiple of a number.
"""

import uuid
from dataclasses import dataclass, field

from chrono.rules.instants import Millis
from tests.support.pg import Connection

PAUSED = 1
"""The reason of what a pause skipped."""


@dataclass(frozen=True, slots=True)
class Era:
    """A definition in force: it decides what lies after its begin, up to the next's."""

    begin: Millis
    every: Millis
    anchor: Millis
    version: int
    active: bool

    def occurrences(self, until: Millis) -> list[Millis]:
        """Return its occurrences in (begin, until]."""
        found, moment = [], self.anchor
        if moment <= self.begin:
            moment += ((self.begin - moment) // self.every + 1) * self.every
        while moment <= until:
            found.append(moment)
            moment += self.every
        return found


@dataclass(slots=True)
class History:
    """All eras of one job, in the order in which they began."""

    job: uuid.UUID
    eras: list[Era] = field(default_factory=list)

    def expected(self, until: Millis) -> dict[Millis, Era]:
        """Return every occurrence to be decided by then, with the era it is of.

        What a pause skipped is decided when it ends.
        """
        found: dict[Millis, Era] = {}
        ends = [era.begin for era in self.eras[1:]] + [until]
        for era, end in zip(self.eras, ends, strict=True):
            if not era.active and era is self.eras[-1]:
                continue
            for moment in era.occurrences(end):
                assert moment not in found
                found[moment] = era
        return found


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the ledger that stands for the schedule."""

    first: Millis
    last: Millis
    count: int
    outcome: int
    reason: int | None
    version: int


def read(conn: Connection, job: uuid.UUID) -> list[Row]:
    """Return a job's rows of attempt group 0, oldest first."""
    return [
        Row(*values)
        for values in conn.execute(
            """
            SELECT (extract(epoch FROM scheduled_for) * 1000)::bigint,
                (extract(epoch FROM coalesce(last_scheduled_for, scheduled_for))
                    * 1000)::bigint,
                coalesce(occurrences, 1), outcome, reason, version
            FROM chrono_occurrence WHERE job_id = %s AND attempt_group = 0 ORDER BY 1
            """,
            [job],
        )
    ]


def differences(history: History, rows: list[Row], until: Millis) -> list[str]:
    """Return what the ledger lacks, has too much, or decided by another definition."""
    expected = history.expected(until)
    left = dict(expected)
    wrong = []
    for row in rows:
        covered = [moment for moment in expected if row.first <= moment <= row.last]
        if len(covered) != row.count:
            wrong.append(f"{row} stands for {len(covered)} occurrences")
        for moment in covered:
            era = left.pop(moment, None)
            if era is None:
                wrong.append(f"{row} decides {moment} again")
            elif era.version != row.version:
                wrong.append(f"{row} decides {moment}, which is of {era}")
            elif not era.active and row.reason != PAUSED:
                wrong.append(f"{row} decides {moment}, which was paused in {era}")
        if not covered:
            wrong.append(f"{row} is of no definition in force")
    wrong += [f"{moment} was lost, of {era}" for moment, era in left.items()]
    return wrong
