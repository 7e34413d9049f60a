"""Finished runs that are run again: one at once, or dead letters in the lane."""

import uuid

import pytest

from apps.jobs.commands import delete_job, patch_job, pause_job
from apps.jobs.errors import JobDeleted, QuotaExceeded
from apps.jobs.quotas import Quotas, change_quotas
from apps.jobs.rerun import Wanted, redrive, retry_run
from apps.runs import days, letters, selectors
from apps.runs.cancel import cancel
from apps.runs.errors import (
    LetterClosed,
    LetterNotFound,
    RunNotFinished,
    RunNotFound,
    RunRerunAlready,
)
from apps.runs.letters import LetterFilter
from apps.runtime.partitions import list_leaves
from apps.runtime.sessions import connect_upkeep
from apps.tenants.actor import Actor
from chrono.rules.buckets import day_name
from chrono.rules.errors import BadValue
from chrono.rules.instants import DAY, HOUR, MINUTE, SECOND
from chrono.rules.keys import is_extra, run_id
from chrono.rules.partitions import partition_of
from chrono.rules.states import Reason, RunState
from tests.scheduler.conftest import NOON
from tests.support.seed import SeededJob, make_ended, make_skip

ACME = 1
BOSS = Actor.command("the boss")


@pytest.fixture
def job(leader):
    """A job that fires by hand alone, for all that this matters."""
    return leader.create(
        "payroll", cron="0 0 1 1 *", overlap_policy="allow_all", payload={"month": 3}
    )


def seeded(job):
    return SeededJob(id=job, part=partition_of(job), queue="default")


def died(leader, job, at, *, payload='{"month": 3}', **more):
    """Write a dead run with its letter; return its id."""
    run = make_ended(leader.conn, seeded(job), at, state=3, **more)
    leader.conn.execute(
        "UPDATE chrono_dead_letter SET payload = %s WHERE run_id = %s", [payload, run]
    )
    return run


def waiting(leader):
    """Return (run, queue, priority, due in ms) of what is in the lane."""
    return leader.conn.execute(
        "SELECT run_id, queue, priority, "
        "floor(extract(epoch FROM due_at) * 1000)::bigint FROM chrono_blocked "
        "ORDER BY due_at, run_id"
    ).fetchall()


def ready(leader):
    return leader.conn.execute(
        "SELECT run_id, queue, priority, attempt FROM chrono_ready ORDER BY run_id"
    ).fetchall()


def inputs(leader):
    return dict(
        leader.conn.execute("SELECT run_id, payload FROM chrono_run_input").fetchall()
    )


def redriven(leader, *runs, **more):
    return redrive(
        Wanted(ids=runs, **more), tenant=ACME, actor=BOSS, now=leader.clock.moment
    )


def test_dead_letters_run_again_in_the_lane_in_groups_of_their_own(leader, job):
    first = died(leader, job, NOON - 2 * HOUR)
    second = died(leader, job, NOON - HOUR)
    made = redriven(leader, second, first)
    assert made.runs == (
        run_id(job, NOON - 2 * HOUR, 1, partition_of(job)),
        run_id(job, NOON - HOUR, 1, partition_of(job)),
    )
    now = leader.clock.moment
    assert waiting(leader) == [
        (made.runs[0], "default", 4, now),
        (made.runs[1], "default", 4, now + 1),
    ]
    leader.run_to(now + 2 * SECOND)
    assert [row[0] for row in ready(leader)] == sorted(made.runs)
    assert inputs(leader) == {}, "the payload is the job's"


def test_live_runs_are_not_flooded(leader, job):
    runs = [died(leader, job, NOON - n * MINUTE) for n in range(1, 121)]
    made = redriven(leader, *runs)
    assert len(made.runs) == 120
    leader.run_to(leader.clock.moment + SECOND)
    assert len(ready(leader)) <= 60, "50 a second over all partitions"
    leader.run_to(leader.clock.moment + 5 * SECOND)
    assert len(ready(leader)) == 120


