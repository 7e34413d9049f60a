"""How fast workers execute what is ready, and what a webhook costs them."""

import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp

from benchmarks import bare
from benchmarks.measures import Stage, count_runs, measured, wait_for_runs
from benchmarks.ready import fill_ready
from benchmarks.rig import ROOT, Rig
from dev.postgres import free_port

FASTEST = 60_000
"""More runs than workers execute a second."""
WARM = 1_000
"""How many runs are over before it is measured."""
POSTERS = 200
BODY = {"hello": "world", "numbers": list(range(20))}
HEADERS = (
    "User-Agent",
    "Idempotency-Key",
    "Chrono-Run-Id",
    "Chrono-Fence",
    "Chrono-Attempt",
    "Chrono-Scheduled-For",
)
"""What a worker sends besides; bare aiohttp sends as much."""


def no_op(bench: Rig, *, processes: int, seconds: float) -> dict[str, Any]:
    """Runs that do nothing, of many that are ready, executed a second."""
    limit = bare.work_alone(bench, processes=processes, seconds=seconds)
    with measured(bench, workers=processes) as stage:
        figure = _executed(stage, seconds=seconds, most=FASTEST)
    return {
        **figure,
        "processes": processes,
        "bare_runs_per_s": limit["runs_per_s"],
        "of_bare": round(figure["runs_per_s"] / limit["runs_per_s"], 2),
        "bare_cpu_us_per_run": limit["cpu_us_per_run"],
        "cpu_of_bare": round(figure["cpu_us_per_run"] / limit["cpu_us_per_run"], 2),
    }


def webhooks(bench: Rig, *, seconds: float) -> dict[str, Any]:
    """Webhooks for a CPU second of one worker, and posts for one of bare aiohttp."""
    with _receiver() as port:
        url = f"http://127.0.0.1:{port}/"
        opening = {"CHRONO_EGRESS_ALLOW": f"127.0.0.1/32:{port}"}
        with measured(bench, workers=1, concurrency=POSTERS, settings=opening) as stage:
            figure = _executed(
                stage,
                seconds=seconds,
                most=FASTEST // 10,
                target={"kind": "http", "url": url},
                payload=BODY,
            )
        limit = asyncio.run(_post(url, seconds=seconds))
    return {
        **figure,
        **limit,
        "of_bare": round(figure["runs_per_cpu_s"] / limit["posts_per_cpu_s"], 2),
    }


def _executed(
    stage: Stage, *, seconds: float, most: int, **work: Any
) -> dict[str, Any]:
    fill_ready(stage.conn, round(most * (seconds + 1)), **work)
    wait_for_runs(stage.conn, WARM)
    stage.meter.start()
    before = count_runs(stage.conn)
    workers = stage.running.worker_cpu()
    time.sleep(seconds)
    cpu = stage.running.worker_cpu() - workers
    runs = count_runs(stage.conn) - before
    cost = stage.meter.stop()
    [(left, failed)] = stage.conn.execute(
        "SELECT (SELECT count(*) FROM chrono_ready), "
        "(SELECT count(*) FROM chrono_run WHERE state <> 1)"
    ).fetchall()
    if failed or not left:
        raise SystemExit(f"{failed} runs did not succeed, {left} were left to execute")
    return {
        "n": runs,
        "runs_per_s": round(runs / cost["seconds"]),
        "runs_per_cpu_s": round(runs / cpu),
        "cpu_us_per_run": round(
            (cost["server_cpu"] + cost["client_cpu"]) / runs * 1e6, 1
        ),
    }


@contextmanager
def _receiver() -> Iterator[int]:
    """Yield the port of a receiver in a process of its own."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.receiver", str(port)], cwd=ROOT
    )
    try:
        asyncio.run(_reach(port))
        yield port
    finally:
        process.terminate()
        process.wait()


async def _reach(port: int) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                return


async def _post(url: str, *, seconds: float) -> dict[str, Any]:
    """Return how many posts bare aiohttp makes a second, and for a CPU second."""
    done = 0
    end = time.monotonic() + seconds

    async def post(session: aiohttp.ClientSession) -> None:
        nonlocal done
        while time.monotonic() < end:
            headers = dict.fromkeys(HEADERS, str(uuid.UUID(bytes=os.urandom(16))))
            async with session.post(url, json=BODY, headers=headers) as answer:
                await answer.read()
            done += 1

    begin, cpu = time.monotonic(), time.process_time()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(post(session) for _ in range(POSTERS)))
    return {
        "posts": done,
        "posts_per_s": round(done / (time.monotonic() - begin)),
        "posts_per_cpu_s": round(done / (time.process_time() - cpu)),
    }
