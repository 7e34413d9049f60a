"""How runs fare beside those that a fault strikes."""

from tests.rigs import tables
from tests.rigs.check import percentile
from tests.rigs.faults.field import Field

SHARE, NOISE_MS = 1.2, 250.0
"""Two looks at a machine differ by so much where nothing happened."""
HOPS = 2
"""So often a run waits for a processor, as often as the schedulers for each decision:
no fault of runs touches those, so they tell how busy the machine is."""
BAR = f"p99 of others +{SHARE - 1:.0%}, {NOISE_MS:g} ms and {HOPS} times the decisions'"
QUIET_S = 10.0
"""How long others are looked at before and after."""

type Stretch = tuple[float, float]
"""From when until when, in seconds."""


def compare(
    field: Field, prefix: str, *, before: Stretch, beside: Stretch, after: Stretch
) -> str:
    """Return how late runs of the jobs whose key begins so were over, in words.

    Notes it where they were later beside the fault than both before and after it: what
    else the machine does changes, too.
    """
    was, became, is_now = (p99(field, prefix, x) for x in (before, beside, after))
    busy = p99_decided(field, beside)
    said = (
        f"others over p99 {became:.0f} ms late, {was:.0f} before, {is_now:.0f} after, "
        f"decisions {busy:.0f}"
    )
    field.findings.require(
        became <= SHARE * max(was, is_now) + NOISE_MS + HOPS * busy, said
    )
    return said


def p99(field: Field, prefix: str, stretch: Stretch) -> float:
    """Return the p99 from a run's instant to its end, in ms, of a stretch's runs."""
    since, until = stretch
    late = sorted(
        run.finished_at * 1000 - run.scheduled_for
        for run in tables.read_runs(field.conn, prefix)
        if since <= run.scheduled_for / 1000 < until
    )
    field.findings.require(
        bool(late), f"no run of {prefix} between {since} and {until}"
    )
    return percentile(late, 0.99)


def p99_decided(field: Field, stretch: Stretch) -> float:
    """Return the p99 from an instant of the load to its decision, in ms."""
    since, until = stretch
    late = sorted(
        decision.decided_at * 1000 - decision.scheduled_for
        for decision in tables.read_decisions(field.conn, field.prefix)
        if since <= decision.scheduled_for / 1000 < until
    )
    return percentile(late, 0.99)
