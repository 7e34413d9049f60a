"""Runs faults one after the other, seed by seed, and tells a line of each."""

import argparse
import random
import signal
import time
import traceback
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dev.postgres import PostgresError, Setting
from tests.rigs.check import percentile
from tests.rigs.faults.fault import Fault
from tests.rigs.faults.field import Field, Seen
from tests.rigs.stack import RigError, Stack

QUIET_S = 8.0
LIMIT_S = 1_500


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


def run_seed(
    faults: Sequence[Fault],
    seed: int,
    *,
    field_of: type[Field],
    settings: Mapping[str, Setting],
    logs: bool,
) -> int:
    """Run these faults, one after the other; return how many failed.

    One that breaks off, or needs a server prepared for it, gets the next a new stack.
    """
    print(f"seed {seed}", flush=True)
    until = time.monotonic() + LIMIT_S
    failed = 0
    left = list(faults)
    while left:
        prepare = left[0].prepare
        chance = random.Random(f"{seed}:{left[0].name}")
        left_s = max(1, int(until - time.monotonic()))
        with Stack(seconds=left_s, settings=settings, prepare=prepare) as stack:
            field = field_of(stack, chance)
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


def run(
    name: str,
    faults: Sequence[Fault],
    *,
    field_of: type[Field] = Field,
    settings: Mapping[str, Setting] = MappingProxyType({}),
) -> int:
    """Run the faults that the command line asks for; return the exit code.

    What keeps the rig from its end is one line.
    """
    parser = argparse.ArgumentParser(prog=f"make {name}")
    parser.add_argument("--only", default="", help="names, as F1,F5")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="so many, one by one")
    parser.add_argument("--logs", action="store_true", help="show them in any case")
    options = parser.parse_args()
    only = {one.strip().upper() for one in options.only.split(",") if one.strip()}
    if unknown := only - {fault.name.upper() for fault in faults}:
        print(f"{name}: FAILED there is no {', '.join(sorted(unknown))}")
        return 2
    possible = []
    for fault in sorted(faults, key=_order):
        if only and fault.name.upper() not in only:
            continue
        if why := fault.lacks():
            print(f"{fault.name} {fault.title}: SKIPPED, {why}", flush=True)
        else:
            possible.append(fault)
    failed = 0
    try:
        for seed in range(options.seed, options.seed + options.seeds):
            failed += run_seed(
                possible,
                seed,
                field_of=field_of,
                settings=settings,
                logs=options.logs,
            )
    except (RigError, PostgresError) as error:
        traceback.print_exc(limit=-3)
        print(f"{name}: FAILED {error}")
        return 1
    except KeyboardInterrupt:
        print(f"{name}: FAILED it was broken off")
        return 128 + signal.SIGINT
    passed = len(possible) * options.seeds - failed
    print(f"{name}: {passed} passed, {failed} failed")
    return 1 if failed else 0


def _order(fault: Fault) -> tuple[str, int, str]:
    """By what a server is prepared with, as each of those has a stack of its own."""
    return fault.prepare, int(fault.name[1:].rstrip("b")), fault.name
