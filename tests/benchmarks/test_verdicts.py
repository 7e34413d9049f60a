"""A benchmark that can't fail says nothing: bars, ledgers and tables."""

import asyncio
import uuid
from functools import partial

import pytest

from benchmarks import catchup, execution, full, herd, register, scale, shown
from benchmarks.measures import OVERLAPS
from benchmarks.tasks import FOLDER, _ledger, noted, read_ledgers
from chrono.rules.instants import from_millis
from chrono.tasks import Context

CALM = {"lost": 0, "doubled": 0}
BESIDE = {"backlog": "x", "rate": 50.0, "start_lag_p99_ms": 999.9, "unaccounted": 0}


def missed(gates: list[shown.Gate]) -> list[str]:
    return [words for words, passed in gates if not passed]


def test_a_herd_passes_where_every_run_came_once_and_live_runs_in_time():
    assert missed(herd.verdict([CALM, CALM], [BESIDE])) == []


@pytest.mark.parametrize(
    ("row", "beside", "named"),
    [
        ({**CALM, "lost": 1}, BESIDE, "1 lost, 0 doubled"),
        ({**CALM, "doubled": 2}, BESIDE, "0 lost, 2 doubled"),
        (CALM, {**BESIDE, "start_lag_p99_ms": 1_000.0}, "live p99 1000.0 ms"),
        (CALM, {**BESIDE, "start_lag_p99_ms": None}, "live p99 None ms"),
        (CALM, {**BESIDE, "unaccounted": 3}, "3 missed runs"),
    ],
)
def test_a_herd_misses(row, beside, named):
    [words] = missed(herd.verdict([CALM, row], [beside]))
    assert named in words


@pytest.mark.parametrize(
    ("executed", "runs", "distinct", "lost", "doubled"),
    [
        ([1, 1, 1], 3, 3, 0, 0),
        ([1, 0, 1], 3, 3, 1, 0),
        ([1, 1, 1], 2, 2, 1, 0),
        ([1, 3, 1], 3, 3, 0, 2),
        ([1, 1, 1], 4, 3, 0, 1),
        ([2, 0, 1], 2, 2, 1, 1),
    ],
)
def test_a_run_is_missed_and_counted_twice_by_either_witness(
    executed, runs, distinct, lost, doubled
):
    found = herd.faults(executed, runs=runs, distinct=distinct)
    assert found == {"lost": lost, "doubled": doubled}


def speed(database: str, jobs: str, runs: int, cpu: float) -> dict[str, object]:
    return {
        "database": database,
        "jobs": jobs,
        "runs_per_s": runs,
        "server_us_per_run": cpu / 2,
        "client_us_per_run": cpu / 2,
    }


@pytest.mark.parametrize(
    ("runs", "cpu", "named"),
    [
        (91, 109.0, []),
        (90, 109.0, ["default jobs on a full database: time a run 1.11 x"]),
        (91, 112.0, ["default jobs on a full database: CPU a run 1.12 x"]),
    ],
)
def test_a_full_database_may_be_slower_by_a_tenth(runs, cpu, named):
    rows = [
        speed(base, jobs, 100, 100.0) for base in ("empty", "full") for jobs in OVERLAPS
    ]
    rows[-1] = speed("full", "default", runs, cpu)
    found = missed(full.verdict(rows))
    assert [words.partition(",")[0] for words in found] == named


def test_jobs_are_registered_all_and_as_fast_at_the_end():
    right = {"n": 10, "registered": 10, "jobs_per_s": 100, "last_tenth_per_s": 80}
    assert missed(register.verdict([right, right])) == []
    [lost] = missed(register.verdict([right, {**right, "registered": 9}]))
    assert lost == "9 of 10 registered"
    slow = {**right, "last_tenth_per_s": 79}
    [words] = missed(register.verdict([slow, slow, right]))
    assert "0.79 of the whole's speed" in words


def test_a_job_that_was_not_registered_is_told_from_one_that_waits():
    created = {"status": 201, "actions": ["created"]}
    busy = {"status": 503, "actions": []}
    refused = {"status": 422, "actions": []}
    wrong = partial(register._wrong, right=frozenset({"created"}))
    assert wrong([created, created]) is None
    assert wrong([created, busy]) is busy
    assert wrong([busy, refused]) is refused
    assert wrong([{"status": 200, "actions": ["unchanged"]}])["status"] == 200


@pytest.mark.parametrize(("cost", "cpu", "misses"), [(1.3, 1.3, 0), (1.31, 1.4, 2)])
def test_the_largest_may_cost_a_little_more(cost, cpu, misses):
    first = {"pending": 10, "cost_ratio": 1.0, "cpu_ratio": 1.0}
    last = {"pending": 1_000, "cost_ratio": cost, "cpu_ratio": cpu}
    assert len(missed(scale.verdict([first, last]))) == misses


def test_a_live_run_that_is_not_there_is_later_than_all_others():
    lags = [float(n) for n in range(98)]
    assert catchup._percentiles(lags, 98)["start_lag_p99_ms"] == 97.0
    figures = catchup._percentiles(lags, 100)
    assert figures == {"start_lag_p50_ms": 50.0, "start_lag_p99_ms": None}


def test_the_ledger_counts_each_execution(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    _ledger.cache_clear()
    once, twice = uuid.uuid4(), uuid.uuid4()
    for run in (once, twice, twice):
        asyncio.run(noted(None, context_of(run)))
    seen = read_ledgers(tmp_path)
    assert (seen[once.bytes], seen[twice.bytes], seen[uuid.uuid4().bytes]) == (1, 2, 0)


def context_of(run: uuid.UUID) -> Context:
    return Context(
        run_id=str(run),
        key=str(run),
        job_id=str(uuid.uuid4()),
        attempt=1,
        scheduled_for=from_millis(0),
        fence=1,
    )


def test_tables_are_aligned_and_show_what_is_missing():
    text = shown.table({"a": "A", "b": "long"}, [{"a": 1_000, "b": 0.5}, {"a": "x"}])
    assert text.splitlines() == ["    A  long", "1,000  0.50", "    x     -"]


ASLEEP = {"n": 9, "asleep": 9, "renewed": 9, "succeeded_once": 9, "over": 9}
CLAIMED = {"other_wait_max_ms": 999.9, "ready_left": 1}
KEPT = {"kept": 0.8, "died": 0}
IDLE = {"statements_per_s": 7.9}


@pytest.mark.parametrize(
    ("figure", "good", "bad", "named"),
    [
        ("sleepers", ASLEEP, {"asleep": 8}, "8 of 9 sleep"),
        ("sleepers", ASLEEP, {"renewed": 0}, "0 leases renewed"),
        ("sleepers", ASLEEP, {"succeeded_once": 8}, "8 succeeded"),
        ("sleepers", ASLEEP, {"over": 10}, "9 succeeded"),
        ("claim", CLAIMED, {"other_wait_max_ms": 1_000.0}, "waits 1000.0 ms"),
        ("claim", CLAIMED, {"other_wait_max_ms": None}, "waits None ms"),
        ("claim", CLAIMED, {"ready_left": 0}, "beside 0 runs"),
        ("snapshot", KEPT, {"kept": 0.79}, "0.79 of the speed"),
        ("snapshot", KEPT, {"kept": None, "died": 1}, "1 processes died"),
        ("idle", IDLE, {"statements_per_s": 8.0}, "8.0 statements/s"),
    ],
)
def test_execution_misses(figure, good, bad, named):
    assert missed(execution.verdict({figure: good})) == []
    [words] = missed(execution.verdict({figure: good | bad}))
    assert named in words
