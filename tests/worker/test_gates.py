"""A worker and its targets: what it tells, whom it leaves alone, what a retry costs."""

import threading

from apps.runs.pauses import pause, resume
from apps.runs.targets import close_circuit, open_circuit
from apps.tenants.actor import Actor
from chrono.rules.states import Reason, RunState
from tests.support.seed import make_job, make_ready
from tests.worker.hostile import hostile
from tests.worker.support import count, running, settled, waiting

ACTOR = Actor.system("test")
SLOW = {"max_attempts": 9, "backoff": {"base_ms": 3_600_000, "cap_ms": 3_600_000}}


def sick_job(conn, name="sick", **options):
    target = {"kind": "task", "name": name}
    return make_job(conn, target=target, **{"retry_policy": SLOW, **options})


def boom(payload):
    raise RuntimeError("boom")


def target_row(conn, name="sick"):
    row = conn.execute(
        "SELECT state, failures, granted, refused FROM chrono_target WHERE name = %s",
        [name],
    ).fetchone()
    return row


def shut(conn, *, probes=()):
    """Open the circuit of the task `sick`; half open where probes are named."""
    open_circuit(conn, "sick", tenant=1, actor=ACTOR, reason="test")
    conn.execute(
        "UPDATE chrono_target SET state = %s, probes = %s, probe_at = '2100-01-01Z'",
        [3 if probes else 2, list(probes)],
    )


def test_twenty_failures_open_the_circuit_and_the_rest_is_handed_back(dsn, connect):
    conn = connect()
    called = []

    def sick(payload):
        called.append(1)
        raise RuntimeError("boom")

    make_ready(conn, sick_job(conn), count=100)
    with running(dsn, {"sick": sick}, concurrency=1):
        rows = waiting(conn, 100)
    assert len(called) == 20
    assert target_row(conn)[:2] == (2, 20)
    assert sorted(attempt for _, attempt, _ in rows) == [1] * 80 + [2] * 20
    # What was not called comes again in a second; what failed, when its lot says.
    assert all(seconds < 2 for _, attempt, seconds in rows if attempt == 1)
    assert count(conn, "attempt") == 20


def test_no_run_that_is_claimed_after_the_opening_is_called(dsn, connect):
    """By a worker that has never heard of the target."""
    conn = connect()
    job = sick_job(conn)
    well = sick_job(conn, name="well")
    called = []
    open_circuit(conn, "sick", tenant=1, actor=ACTOR, reason="by hand")
    make_ready(conn, job, count=30)
    make_ready(conn, well, count=3)
    with running(dsn, {"sick": called.append, "well": lambda payload: None}):
        settled(conn, 3)
        rows = waiting(conn, 30)
    assert called == []
    assert {attempt for _, attempt, _ in rows} == {1}


def test_a_worker_that_knew_the_circuit_closed_hears_of_the_opening_in_time(
    dsn, connect
):
    conn = connect()
    job = sick_job(conn)
    called = []
    make_ready(conn, job)
    with running(dsn, {"sick": called.append}):
        settled(conn)
        open_circuit(conn, "sick", tenant=1, actor=ACTOR, reason="by hand")
        make_ready(conn, job, due_at=1_764_428_500_000, count=5)
        waiting(conn, 5)
        assert len(called) == 1
        close_circuit(conn, "sick", tenant=1, actor=ACTOR, reason="again")
        make_ready(conn, job, due_at=1_764_428_600_000, count=5)
        settled(conn, 6)
    assert len(called) == 6


def test_of_a_half_open_circuit_the_named_run_alone_is_called(dsn, connect):
    conn = connect()
    job = sick_job(conn)
    called = []
    runs = make_ready(conn, job, count=10)
    shut(conn, probes=runs[4:5])
    with running(dsn, {"sick": lambda payload, ctx: called.append(ctx.run_id)}):
        assert settled(conn)[0][0] == runs[4]
        waiting(conn, 9)
    assert called == [str(runs[4])]
    assert target_row(conn)[0] == 4


def test_two_workers_race_for_the_ready_runs_and_one_calls(dsn, connect):
    conn = connect()
    job = sick_job(conn)
    called = []
    runs = make_ready(conn, job, count=200)
    shut(conn, probes=runs[100:101])
    others_are_back = threading.Event()

    def probe(payload, ctx):
        called.append(ctx.run_id)
        others_are_back.wait(10)

    tasks = {"sick": probe}
    with running(dsn, tasks, concurrency=7), running(dsn, tasks, concurrency=7):
        waiting(conn, 199)
        others_are_back.set()
        settled(conn)
    assert called == [str(runs[100])]


def test_a_probe_that_fails_opens_the_circuit_again(dsn, connect):
    conn = connect()
    job = sick_job(conn)
    runs = make_ready(conn, job, count=2)
    shut(conn, probes=runs[:1])
    with running(dsn, {"sick": boom}):
        waiting(conn, 2)
    assert target_row(conn)[0] == 2
    assert count(conn, "attempt") == 1


