"""The import contracts hold, and break where they should."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.architecture.sources import ROOT

# Where, what is imported there, and which contract must notice.
PLANTED = [
    ("apps/runtime/clock.py", "import apps.runs", "flow only downward"),
    ("apps/worker/__init__.py", "import apps.scheduler", "flow only downward"),
    ("chrono/rules/backoff.py", "import django", "Rules are pure"),
    ("apps/jobs/models.py", "import croniter", "Only the cron rule knows croniter"),
    ("apps/jobs/models.py", "import apps.runtime.sql", "Only a store runs statements"),
    ("apps/runs/__init__.py", "import tests", "The product knows neither"),
    ("apps/jobs/models.py", "import rest_framework", "Only the API knows"),
    ("apps/api/etags.py", "import apps.worker", "flow only downward"),
]


def lint_imports(folder: Path) -> str:
    """Run import-linter in a folder and return what it says."""
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


def test_all_contracts_are_kept():
    said = lint_imports(ROOT)
    assert "0 broken" in said, said


def test_planted_violations_are_found(tmp_path):
    for name in ("apps", "chrono", "dev", "examples", "tests"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for path, statement, _ in PLANTED:
        with (tmp_path / path).open("a") as module:
            module.write(f"\n{statement}\n")
    said = lint_imports(tmp_path)
    broken = [line for line in said.splitlines() if "BROKEN" in line]
    missed = [
        plant for plant in PLANTED if not any(plant[2] in line for line in broken)
    ]
    assert not missed, said
    for path, statement, _ in PLANTED:
        importer = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        imported = statement.removeprefix("import ")
        assert f"{importer} -> {imported}" in said, (path, statement, said)
