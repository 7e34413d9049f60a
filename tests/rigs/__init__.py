"""Rigs: the whole product as real processes, against faults, an oracle and ledgers.

Each is a program of its own (`make smoke`, `make failover`) with a server of its own in
a temporary folder. Its last line is its verdict, and so is its exit code.
"""
