"""Speed, measured: commands that print figures with their limit of the same run.

Nothing here is a test. Everything runs on a server of its own, with fsync and
synchronous_commit on, and ends by itself.
"""
