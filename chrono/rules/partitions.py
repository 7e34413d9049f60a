"""Which of the 64 partitions a job belongs to, for ever."""

from __future__ import annotations

from hashlib import sha256
from uuid import UUID

PARTITIONS = 64
"""How many partitions there are; a power of two that is part of stored data."""


def partition_of(job_id: UUID) -> int:
    """Return the job's partition, 0 to 63: first byte of SHA-256(job id) & 63."""
    return sha256(job_id.bytes).digest()[0] & (PARTITIONS - 1)
