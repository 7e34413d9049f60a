"""Plans of the hot statements: by index, whatever the statistics say.

The hot tables are empty in one second and full in the next. Their sessions take one
generic plan a statement and never a scan, so a plan made over empty tables must do for
full ones.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from apps.runtime import sql
from apps.runtime.store import read_clock
from chrono.rules.buckets import bucket_name
from tests.races.world import World
from tests.support.pg import Connection

PARAMETER = re.compile(r"%\((\w+)\)s")
HOT = re.compile(
    r"chrono_(timer|timer_far|ready|lease|run|occurrence|partition|job|job_revision"
    r"|withdrawn|slot|worker|attempt|breach|watched|blocked|run_kept"
    r"|progress|lease_end|target|queue_pause|pass)"
    r"(_[0-9]+|_default)?"
)

# Partitioned tables, and a condition on what they are partitioned by that holds a
# column of another table (written with a dot) and is no array.
LEAF = re.compile(r"chrono_(run|attempt|occurrence|timer|ready)_([0-9]+|default)")
BY_ANOTHER_ROW = re.compile(
    r"\b(id|run_id|scheduled_for|due_at|slice) (=|<|>|<=|>=) \(?\w+\.\w+"
)
WINDOWS = {
    "load_timers": {"due": "'{0}'", "before": "253370764799000"},
    "look_again": {"after": "0", "before": "253370764799000"},
}
FIRES = ("fire_undecided", "fire_if_held")
LOCKS = re.compile(r"\b(FOR UPDATE|FOR SHARE|UPDATE|DELETE FROM)\b")
TABLES = {
    "bucket": "chrono_timer_far",
    "timers": "chrono_timer",
    "slice": "chrono_ready_0",
    "leaf": "chrono_run_default",
    "table": "chrono_run_default",
}

FILL = """
    WITH n AS (SELECT n, md5(n::text)::uuid AS id FROM generate_series(1, 6000) AS n),
    jobs AS (
        INSERT INTO chrono_job (id, tenant, key, name, part, version, revision, epoch,
            activated_at, paused, pause_note, created_at, updated_at)
        SELECT id, 1, n, '', n % 64, 1, 1, n, now(), false, '', now(), now() FROM n
    ), revisions AS (
        INSERT INTO chrono_job_revision (job_id, revision, schedule, jitter_window,
            overlap_policy, queue, priority, target, payload, retry_policy, created_at)
        SELECT id, 1, '{}', 0, 'skip', 'default', 2, '{}', NULL, '{}', now() FROM n
    ), timers AS (
        INSERT INTO chrono_timer (due_at, scheduled_for, ref, job_id, version, revision,
            part, kind)
        SELECT date_trunc('ms', now()), date_trunc('ms', now()), id, id, 1, 1, n % 64,
            1 + 3 * (n % 2) FROM n
    ), leases AS (
        INSERT INTO chrono_lease (due_at, dispatched_at, run_id, job_id, tag, fence,
            revision, tenant, part, priority, attempt, queue, token, worker)
        SELECT now(), now(), id, id, n, 1, 1, 1, n % 64, 2, 1, 'default', id, id FROM n
    ), runs AS (
        INSERT INTO chrono_run (due_at, finished_at, id, job_id, fence, revision,
            tenant, part, state, attempt)
        SELECT now(), now(), id, id, 1, 1, 1, n % 64, 1, 1 FROM n
    ), occurrences AS (
        INSERT INTO chrono_occurrence (scheduled_for, job_id, run_id, fence, version,
            revision, part, outcome, kind)
        SELECT date_trunc('ms', now()), id, id, 1, 1, 1, n % 64, 1, 1 FROM n
    ), blocked AS (
        INSERT INTO chrono_blocked (due_at, dispatched_at, run_id, job_id, tag, fence,
            revision, tenant, part, priority, attempt, queue, gate, reason)
        SELECT now(), now(), id, id, n, 1, 1, 1, n % 64, 2, 1, 'default',
            (ARRAY['overlap', 'catch_up', 'paused'])[n % 3 + 1], 2 FROM n
    ), targets AS (
        INSERT INTO chrono_target (tenant, name, state, changed_at, seen_at,
            failure_threshold, open_duration_s, half_open_probes, ratio, min_concurrent)
        SELECT 1, n, 1 + n % 2, now(), now(), 20, 30, 1, 0.1, 5 FROM n
    ), gated AS (
        INSERT INTO chrono_blocked (due_at, dispatched_at, run_id, job_id, tag, fence,
            revision, tenant, part, priority, attempt, queue, gate, reason)
        SELECT now(), now(), md5(id::text)::uuid, id, n, 1, 1, 1, n % 64, 2, 1,
            'default', 'circuit_open/1/' || n % 100, 11 FROM n
    ), passes AS (
        INSERT INTO chrono_pass (gate, admitted_at, run_id, part)
        SELECT 'concurrency_limit/1/9/' || n % 100, now(), id, n % 64 FROM n
    ), slots AS (
        INSERT INTO chrono_slot (part, job_id, run_id) SELECT n % 64, id, id FROM n
    ), workers AS (
        INSERT INTO chrono_worker (id, host, pid, concurrency, queues)
        SELECT id, '', 1, 1, '{}' FROM n LIMIT 100
    )
    INSERT INTO chrono_ready (due_at, dispatched_at, run_id, job_id, tag, fence,
        revision, tenant, part, priority, attempt, slice, queue)
    SELECT now(), now(), id, id, n, 1, 1, 1, n % 64, n % 5, 1, n % 8, 'default' FROM n