def test_a_rate_of_its_own_spreads_them(leader, job):
    runs = [died(leader, job, NOON - n * MINUTE) for n in (3, 2, 1)]
    redriven(leader, *runs, rate=2)
    now = leader.clock.moment
    assert [row[3] - now for row in waiting(leader)] == [0, 500, 1_000]


def test_a_second_redrive_of_a_run_is_refused_and_nothing_is_done(leader, job):
    first, second = (died(leader, job, NOON - n * HOUR) for n in (1, 2))
    made = redriven(leader, first)
    with pytest.raises(LetterClosed, match=str(made.runs[0])) as refused:
        redriven(leader, second, first)
    assert refused.value.field == "ids.1"
    assert len(waiting(leader)) == 1
    with pytest.raises(RunRerunAlready, match=str(made.runs[0])):
        retry_run(first, now=leader.clock.moment)


def test_what_came_of_it_can_be_run_again_in_turn(leader, job):
    first = died(leader, job, NOON - HOUR)
    [second] = redriven(leader, first).runs
    leader.conn.execute("DELETE FROM chrono_blocked")
    leader.conn.execute("DELETE FROM chrono_occurrence WHERE run_id = %s", [second])
    assert died(leader, job, NOON - HOUR, group=1) == second
    [third] = redriven(leader, second).runs
    assert third == run_id(job, NOON - HOUR, 2, partition_of(job))
    links = selectors.get_reruns(leader.conn, second)
    assert (links.rerun_of, links.rerun_as) == (first, third)


def test_a_dry_run_says_which_and_does_nothing(leader, job):
    run = died(leader, job, NOON - HOUR)
    looked = redrive(
        Wanted(filter=LetterFilter(job=job)),
        tenant=ACME,
        dry_run=True,
        now=leader.clock.moment,
    )
    assert (looked.id, looked.runs, looked.more) == (None, (), False)
    assert [letter.run_id for letter in looked.letters] == [run]
    assert waiting(leader) == []
    [letter] = letters.load(leader.conn, [run], tenant=None).values()
    assert letters.state_of(letter) == "open"


def test_a_filter_takes_what_is_open_up_to_its_limit_and_says_that_more_follow(
    leader, job
):
    other = leader.create("other", cron="0 0 1 1 *")
    runs = [died(leader, job, NOON - n * HOUR) for n in (1, 2, 3)]
    stranger = died(leader, other, NOON - HOUR)
    wanted = Wanted(filter=LetterFilter(job=job), limit=2)

    def step():
        return redrive(wanted, tenant=ACME, now=leader.clock.moment)

    made = step()
    assert [letter.run_id for letter in made.letters] == [runs[1], runs[0]]
    assert made.more
    last = step()
    assert [letter.run_id for letter in last.letters] == [runs[2]]
    assert not last.more
    assert step().id is None
    [letter] = letters.load(leader.conn, [stranger], tenant=None).values()
    assert letter.closed is None


def test_a_filter_passes_over_jobs_that_are_deleted_and_a_name_is_refused(leader, job):
    run = died(leader, job, NOON - HOUR)
    delete_job(job, now=leader.clock.moment)
    found = redrive(Wanted(filter=LetterFilter()), tenant=ACME, now=leader.clock.moment)
    assert found.letters == ()
    with pytest.raises(JobDeleted) as refused:
        redriven(leader, run)
    assert refused.value.field == "ids.0"


def test_a_letter_keeps_its_payload_when_the_job_has_another_by_now(leader, job):
    old = died(leader, job, NOON - HOUR, payload='{"month": 2}')
    none = died(leader, job, NOON - 2 * HOUR, payload=None)
    made = redriven(leader, old, none)
    assert inputs(leader) == {made.runs[0]: None, made.runs[1]: {"month": 2}}
    # A payload of its own that is null is a JSON null.
    assert leader.conn.execute(
        "SELECT count(*) FROM chrono_run_input WHERE payload IS NULL"
    ).fetchone() == (0,)


