"""A wrong setting is one line and a code not 0, before anything starts."""

import os
import subprocess
import sys

import pytest

from tests.architecture.sources import ROOT

GOOD = {
    "SECRET_KEY": "x" * 50,
    "DATABASE_URL": "postgres://chrono@127.0.0.1:1/none",
    "CHRONO_ENV_FILES": "",
}


def manage(*args: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run manage.py with production's settings and these variables alone."""
    return subprocess.run(
        [sys.executable, "manage.py", *args],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **GOOD, **changes},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"SECRET_KEY": ""}, "SECRET_KEY is not set"),
        ({"DATABASE_URL": ""}, "DATABASE_URL is not set"),
        ({"DATABASE_URL": "mysql://a/b"}, "DATABASE_URL is not a PostgreSQL address"),
        ({"DATABASE_URL": "nonsense"}, "DATABASE_URL is not a PostgreSQL address"),
        ({"DATABASE_URL": "postgres://h:port/d"}, "is not a PostgreSQL address"),
        (
            {"CHRONO_DIRECT_DATABASE_URL": "sqlite:///x"},
            "CHRONO_DIRECT_DATABASE_URL is not a PostgreSQL address",
        ),
        ({"CHRONO_WEBHOOK_SECRET": "s3cret"}, "does not begin with whsec_"),
        ({"CHRONO_CLOCK_SHIFT": "60"}, "only test settings may move the clock"),
    ],
)
def test_a_wrong_setting_is_one_line(changes, said):
    done = manage("check", **changes)
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_database_that_does_not_answer_is_one_line():
    done = manage("migrate")
    assert done.returncode == 1
    assert done.stderr.startswith("error: the database does not answer")
    assert len(done.stderr.splitlines()) == 1


def test_good_settings_pass_the_checks():
    done = manage("check")
    assert done.returncode == 0, done.stderr


def test_one_zone_database_serves_everywhere():
    said = subprocess.run(
        [sys.executable, "-c", "import zoneinfo, chrono; print(zoneinfo.TZPATH)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert said.stdout.strip() == "()"
