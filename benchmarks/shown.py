"""How figures are printed: tables with one line a measurement, and gates."""

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

type Gate = tuple[str, bool]
"""A bar in words, and whether it was reached."""


def table(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as an aligned table; ``columns`` gives each key its heading.

    What a row does not have is a dash.
    """
    lines = [list(columns.values())]
    lines += [[_cell(row.get(key)) for key in columns] for row in rows]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def spread(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return for each number of the rows its median, lowest and highest."""
    return {
        name: {
            "median": statistics.median(row[name] for row in rows),
            "min": min(row[name] for row in rows),
            "max": max(row[name] for row in rows),
        }
        for name, value in rows[0].items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def conclude(gates: Sequence[Gate], figures: Mapping[str, Any]) -> int:
    """Print the gates, then all figures as one line of JSON; return the exit code."""
    for words, passed in gates:
        print(f"{'PASS' if passed else 'MISS'}  {words}")
    missed = [words for words, passed in gates if not passed]
    print(json.dumps({"gates_missed": missed, **figures}))
    return 1 if missed else 0


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case float():
            return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
        case int():
            return f"{value:,}"
        case _:
            return str(value)
