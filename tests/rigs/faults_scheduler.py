"""`make faults-scheduler`: what befalls schedulers, their servers and their networks.

One line for each fault: what it cost, what it may cost, and what the check after it
went by. The seed decides when faults strike and whom.
"""

import argparse
import random
import signal
import sys
import time
import traceback
from collections.abc import Sequence

from dev.postgres import PostgresError
from tests.rigs.check import percentile
from tests.rigs.faults import (
    clocks,
    crowded,
    leaders,
    locks,
    networks,
    outages,
    servers,
    veth,
)
from tests.rigs.faults.fault import Fault
from tests.rigs.faults.field import Field, Seen
from tests.rigs.stack import RigError, Stack

# By what their server is prepared with, as each of those has a stack of its own.
FAULTS = sorted(
    [
        *clocks.FAULTS,
        *leaders.FAULTS,
        *locks.FAULTS,
        *networks.FAULTS,
        *outages.FAULTS,
        *servers.FAULTS,
    ],
    key=lambda fault: (fault.prepare, int(fault.name[1:].rstrip("b")), fault.name),
)
QUIET_S = 8.0
LIMIT_S = 1_500
SETTINGS = {**crowded.settings(), **veth.settings()}


def run_one(field: Field, fault: Fault) -> bool:
    """Strike, wait, check and print the line; return whether all held."""
    begun = time.monotonic()
    prefix = f"{fault.name.lower()}-"
    field.begin(prefix, fault.load(prefix))
    figure = fault.strike(field)
    time.sleep(QUIET_S)
    seen = field.check()
    findings = field.findings
    latest, slowest = percentile(seen.late_ms, 1.0), percentile(seen.lag_ms, 1.0)
    findings.require(
        latest <= fault.latest_s * 1000,
        f"an occurrence was decided {latest:.0f} ms late",
    )
    findings.require(
        slowest <= fault.slowest_s * 1000, f"a run was started {slowest:.0f} ms late"
    )
    verdict = "ok" if findings.clean else f"FAILED, {len(findings.lines)} findings"
    print(
        f"{fault.name} {fault.title}: {figure} (bar: {fault.bar}); {describe(seen)}, "
        f"{findings.lost} lost, {findings.doubled} doubled; "
        f"{time.monotonic() - begun:.0f} s: {verdict}",
        flush=True,
    )
    findings.show()
    return findings.clean


def describe(seen: Seen) -> str:
    """Return what the check went by, in words."""
    again = f", {seen.again} attempts again" if seen.again else ""
    p99, most = percentile(seen.late_ms, 0.99), percentile(seen.late_ms, 1.0)
    lag = percentile(seen.lag_ms, 1.0)
    return (
        f"{seen.occurrences} occurrences, {seen.runs} runs, "
        f"{sum(seen.skipped.values())} skipped"
        f"{again}, decided late p99 {p99:.0f} ms, most {most:.0f} ms, "
        f"started late {lag:.0f} ms"
    )


def run_seed(faults: Sequence[Fault], seed: int, *, until: float, logs: bool) -> int:
    """Run these faults, one after the other; return how many failed.

    One that breaks off, or needs a server prepared for it, gets the next a new stack.
    """
    print(f"seed {seed}", flush=True)
    failed = 0
    left = list(faults)
    while left:
        prepare = left[0].prepare
        chance = random.Random(f"{seed}:{left[0].name}")
        left_s = max(1, int(until - time.monotonic()))
        with Stack(seconds=left_s, settings=SETTINGS, prepare=prepare) as stack:
            field = Field(stack, chance)
            field.start()
            broken = False
            while left and left[0].prepare == prepare and not broken:
                fault = left.pop(0)
                try:
                    well = run_one(field, fault)
                except Exception as error:  # noqa: BLE001  (the next have their turn)
                    broken, well = True, False
                    print(f"{fault.name} {fault.title}: FAILED, {error}", flush=True)
                    traceback.print_exc(limit=-4)
                failed += not well
            if not broken:
                codes = stack.stop(*field.workers, *field.schedulers)
                if set(codes.values()) != {0}:
                    failed += 1
                    print(f"FAILED, exit codes after SIGTERM: {codes}")
            if failed or logs:
                stack.show_logs()
    return failed


def run(options: argparse.Namespace) -> int:
    """Run what was asked for; return the exit code."""
    only = {name.strip().upper() for name in options.only.split(",") if name.strip()}
    known = {fault.name.upper() for fault in FAULTS}
    if only - known:
        print(f"faults-scheduler: FAILED there is no {', '.join(sorted(only - known))}")
        return 2
    chosen = [fault for fault in FAULTS if not only or fault.name.upper() in only]
    possible = []
    for fault in chosen:
        if why := fault.lacks():
            print(f"{fault.name} {fault.title}: SKIPPED, {why}", flush=True)
        else:
            possible.append(fault)
    failed = 0
    for seed in range(options.seed, options.seed + options.seeds):
        until = time.monotonic() + LIMIT_S
        failed += run_seed(possible, seed, until=until, logs=options.logs)
    passed = len(possible) * options.seeds - failed
    print(f"faults-scheduler: {passed} passed, {failed} failed")
    return 1 if failed else 0


def main() -> int:
    """Run the rig; what keeps it from its end is one line."""
    parser = argparse.ArgumentParser(prog="make faults-scheduler")
    parser.add_argument("--only", default="", help="names, as F1,F5")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="so many, one by one")
    parser.add_argument("--logs", action="store_true", help="show them in any case")
    try:
        return run(parser.parse_args())
    except (RigError, PostgresError) as error:
        traceback.print_exc(limit=-3)
        print(f"faults-scheduler: FAILED {error}")
    except KeyboardInterrupt:
        print("faults-scheduler: FAILED it was broken off")
        return 128 + signal.SIGINT
    return 1


if __name__ == "__main__":
    sys.exit(main())
