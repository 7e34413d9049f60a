"""Why a run that is held by the circuit of its target waits, in words."""

import uuid

import pytest

from apps.runs import pauses, selectors, targets
from apps.runs.target_store import insert_targets
from apps.runs.waits import why_waiting
from apps.tenants.actor import Actor
from chrono.rules.gates import Gate
from chrono.rules.keys import run_id
from chrono.rules.states import Reason
from tests.support.seed import DUE, make_job

KEY = (1, "https://sick.example:443")
ACTOR = Actor.system("tests")


@pytest.fixture
def conn(connect):
    return connect()


@pytest.fixture
def held(conn):
    """A run behind the gate of a target."""
    job = make_job(conn, target={"kind": "task", "name": "x"})
    run = run_id(job.id, DUE, 0, job.part)
    conn.execute(
        "INSERT INTO chrono_blocked (due_at, dispatched_at, run_id, job_id, tag, fence,"
        " revision, tenant, part, priority, attempt, queue, gate, reason) "
        "VALUES (now(), now(), %s, %s, 0, 1, 1, 1, %s, 2, 1, 'default', %s, 11)",
        [run, job.id, job.part, Gate(Reason.CIRCUIT_OPEN, *KEY).key],
    )
    return run


def why(conn, run):
    row, _ = selectors.get_run(conn, run, tenant=1)
    assert selectors.state_of(row).label == "parked"
    assert selectors.reason_of(row) == "circuit_open"
    return why_waiting(conn, row, DUE)


def stand(conn, state, **columns):
    insert_targets(conn, keys=[KEY])
    conn.execute(
        "UPDATE chrono_target SET state = %s, failures = 20, probes = %s, "
        "changed_at = '2054-11-30T01:00:00Z', probe_at = %s",
        [state, columns.get("probes", []), columns.get("probe_at")],
    )


def test_an_open_circuit_says_since_when_and_until_when(conn, held):
    stand(conn, 2, probe_at="2054-11-30T01:00:30Z")
    assert why(conn, held) == (
        "It waits for https://sick.example:443, which failed 20 times in a row: "
        "nothing is called there since 2054-11-30T01:00:00Z, and the next probe goes "
        "at 2054-11-30T01:00:30Z."
    )


def test_the_other_states_say_what_is_going_on(conn, held):
    assert "may be called again" in why(conn, held)
    stand(conn, 3, probes=[uuid.uuid4()])
    assert "another run probes it now" in why(conn, held)
    stand(conn, 4)
    assert "at a rate that rises" in why(conn, held)
    stand(conn, 1)
    assert "may be called again" in why(conn, held)


@pytest.mark.parametrize(
    ("note", "end"), [("", "Z."), ("Moving", ": Moving."), ("Moving!", ": Moving!")]
)
def test_who_stopped_the_calls_is_named(conn, held, note, end):
    targets.open_circuit(conn, KEY[1], tenant=1, actor=ACTOR, reason=note)
    told = why(conn, held)
    assert told.startswith(f"Calls to {KEY[1]} were stopped by tests at 20")
    assert told.endswith(end)


def test_a_retry_that_was_put_off_says_why(conn, held):
    conn.execute("DELETE FROM chrono_blocked")
    conn.execute(
        "INSERT INTO chrono_timer_far (due_at, scheduled_for, ref, job_id, version, "
        "revision, part, kind, attempt) SELECT '2100-01-01Z', '2100-01-01Z', %s, id, 0,"
        " 1, part, 4, 2 FROM chrono_job",
        [held],
    )
    row, _ = selectors.get_run(conn, held, tenant=1)
    told = why_waiting(conn, row, DUE, error=Reason.BUDGET_SPENT)
    assert told.startswith("It is due at 2100-01-01T00:00:00Z. The retry budget of its")
    assert why_waiting(conn, row, DUE) == "It is due at 2100-01-01T00:00:00Z."


def test_a_paused_queue_is_named_with_who_paused_it(conn, held):
    gate = Gate(Reason.QUEUE_PAUSED, 1, "default")
    conn.execute("UPDATE chrono_blocked SET gate = %s, reason = 27", [gate.key])
    row, _ = selectors.get_run(conn, held, tenant=1)
    assert (
        why_waiting(conn, row, DUE) == "It is let in soon: the queue default goes on."
    )
    pauses.pause(conn, "default", tenant=1, actor=ACTOR, reason="A deploy")
    told = why_waiting(conn, row, DUE)
    assert told.startswith("The queue default is paused by tests since 20")
    assert told.endswith("Z: A deploy.")


@pytest.mark.parametrize(
    ("gate", "reason", "text"),
    [
        (
            "concurrency_limit/1/1/provider",
            33,
            "It waits for its turn: of the key provider one run may be under way.",
        ),
        (
            "concurrency_limit/1/500/",
            33,
            "It waits for its turn: of the tenant 500 runs may be under way.",
        ),
        (
            "rate_limit/1/10/60000/wait/key pay",
            32,
            "It waits for its turn: of the key pay 10 runs may begin in any minute.",
        ),
    ],
)
def test_a_limit_is_told(conn, held, gate, reason, text):
    conn.execute("UPDATE chrono_blocked SET gate = %s, reason = %s", [gate, reason])
    row, _ = selectors.get_run(conn, held, tenant=1)
    assert selectors.reason_of(row) == Reason(reason).label
    assert why_waiting(conn, row, DUE) == text
