"""`make faults-worker`: what befalls workers, and what their runs make of it.

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
from tests.rigs.faults import workers
from tests.rigs.faults.fault import Fault
from tests.rigs.faults.workers import WorkerField
from tests.rigs.faults_scheduler import run_one
from tests.rigs.stack import RigError, Stack

FAULTS = sorted(workers.FAULTS, key=lambda fault: int(fault.name[1:].rstrip("b")))
LIMIT_S = 1_500


def run_seed(faults: Sequence[Fault], seed: int, *, logs: bool) -> int:
    """Run these faults, one after the other; return how many failed.

    One that breaks off leaves a new stack to the next.
    """
    print(f"seed {seed}", flush=True)
    until = time.monotonic() + LIMIT_S
    failed, left = 0, list(faults)
    while left:
        chance = random.Random(f"{seed}:{left[0].name}")
        with Stack(seconds=max(1, int(until - time.monotonic()))) as stack:
            field = WorkerField(stack, chance)
            field.start()
            well = broken = False
            while left and not broken:
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
    if unknown := only - {fault.name.upper() for fault in FAULTS}:
        print(f"faults-worker: FAILED there is no {', '.join(sorted(unknown))}")
        return 2
    possible = []
    for fault in FAULTS:
        if only and fault.name.upper() not in only:
            continue
        if why := fault.lacks():
            print(f"{fault.name} {fault.title}: SKIPPED, {why}", flush=True)
        else:
            possible.append(fault)
    seeds = range(options.seed, options.seed + options.seeds)
    failed = sum(run_seed(possible, seed, logs=options.logs) for seed in seeds)
    print(
        f"faults-worker: {len(possible) * options.seeds - failed} passed, "
        f"{failed} failed"
    )
    return 1 if failed else 0


def main() -> int:
    """Run the rig; what keeps it from its end is one line."""
    parser = argparse.ArgumentParser(prog="make faults-worker")
    parser.add_argument("--only", default="", help="names, as F6,F9")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="so many, one by one")
    parser.add_argument("--logs", action="store_true", help="show them in any case")
    try:
        return run(parser.parse_args())
    except (RigError, PostgresError) as error:
        traceback.print_exc(limit=-3)
        print(f"faults-worker: FAILED {error}")
    except KeyboardInterrupt:
        print("faults-worker: FAILED it was broken off")
        return 128 + signal.SIGINT
    return 1


if __name__ == "__main__":
    sys.exit(main())
