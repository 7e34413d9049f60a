"""The tables of a run: a line for each peer, the medians of its figures."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.peers.plan import Line
from benchmarks.shown import table

type Taken = tuple[Line, Mapping[str, Any]]
"""A run and its figures; a run that failed has `error` instead."""

WHO = {"peer": "peer", "mode": "settings", "runs": "runs"}
LATE = {"n": "n", "p50_ms": "p50 ms", "p95_ms": "p95 ms", "p99_ms": "p99 ms"}
LATE |= {"most_ms": "most ms"}
COLUMNS = {
    "smoke": {"events": "events", "distinct": "distinct"},
    "throughput": {
        "workers": "workers",
        "work": "jobs",
        "n": "n",
        "done": "started",
        "twice": "twice",
        "started_per_s": "jobs/s",
        "lowest": "lowest",
        "highest": "highest",
        "finished_per_s": "finished/s",
        "singly_per_s": "singly/s",
        "in_bulk_per_s": "in bulk/s",
    },
    "latency": LATE,
    "burst": {**LATE, "drained_per_s": "drained/s"},
    "cron": LATE,
    "longtx": {
        "work": "jobs",
        "held": "snapshot",
        "before_per_s": "before/s",
        "first_per_s": "first 10 s",
        "last_per_s": "last 10 s",
    },
    "crash": {
        "cut": "cut",
        "again": "again",
        "first_s": "first s",
        "last_s": "last s",
    },
}


def medians(taken: Sequence[Taken]) -> dict[str, list[dict[str, Any]]]:
    """Return for each measure its rows, one for all runs of a line."""
    groups: dict[Line, list[Mapping[str, Any]]] = defaultdict(list)
    for line, figures in taken:
        groups[line].append(figures)
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line, runs in groups.items():
        rows[line.measure].append(_row(line, runs))
    return rows


def show(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the tables of all measures."""
    return "\n\n".join(
        f"{measure}\n{table(_columns(measure), some)}" for measure, some in rows.items()
    )


def _row(line: Line, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    whole = [figures for figures in runs if "error" not in figures]
    row: dict[str, Any] = {
        "peer": line.peer,
        "mode": line.mode,
        "runs": len(whole),
        "workers": line.options.workers,
        "work": "standing" if line.options.again else "new",
        "held": "held" if line.options.hold else "none",
    }
    for name in dict.fromkeys(name for figures in whole for name in figures):
        values = [f[name] for f in whole if f.get(name) is not None]
        if values:
            row[name] = median(values)
        if name == "started_per_s" and values:
            row |= {"lowest": min(values), "highest": max(values)}
    return {key: row[key] for key in _columns(line.measure) if key in row}


def _columns(measure: str) -> dict[str, str]:
    return {**WHO, **COLUMNS[measure]}