"""
ANALYZE = """
    ANALYZE chrono_timer, chrono_timer_far, chrono_ready, chrono_lease, chrono_run,
        chrono_occurrence, chrono_partition, chrono_job, chrono_job_revision,
        chrono_withdrawn, chrono_slot, chrono_worker, chrono_attempt, chrono_blocked,
        chrono_target, chrono_pass
"""


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a plan."""

    kind: str
    table: str
    index: str
    condition: str
    appended: bool
    """Whether it is read as one of the parts of a partitioned table."""


def nodes(plan: dict[str, Any], *, appended: bool = False) -> Iterator[Node]:
    """Give the nodes of a plan, from the top."""
    yield Node(
        kind=plan["Node Type"],
        table=plan.get("Relation Name", ""),
        index=plan.get("Index Name", ""),
        condition=plan.get("Index Cond", "") or plan.get("TID Cond", ""),
        appended=appended,
    )
    for child in plan.get("Plans", []):
        yield from nodes(
            child, appended=plan["Node Type"] in ("Append", "Merge Append")
        )


def explain(conn: Connection, room: str, name: str, **tables: str) -> list[Node]:
    """Return the nodes of a statement's generic plan in this session."""
    numbers: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"${numbers.setdefault(match[1], len(numbers) + 1)}"

    conn.execute("DEALLOCATE ALL")
    text = PARAMETER.sub(number, sql.load(room, name).named(**tables))
    conn.execute(f"PREPARE explained AS {text.replace('%%', '%')}")
    # A window's ends must be given, or no bucket needs to be looked at.
    given = WINDOWS.get(name, {})
    arguments = ", ".join(given.get(name, "NULL") for name in numbers)
    rows = conn.execute(
        "EXPLAIN (FORMAT JSON, COSTS OFF) EXECUTE explained"
        + (f" ({arguments})" if arguments else "")
    ).fetchall()
    return list(nodes(rows[0][0][0]["Plan"]))


STATES = {
    "fresh": [],
    "analyzed empty, then filled": [ANALYZE, FILL],
    "filled, then analyzed": [FILL, ANALYZE],
}


@pytest.fixture(scope="module")
def states(
    new_world: Callable[[], contextlib.AbstractContextManager[World]],
) -> Iterator[dict[str, Connection]]:
    """Hot sessions on tables whose statistics say nothing, a lie, or the truth."""
    with contextlib.ExitStack() as stack:
        hot = {}
        for state, statements in STATES.items():
            world = stack.enter_context(new_world())
            for statement in statements:
                world.observer.execute(statement)
            hot[state] = world.session("hot").conn
        yield hot


