"""What the database does to a queue is no run's fault, and no failing run's gain."""

import pytest

from chrono.rules.instants import SECOND
from chrono.rules.states import Reason, RunState
from tests.scheduler.conftest import NOON
from tests.support.seed import make_job, make_ready
from tests.worker.support import count, running, settled

FAIL_TWICE = """
    CREATE SEQUENCE failures;
    CREATE FUNCTION fail_twice() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF nextval('failures') <= 2 THEN
            RAISE EXCEPTION 'not this time' USING ERRCODE = TG_ARGV[0];
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER fails AFTER {} ON chrono_lease FOR EACH STATEMENT
    EXECUTE FUNCTION fail_twice('{}')
"""


def test_e06_a_run_that_fails_at_once_comes_again_behind_what_waits(leader):
    good = leader.create("good", interval="1s", overlap_policy="allow_all")
    policy = {"max_attempts": 3, "backoff": {"base_ms": 0, "cap_ms": 0}}
    leader.create("bad", run_at="2055-03-01T12:00:01Z", retry_policy=policy)
    ahead, failures = 0, []
    leader.run_to(NOON + 100 * SECOND)
    while leases := leader.claim(limit=1):
        [lease] = leases
        if lease.job_id == good:
            leader.settle(lease)
            ahead += 1
            continue
        failures.append((lease.attempt, ahead))
        last = lease.attempt == 3
        leader.settle(
            lease,
            state=RunState.DEAD if last else 0,
            reason=Reason.ATTEMPTS_EXHAUSTED if last else Reason.ATTEMPT_FAILED,
            error="no",
            due=leader.clock.moment,
        )
        leader.run_to(leader.clock.moment + 5 * SECOND)
    # At most the one that was due with it is in front of the first attempt.
    assert failures[0] in ((1, 0), (1, 1))
    assert failures[1:] == [(2, 100), (3, 105)]
    assert ahead == len(leader.fired(good)) == 115
    assert leader.count("chrono_dead_letter") == 1


@pytest.mark.parametrize("statement", ["INSERT", "DELETE"])
@pytest.mark.parametrize("code", ["40P01", "40001"])
def test_e08_a_deadlock_in_a_claim_or_a_settle_spends_no_attempt(
    dsn, connect, statement, code
):
    conn, executed = connect(), []
    conn.execute(FAIL_TWICE.format(statement, code))
    once = {"max_attempts": 1}
    job = make_job(conn, target={"kind": "task", "name": "it"}, retry_policy=once)
    runs = make_ready(conn, job, count=3)
    with running(dsn, {"it": executed.append}):
        rows = settled(conn, 3)
    assert rows == [(run, RunState.SUCCESS, None, 1, None) for run in runs]
    assert len(executed) == 3
    assert count(conn, "attempt") == count(conn, "dead_letter") == 0
    [(tries,)] = conn.execute("SELECT last_value FROM failures").fetchall()
    assert tries > 2
