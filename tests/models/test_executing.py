"""Runs are executed as the model says, on a real server, whatever befalls them.

With one rule taken out of one of the product's statements they are not.
`LONG_MODELS=10` executes ten times as many lives, and longer ones.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from apps.runs.days import ensure_days
from apps.runtime.sessions import connect_upkeep
from apps.runtime.store import read_clock
from apps.scheduler.gates import Gates as LeadersGates
from apps.timers.buckets import ensure_buckets
from apps.worker.gates import Gates
from chrono.rules import breaker
from tests.models.circuit import OF_RAMP
from tests.models.executing import OF_KEY, OF_RATE, Executions, make_jobs
from tests.races.mutations import mutated

type Step = Callable[[Executions], None]

TIMES = int(os.environ.get("LONG_MODELS", "1"))


def size(examples: int, steps: int = 40) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        # Every step is some statements: to make a failure shorter takes many minutes.
        phases=[Phase.generate],
    )


@pytest.fixture
def executions(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Executions]]:
    """The machine, on a database of its own."""
    # A ramp as small as all that there is here.
    monkeypatch.setattr(breaker, "RAMP_START", OF_RAMP)
    with connect_upkeep(dsn, name="test upkeep") as upkeep:
        now = int(read_clock(upkeep))
        ensure_buckets(upkeep, now=now)
        ensure_days(upkeep, now=now)
        Executions.url, Executions.upkeep = dsn, upkeep
        Executions.jobs = make_jobs()
        yield Executions


@pytest.mark.timeout(180 * TIMES)
def test_runs_are_executed_as_the_model_says(executions: type[Executions]) -> None:
    run_state_machine_as_test(
        executions, settings=size(30 * TIMES, 40 if TIMES == 1 else 80)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One rule taken out of one statement."""

    rule: str
    statement: str
    old: str
    new: str
    life: Sequence[Step]
    """Steps that show it, one of the lives that there may be."""


class First:
    """Draws the first of whatever there is."""

    def draw(self, strategy: object) -> int:
        """Return the first place."""
        return 0


def step(name: str, **values: Any) -> Step:
    return lambda machine: getattr(machine, name)(**values)


def drawn(name: str, **values: Any) -> Step:
    """Return a step that draws the run or the worker that it is about."""
    return step(name, data=First(), **values)


def have(job: str = "plain", *, far: int) -> Step:
    return drawn("have_a_run", job=job, far=far)


def settle(ending: str) -> Step:
    return drawn("settle", ending=ending, twice=False)


