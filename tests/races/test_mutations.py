"""The tests of the tests: each rule, taken away, turns a scenario red.

A scenario is a test of its own elsewhere in this folder, where it passes with the
product's statements. Here it fails with one rule left out of one of them, or with one
wall taken out of the database.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import psycopg
import pytest

from apps.runs.cancel import RunNotFound
from tests.races import (
    test_admit,
    test_claim,
    test_edits,
    test_fire,
    test_missed,
    test_rotation,
    test_settle,
)
from tests.races.mutations import mutated
from tests.races.world import World

type Scenario = Callable[[World], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One rule taken out of one statement, or one wall out of the schema."""

    rule: str
    scenario: Scenario
    statement: str = ""
    old: str = ""
    new: str = ""
    schema: str = ""
    """Run in the scenario's database instead of changing a statement."""
    red: type[Exception] = AssertionError
    """How the scenario fails: by what it asserts, or by what the server refuses."""


def fence_by_hand(world: World) -> None:
    test_fire.fire_against_a_plain_update(world, "fence")


def epoch_by_hand(world: World) -> None:
    test_fire.fire_against_a_plain_update(world, "epoch")


def pause_between_statements(world: World) -> None:
    test_edits.edit_between_statements(world, "pause")


def pause_in_an_outage(world: World) -> None:
    test_edits.edit_in_an_outage(world, "pause")


def cancel_of_a_claim(world: World) -> None:
    test_settle.cancel_against(world, "claim")


def cancel_of_one_that_is_let_in(world: World) -> None:
    test_settle.cancel_against(world, "letting_in")


def terminate_and_success(world: World) -> None:
    test_settle.test_what_is_terminated_while_it_settles_ends_once(world, 1)


GUARD = "(id, fence, term, epoch) IN ( SELECT g.id, g.fence, g.term, g.epoch"
WITHOUT = {
    column: GUARD.replace(f", {column}", "").replace(f", g.{column}", "")
    for column in ("fence", "term", "epoch")
}
PREV_IF_FIRED = "CASE WHEN verdict = 0 THEN run_id ELSE prev END"
PREV = f"""{PREV_IF_FIRED}, version, revision, part, kind,
    CASE WHEN verdict = 0 THEN remaining - 1 ELSE remaining END
    FROM judged WHERE next_due < """


ACTIVATED = """
    activated_at = to_timestamp(d.activated_at / 1000.0::float8)::timestamptz(3)
"""


def guards(
    statement: str,
    *,
    takeover: Scenario,
    edit: Scenario,
    by_hand: Callable[[World, str], None],
    over: Callable[[World, str], None],
) -> list[Mutation]:
    """Return the guard of one more statement with each of its rules taken out."""
    lock = "ORDER BY id FOR SHARE"
    broken: list[tuple[str, Scenario, str, str]] = [
        (
            f"holds its {column} FOR SHARE",
            partial(by_hand, column=column),  # type: ignore[call-arg]
            lock,
            "ORDER BY id FOR KEY SHARE",
        )
        for column in ("fence", "epoch")
    ]
    broken += [
        ("locks at all, against a takeover", takeover, lock, "ORDER BY id"),
        ("locks at all, against an edit", edit, lock, "ORDER BY id"),
        ("compares the epoch", edit, GUARD, WITHOUT["epoch"]),
        (
            "compares the fence",
            partial(over, column="fence"),  # type: ignore[call-arg]
            GUARD,
            WITHOUT["fence"],
        ),
        (
            "compares the term",
            partial(over, column="term"),  # type: ignore[call-arg]
            GUARD,
            WITHOUT["term"],
        ),
    ]
    return [
        Mutation(
            rule=f"{statement} {rule}",
            scenario=scenario,
            statement=statement,
            old=old,
            new=new,
        )
        for rule, scenario, old, new in broken
    ]


