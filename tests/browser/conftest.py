"""Web, scheduler and worker on a database of the test's own, and a browser before them.

The browser is the machine's own Chromium, by its usual names or by CHRONO_CHROMIUM.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from apps.jobs import commands
from apps.tenants.actor import Actor
from dev import postgres
from tests.support.definitions import definition

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LISTENER = """
addEventListener("securitypolicyviolation", (event) => {
  window.broken = (window.broken || 0) + 1;
  console.error(`policy: ${event.effectiveDirective} ${event.blockedURI}`);
});
"""
PASSWORD = "correct-horse-battery"


def chromium() -> str | None:
    """Return the browser's path, None where there is none."""
    named = os.environ.get("CHRONO_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


@dataclass(frozen=True)
class Site:
    """The running product, seen by Ada."""

    url: str
    page: Any
    said: list[str] = field(default_factory=list)
    """What a page did against its policy, and other errors and warnings."""

    def open(self, path: str) -> None:
        """Go to a page and wait until it is there."""
        answer = self.page.goto(self.url + path)
        assert answer.ok, (path, answer.status)


@contextlib.contextmanager
def process(*command: str, ready: str) -> Iterator[None]:
    """Run a process of the product until the block is left."""
    popen = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "CHRONO_TASK_MODULES": "tests.browser.tasks",
            "WEB_CONCURRENCY": "1",
            "PYTHONUNBUFFERED": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert popen.stdout is not None
        for line in popen.stdout:
            if ready in line:
                break
        else:
            pytest.fail(f"{command} ended before it was ready")
        yield
    finally:
        # Its own end takes until its runs are over; here nothing is left to be kept.
        popen.kill()
        popen.communicate()


@pytest.fixture
def jobs(database: str) -> None:
    """Some jobs, as a list would show them."""
    actor = Actor.command("tests")
    task = {"kind": "task", "name": "browser.greet"}
    for fields in (
        {
            "key": "invoices",
            "name": "Send the invoices",
            "cron": "0 7 1 * *",
            "timezone": "Europe/Berlin",
            "target": {"kind": "http", "url": "https://billing.example.org/run"},
        },
        {
            "key": "heartbeat",
            "name": "Say that we live",
            "interval": "2s",
            "target": task,
            "payload": {"name": "everybody"},
        },
        {
            "key": "cleanup",
            "name": "Throw away old files",
            "cron": "H 3 * * 0",
            "target": task,
        },
        {"key": "rates", "name": "Fetch the rates", "cron": "*/15 * * * *"},
    ):
        made = commands.create_job(definition(**fields), actor=actor)
    assert made.job_id is not None
    commands.pause_job(made.job_id, note="their server moves", actor=actor)


@pytest.fixture
def stack(jobs: None, database: str) -> Iterator[str]:
    """Web, scheduler and worker; the address of the web."""
    port = postgres.free_port()
    url = f"http://127.0.0.1:{port}"
    web = ("-m", "gunicorn", "chrono.wsgi", "--bind", f"127.0.0.1:{port}")
    worker = ("manage.py", "runworker", "--concurrency", "4", "--processes", "1")
    User.objects.create_superuser("ada", "ada@example.org", PASSWORD)
    with (
        process("manage.py", "runscheduler", ready="is up"),
        process(*worker, ready="worker"),
        process(*web, ready="Booting worker"),
    ):
        urllib.request.urlopen(f"{url}/livez", timeout=20).close()
        yield url


@pytest.fixture
def site(stack: str, tmp_path: Path) -> Iterator[Site]:
    """Ada's browser, logged in."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(tmp_path / "profile"),
            executable_path=chromium(),
            args=FLAGS,
            headless=True,
            viewport={"width": 1280, "height": 860},
        )
        context.add_init_script(LISTENER)
        page = context.pages[0] if context.pages else context.new_page()
        page.set_default_timeout(15_000)
        site = Site(url=stack, page=page)
        page.on(
            "console",
            lambda message: (
                message.type in ("error", "warning") and site.said.append(message.text)
            ),
        )
        page.on("pageerror", lambda error: site.said.append(str(error)))
        site.open("/admin/login/")
        page.fill("#id_username", "ada")
        page.fill("#id_password", PASSWORD)
        page.click("input[type=submit]")
        page.wait_for_url("**/admin/")
        yield site
        context.close()
