"""Settings under test: no `.env`, and a clock that may be moved."""

import os

os.environ["CHRONO_ENV_FILES"] = ""
os.environ.setdefault("SECRET_KEY", "only-for-tests")
# Nothing listens here: a test gets its database from the `database` fixture.
os.environ.setdefault("DATABASE_URL", "postgres://chrono@127.0.0.1:1/none")

from chrono.settings import *  # noqa: F403  (the environment comes first)

CHRONO_CLOCK_SHIFT = float(os.environ.get("CHRONO_CLOCK_SHIFT") or 0)
