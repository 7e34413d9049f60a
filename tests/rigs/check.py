"""The verdict: what was to happen beside what did, in the database and in the ledgers.

Pure functions of what was read. Each thing that is wrong is a line in `Findings`; what
is lost or doubled is counted besides.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.rigs.ledger import Effect, Millis
from tests.rigs.tables import SUCCESS, Decision, Lost, Run

SHOWN = 20


@dataclass(slots=True)
class Findings:
    """What is wrong."""

    lost: int = 0
    doubled: int = 0
    lines: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.lines

    def lose(self, what: str, count: int = 1) -> None:
        """Note that something was to be there and is not."""
        self.lost += count
        self.lines.append(f"lost: {what}")

    def double(self, what: str) -> None:
        """Note that something is there more than once."""
        self.doubled += 1
        self.lines.append(f"doubled: {what}")

    def require(self, holds: bool, otherwise: str) -> None:
        """Note ``otherwise`` unless it holds."""
        if not holds:
            self.lines.append(f"wrong: {otherwise}")

    def show(self) -> None:
        """Print the first of what is wrong."""
        for line in self.lines[:SHOWN]:
            print(line)
        if len(self.lines) > SHOWN:
            print(f"and {len(self.lines) - SHOWN} more")


def check_decisions(
    findings: Findings,
    decisions: Iterable[Decision],
    due: Mapping[str, set[Millis]],
) -> None:
    """Every expected occurrence has exactly one decision; nothing else has one."""
    seen: dict[str, Counter[Millis]] = {job: Counter() for job in due}
    for decision in decisions:
        if decision.job not in due:
            findings.require(False, f"a decision about {decision.job}, which is no job")
            continue
        covered = _covered(decision, due[decision.job])
        findings.require(
            len(covered) == decision.occurrences,
            f"{decision.job}: a decision at {decision.scheduled_for} stands for "
            f"{decision.occurrences} occurrences, the oracle has {len(covered)} there",
        )
        seen[decision.job].update(covered or [decision.scheduled_for])
        findings.require(
            decision.fired == (decision.reason is None)
            and decision.fired <= (decision.fence > 0),
            f"{decision.job}: a decision at {decision.scheduled_for} without a reason "
            "or a fire without a fence",
        )
    for job, instants in due.items():
        for moment in sorted(instants - seen[job].keys()):
            findings.lose(f"{job} at {moment} was never decided")
        for moment, times in sorted(seen[job].items()):
            if times > 1:
                findings.double(f"{job} at {moment} was decided {times} times")
            findings.require(moment in instants, f"{job} at {moment} was not due")


def _covered(decision: Decision, instants: set[Millis]) -> list[Millis]:
    last = decision.last_for or decision.scheduled_for
    return [t for t in instants if decision.scheduled_for <= t <= last]


def check_runs(
    findings: Findings,
    decisions: Sequence[Decision],
    runs: Sequence[Run],
    effects: Sequence[Effect],
    states: Mapping[str, int],
    lost: Collection[Lost] = frozenset(),
) -> None:
    """Each fired occurrence has one run in its job's state, and its effects once.

    ``states`` names the final state of the jobs that do not simply succeed. Of the
    attempts in ``lost``, which ended with their worker, nobody knows what they did:
    each had its effect once or not at all.
    """
    by_id = {str(run.id): run for run in runs}
    by_key: defaultdict[str, list[Effect]] = defaultdict(list)
    for effect in effects:
        by_key[effect.key].append(effect)
    fired: Counter[str] = Counter()
    for decision in decisions:
        if not decision.fired:
            continue
        key = str(decision.run)
        fired[key] += 1
        where = f"{decision.job} at {decision.scheduled_for}"
        run = by_id.get(key)
        if run is None:
            findings.lose(f"{where} was fired and its run {key} is not settled")
            continue
        findings.require(run.job == decision.job, f"{where} has a run of {run.job}")
        wanted = states.get(decision.job, SUCCESS)
        findings.require(
            run.state == wanted, f"{where} ended in state {run.state}, not {wanted}"
        )
        _check_effects(findings, decision, run, by_key.pop(key, []), lost)
    for key, times in fired.items():
        if times > 1:
            findings.double(f"the run {key} was fired {times} times")
    for key in by_id.keys() - fired.keys():
        findings.double(f"the run {key} belongs to no fired occurrence")
    for key, strays in by_key.items():
        findings.double(f"{strays[0].job}: an effect under the key {key} of no run")


def _check_effects(
    findings: Findings,
    decision: Decision,
    run: Run,
    effects: Sequence[Effect],
    lost: Collection[Lost],
) -> None:
    where = f"{decision.job} at {decision.scheduled_for}"
    wanted = int(run.state == SUCCESS)
    known = [e for e in effects if (e.key, e.attempt) not in lost]
    succeeded = sum(effect.succeeded for effect in known)
    if succeeded < wanted or not known:
        findings.lose(f"{where}: the ledger has no effect of it")
    if succeeded > wanted:
        findings.double(f"{where}: its effect is {succeeded} times in the ledger")
    numbers = [effect.attempt for effect in effects]
    if len(set(numbers)) < len(numbers):
        findings.double(f"{where}: attempts {numbers} in the ledger")
    attempts = range(1, run.attempt + 1)
    findings.require(
        [effect.attempt for effect in known]
        == [number for number in attempts if (str(run.id), number) not in lost],
        f"{where}: attempts {numbers} in the ledger, {run.attempt} in its run",
    )
    for effect in effects:
        findings.require(
            (effect.job, effect.scheduled_for)
            == (decision.job, decision.scheduled_for),
            f"{where}: its key came with {effect.job} at {effect.scheduled_for}",
        )
        findings.require(
            effect.at >= decision.scheduled_for,
            f"{where}: its effect came {decision.scheduled_for - effect.at} ms early",
        )


def check_order(findings: Findings, decisions: Iterable[Decision]) -> None:
    """In the order of commits the fences of a partition never fall.

    Fence 0 is an edit's skip: no leader wrote it.
    """
    highest: dict[int, int] = {}
    by_leaders = [decision for decision in decisions if decision.fence > 0]
    for decision in sorted(by_leaders, key=lambda d: (d.committed_at, d.fence)):
        before = highest.get(decision.part, 0)
        findings.require(
            decision.fence >= before,
            f"partition {decision.part}: fence {decision.fence} after {before}",
        )
        highest[decision.part] = max(before, decision.fence)


def check_fences(findings: Findings, taken: Iterable[tuple[int, int]]) -> None:
    """Each takeover, a partition and its fence in the order of commits, rises above
    the one before."""
    highest: dict[int, int] = {}
    for part, fence in taken:
        before = highest.get(part, 0)
        findings.require(
            fence > before, f"partition {part} was taken with {fence} after {before}"
        )
        highest[part] = max(before, fence)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which this share of the sorted values lies; 0 of none."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
