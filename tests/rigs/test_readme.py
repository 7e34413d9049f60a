"""The README's first ten minutes work, and the rig that follows them can fail."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rigs import readme
from tests.rigs.stack import ROOT, RigError

TEXT = (ROOT / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.timeout(readme.LIMIT_S + 30)
def test_whoever_follows_the_readme_sees_both_jobs_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.rigs.readme", "--quick"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    last = done.stdout.splitlines()[-1]
    assert re.match(r"readme: ok 2 jobs, 2 runs seen by API, receiver and admin", last)


def test_the_script_is_all_blocks_and_needs_no_other_variables() -> None:
    script = readme.read_script()
    assert script.variables == {"CHRONO_URL", "RECEIVER_URL", "CHRONO_KEY"}
    assert script.text.count("END\n") == 4
    assert script.text.startswith("api() {")
    assert all(key in script.text for key in readme.KEYS)


@pytest.mark.parametrize("gone", ["export ", "```bash", readme.SECTION])
def test_a_readme_without_its_blocks_is_told(
    gone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "README.md").write_text(TEXT.replace(gone, ""))
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    with pytest.raises(RigError, match="the README has no blocks to run"):
        readme.read_script()
