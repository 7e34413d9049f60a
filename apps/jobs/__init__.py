"""Definitions: what a job does, when, and under which policies.

A job row carries what changes (its planning version, its pause); a revision row
carries the definition itself and never changes. A run names (job, revision) and
copies neither payload nor policy.

Every transaction here takes its locks in one order: job rows by id, partitions by
id, then timers. It bumps the epoch of the partitions it touches, which makes every
leader's cached copy of the job worthless before the change is acknowledged.
"""