CANCEL, TERMINATE, BEAT = drawn("cancel"), drawn("terminate"), drawn("beat")
CLAIM, LEADER = drawn("claim", limit=3), step("leader_works")
CRASH = drawn("die", crashed=True, swept=True)
FAIL, HOUR, CLOSE = (
    drawn("target_fails"),
    step("somebody_turns_the_circuit", what="hour"),
    step("somebody_turns_the_circuit", what="close"),
)
MUTATIONS = [
    Mutation(
        rule="a claim leaves withdrawn runs out",
        statement="claim_ready",
        old="w.part = r.part",
        new="w.part = r.part AND false",
        life=(have(far=2), CANCEL, CLAIM),
    ),
    Mutation(
        rule="a settle of a plain success names its token",
        statement="settle_successes",
        old="AND token = ANY(%(tokens)s::uuid[])",
        new="AND %(tokens)s::uuid[] IS NOT NULL",
        life=(
            have(far=3),
            settle("not begun"),
            LEADER,
            CLAIM,
            drawn("settle_what_was_lost", ending="plain success"),
        ),
    ),
    Mutation(
        rule="a settle names its token",
        statement="settle_if_leased",
        old="AND token = ANY(%(tokens)s::uuid[])",
        new="AND %(tokens)s::uuid[] IS NOT NULL",
        life=(
            have(far=3),
            settle("not begun"),
            LEADER,
            CLAIM,
            drawn("settle_what_was_lost", ending="success"),
        ),
    ),
    Mutation(
        rule="what was told to stop and did not succeed is cancelled",
        statement="settle_if_leased",
        old="CASE WHEN f.cancel AND d.state NOT IN (1, 6) THEN 4 ELSE d.state END",
        new="d.state",
        life=(have(far=3), CANCEL, settle("failure")),
    ),
    Mutation(
        rule="what succeeded though it was told to stop is a success",
        statement="settle_if_leased",
        old="f.cancel AND d.state NOT IN (1, 6) THEN 4",
        new="f.cancel AND d.state <> 6 THEN 4",
        life=(have(far=3), CANCEL, settle("success")),
    ),
    Mutation(
        rule="an attempt that failed is spent",
        statement="settle_if_leased",
        old="attempt + spent FROM odd WHERE state = 0 AND retry_at < to_timestamp",
        new="attempt FROM odd WHERE state = 0 AND retry_at < to_timestamp",
        life=(have(far=3), settle("failure")),
    ),
    Mutation(
        rule="a dead run has a dead letter",
        statement="settle_if_leased",
        old="FROM odd WHERE state = 3 ON CONFLICT",
        new="FROM odd WHERE false ON CONFLICT",
        life=(have("once", far=3), settle("failure")),
    ),
    Mutation(
        rule="a run is taken from a dead worker alone",
        statement="list_orphans",
        old="WHERE NOT dead AND NOT swept",
        new="WHERE NOT dead AND swept",
        life=(have(far=3), step("sweep")),
    ),
    Mutation(
        rule="what may be begun once is not begun again",
        statement="list_orphans",
        old="IS NOT DISTINCT FROM 'at_most_once'",
        new="IS NOT DISTINCT FROM 'never'",
        life=(have("once", far=3), CRASH),
    ),
    Mutation(
        rule="who is dead does not beat",
        statement="beat_if_alive",
        old="AND NOT dead",
        new="",
        life=(have(far=3), CRASH, BEAT),
    ),
    Mutation(
        rule="who has beaten is not silent",
        statement="mark_dead_if_stale",
        old="clock_timestamp() - %(ttl)s::bigint * interval '1 ms'",
        new="clock_timestamp() - 0 * %(ttl)s::bigint * interval '1 ms'",
        life=(BEAT,),
    ),
    Mutation(
        rule="a worker is told that somebody ended its execution",
        statement="end_lease",
        old="SELECT worker, run_id FROM ended",
        new="SELECT worker, run_id FROM ended WHERE false",
        life=(have(far=3), CANCEL, TERMINATE, BEAT),
    ),
    Mutation(
        rule="what is set aside goes on with the next attempt",
        statement="set_aside_if_leased",
        old="attempt + 1, queue",
        new="attempt, queue",
        life=(have(far=3), CRASH, LEADER, CLAIM, CRASH),
    ),
    Mutation(
        rule="what was told to stop is not set aside",
        statement="set_aside_if_leased",
        old="FROM freed WHERE NOT cancel",
        new="FROM freed",
        life=(have(far=3), CRASH, LEADER, CLAIM, CANCEL, CRASH),
    ),
    Mutation(
        rule="who was let in by a key is counted",
        statement="admit_concurrency",
        old="- (SELECT count(*) FROM mine)",
        new="- 0 * (SELECT count(*) FROM mine)",
        life=(*[have("key a", far=2)] * (OF_KEY + 1),),
    ),
    Mutation(
        rule="what is set aside keeps its place",
        statement="admit_concurrency",
        old="AND b.gate <> 'process_crash'",
        new="",
        life=(
            *[have("key a", far=3)] * OF_KEY,
            CRASH,
            LEADER,
            CLAIM,
            CRASH,
            have("key b", far=2),
        ),
    ),
    Mutation(
        rule="who was let in by a rate is counted",
        statement="admit_rate",
        old="%(limit)s::integer - count(*)",
        new="%(limit)s::integer - 0 * count(*)",
        life=(*[have("rate", far=2)] * (OF_RATE + 1),),
    ),
    Mutation(
        rule="an open circuit is known to who claims",
        statement="list_shut_circuits",
        old="WHERE state <> 1",
        new="WHERE state NOT IN (1, 2)",
        life=(have("sick", far=2), have("sick", far=2), FAIL, CLAIM),
    ),
    Mutation(
        rule="a circuit is probed by one run",
        statement="admit_probes",
        old="LIMIT r.most",
        new="LIMIT r.most + 1",
        life=(FAIL, LEADER, HOUR, LEADER),
    ),
    Mutation(
        rule="while a probe is in execution there is no other",
        statement="admit_probes",
        old="WHERE l.run_id = ANY(t.probes)",
        new="WHERE l.run_id = ANY(t.probes) AND false",
        life=(FAIL, LEADER, HOUR, LEADER, CLAIM, HOUR, LEADER),
    ),
    Mutation(
        rule="what was parked has spent no attempt",
        statement="admit_probes",
        old="part, priority, attempt, %(slice)s",
        new="part, priority, attempt + 1, %(slice)s",
        life=(FAIL, LEADER, HOUR, LEADER),
    ),
    Mutation(
        rule="what was parked is not lost",
        statement="admit_ramp",
        old="%(slice)s::smallint, queue FROM first WHERE gates_left IS NULL",
        new="%(slice)s::smallint, queue FROM first WHERE false",
        life=(FAIL, LEADER, CLOSE, LEADER),
    ),
    Mutation(
        rule="who was let in by a ramp is counted",
        statement="admit_ramp",
        old="let_in + (SELECT count(*) FROM first)",
        new="let_in + 0 * (SELECT count(*) FROM first)",
        life=(FAIL, LEADER, CLOSE, LEADER),
    ),
    Mutation(
        rule="a circuit is closed behind the last that waited",
        statement="close_circuit",
        old="AND t.state = 4",
        new="AND t.state = 5",
        life=(FAIL, LEADER, CLOSE, HOUR, LEADER, step("the_target_is_well_again")),
    ),
]


