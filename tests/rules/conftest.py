"""The rules are tested with the same examples each time: a red test stays red."""

from hypothesis import settings

settings.register_profile("chrono", derandomize=True, deadline=None, max_examples=200)
settings.load_profile("chrono")