@pytest.fixture(params=STATES)
def hot(states: dict[str, Connection], request: pytest.FixtureRequest) -> Connection:
    """One of them."""
    return states[request.param]


def bucket_now(conn: Connection) -> str:
    """Return the bucket of the hour."""
    return bucket_name(int(read_clock(conn)))


def scanned(found: list[Node]) -> set[str]:
    """Return the hot tables that a plan reads from one end to the other."""
    return {
        node.table
        for node in found
        if HOT.fullmatch(node.table)
        and (
            node.kind in {"Seq Scan", "Bitmap Heap Scan"}
            or (node.kind.startswith("Index") and not node.condition)
        )
    }


def indexes(found: list[Node], table: str) -> set[str]:
    """Return the indexes by which a table is read."""
    return {node.index for node in found if node.table == table and node.index}


@pytest.mark.parametrize("name", FIRES)
def test_fire_finds_each_timer_by_its_key(hot: Connection, name: str) -> None:
    bucket = bucket_now(hot)
    for table in (bucket, "chrono_timer_far"):
        found = explain(hot, "scheduler", name, bucket=table)
        assert not scanned(found) - {"chrono_slot"}
        assert "chrono_partition_pkey" in indexes(found, "chrono_partition")
        [look_up] = [n for n in found if n.table == table and n.index]
        for column in ("part", "due_at", "ref", "kind", "version"):
            assert f"{column} = " in look_up.condition
        assert {n.kind for n in found if n.table == table} >= {"Tid Scan"}


@pytest.mark.parametrize("name", FIRES)
def test_fire_looks_up_the_previous_run_in_one_step(hot: Connection, name: str) -> None:
    found = explain(hot, "scheduler", name, bucket=bucket_now(hot))
    look_ups = [n for n in found if n.table.startswith("chrono_run")]
    assert look_ups
    assert all("id = ANY" in n.condition for n in look_ups)
    assert all(n.index.endswith("_pkey") for n in look_ups)


def test_missed_timers_are_found_as_those_that_fire(hot: Connection) -> None:
    for table in (bucket_now(hot), "chrono_timer_far"):
        found = explain(hot, "scheduler", "miss_if_held", bucket=table)
        assert not scanned(found)
        assert "chrono_partition_pkey" in indexes(found, "chrono_partition")
        [look_up] = [n for n in found if n.table == table and n.index]
        for column in ("part", "due_at", "ref", "version"):
            assert f"{column} = " in look_up.condition
        assert {n.kind for n in found if n.table == table} >= {"Tid Scan"}


def test_letting_in_reads_the_first_of_each_job_in_order(hot: Connection) -> None:
    found = explain(hot, "scheduler", "admit_if_held")
    assert not scanned(found)
    assert "Sort" not in {node.kind for node in found}
    assert indexes(found, "chrono_blocked") == {"chrono_blocked_order"}
    [look_up] = [n for n in found if n.table == "chrono_blocked" and n.index]
    for column in ("gate", "part", "job_id"):
        assert f"{column} = " in look_up.condition
    assert "Tid Scan" in {n.kind for n in found if n.table == "chrono_blocked"}


def test_the_walk_along_a_gate_steps_from_job_to_job(hot: Connection) -> None:
    found = explain(hot, "scheduler", "list_waiting")
    assert not scanned(found)
    steps = [n for n in found if n.table == "chrono_blocked"]
    assert len(steps) == 2
    for step in steps:
        assert (step.kind, step.index) == ("Index Only Scan", "chrono_blocked_order")
        assert "ROW(part, job_id) > ROW(" in step.condition
    assert indexes(found, "chrono_job") == {"chrono_job_pkey"}


LETTING_IN = [
    "admit_probes",
    "admit_ramp",
    "admit_freed",
    "admit_resumed",
    "admit_concurrency",
    "admit_rate",
]


