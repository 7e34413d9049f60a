"""`make faults-scheduler`: what befalls schedulers, their servers and their networks.

One line for each fault: what it cost, what it may cost, and what the check after it
went by. The seed decides when faults strike and whom.
"""

import sys

from tests.rigs.faults import (
    clocks,
    crowded,
    leaders,
    locks,
    networks,
    outages,
    running,
    servers,
    veth,
)

FAULTS = [
    *clocks.FAULTS,
    *leaders.FAULTS,
    *locks.FAULTS,
    *networks.FAULTS,
    *outages.FAULTS,
    *servers.FAULTS,
]
SETTINGS = {**crowded.settings(), **veth.settings()}

if __name__ == "__main__":
    sys.exit(running.run("faults-scheduler", FAULTS, settings=SETTINGS))
