"""Fixtures of more than one module of this room's tests."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from django.conf import settings

from tests.worker.support import end_all, heard


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
    end_all(started)


@pytest.fixture
def worker(start):
    """Starts a worker that knows the isolated tasks, and lends it once it is there."""

    def begin(*arguments):
        process = start(*arguments, CHRONO_TASK_MODULES="tests.worker.isolated")
        heard(process, "worker starts")
        return process

    return begin
