"""Chrono and the job systems that one would take instead, on the same work in one run.

A peer is a program with five commands, in a file of its own: `peer.py` says which, for
those in Python, and `peer.mjs` for those in Node. Each run has a fresh database and
worker processes of its own, on one server with pinned settings. All that is measured is
read from a file into which handlers write their job's number and the time: no peer is
asked for its own figures, and each pays the same for being measured.
"""