def test_a_success_in_between_begins_the_count_anew(dsn, connect):
    conn = connect()
    seen = []

    def sometimes(payload):
        seen.append(1)
        if len(seen) % 5:
            raise RuntimeError("boom")

    make_ready(conn, sick_job(conn), count=60)
    with running(dsn, {"sick": sometimes}, concurrency=1):
        settled(conn, 12)
        waiting(conn, 48)
    assert target_row(conn)[:2] == (1, 0)


def test_a_target_that_never_fails_leaves_no_row(dsn, connect):
    conn = connect()
    make_ready(conn, sick_job(conn), count=300)
    with running(dsn, {"sick": lambda payload: None}):
        settled(conn, 300)
    assert count(conn, "target") == 0


def test_of_many_retries_those_beyond_the_budget_wait_near_the_cap(dsn, connect):
    """Ten first attempts and as many failures: five retries at once, five later."""
    conn = connect()
    policy = {"max_attempts": 3, "backoff": {"base_ms": 1_000, "cap_ms": 800_000}}
    make_ready(conn, sick_job(conn, retry_policy=policy), count=10)
    with running(dsn, {"sick": boom}, concurrency=1):
        rows = waiting(conn, 10)
    soon = [seconds for _, _, seconds in rows if seconds < 2]
    late = [seconds for _, _, seconds in rows if seconds > 300]
    # One token or two may have come anew meanwhile.
    assert 5 <= len(soon) <= 7
    assert len(soon) + len(late) == 10
    assert all(395 < seconds <= 801 for seconds in late)
    state, _, granted, refused = target_row(conn)
    assert (state, granted, refused) == (1, len(soon), len(late))
    reasons = conn.execute("SELECT reason FROM chrono_attempt").fetchall()
    assert reasons.count((Reason.BUDGET_SPENT,)) == len(late)


def test_a_tenth_of_the_first_attempts_may_be_tried_again_at_once(dsn, connect):
    conn = connect()
    policy = {"max_attempts": 3, "backoff": {"base_ms": 1_000, "cap_ms": 800_000}}
    fail = threading.Event()

    def later(payload):
        if fail.is_set():
            raise RuntimeError("boom")

    job = sick_job(conn, retry_policy=policy)
    make_ready(conn, job, count=300)
    with running(dsn, {"sick": later}, concurrency=5):
        settled(conn, 300)
        fail.set()
        make_ready(conn, job, due_at=1_764_428_700_000, count=19)
        rows = waiting(conn, 19)
    assert all(seconds < 2 for _, _, seconds in rows)
    assert target_row(conn)[2:] == (19, 0)


def test_an_answer_that_blames_the_request_says_that_its_server_is_there(dsn, connect):
    conn = connect()
    with hostile() as server:
        job = make_job(
            conn,
            target={"kind": "http", "url": f"{server.url}/status/404"},
            retry_policy={"max_attempts": 1},
        )
        make_ready(conn, job, count=40)
        with running(dsn):
            settled(conn, 40)
    assert count(conn, "target") == 0


def test_twenty_servers_errors_open_the_circuit_of_scheme_host_and_port(dsn, connect):
    conn = connect()
    with hostile() as server:
        for path in ("a", "b"):
            job = make_job(
                conn,
                target={"kind": "http", "url": f"{server.url}/status/500?{path}"},
                retry_policy=SLOW,
            )
            make_ready(conn, job, count=20)
        with running(dsn, concurrency=1):
            waiting(conn, 40)
        assert len(server.received) == 20
    assert target_row(conn, server.url)[:2] == (2, 20)


def test_nothing_that_was_ready_is_begun_once_its_queue_is_paused(dsn, connect):
    conn = connect()
    called = []
    pause(conn, "default", tenant=1, actor=ACTOR, reason="test")
    make_ready(conn, sick_job(conn), count=20)
    other = sick_job(conn, queue="other")
    make_ready(conn, other)
    with running(dsn, {"sick": called.append}, queues=("default", "other")):
        settled(conn)
        rows = waiting(conn, 20)
    assert len(called) == 1
    assert {attempt for _, attempt, _ in rows} == {1}


def test_a_queue_that_goes_on_is_begun_again(dsn, connect):
    conn = connect()
    job = sick_job(conn)
    called = []
    with running(dsn, {"sick": called.append}):
        pause(conn, "default", tenant=1, actor=ACTOR, reason="test")
        make_ready(conn, job)
        waiting(conn)
        resume(conn, "default", tenant=1, actor=ACTOR, reason="test")
        make_ready(conn, job)
        settled(conn)
    assert len(called) == 1


def test_another_tenants_pause_holds_nothing(dsn, connect):
    conn = connect()
    pause(conn, "default", tenant=2, actor=ACTOR, reason="test")
    make_ready(conn, sick_job(conn), count=3)
    with running(dsn, {"sick": lambda payload: None}):
        rows = settled(conn, 3)
    assert [row[1:4] for row in rows] == [(RunState.SUCCESS, None, 1)] * 3
