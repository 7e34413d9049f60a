"""Hammer for longer than a test may: see `tests.races.hammer`."""

import argparse
import logging
import os
from collections import Counter

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

from tests.races.hammer import hammer  # noqa: E402 (models need the settings first)
from tests.support import pg  # noqa: E402


def main() -> int:
    """Run on a server of its own; print what was seen; return the exit status."""
    parser = argparse.ArgumentParser(prog="hammer", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    logging.getLogger("chrono").setLevel(logging.ERROR)
    with (
        pg.session_databases(None) as databases,
        databases.clone() as url,
        pg.default_connection(url),
    ):
        wrong, counts = hammer(url, seed=options.seed, seconds=options.seconds)
    for what, count in sorted(counts.items()):
        print(f"{count:8} {what}")
    for finding, count in Counter(wrong).most_common(20):
        print(f"WRONG ({count} times) {finding[:600]}")
    word = "ok" if not wrong else f"{len(wrong)} findings"
    print(f"hammer: {word}, seed {options.seed}, {options.seconds:g} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