@pytest.mark.parametrize("name", LETTING_IN)
def test_who_is_let_in_by_a_gate_is_read_in_order(hot: Connection, name: str) -> None:
    found = explain(hot, "scheduler", name)
    assert not scanned(found) - {"chrono_worker", "chrono_queue_pause"}
    behind = [
        n
        for n in found
        if n.table == "chrono_blocked" and n.index not in ("", "chrono_blocked_pkey")
    ]
    assert {n.index for n in behind} == {"chrono_blocked_gate"}
    assert all("gate = " in node.condition for node in behind)
    passes = [n for n in found if n.table == "chrono_pass" and n.index]
    by = {"chrono_pass_key": "regexp_replace(gate, ", "chrono_pass_pkey": "gate = "}
    assert all(by[node.index] in node.condition for node in passes)
    counts_alike = "chrono_pass_key" in {node.index for node in passes}
    assert counts_alike is (name == "admit_concurrency")
    assert "Tid Scan" in {n.kind for n in found if n.table == "chrono_blocked"}
    assert "Sort" not in {node.kind for node in found}
    by_name = [n for n in found if n.table == "chrono_target" and n.index]
    assert all("name = " in node.condition for node in by_name)


def test_the_gates_that_hold_anything_are_stepped_along(hot: Connection) -> None:
    found = explain(hot, "scheduler", "list_gates")
    assert not scanned(found)
    steps = [n for n in found if n.table == "chrono_blocked"]
    assert len(steps) == 2
    for step in steps:
        assert (step.kind, step.index) == ("Index Only Scan", "chrono_blocked_gate")
        assert "gate > " in step.condition


def test_live_runs_are_found_by_the_keys_of_their_jobs(hot: Connection) -> None:
    found = explain(hot, "scheduler", "list_live")
    assert not scanned(found)
    by_index = {
        node.index: node.condition for node in found if node.table == "chrono_blocked"
    }
    assert by_index.keys() == {"chrono_blocked_order", "chrono_blocked_pkey"}
    assert "run_id = " in by_index["chrono_blocked_pkey"]
    assert "job_id = " in by_index["chrono_blocked_order"]
    assert indexes(found, "chrono_slot") == {"chrono_slot_pkey"}
    assert all(
        "job_id = " in node.condition
        for node in found
        if node.table.startswith(("chrono_slot", "chrono_occurrence"))
    )
    assert all(
        "id = ANY" in node.condition
        for node in found
        if node.table.startswith("chrono_run")
    )


def test_a_claim_merges_the_slices_in_order(hot: Connection) -> None:
    found = explain(hot, "runs", "claim_ready")
    kinds = [node.kind for node in found]
    assert "Merge Append" in kinds
    assert "Sort" not in kinds
    assert "Incremental Sort" not in kinds
    assert not {n.table for n in found if n.kind == "Seq Scan"} - {""}
    read = [n for n in found if n.table.startswith("chrono_ready")]
    assert sum(n.kind == "Index Scan" for n in read) == 8
    assert sum(n.kind == "Tid Scan" for n in read) == 8
    for node in read:
        if node.kind == "Index Scan":
            assert "queue = " in node.condition
            assert "ROW(priority, tag) >= " in node.condition


@pytest.mark.parametrize("name", ["settle_successes", "settle_if_leased"])
def test_settle_goes_by_the_key_of_the_lease(hot: Connection, name: str) -> None:
    found = explain(hot, "runs", name)
    assert not scanned(found)
    assert indexes(found, "chrono_lease") == {"chrono_lease_pkey"}


def test_load_and_look_go_by_the_key_of_the_timer(hot: Connection) -> None:
    for name in ("load_timers", "look_again"):
        found = explain(hot, "scheduler", name)
        assert not scanned(found) - {"chrono_partition"}
        read = [n for n in found if n.table.startswith("chrono_timer")]
        assert len(read) > 20
        assert all("(part = " in n.condition for n in read)
        assert all("due_at < " in n.condition for n in read)
        assert all("due_at >= " in n.condition for n in read)


