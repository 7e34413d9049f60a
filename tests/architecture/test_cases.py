"""Every case of schedules, leaders and execution has a test of its name.

A test is of the case whose id its name holds: `test_a01_…`. Ids have gaps.
"""

import ast
import re

from tests.architecture.sources import tree, within

# fmt: off
NUMBERS = {
    # Calendar, zones and clocks.
    "a": (
        1, 3, 4, 5, 7, 8, 9, 11, 12, 13, 15, 16, 17, 19, 20, 21, 23, 24, 25, 27, 28, 29,
        31, 32, 33, 35, 36, 37, 39, 40, 41, 43, 44, 45, 47, 48, 49, 51, 52, 53, 55, 56,
        57, 59, 60, 61, 63, 64, 65, 67, 68, 69, 71,
    ),
    # Edits, pauses, outages and overlap.
    "b": (
        1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 16, 17, 18, 20, 21, 22, 24, 25, 26, 28, 29,
    ),
    # Leaders.
    "c": (1, 3, 4, 5, 7, 8, 9, 11, 12, 13, 15, 16),
    # Workers that die or stop, and what is recovered.
    "d": (1, 3, 4, 5, 7, 8, 9, 11, 12, 13, 15, 16, 17, 19, 20, 21, 23),
    # Retries, poison and breakers.
    "e": (1, 2, 4, 5, 6, 8, 9),
    # PostgreSQL as a queue.
    "f": (1, 3, 4, 5, 7, 8, 9, 11, 12, 13, 15, 16, 17),
    # Incidents.
    "h": (1, 2, 3, 5, 6, 7),
}
# fmt: on
CASES = {f"{group}{n:02}" for group, numbers in NUMBERS.items() for n in numbers}


def proved() -> set[str]:
    """Return the ids that names of tests hold."""
    found: set[str] = set()
    for path in within("tests", ".py"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                head = re.match(r"test((?:_[a-z]\d\d)+)_", node.name)
                found |= set(head[1].split("_")[1:]) if head else set()
    return found


def test_every_case_has_a_test_of_its_name() -> None:
    assert CASES - proved() == set()


def test_no_test_names_a_case_that_there_is_not() -> None:
    assert {case for case in proved() if case[0] in NUMBERS} <= CASES
