"""`make setup` on machines that lack something: one line each, and a code not 0."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

TOOLS = ("sh", "dirname", "cat", "touch", "rm", "tail", "head", "grep")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose PATH holds the shell's tools and no Python."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "bin").mkdir()
    for name in ("dev/setup.sh", "requirements.txt", "requirements-dev.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found
        (tmp_path / "bin" / tool).symlink_to(found)
    return tmp_path


def add_python(checkout: Path, name: str, script: str) -> None:
    path = checkout / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def set_up(checkout: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(checkout / "dev" / "setup.sh")],
        env={"PATH": str(checkout / "bin"), "HOME": str(checkout)},
        capture_output=True,
        text=True,
    )


OLD = 'case "$1" in --version) echo "Python 3.9.2" ;; *) exit 1 ;; esac'
NO_VENV = """case "$2" in
    *version_info*) exit 0 ;;
    *venv*) exit 1 ;;
esac
echo "Python 3.12.1" """
NO_DISK = """case "$1" in
    -c) exit 0 ;;
    -m) echo "Error: [Errno 28] No space left on device" >&2; exit 1 ;;
esac
echo "Python 3.12.1" """


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "needs Python 3.12 or newer; no python3 was found"),
        (OLD, "needs Python 3.12 or newer; Python 3.9.2 was found"),
        (NO_VENV, "Python 3.12.1 has no venv module"),
        (NO_DISK, "cannot make .venv: Error: [Errno 28] No space left on device"),
    ],
)
def test_what_is_missing_is_one_line(checkout, script, said):
    if script:
        add_python(checkout, "python3", script)
    done = set_up(checkout)
    assert done.returncode != 0
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_shim_that_does_not_run_is_passed_over(checkout):
    add_python(checkout, "python3.13", "echo 'command not found' >&2; exit 127")
    add_python(checkout, "python3.12", NO_VENV)
    assert "Python 3.12.1 has no venv module" in set_up(checkout).stderr


def test_the_first_of_3_13_3_14_3_12_is_taken(checkout):
    for version in ("3.12", "3.14"):
        script = NO_VENV.replace("3.12.1", f"{version}.0")
        add_python(checkout, f"python{version}", script)
    assert "Python 3.14.0 has no venv module" in set_up(checkout).stderr


def test_nothing_is_done_twice(checkout):
    bin_folder = checkout / ".venv" / "bin"
    bin_folder.mkdir(parents=True)
    add_python(checkout, "../.venv/bin/python", 'echo "$@" >>calls')
    wanted = [
        (checkout / name).read_text()
        for name in ("requirements.txt", "requirements-dev.txt")
    ]
    set_up(checkout)
    assert "pip install" in (checkout / "calls").read_text()
    (checkout / "calls").unlink()
    again = set_up(checkout)
    assert again.returncode == 0, again.stderr
    assert "pip" not in (checkout / "calls").read_text()
    (checkout / "requirements.txt").write_text(wanted[0] + "more==1\n")
    set_up(checkout)
    assert "pip install" in (checkout / "calls").read_text()
