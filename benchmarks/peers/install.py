"""The peers' own environments, beside the files that name what is in them."""

import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from benchmarks.peers.contenders import Program

HERE = Path(__file__).parent
VENV = HERE / ".venv"
MODULES = HERE / "node_modules"
PYTHON = VENV / "bin" / "python"
NODE = MODULES / "node" / "bin" / "node"
"""pg-boss needs a newer Node than many systems have: this one is a package, too."""


def install(programs: Collection[Program]) -> None:
    """Install what these kinds of peers need; quick when nothing changed."""
    if Program.PYTHON in programs:
        pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        _make(
            VENV,
            HERE / "requirements.txt",
            [sys.executable, "-m", "venv", "--clear", str(VENV)],
            [*pip, "-r", "requirements.txt"],
        )
    if Program.NODE in programs:
        npm = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"]
        _make(MODULES, HERE / "package.json", [*npm, "--loglevel", "error"])


def _make(folder: Path, names: Path, *commands: list[str]) -> None:
    """Run the commands, unless they succeeded for the same names before."""
    stamp = folder / "installed.stamp"
    if stamp.exists() and stamp.read_text() == names.read_text():
        return
    print(f"installing what {names.name} of the peers names", flush=True)
    for command in commands:
        subprocess.run(command, cwd=HERE, check=True)
    stamp.write_text(names.read_text())