MUTATIONS = [
    Mutation(
        rule="the fence is held FOR SHARE",
        scenario=fence_by_hand,
        statement="fire_if_held",
        old="ORDER BY id FOR SHARE",
        new="ORDER BY id FOR KEY SHARE",
    ),
    Mutation(
        rule="the epoch is held FOR SHARE",
        scenario=epoch_by_hand,
        statement="fire_if_held",
        old="ORDER BY id FOR SHARE",
        new="ORDER BY id FOR KEY SHARE",
    ),
    Mutation(
        rule="the guard locks at all, against a takeover",
        scenario=test_fire.test_fire_and_takeover_in_every_order,
        statement="fire_if_held",
        old="ORDER BY id FOR SHARE",
        new="ORDER BY id",
    ),
    Mutation(
        rule="the guard locks at all, against an edit",
        scenario=test_fire.fire_against_edit,
        statement="fire_if_held",
        old="ORDER BY id FOR SHARE",
        new="ORDER BY id",
    ),
    Mutation(
        rule="the guard compares the epoch",
        scenario=test_fire.fire_against_edit,
        statement="fire_if_held",
        old="(id, fence, term, epoch) IN ( SELECT g.id, g.fence, g.term, g.epoch",
        new="(id, fence, term) IN ( SELECT g.id, g.fence, g.term",
    ),
    Mutation(
        rule="the guard compares the fence",
        scenario=test_fire.test_a_fence_raised_under_a_healthy_leader_stops_it,
        statement="fire_if_held",
        old="(id, fence, term, epoch) IN ( SELECT g.id, g.fence, g.term, g.epoch",
        new="(id, term, epoch) IN ( SELECT g.id, g.term, g.epoch",
    ),
    Mutation(
        rule="the guard compares the term",
        scenario=test_fire.test_a_fence_handed_out_again_is_told_apart_by_its_term,
        statement="fire_if_held",
        old="(id, fence, term, epoch) IN ( SELECT g.id, g.fence, g.term, g.epoch",
        new="(id, fence, epoch) IN ( SELECT g.id, g.fence, g.epoch",
    ),
    Mutation(
        rule="what fires is drawn from the partitions that hold",
        scenario=test_fire.test_one_stale_partition_does_not_stop_the_others,
        statement="fire_if_held",
        old="(d.part IN (SELECT id FROM held)) IS TRUE",
        new="EXISTS (SELECT FROM held)",
    ),
    Mutation(
        rule="the ledger has its key",
        scenario=test_fire.test_a_second_timer_of_an_instant_meets_the_ledger,
        schema="ALTER TABLE chrono_occurrence DROP CONSTRAINT chrono_occurrence_pkey",
    ),
    Mutation(
        rule="a run is made only where the ledger took its occurrence",
        scenario=test_fire.test_a_second_timer_of_an_instant_meets_the_ledger,
        statement="fire_if_held",
        old="""AND (d.part, d.job_id, d.scheduled_for, d.attempt_group) IN (
            SELECT part, job_id, scheduled_for, attempt_group FROM ledger )""",
        new="",
    ),
    Mutation(
        rule="of two timers of an instant in one batch one fires",
        scenario=test_fire.test_two_timers_of_an_instant_in_one_batch_make_one_run,
        statement="fire_if_held",
        old="d.n IN (SELECT n FROM single) AND",
        new="",
    ),
    Mutation(
        rule="a timer is found by its instant, too",
        scenario=test_fire.test_an_entry_of_another_instant_is_not_fired_by_its_key,
        statement="fire_if_held",
        old="AND t.scheduled_for = d.scheduled_for",
        new="",
    ),
    Mutation(
        rule="a next timer is due a millisecond later at least",
        scenario=(
            test_fire.test_a_next_timer_never_takes_the_key_of_the_row_it_replaces
        ),
        statement="fire_if_held",
        old="greatest(d.next_due, d.due + 1)",
        new="d.next_due",
    ),
    Mutation(
        rule="nothing fires before the database's clock says so",
        scenario=test_fire.test_b06_nothing_fires_before_its_time,
        statement="fire_if_held",
        old="clock_timestamp())",
        new="'infinity')",
    ),
    Mutation(
        rule="overlap skip asks whether the previous run is settled",
        scenario=test_fire.test_overlap_look_up_and_settle_in_every_order,
        statement="fire_if_held",
        old="WHEN t.bounded AND t.prev IS NOT NULL AND (",
        new="WHEN false AND (",
    ),
    Mutation(
        rule="overlap skip asks for slots",
        scenario=test_fire.test_a_slot_counts_against_the_bound,
        statement="fire_if_held",
        old="WHEN t.bounded AND (t.part, t.job_id) IN (",
        new="WHEN false AND (t.part, t.job_id) IN (",
    ),
    Mutation(
        rule="prev moves on only where something was fired",
        scenario=test_fire.test_prev_stays_where_the_occurrence_was_there_already,
        statement="fire_if_held",
        old=PREV,
        new=PREV.replace(PREV_IF_FIRED, "run_id"),
    ),
    Mutation(
        rule="prev moves on where something was fired",
        scenario=test_fire.test_overlap_look_up_and_settle_in_every_order,
        statement="fire_if_held",
        old=PREV,
        new=PREV.replace(PREV_IF_FIRED, "prev"),
    ),
    *guards(
        "miss_if_held",
        takeover=test_missed.test_missed_and_takeover_in_every_order,
        edit=test_missed.missed_against_edit,
        by_hand=test_missed.missed_against_a_plain_update,
        over=test_missed.over,
    ),
    Mutation(
        rule="what was missed is drawn from the partitions that hold",
        scenario=test_missed.test_one_stale_partition_does_not_stop_the_others,
        statement="miss_if_held",
        old="d.part = ANY(ARRAY(SELECT id FROM held))",
        new="EXISTS (SELECT FROM held)",
    ),
    Mutation(
        rule="a missed run is made only where the ledger took its occurrence",
        scenario=test_missed.test_an_occurrence_that_ran_already_meets_the_ledger,
        statement="miss_if_held",
        old="""WHERE reason IS NULL AND ((part, job_id, run_id) IN (
            SELECT part, job_id, run_id FROM ledger WHERE outcome = 1 )) IS TRUE""",
        new="WHERE reason IS NULL",
    ),
    Mutation(
        rule="the ledger has its key, for what was missed too",
        scenario=test_missed.test_an_occurrence_that_ran_already_meets_the_ledger,
        schema="ALTER TABLE chrono_occurrence DROP CONSTRAINT chrono_occurrence_pkey",
    ),
    Mutation(
        rule="missed runs take off what is left",
        scenario=test_missed.test_the_next_timer_is_near_or_far_and_none_after_the_last_run,
        statement="miss_if_held",
        old="WHERE l.job_id = t.job_id AND l.outcome = 1",
        new="WHERE false",
    ),
    Mutation(
        rule="only missed runs that were made take off what is left",
        scenario=test_missed.test_an_occurrence_that_ran_already_meets_the_ledger,
        statement="miss_if_held",
        old="SELECT count(*) FROM ledger l WHERE l.job_id = t.job_id AND l.outcome = 1",
        new="SELECT count(*) FROM pieces l WHERE l.job_id = t.job_id "
        "AND l.reason IS NULL",
    ),
    Mutation(
        rule="a missed timer is found by its instant, too",
        scenario=test_missed.test_an_entry_of_another_instant_is_not_decided_by_its_key,
        statement="miss_if_held",
        old="AND t.scheduled_for = d.scheduled_for",
        new="",
    ),
    Mutation(
        rule="a timer after missed ones is due a millisecond later at least",
        scenario=(
            test_missed.test_a_next_timer_never_takes_the_key_of_the_row_it_replaces
        ),
        statement="miss_if_held",
        old="greatest(d.next_due, d.due + 1)",
        new="d.next_due",
    ),
    Mutation(
        rule="nothing is missed before the database's clock says so",
        scenario=test_missed.test_nothing_is_decided_before_its_time,
        statement="miss_if_held",
        old="clock_timestamp() ) AS now",
        new="'infinity' ) AS now",
    ),
    *guards(
        "admit_if_held",
        takeover=test_admit.test_letting_in_and_takeover_in_every_order,
        edit=test_admit.letting_in_against_edit,
        by_hand=test_admit.letting_in_against_a_plain_update,
        over=test_admit.over,
    ),
    Mutation(
        rule="who is let in is drawn from the partitions that hold",
        scenario=test_admit.test_one_stale_partition_does_not_stop_the_others,
        statement="admit_if_held",
        old="JOIN held h ON h.id = w.part",
        new="JOIN (SELECT min(fence) AS fence FROM held) h ON h.fence > 0",
    ),
    Mutation(
        rule="letting in locks what it takes",
        scenario=test_admit.test_letting_in_and_cancel_in_every_order,
        statement="admit_if_held",
        old="FOR UPDATE SKIP LOCKED",
        new="",
    ),
    Mutation(
        rule="letting in passes over what another holds",
        scenario=test_admit.test_a_cancel_that_takes_long_holds_nobody_up,
        statement="admit_if_held",
        old="FOR UPDATE SKIP LOCKED",
        new="FOR UPDATE",
    ),
    Mutation(
        rule="the oldest are let in first",
        scenario=test_admit.test_the_oldest_go_first_and_no_more_than_were_asked_for,
        statement="admit_if_held",
        old="ORDER BY b.due_at, b.run_id",
        new="ORDER BY b.due_at DESC, b.run_id",
    ),
    Mutation(
        rule="who is let in takes a slot",
        scenario=test_admit.test_the_oldest_go_first_and_no_more_than_were_asked_for,
        statement="admit_if_held",
        old="FROM passing WHERE slot",
        new="FROM passing WHERE false",
    ),
    Mutation(
        rule="nobody is let in before the database's clock says so",
        scenario=test_admit.test_nobody_is_let_in_before_it_is_due,
        statement="admit_if_held",
        old="clock_timestamp()) ORDER BY",
        new="'infinity') ORDER BY",
    ),
    Mutation(
        rule="a slot of a settled run frees its place",
        scenario=test_admit.settle_frees_a_place,
        statement="list_live",
        old="AND (b.run_id IN (SELECT id FROM settled)) IS NOT TRUE",
        new="",
    ),
    Mutation(
        rule="a cancel looks behind the gates",
        scenario=cancel_of_one_that_is_let_in,
        statement="cancel_if_blocked",
        old="WHERE run_id = %(run)s::uuid",
        new="WHERE false AND run_id = %(run)s::uuid",
        red=RunNotFound,
    ),
    Mutation(
        rule="what a settle ended is not terminated again",
        scenario=terminate_and_success,
        statement="end_lease",
        old="DELETE FROM chrono_lease WHERE run_id = %(run)s::uuid",
        new="SELECT * FROM chrono_lease WHERE run_id = %(run)s::uuid",
    ),
    Mutation(
        rule="stale timers are deleted under the fence",
        scenario=test_fire.test_stale_timers_are_deleted_under_the_fence_alone,
        statement="delete_stale_timers",
        old="AND fence = %(fence)s::bigint AND term = %(term)s::uuid",
        new="AND %(fence)s::bigint > 0 AND %(term)s::uuid IS NOT NULL",
    ),
    Mutation(
        rule="a claim locks what it takes",
        scenario=test_claim.test_two_claimers_never_share_and_never_wait,
        statement="claim_ready",
        old="FOR UPDATE OF r SKIP LOCKED",
        new="",
    ),
    Mutation(
        rule="a claim passes over what another holds",
        scenario=test_claim.test_two_claimers_never_share_and_never_wait,
        statement="claim_ready",
        old="FOR UPDATE OF r SKIP LOCKED",
        new="FOR UPDATE OF r",
    ),
    Mutation(
        rule="a claim takes the lowest",
        scenario=test_claim.test_a_claim_takes_the_lowest_of_all_slices_in_order,
        statement="claim_ready",
        old="ORDER BY r.priority, r.tag LIMIT",
        new="ORDER BY r.priority DESC, r.tag LIMIT",
    ),
    Mutation(
        rule="a claim leaves withdrawn runs out",
        scenario=test_claim.test_withdrawn_runs_are_left_out,
        statement="claim_ready",
        old="WHERE w.run_id = r.run_id AND w.part = r.part",
        new="WHERE w.run_id = r.run_id AND w.part = r.part AND false",
    ),
    Mutation(
        rule="each execution has a token of its own",
        scenario=test_settle.test_a_settle_that_is_repeated_after_the_run_was_claimed_again,
        statement="claim_ready",
        old="(%(tokens)s::uuid[])[row_number() OVER ()]",
        new="CASE WHEN %(tokens)s::uuid[] IS NOT NULL THEN %(worker)s::uuid END",
    ),
    Mutation(
        rule="a settle names the token",
        scenario=test_settle.test_a_settle_that_is_repeated_after_the_run_was_claimed_again,
        statement="settle_successes",
        old="AND token = ANY(%(tokens)s::uuid[])",
        new="AND %(tokens)s::uuid[] IS NOT NULL",
    ),
    Mutation(
        rule="a settle that is no plain success names the token",
        scenario=test_settle.test_a_settle_that_is_repeated_after_the_run_was_claimed_again,
        statement="settle_if_leased",
        old="AND token = ANY(%(tokens)s::uuid[])",
        new="AND %(tokens)s::uuid[] IS NOT NULL",
    ),
    Mutation(
        rule="a settle names the token, against a sweep",
        scenario=test_settle.test_a_stale_worker_cannot_settle_the_next_attempt,
        statement="settle_successes",
        old="AND token = ANY(%(tokens)s::uuid[])",
        new="AND %(tokens)s::uuid[] IS NOT NULL",
    ),
    Mutation(
        rule="a settle bears that the run was cancelled over its open claim",
        scenario=test_settle.cancel_over_an_open_claim,
        statement="settle_if_leased",
        old="SELECT o FROM unnest(%(odd_run)s::uuid[]) AS o) ON CONFLICT DO NOTHING",
        new="SELECT o FROM unnest(%(odd_run)s::uuid[]) AS o)",
        red=psycopg.errors.UniqueViolation,
    ),
    Mutation(
        rule="who beat since its sessions were missed lives",
        scenario=test_settle.test_beat_and_burial_of_who_has_no_session_in_every_order,
        statement="mark_dead_if_gone",
        old="w.beat_at < to_timestamp(l.since / 1000.0::float8)",
        new="l.since > 0",
    ),
    Mutation(
        rule="the beat tells of runs withdrawn under an open claim",
        scenario=cancel_of_a_claim,
        statement="beat_if_alive",
        old="AND l.worker = a.id OFFSET 0",
        new="AND l.worker = a.id AND false OFFSET 0",
    ),
    Mutation(
        rule="a cancel waits for the fire that has the timer",
        scenario=test_settle.test_a_cancel_waits_for_a_fire_that_takes_long,
        statement="cancel_if_timed",
        old="FOR UPDATE ",
        new="FOR UPDATE SKIP LOCKED ",
    ),
    Mutation(
        rule="cancelling a late one is a decision in the ledger",
        scenario=(
            test_settle.test_a_late_or_manual_run_that_is_cancelled_is_decided_in_the_ledger
        ),
        statement="cancel_if_timed",
        old="FROM moved WHERE kind <> 4",
        new="FROM moved WHERE false",
    ),
    Mutation(
        rule="a retry of a withdrawn run is not fired",
        scenario=test_settle.retry_of_a_withdrawn_run,
        statement="fire_if_held",
        old="WHERE w.run_id = d.run_id AND w.part = d.part LIMIT 1) THEN -2",
        new="WHERE w.run_id = d.run_id AND w.part = d.part LIMIT 1) THEN 0",
    ),
    Mutation(
        rule="a withdrawn run is remembered while its retry waits",
        scenario=test_settle.retry_of_a_withdrawn_run,
        statement="forget_withdrawn",
        old="WHERE t.part = w.part AND t.ref = w.run_id AND t.kind <> 1) AND NOT EXISTS"
        " ( SELECT FROM chrono_timer_far",
        new="WHERE false) AND NOT EXISTS ( SELECT FROM chrono_timer_far",
    ),
    Mutation(
        rule="a withdrawn run is remembered while a claim of it is open",
        scenario=test_rotation.test_withdrawn_is_not_forgotten_under_an_open_claim,
        statement="forget_withdrawn",
        old="WHERE l.run_id = w.run_id AND l.part = w.part",
        new="WHERE false",
    ),
    Mutation(
        rule="a slice is looked at again under its lock",
        scenario=test_rotation.truncate_against_writer,
        statement="count_leftovers",
        old="SELECT count(*) FROM",
        new="SELECT 0 FROM",
    ),
    Mutation(
        rule="a slice is locked before the second look",
        scenario=test_rotation.truncate_against_writer,
        statement="lock_slice",
        old="ACCESS EXCLUSIVE",
        new="ACCESS SHARE",
    ),
    Mutation(
        rule="leftovers that a claim holds are passed over",
        scenario=test_claim.test_claims_and_the_move_of_leftovers_in_every_order,
        statement="move_leftovers",
        old="FOR UPDATE SKIP LOCKED",
        new="FOR UPDATE",
    ),
    Mutation(
        rule="a worker is dead only if it is stale once its row is locked",
        scenario=test_settle.test_beat_and_burial_in_every_order,
        statement="mark_dead_if_stale",
        old="AND w.beat_at NOT BETWEEN clock_timestamp() - %(ttl)s::bigint * "
        "interval '1 ms' AND clock_timestamp() + %(ttl)s::bigint * interval '1 ms'",
        new="AND %(ttl)s::bigint > 0",
    ),
    Mutation(
        rule="a worker marked dead does not beat",
        scenario=test_settle.test_beat_and_burial_in_every_order,
        statement="beat_if_alive",
        old="AND NOT dead",
        new="",
    ),
    Mutation(
        rule="an edit raises the epoch",
        scenario=pause_between_statements,
        statement="bump_epochs",
        old="SET epoch = p.epoch + 1",
        new="SET epoch = p.epoch",
    ),
    Mutation(
        rule="an edit stamps its jobs with the new epoch",
        scenario=pause_between_statements,
        statement="update_jobs",
        old="epoch = d.epoch",
        new="epoch = j.epoch",
    ),
    Mutation(
        rule="a leader drops the jobs that changed since its epoch",
        scenario=pause_between_statements,
        statement="list_changed_jobs",
        old="epoch > %(epoch)s::bigint",
        new="epoch > %(epoch)s::bigint + 1000",
    ),
    Mutation(
        rule="a read of timers carries the epoch of its own snapshot",
        scenario=test_edits.read_in_flight,
        statement="load_timers",
        old="SELECT p.id, p.epoch",
        new="SELECT p.id, p.epoch + 1000",
    ),
    Mutation(
        rule="a pause takes a version",
        scenario=pause_in_an_outage,
        statement="update_jobs",
        old="version = d.version",
        new="version = CASE WHEN d.paused THEN j.version ELSE d.version END",
    ),
    Mutation(
        rule="a new plan begins at its edit",
        scenario=test_edits.two_edits_in_a_row,
        statement="update_jobs",
        old=ACTIVATED,
        new="activated_at = j.activated_at",
    ),
    Mutation(
        rule="what the ledger decided is not decided by an edit again",
        scenario=pause_in_an_outage,
        statement="read_decided",
        old="coalesce(o.last_scheduled_for, o.scheduled_for)",
        new="timestamptz '1970-01-01Z'",
    ),
    Mutation(
        rule="a stretch is decided up to its end",
        scenario=test_edits.edit_after_a_stretch,
        statement="read_decided",
        old="coalesce(o.last_scheduled_for, o.scheduled_for)",
        new="o.scheduled_for",
    ),
    Mutation(
        rule="an edit tells the new plan which run was the last",
        scenario=test_edits.overlap_across_an_edit,
        statement="read_decided",
        old="SELECT o.run_id FROM chrono_occurrence o",
        new="SELECT NULL::uuid FROM chrono_occurrence o",
    ),
]