def live(machine: Executions, life: Sequence[Step]) -> None:
    """Live one life, and look after each step."""
    try:
        for step in life:
            step(machine)
            machine.each_run_is_where_the_model_has_it()
            machine.no_more_are_let_in_than_may_be()
            machine.the_circuit_stands_as_the_model_has_it()
    finally:
        machine.teardown()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_a_rule_taken_away_is_found(
    executions: type[Executions], mutation: Mutation
) -> None:
    live(executions(), mutation.life)
    with (
        mutated(mutation.statement, mutation.old, mutation.new),
        pytest.raises(AssertionError),
    ):
        live(executions(), mutation.life)


CODE: list[tuple[str, Any, str, Any, Sequence[Step]]] = [
    (
        "a worker begins nothing that calls a target whose circuit is open",
        Gates,
        "_may_call",
        lambda *_: True,
        (have("sick", far=2), have("sick", far=2), FAIL, CLAIM),
    ),
    (
        "what comes due for a target whose circuit is open is parked",
        LeadersGates,
        "hold",
        lambda _, decided: list(decided),
        (FAIL, LEADER),
    ),
    (
        "a ramp lets in few at first",
        breaker,
        "ramp",
        lambda *_: 100,
        (FAIL, LEADER, CLOSE, LEADER),
    ),
]
"""A rule, whose it is, its name, what stands in its place, and a life."""


@pytest.mark.parametrize(
    ("owner", "name", "instead", "life"),
    [others for _, *others in CODE],
    ids=[rule for rule, *_ in CODE],
)
def test_a_rule_taken_away_from_the_code_is_found(
    executions: type[Executions],
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    instead: Any,
    life: Sequence[Step],
) -> None:
    live(executions(), life)
    monkeypatch.setattr(owner, name, instead)
    with pytest.raises(AssertionError):
        live(executions(), life)
