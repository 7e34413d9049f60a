"""`make faults-worker`: what befalls workers, and what their runs make of it.

One line for each fault: what it cost, what it may cost, and what the check after it
went by. The seed decides when faults strike and whom.
"""

import sys

from tests.rigs.faults import disks, hostile, poison, running, storm, workers

FAULTS = [
    *disks.FAULTS,
    *hostile.FAULTS,
    *poison.FAULTS,
    *storm.FAULTS,
    *workers.FAULTS,
]

if __name__ == "__main__":
    sys.exit(running.run("faults-worker", FAULTS, field_of=workers.WorkerField))
