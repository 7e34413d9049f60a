"""`make fuzz-api`: requests that the OpenAPI document allows and forbids, by the
thousand, to a live web with a scheduler and a worker behind it.

Nothing may answer 5xx or otherwise than the document says, and the scheduler still
fires when it is over. The last line has the counts.
"""

import argparse
import re
import signal
import subprocess
import sys
from pathlib import Path

from dev.postgres import PostgresError
from tests.rigs.stack import ROOT, Process, RigError, Stack, wait_for

BESIDES_S = 180
# A document cannot say all that a body must be: what it allows may be a 422.
CONFIG = ROOT / "tests" / "rigs" / "schemathesis.toml"
LEFT_OUT = "positive_data_acceptance"
JOB = {
    "interval": "1s",
    "target": {"kind": "task", "name": "rig.note"},
    "payload": {"job": "each-second"},
}


def fuzz(stack: Stack, *, examples: int, seconds: int, seed: int) -> str:
    """Run schemathesis to its end; return what it says."""
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "schemathesis"),
            *("--config-file", str(CONFIG), "run"),
            str(ROOT / "docs" / "openapi.json"),
            *("--url", stack.web_url),
            *("--header", f"Authorization: Bearer {stack.key('operate', 'write')}"),
            *("--max-examples", str(examples), "--seed", str(seed)),
            *("--max-time", str(seconds)),
            *("--exclude-checks", LEFT_OUT, "--generation-database", "none"),
            *("--continue-on-failure", "--no-color"),
        ],
        cwd=stack.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds + BESIDES_S / 2,
    )
    return done.stdout


def server_errors(web: Process) -> list[str]:
    """Return the web's lines about answers of 5xx."""
    return [
        line for line in web.said().splitlines() if re.search(r"status=5\d\d", line)
    ]


def fires(stack: Stack, key: str) -> None:
    """Return once the scheduler has fired a job made now under this key.

    A new one each time: what was there before, the fuzzer may have paused or deleted.
    """
    stack.apply([{**JOB, "key": key}])
    conn = stack.connect()
    look = """
        SELECT count(*) FROM chrono_occurrence o JOIN chrono_job j ON j.id = o.job_id
        WHERE j.key = %s AND o.outcome = 1
    """
    wait_for(
        lambda: conn.execute(look, [key]).fetchone() != (0,),
        seconds=20,
        what="the scheduler to fire",
    )


def run(options: argparse.Namespace) -> int:
    """Run the rig; return the exit code."""
    with Stack(seconds=options.seconds + BESIDES_S) as stack:
        web = stack.web()
        stack.scheduler("scheduler")
        stack.worker("worker")
        fires(stack, "before")
        said = fuzz(
            stack,
            examples=options.examples,
            seconds=options.seconds,
            seed=options.seed,
        )
        fires(stack, "after")
        errors = server_errors(web)
        generated = re.search(r"(\d+) generated", said)
        tested = re.search(r"Tested: (\d+)", said)
        if generated is None or tested is None or int(generated[1]) < 100:
            print(said[-4000:])
            raise RigError("schemathesis did not come to its end")
        violations = sum(
            int(count)
            for count in re.findall(r"❌ ST\d+ [^\n]*: (\d+)$", said, re.MULTILINE)
        )
        counts = (
            f"{generated[1]} cases of {tested[1]} operations, "
            f"{len(errors)} server errors, {violations} schema violations"
        )
        if not errors and not violations:
            print(f"fuzz-api: {counts}")
            return 0
        print("\n".join(line[:500] for line in [*said.splitlines(), *errors]))
        print(f"fuzz-api: FAILED {counts}")
        return 1


def main() -> int:
    """Run the rig; what keeps it from its end is one line."""
    parser = argparse.ArgumentParser(prog="make fuzz-api")
    parser.add_argument("--examples", type=int, default=40, help="for each operation")
    parser.add_argument("--seconds", type=int, default=120, help="in all, at most")
    parser.add_argument("--seed", type=int, default=1)
    try:
        return run(parser.parse_args())
    except (RigError, PostgresError, subprocess.TimeoutExpired) as error:
        print(f"fuzz-api: FAILED {error}")
    except KeyboardInterrupt:
        print("fuzz-api: FAILED it was broken off")
        return 128 + signal.SIGINT
    return 1


if __name__ == "__main__":
    sys.exit(main())
