"""Chrono by its own processes. Default: 50 runs at once. Best: --concurrency 800.

What is enqueued is what a user makes: a one-shot job with a payload of its own, due now
or at an instant, by the command that the API calls. To ask for a run again of a job
that exists is the other thing a user does: for a thousand standing jobs, and in bulk,
what the button and `POST /jobs/{id}/run` write for one. Either way a scheduler that
runs beside the workers fires what is due.
"""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from itertools import batched
from typing import Any

import django

django.setup()

from django.core.management import call_command  # noqa: E402  (needs the settings)

from apps.jobs import store  # noqa: E402
from apps.jobs.commands import BATCH, create_jobs, insert_near_or_far  # noqa: E402
from apps.jobs.definition import Definition, parse_definition  # noqa: E402
from apps.jobs.errors import JobsBusy  # noqa: E402
from apps.jobs.planning import Timer  # noqa: E402
from apps.runtime.django_session import raw_connection  # noqa: E402
from benchmarks.peers.peer import BEST, CRON, CRON_BASE, Peer  # noqa: E402
from benchmarks.rig import ROOT  # noqa: E402
from chrono.rules.instants import format_instant  # noqa: E402
from chrono.rules.keys import run_id  # noqa: E402
from chrono.rules.partitions import PARTITIONS, partition_of  # noqa: E402
from chrono.rules.states import TimerKind  # noqa: E402

STANDING = 1_000
FIRED_SECONDS = 60
DUE = "SELECT EXISTS (SELECT FROM chrono_timer WHERE due_at <= clock_timestamp())"
STANDING_JOBS = "SELECT id FROM chrono_job WHERE starts_with(key, 'standing-')"

# One coroutine at a time enqueues: what Django fears cannot be.
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"


class PEER(Peer):
    async def setup(self) -> None:
        call_command("migrate", verbosity=0)
        create_jobs(
            [
                _definition(
                    f"standing-{number}",
                    cron="0 0 1 1 *",
                    overlap_policy="allow_all",
                    payload=None,
                )
                for number in range(STANDING)
            ]
        )

    async def open(self) -> None:
        rows = raw_connection().execute(STANDING_JOBS).fetchall()
        self.standing = [job for (job,) in rows]
        self.moment = 0

    async def one(self, n: int, at: float | None = None) -> None:
        await self.many([n], at)

    async def many(self, ns: Sequence[int], at: float | None = None) -> None:
        due = format_instant(int(1000 * (time.time() if at is None else at)))
        await _create(
            [_definition(f"job-{n}", run_at=due, payload={"n": n}) for n in ns]
        )

    async def run_again(self, ns: Sequence[int]) -> None:
        # Each standing job once an instant at most, so that all runs differ.
        self.moment = max(self.moment + 1, int(time.time() * 1000))
        timers = [self._timer(n) for n in ns]
        conn = raw_connection()
        insert_near_or_far(conn, timers, store.read_instant(conn).horizon)
        store.notify_leaders(conn, partitions=range(PARTITIONS))

    async def ready(self) -> None:
        end = time.monotonic() + FIRED_SECONDS
        while raw_connection().execute(DUE).fetchone() != (False,):
            if time.monotonic() > end:
                raise SystemExit("no scheduler fires")
            await asyncio.sleep(0.05)

    def work(self) -> None:
        if CRON:
            create_jobs([_entry(number) for number in range(CRON)])
        command = [sys.executable, "manage.py", "runworker"]
        os.chdir(ROOT)
        os.execv(command[0], command + (["--concurrency", "800"] if BEST else []))

    def _timer(self, n: int) -> Timer:
        job = self.standing[n % STANDING]
        part = partition_of(job)
        return Timer(
            kind=TimerKind.MANUAL,
            ref=run_id(job, self.moment, 1, part),
            job_id=job,
            part=part,
            version=1,
            revision=1,
            scheduled_for=self.moment,
            due_at=self.moment,
            attempt_group=1,
        )


async def _create(definitions: Sequence[Definition]) -> None:
    """Create jobs, each transaction again where it is told to try again.

    The server may have ended the session of one that was told so.
    """
    for batch in batched(definitions, BATCH):
        while True:
            try:
                create_jobs(batch)
                break
            except JobsBusy:
                await asyncio.sleep(0.01)


def _entry(number: int) -> Definition:
    return _definition(
        f"cron-{number}",
        cron="* * * * *",
        jitter_window="0s",
        payload={"n": CRON_BASE + number},
    )


def _definition(key: str, **fields: Any) -> Definition:
    target = {"kind": "task", "name": "peers.noop"}
    return parse_definition({"key": key, "target": target, **fields})
