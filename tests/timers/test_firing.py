"""In which words it is told whether anything fires."""

import pytest

from apps.timers.firing import Firing
from apps.timers.store import Leaders
from chrono.rules.instants import HOUR, MINUTE, SECOND, Millis

WAITED = "What is due has waited for"


@pytest.mark.parametrize(
    ("led", "late", "state", "sentence"),
    [
        (64, 0, "ok", ""),
        (64, 5 * SECOND, "ok", ""),
        (64, 8_400, "late", f"has fallen behind. {WAITED} 8s. 64 of 64 partitions"),
        (
            60,
            25 * MINUTE + 3_000,
            "late",
            f"{WAITED} 25m. 60 of 64 partitions are led.",
        ),
        (63, 0, "partly", "Some jobs do not fire: 63 of 64 partitions are led."),
        (0, 0, "stopped", "Nothing fires: no scheduler leads any partition."),
        (0, 26 * HOUR + 1, "stopped", f"leads any partition. {WAITED} 26h."),
    ],
)
def test_firing_is_told_in_a_word_and_a_sentence(
    led: int, late: Millis, state: str, sentence: str
) -> None:
    told = Firing(leaders=Leaders(schedulers=1, partitions=led), late=late)
    assert told.state == state
    assert sentence in told.sentence
    assert bool(told.sentence) == (state != "ok")