ROW_BY_ROW = (
    "a run is made only where the ledger took its occurrence",
    "of two timers of an instant in one batch one fires",
    "prev moves on only where something was fired",
)
"""What breaks these rules' scenarios fire_undecided leaves to fire_if_held."""
MUTATIONS += [
    replace(one, rule=f"{one.rule}, at once", statement="fire_undecided")
    for one in MUTATIONS
    if one.statement == "fire_if_held" and one.rule not in ROW_BY_ROW
]
MUTATIONS += [
    Mutation(
        rule="what fires is what the delete gave back",
        scenario=(
            test_fire.test_a_timer_that_somebody_takes_while_a_fire_waits_is_not_fired
        ),
        statement="fire_undecided",
        old="WHERE (t.tid IN (SELECT tid FROM deleted)) IS TRUE",
        new="",
    ),
    Mutation(
        rule="prev moves on only where nothing was skipped, at once",
        scenario=test_fire.test_overlap_look_up_and_settle_in_every_order,
        statement="fire_undecided",
        old=PREV,
        new=PREV.replace(PREV_IF_FIRED, "run_id"),
    ),
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_a_rule_taken_away_turns_its_scenario_red(
    request: pytest.FixtureRequest, mutation: Mutation
) -> None:
    world: World = request.getfixturevalue(
        "own_world" if mutation.schema else "edit_world"
    )
    world.row_by_row = mutation.statement == "fire_if_held"
    if mutation.schema:
        world.observer.execute(mutation.schema)
        red = turns_red(mutation, world)
    else:
        with mutated(mutation.statement, mutation.old, mutation.new):
            red = turns_red(mutation, world)
    assert red, f"the tests pass without this rule: {mutation.rule}"


def turns_red(mutation: Mutation, world: World) -> bool:
    """Return whether the scenario fails in the way that the mutation foretells.

    A mutation that is no SQL any more proves nothing; its error goes through.
    """
    try:
        mutation.scenario(world)
    except mutation.red:
        return True
    return False
