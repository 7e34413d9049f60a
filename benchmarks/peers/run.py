"""Carry out one command of a peer in Python: python -m benchmarks.peers.run PEER …"""

import importlib
import json
import sys

from benchmarks.peers.peer import main

if __name__ == "__main__":
    module = importlib.import_module(f"benchmarks.peers.peer_{sys.argv[1]}")
    print(json.dumps(main(module.PEER(), *sys.argv[2:])))
