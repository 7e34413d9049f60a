"""Fixtures of more than one module of this room's tests."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from django.conf import settings


@pytest.fixture
def start(dsn) -> Iterator:
    """Starts `manage.py runworker`; what still runs after the test is killed."""
    started = []

    def run(*arguments, **env):
        started.append(
            subprocess.Popen(
                [sys.executable, "manage.py", "runworker", *arguments],
                cwd=settings.BASE_DIR,
                env=os.environ | env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        process.stdout.close()
