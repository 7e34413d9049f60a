"""The classes of Chrono's advisory locks, so that no two mean different things."""

PARTITION_LOCKS = 0x4348_0001
"""With a partition's number: this session leads it."""
MEMBER_LOCKS = 0x4348_0002
"""Shared, with a number of one's own: this session is a scheduler."""
UPKEEP_LOCKS = 0x4348_0003
"""This session keeps the tables."""
GATE_LOCKS = 0x4348_0005
"""With a hash of a gate's key: this transaction lets runs in by it."""
