"""Fault tests with real processes: one fault, what it cost, and what it left behind.

A fault strikes a field of schedulers and workers under load. Then there is quiet, and
the check: every occurrence decided once, every effect there once, nothing early,
fences that only rise, and an audit without a violation.
"""