def test_one_letter_can_be_given_another_payload_and_queue(leader, job):
    run = died(leader, job, NOON - HOUR)
    made = redriven(leader, run, payload=[1], queue="slow")
    [row] = waiting(leader)
    assert row[1] == "slow"
    assert inputs(leader) == {made.runs[0]: [1]}
    with pytest.raises(BadValue, match="one id alone"):
        Wanted(ids=(run, uuid.uuid4()), payload=1)
    with pytest.raises(BadValue, match="A queue's name"):
        Wanted(ids=(run,), queue="Über")


def test_only_another_payload_than_the_job_s_is_measured(leader, job):
    run = died(leader, job, NOON - HOUR, payload=None)
    change_quotas(ACME, Quotas(max_payload_bytes=8), actor=BOSS)
    with pytest.raises(QuotaExceeded) as refused:
        redriven(leader, run, payload={"month": 4})
    assert refused.value.field == "max_payload_bytes"
    with pytest.raises(QuotaExceeded):
        redrive(
            Wanted(ids=(run,), payload={"month": 4}),
            tenant=ACME,
            dry_run=True,
            now=leader.clock.moment,
        )
    assert waiting(leader) == []
    assert redriven(leader, run, payload={"month": 3}).runs


def test_the_attempts_after_the_first_stay_in_the_other_queue(leader, job):
    run = died(leader, job, NOON - HOUR)
    [made] = redriven(leader, run, queue="slow").runs
    leader.run_to(leader.clock.moment + SECOND)
    assert [row[:2] for row in ready(leader)] == [(made, "slow")]
    # As a settle leaves it whose attempt failed.
    leader.conn.execute("DELETE FROM chrono_ready")
    leader.conn.execute(
        "INSERT INTO chrono_timer (due_at, scheduled_for, ref, job_id, version, "
        "revision, part, kind, attempt) SELECT to_timestamp(%s / 1000.0), "
        "scheduled_for, run_id, job_id, 0, revision, part, 4, 2 "
        "FROM chrono_occurrence WHERE run_id = %s",
        [leader.clock.moment + 500, made],
    )
    leader.run_to(leader.clock.moment + 3 * SECOND)
    assert [(row[0], row[1], row[3]) for row in ready(leader)] == [(made, "slow", 2)]


def test_it_goes_by_the_definition_in_force_now(leader, job):
    run = died(leader, job, NOON - HOUR)
    patch_job(job, {"queue": "mended"}, now=leader.clock.moment)
    made = redriven(leader, run)
    [row] = waiting(leader)
    assert row[1] == "mended"
    assert leader.conn.execute(
        "SELECT revision FROM chrono_blocked WHERE run_id = %s", [made.runs[0]]
    ).fetchone() == (2,)


def test_letters_of_two_groups_of_one_instant_get_two_new_ones(leader, job):
    runs = [died(leader, job, NOON - HOUR, group=group) for group in (0, 1)]
    made = redriven(leader, *runs)
    assert sorted(made.runs) == sorted(
        run_id(job, NOON - HOUR, group, partition_of(job)) for group in (2, 3)
    )


