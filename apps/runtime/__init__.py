"""The floor every room stands on: sessions, SQL files, the clock, the process loop.

It knows nothing of jobs, timers or runs. Everything here takes a connection or
makes one; nothing here decides.
"""
