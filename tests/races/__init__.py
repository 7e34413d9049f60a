"""Races, staged step by step on a real server with the product's own statements.

`harness` puts actors on a stage and runs them in every order; `world` is what they act
in; `invariants` is the one-snapshot audit after each order; `mutations` takes one rule
out of one statement, which must turn a scenario red; `hammer` does it all at once,
under load, with an independent checker.
"""
