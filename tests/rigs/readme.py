"""`make readme`: the README's first ten minutes, run as they stand.

A shell with nothing but the variables that the README tells to set runs its blocks
against a live stack. Both jobs are then seen to run: by the API, by the receiver's
ledger, and on the pages of the admin.
"""

import argparse
import http.cookiejar
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any

from dev.postgres import PostgresError
from tests.rigs.client import Broken, Client, Refused
from tests.rigs.stack import ROOT, RigError, Stack, wait_for

LIMIT_S = 150
SECTION = "## The first ten minutes\n"
KEYS = {"hello-once": "/hello", "hello-minute": "/minute"}
BLOCK_S = 40
RUN_S = 20
MINUTE_S = 75


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What the README says to do."""

    text: str
    variables: frozenset[str]
    """What it tells to export before."""


def read_script() -> Script:
    """Return the section's blocks; raises RigError where they are not as they were."""
    text = (ROOT / "README.md").read_text()
    section = text.partition(SECTION)[2].partition("\n## ")[0]
    blocks = re.findall(r"^```bash\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    exports = re.findall(r"^export (.*)$", section, re.MULTILINE)
    if not blocks or len(exports) != 1:
        raise RigError("the README has no blocks to run, or not one line of exports")
    names = re.findall(r"\b([A-Z_]+)=", exports[0])
    return Script(text="".join(blocks), variables=frozenset(names))


class Newcomer:
    """Somebody with the login and the key that a new installation printed."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        said = stack.manage("chronosetup")
        login = re.search(r"login (\S+), password (\S+)", said)
        key = re.search(r"chr_live_\w+", said)
        if login is None or key is None:
            raise RigError(f"chronosetup printed no login or no key: {said}")
        self._login, self.key = login.groups(), key[0]
        self._jar = http.cookiejar.CookieJar()
        self._browser = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(self._jar)
        )

    def follow(self, script: Script) -> None:
        """Run the README's blocks; raises RigError where one fails."""
        known = {
            "CHRONO_URL": self.stack.web_url,
            "CHRONO_KEY": self.key,
            "RECEIVER_URL": self.stack.receiver_url,
        }
        kept = {"PATH": os.environ["PATH"]}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script.text],
            cwd=self.stack.folder,
            env=kept | {name: known[name] for name in script.variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BLOCK_S,
        )
        if done.returncode != 0:
            raise RigError(f"the README's blocks failed: {done.stdout[-2000:]}")

    def runs_of(self, client: Client, key: str, trigger: str) -> list[dict[str, Any]]:
        """Return by the API a job's runs that succeeded and were started this way."""
        job = client.done("GET", f"/jobs/by-key/{key}").body["id"]
        items = client.done("GET", f"/jobs/{job}/runs?status=success").body["items"]
        runs = [client.done("GET", f"/runs/{item['id']}").body for item in items]
        return [run for run in runs if run["trigger"] == trigger]

    def log_in(self) -> None:
        """Log into the admin as a browser does; raises RigError where it is refused."""
        self.page("/admin/login/")
        [token] = [c.value for c in self._jar if c.name == "csrftoken"]
        name, password = self._login
        form = {
            "csrfmiddlewaretoken": token,
            "username": name,
            "password": password,
            "next": "/admin/",
        }
        if "Log out" not in self.page("/admin/login/", form):
            raise RigError("the admin refused the login that was printed")

    def page(self, path: str, form: dict[str, str | None] | None = None) -> str:
        """Return a page of the admin."""
        data = None if form is None else urllib.parse.urlencode(form).encode()
        url = self.stack.web_url + path
        request = urllib.request.Request(url, data, {"Referer": url})
        with self._browser.open(request, timeout=20) as answer:
            return str(answer.read().decode())

    def received(self) -> set[str]:
        """Return the paths of the requests that the receiver found well signed."""
        text = (self.stack.folder / "requests.jsonl").read_text()
        lines = map(json.loads, text.splitlines())
        return {line["path"] for line in lines if line["signature"] == "ok"}


def look_at_pages(newcomer: Newcomer, runs: list[dict[str, Any]]) -> None:
    """Raise RigError unless the admin shows the jobs and these runs of theirs."""
    newcomer.log_in()
    jobs = newcomer.page("/admin/chrono_jobs/job/?q=hello")
    for key in KEYS:
        if key not in jobs:
            raise RigError(f"the admin's list of jobs has no {key}")
    for run in runs:
        listed = newcomer.page(f"/admin/chrono_console/run/?job={run['job_id']}")
        path = re.search(rf'href="([^"?]*{run["id"]}[^"?]*)', listed)
        if path is None:
            raise RigError(f"the admin's list of runs has no {run['id']}")
        page = newcomer.page(path[1])
        for shown in (run["job_key"], "success"):
            if shown not in page:
                raise RigError(f"the admin's page of {run['id']} has no {shown}")


def run(*, quick: bool) -> int:
    """Run the rig; return the exit code."""
    began = time.monotonic()
    script = read_script()
    with Stack(seconds=LIMIT_S) as stack:
        stack.manage("collectstatic", "--noinput", "--verbosity", "0")
        newcomer = Newcomer(stack)
        stack.receiver()
        stack.scheduler("scheduler")
        stack.worker("worker")
        stack.web()
        newcomer.follow(script)
        wanted = [("hello-once", "schedule", RUN_S), ("hello-minute", "manual", RUN_S)]
        if not quick:
            wanted.append(("hello-minute", "schedule", MINUTE_S))
        runs = []
        with Client(stack.web_url, newcomer.key) as client:
            for key, trigger, seconds in wanted:
                found = wait_for(
                    lambda key=key, trigger=trigger: newcomer.runs_of(
                        client, key, trigger
                    ),
                    seconds=seconds,
                    every=0.5,
                    what=f"a run of {key} by {trigger}",
                )
                runs += found
        if newcomer.received() != set(KEYS.values()):
            raise RigError(f"the receiver got {newcomer.received()}")
        look_at_pages(newcomer, runs)
    print(
        f"readme: ok {len(KEYS)} jobs, {len(runs)} runs seen by API, receiver and "
        f"admin, {time.monotonic() - began:.0f} s"
    )
    return 0


def main() -> int:
    """Run the rig; what keeps it from its end is one line."""
    parser = argparse.ArgumentParser(prog="make readme")
    parser.add_argument(
        "--quick", action="store_true", help="do not wait for the full minute"
    )
    try:
        return run(quick=parser.parse_args().quick)
    except (RigError, PostgresError, Refused, Broken, OSError) as error:
        print(f"readme: FAILED {error}")
    except subprocess.TimeoutExpired:
        print(f"readme: FAILED the README's blocks took more than {BLOCK_S} s")
    except KeyboardInterrupt:
        print("readme: FAILED it was broken off")
        return 128 + signal.SIGINT
    return 1


if __name__ == "__main__":
    sys.exit(main())
