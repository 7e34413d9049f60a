"""Plans: one line for each run, `MEASURE PEER MODE [OPTION=VALUE …]`."""

from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path

from benchmarks.peers.contenders import CONTENDERS

FOLDER = Path(__file__).parent / "plans"
MODES = ("default", "best")


class BadPlan(Exception):
    """A plan cannot be read; the text is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a line may set."""

    n: int = 0
    """How many jobs or entries there are; 0 is as many as the measure has."""
    workers: int = 1
    """How many worker processes."""
    again: int = 0
    """1 asks for runs of standing jobs; else each job is a new one."""
    hold: int = 1
    """0 leaves out the snapshot that a run of longtx holds open."""
    lead: int = 5
    """Seconds from the start of enqueueing to the instant of a burst."""
    after: int = 14
    """Seconds that late jobs are waited for."""
    seconds: int = 44
    """Seconds of a run of longtx."""
    base: int = 14
    """Seconds of them before the snapshot."""
    limit: int = 480
    """Seconds in which jobs that a crash cut may start again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One run."""

    text: str
    """As the plan has it."""
    measure: str
    peer: str
    mode: str
    options: Options


def read_plan(name: str, *, measures: Collection[str]) -> list[Line]:
    """Return the lines of a plan. Raises BadPlan."""
    path = FOLDER / f"{name}.txt"
    if not path.exists():
        known = sorted(plan.stem for plan in FOLDER.glob("*.txt"))
        raise BadPlan(f"there is no plan {name}; there are {', '.join(known)}")
    texts = [line.partition("#")[0].strip() for line in path.read_text().splitlines()]
    return [_parse(text, measures) for text in texts if text]


def _parse(text: str, measures: Collection[str]) -> Line:
    match text.split():
        case [measure, peer, mode, *pairs] if (
            measure in measures and peer in CONTENDERS and mode in MODES
        ):
            return Line(
                text=text,
                measure=measure,
                peer=peer,
                mode=mode,
                options=_options(pairs),
            )
    raise BadPlan(f"not MEASURE PEER MODE: {text}")


def _options(pairs: list[str]) -> Options:
    known = {field.name for field in fields(Options)}
    values = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if name not in known or not value.isdecimal():
            raise BadPlan(f"not an option with a whole number: {pair}")
        values[name] = int(value)
    return Options(**values)
