"""The project's own files, for tests that read them."""

import ast
import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


@functools.cache
def files(suffix: str = "") -> tuple[Path, ...]:
    """Return the project's files with this suffix, ignored ones left out."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = listed.stdout.decode().split("\0")
    paths = (ROOT / name for name in names if name.endswith(suffix))
    return tuple(sorted(path for path in paths if path.is_file()))


def within(folder: str, suffix: str) -> list[Path]:
    """Return the project's files with this suffix below a folder."""
    return [path for path in files(suffix) if path.is_relative_to(ROOT / folder)]


@functools.cache
def tree(path: Path) -> ast.Module:
    """Return the parsed module."""
    return ast.parse(path.read_text(), filename=str(path))


def name_of(path: Path) -> str:
    """Return the file's name as seen from the project's top."""
    return path.relative_to(ROOT).as_posix()
