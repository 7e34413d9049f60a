"""Each statement says what it writes, has one caller, and fits the migrated schema."""

import ast
import re
from pathlib import Path

import psycopg
import pytest

from apps.runtime import sql
from tests.architecture.sources import name_of, tree, within

STATEMENTS = within("apps", ".sql")
STATEMENTS = [path for path in STATEMENTS if path.parent.name == "sql"]

# The statements that every run passes through: their indexes are part of their design.
HOT = {
    "fire_undecided",
    "fire_if_held",
    "claim_ready",
    "settle_successes",
    "settle_if_leased",
}

WRITE = re.compile(
    r"\b(?:INSERT\s+INTO|(?<!FOR\s)(?<!KEY\s)(?<!DO\s)UPDATE|DELETE\s+FROM|TRUNCATE)\s+"
    r"(?:ONLY\s+)?(\{\w+\}|\w+)"
)
PARAMETER = re.compile(r"%\((\w+)\)[sbt]")
UTILITY = {"CREATE", "ALTER", "DROP", "TRUNCATE", "LOCK", "NOTIFY", "LISTEN", "SET"}

# Tables of the same shape as what a slot names at run time.
SLOTS = {
    "timers": "chrono_timer_far",
    "bucket": "chrono_timer_far",
    "slice": "chrono_ready",
    "table": "chrono_ready",
    "leaf": "chrono_run",
}
SLOTS_OF = {
    "keep_attempts": {"leaf": "chrono_attempt"},
    "count_ahead": {"leaf": "chrono_occurrence"},
}


def header(path: Path) -> list[str]:
    """Return the comment lines that open a file, without their dashes."""
    lines = []
    for line in path.read_text().splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").strip())
    return lines


def body(path: Path) -> str:
    """Return the statement without comments."""
    return re.sub(r"--[^\n]*", "", path.read_text())


def written_tables(path: Path) -> set[str]:
    """Return what is written, without prefix and without the number of a slice."""
    names = WRITE.findall(body(path))
    return {re.sub(r"^chrono_|_\d+$", "", name) for name in names}


def functions(path: Path) -> dict[str, ast.FunctionDef]:
    nodes = tree(path).body
    return {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}


def test_there_are_statements():
    assert {path.stem for path in STATEMENTS} >= HOT


@pytest.mark.parametrize("path", STATEMENTS, ids=name_of)
def test_the_header_says_what_the_statement_does(path):
    lines = header(path)
    purpose, *rest = lines
    assert purpose.endswith(".")
    facts = dict(line.split(": ", 1) for line in rest if re.match(r"[a-z]+: ", line))
    assert "writes" in facts
    if path.stem in HOT:
        assert "index" in facts
    said = set(re.findall(r"\w+", facts["writes"])) - {"nothing"}
    written = {name for name in written_tables(path) if not name.startswith("{")}
    assert written <= said, f"the statement writes {written}, its header says {said}"
    assert bool(said) == bool(written_tables(path)), f"its header says {said}"


def is_store(path: Path) -> bool:
    """Tell whether a module runs statements: a long store is several."""
    return path.name == "store.py" or path.name.endswith("_store.py")


def test_both_fires_write_alike():
    # From the next timers on. One asks whether a timer is there, the other may not.
    plain, asking = (
        next(path for path in STATEMENTS if path.stem == name)
        .read_text(encoding="utf-8")
        .partition("next_near AS (")[2]
        for name in ("fire_undecided", "fire_if_held")
    )
    assert asking.replace("    ON CONFLICT DO NOTHING\n", "", 2) == plain


@pytest.mark.parametrize("path", STATEMENTS, ids=name_of)
def test_one_function_of_a_store_has_the_statement_s_name(path):
    room = path.parent.parent
    stores = [module for module in room.glob("*.py") if is_store(module)]
    named = [found for found in map(functions, stores) if path.stem in found]
    assert len(named) == 1, f"{name_of(room)} has {len(named)} functions {path.stem}"
    function = named[0][path.stem]
    positional = [*function.args.posonlyargs, *function.args.args]
    assert positional[0].arg == "conn"
    assert ast.get_docstring(function)


def runs_sql(node: ast.AST) -> bool:
    """Tell whether this is a call that executes SQL, other than to set a setting."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    text = ast.unparse(node.args[0]) if node.args else ""
    sets = re.match(r"f?['\"]SET ", text) is not None
    return node.func.attr in {"execute", "executemany", "raw", "extra"} and not sets


def test_only_stores_and_the_floor_run_sql():
    found = []
    for path in within("apps", ".py"):
        room = path.parts[path.parts.index("apps") + 1]
        if is_store(path) or room == "runtime" or "migrations" in path.parts:
            continue
        nodes = filter(runs_sql, ast.walk(tree(path)))
        found += [f"{name_of(path)}:{node.lineno}" for node in nodes]
    assert not found


def numbered(text: str) -> str:
    """Return the statement with the server's own placeholders: $1, $2 …"""
    numbers: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"${numbers.setdefault(match[1], len(numbers) + 1)}"

    return PARAMETER.sub(number, text).replace("%%", "%")


def test_every_statement_fits_the_migrated_schema(connect):
    conn = connect()
    refused = []
    for path in STATEMENTS:
        statement = sql.load(path.parent.parent.name, path.stem)
        if body(path).split()[0] in UTILITY:
            continue
        names = SLOTS | SLOTS_OF.get(path.stem, {})
        tables = {slot: names[slot] for slot in sql.SLOT.findall(statement.text)}
        try:
            conn.execute(f"PREPARE one AS {numbered(statement.named(**tables))}")
            conn.execute("DEALLOCATE one")
        except psycopg.Error as error:
            refused.append(f"{name_of(path)}: {error}")
    assert not refused, "\n".join(refused)