def test_a_letter_that_outlived_ledger_and_history_runs_again(leader, job, dsn):
    long_ago = NOON - 60 * DAY
    runs = [died(leader, job, long_ago, group=group) for group in (0, 1)]
    for table in ("chrono_occurrence", "chrono_run"):
        leader.conn.execute(f"DELETE FROM {table}")
    made = redriven(leader, runs[0])
    assert made.runs == (run_id(job, long_ago, 2, partition_of(job)),)
    assert leader.conn.execute(
        "SELECT count(*) FROM chrono_occurrence_default"
    ).fetchone() == (0,)
    with connect_upkeep(dsn, name="test upkeep") as upkeep:
        [(now,)] = upkeep.execute(
            "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        ).fetchall()
        days.drop_old_days(upkeep, now=now)
        leaves = {
            leaf.name
            for table in days.TABLES
            for leaf in list_leaves(upkeep, parent=table.name)
        }
    assert {day_name(table.name, long_ago) for table in days.TABLES} <= leaves
    assert selectors.get_run(leader.conn, made.runs[0], tenant=ACME)[0].place == (
        "blocked"
    )


def test_what_is_named_wrongly_is_refused_with_its_place(leader, job):
    run = died(leader, job, NOON - HOUR)
    for ids, error, place in (
        ((run, uuid.uuid4()), LetterNotFound, "ids.1"),
        ((run, run), BadValue, "ids.1"),
    ):
        with pytest.raises(error) as refused:
            redriven(leader, *ids)
        assert refused.value.field == place
    with pytest.raises(LetterNotFound):
        redrive(Wanted(ids=(run,)), tenant=2, now=leader.clock.moment)
    for wrong in ({}, {"ids": (run,), "filter": LetterFilter()}, {"ids": ()}):
        with pytest.raises(BadValue):
            Wanted(**wrong)
    assert waiting(leader) == []


def test_a_discarded_letter_is_not_redriven_but_its_run_can_be_retried(leader, job):
    run = died(leader, job, NOON - HOUR)
    assert letters.discard(leader.conn, [run], note="paid by hand", actor=BOSS) == 1
    with pytest.raises(LetterClosed, match="discarded by"):
        redriven(leader, run)
    with pytest.raises(LetterClosed):
        letters.discard(leader.conn, [run], note="again", actor=BOSS)
    retry_run(run, now=leader.clock.moment)
    [letter] = letters.load(leader.conn, [run], tenant=None).values()
    assert letters.state_of(letter) == "rerun"
    assert letter.note == "paid by hand"


@pytest.mark.parametrize("state", [1, 3, 4, 6])
def test_a_run_that_is_over_runs_again_at_once_linked_both_ways(leader, job, state):
    run = make_ended(leader.conn, seeded(job), NOON - HOUR, state=state)
    made = retry_run(run, now=leader.clock.moment, actor=BOSS, reason="asked for")
    leader.run_to(leader.clock.moment + SECOND)
    assert [row[0] for row in ready(leader)] == [made]
    assert is_extra(made)
    assert selectors.get_reruns(leader.conn, run).rerun_as == made
    assert selectors.get_reruns(leader.conn, made).rerun_of == run
    assert leader.conn.execute(
        "SELECT object_id, reason FROM chrono_audit_event WHERE action = 'run.retry'"
    ).fetchall() == [(str(run), "asked for")]
    row, _ = selectors.get_run(leader.conn, run, tenant=ACME)
    assert selectors.state_of(row) is RunState(state), "the old run stays as it is"


def test_a_replay_has_the_payload_that_was_given_a_retry_its_own(leader, job):
    runs = [
        make_ended(leader.conn, seeded(job), NOON - n * HOUR, state=1) for n in (1, 2)
    ]
    patch_job(job, {"payload": {"month": 4}}, now=leader.clock.moment)
    retried = retry_run(runs[0], now=leader.clock.moment)
    replayed = retry_run(runs[1], payload=None, now=leader.clock.moment)
    assert inputs(leader) == {retried: {"month": 3}, replayed: None}


def test_what_is_not_over_or_never_ran_is_refused(leader, job):
    live = redriven(leader, died(leader, job, NOON - HOUR)).runs[0]
    with pytest.raises(RunNotFinished, match="parked"):
        retry_run(live, now=leader.clock.moment)
    make_skip(leader.conn, seeded(job), NOON - 3 * HOUR, reason=Reason.PAUSED)
    skip = run_id(job, NOON - 3 * HOUR, 0, partition_of(job))
    with pytest.raises(RunNotFinished, match="backfill"):
        retry_run(skip, now=leader.clock.moment)
    with pytest.raises(RunNotFound):
        retry_run(run_id(job, NOON - 9 * HOUR, 0, partition_of(job)))


def test_a_retry_runs_while_its_job_is_paused_a_redrive_waits(leader, job):
    first, second = (died(leader, job, NOON - n * HOUR) for n in (1, 2))
    pause_job(job, now=leader.clock.moment)
    retried = retry_run(first, now=leader.clock.moment)
    redriven(leader, second)
    leader.run_to(leader.clock.moment + 3 * SECOND)
    assert [row[0] for row in ready(leader)] == [retried]


def test_a_cancelled_run_is_run_again_by_a_person_alone_as_another_run(leader, job):
    run = died(leader, job, NOON - HOUR)
    [made] = redriven(leader, run).runs
    assert cancel(leader.conn, made) is RunState.CANCELLED
    leader.run_to(leader.clock.moment + 5 * SECOND)
    assert ready(leader) == []
    again = retry_run(made, now=leader.clock.moment)
    leader.run_to(leader.clock.moment + SECOND)
    assert [row[0] for row in ready(leader)] == [again]


def test_a_note_is_kept_and_replaced(leader, job):
    run = died(leader, job, NOON - HOUR)
    for note in ("asked the bank", "the bank says no", ""):
        letters.write_note(leader.conn, run, note=note, actor=BOSS)
        [letter] = letters.load(leader.conn, [run], tenant=None).values()
        assert letter.note == (note or None)
    assert leader.conn.execute(
        "SELECT count(*) FROM chrono_audit_event WHERE action = 'dead_letter.note'"
    ).fetchone() == (3,)
    with pytest.raises(LetterNotFound):
        letters.write_note(leader.conn, uuid.uuid4(), note="x", actor=BOSS)
    with pytest.raises(BadValue, match="say why"):
        letters.discard(leader.conn, [run], note="", actor=BOSS)


def test_what_a_person_resolved_is_not_run_again_by_a_filter(leader, job):
    run = died(leader, job, NOON - HOUR)
    leader.conn.execute(
        "INSERT INTO chrono_resolution (run_id, part, state, actor, note) "
        "VALUES (%s, %s, 1, 'a person', 'it was paid')",
        [run, partition_of(job)],
    )
    wanted = Wanted(filter=LetterFilter())
    assert redrive(wanted, tenant=ACME, now=leader.clock.moment).letters == ()
    with pytest.raises(LetterClosed, match="resolved"):
        redriven(leader, run)
    page = letters.list_letters(
        leader.conn, tenant=ACME, wanted=LetterFilter(state="resolved"), limit=5
    )
    assert [letter.run_id for letter in page.letters] == [run]
    assert retry_run(run, now=leader.clock.moment), "by a person it still can be"


def test_a_page_gives_its_place_back_after_so_many_that_do_not_fit(
    leader, job, monkeypatch
):
    monkeypatch.setattr(letters, "_LOOK", 2)
    monkeypatch.setattr(letters, "_LOOKS", 2)
    runs = [died(leader, job, NOON - n * HOUR) for n in range(1, 6)]
    leader.conn.execute(
        "UPDATE chrono_dead_letter SET reason = 17 WHERE run_id = %s", [runs[-1]]
    )
    wanted = LetterFilter(reason=Reason.NON_RETRYABLE)
    page = letters.list_letters(leader.conn, tenant=ACME, wanted=wanted, limit=5)
    assert (list(page.letters), page.next) == ([], runs[3])
    rest = letters.list_letters(
        leader.conn, tenant=ACME, wanted=wanted, before=page.next, limit=5
    )
    assert [letter.run_id for letter in rest.letters] == [runs[-1]]
    assert rest.next is None