@pytest.mark.parametrize(
    ("room", "name"),
    [
        ("scheduler", "take_over"),
        ("scheduler", "read_epochs"),
        ("scheduler", "list_changed_jobs"),
        ("scheduler", "load_revisions"),
        ("runs", "load_targets"),
        ("runs", "find_oldest_priority"),
        ("scheduler", "list_ends"),
        ("runs", "cancel_if_leased"),
        ("runs", "load_missed"),
        ("jobs", "watch_ready"),
        ("jobs", "watch_blocked"),
        ("jobs", "watch_leases"),
        ("jobs", "watch_timers"),
        ("jobs", "watch_overdue"),
        ("jobs", "watch_breaches"),
        ("jobs", "watch_jobs"),
        ("jobs", "find_successes"),
        ("jobs", "change_breaches"),
        ("runs", "cancel_if_blocked"),
        ("runs", "cancel_blocked_of_jobs"),
        ("runs", "end_lease"),
        ("runs", "claim_set_aside"),
        ("runs", "set_aside_if_leased"),
        ("runs", "note_if_leased"),
        ("runs", "load_checkpoints"),
        ("runs", "forget_progress"),
        ("runs", "lock_targets"),
        ("runs", "save_target"),
        ("scheduler", "close_circuit"),
        ("scheduler", "load_target_names"),
    ],
)
def test_small_ones_go_by_key(hot: Connection, room: str, name: str) -> None:
    assert not scanned(explain(hot, room, name))


def test_runs_left_are_read_from_what_was_decided_on(hot: Connection) -> None:
    found = explain(hot, "jobs", "read_remaining")
    assert not scanned(found)
    read = [n for n in found if n.table.startswith("chrono_timer") and n.index]
    assert read
    for node in read:
        assert "part = " in node.condition
        assert "due_at > " in node.condition
    assert "Sort" not in {node.kind for node in found}


def test_stale_timers_are_found_by_key(hot: Connection) -> None:
    found = explain(hot, "scheduler", "delete_stale_timers", bucket=bucket_now(hot))
    assert not scanned(found)


def test_a_waiting_run_is_found_by_its_partial_index(hot: Connection) -> None:
    for timers in ("chrono_timer", "chrono_timer_far"):
        found = explain(hot, "runs", "cancel_if_timed", timers=timers)
        read = [n for n in found if n.table.startswith(timers) and n.index]
        assert read
        assert not scanned(found)


def test_the_beat_reads_no_more_than_its_own_leases(hot: Connection) -> None:
    found = explain(hot, "runs", "beat_if_alive")
    assert not scanned(found) - {"chrono_withdrawn"}


def test_the_sweep_looks_at_the_workers_that_are_not_swept_alone(
    hot: Connection,
) -> None:
    found = explain(hot, "runs", "look_at_workers")
    assert indexes(found, "chrono_worker") == {"chrono_worker_unswept"}


def pruned_at_run_time(found: list[Node]) -> list[Node]:
    """Return the leaves that a plan looks up by a value of another row."""
    return [
        node
        for node in found
        if node.appended
        and LEAF.fullmatch(node.table)
        and BY_ANOTHER_ROW.search(node.condition)
    ]


def test_no_statement_that_locks_prunes_partitions_at_run_time(
    hot: Connection,
) -> None:
    # Where a lock had to wait for a row that was changed, PostgreSQL 18 up to 18.6
    # reads the row again with the pruning state of the whole statement, frees it, and
    # goes on to use it: the server ends with a segmentation fault.
    wrong = {}
    for path in sorted(sql.ROOMS.glob("*/sql/*.sql")):
        room, name = path.parent.parent.name, path.stem
        statement = sql.load(room, name)
        if not LOCKS.search(statement.text):
            continue
        tables = {slot: TABLES[slot] for slot in sql.SLOT.findall(statement.text)}
        tables |= {"bucket": bucket_now(hot)} if "bucket" in tables else {}
        if nodes := pruned_at_run_time(explain(hot, room, name, **tables)):
            wrong[name] = nodes
    assert not wrong


def test_a_look_up_that_prunes_at_run_time_is_told(hot: Connection) -> None:
    hot.execute(
        """
        PREPARE pruning AS SELECT (
            SELECT true FROM chrono_run r WHERE r.id = l.run_id LIMIT 1
        ) FROM chrono_lease l
        """
    )
    [(plan,)] = hot.execute(
        "EXPLAIN (FORMAT JSON, COSTS OFF) EXECUTE pruning"
    ).fetchall()
    hot.execute("DEALLOCATE pruning")
    assert pruned_at_run_time(list(nodes(plan[0]["Plan"])))
