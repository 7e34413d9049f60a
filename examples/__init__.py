"""The demo that `make run` shows: five jobs, their task, and a receiver of webhooks.

Installed as a Django app only where CHRONO_DEMO=1.
"""
