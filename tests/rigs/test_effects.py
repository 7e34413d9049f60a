"""Effects under kills, as `make faults-effects` counts them, of a few runs only."""

from tests.rigs.effects import Plan, prove


def test_effects_happen_once_though_their_workers_are_killed():
    findings = prove(Plan(runs=60, deaths=4, kills=1, seed=7))
    assert findings.lines == []
