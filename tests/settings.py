"""Settings under test: no `.env`, and a clock that may be moved."""

import os

os.environ["CHRONO_ENV_FILES"] = ""
os.environ.setdefault("SECRET_KEY", "only-for-tests")
# Nothing listens here: a test gets its database from the `database` fixture.
os.environ.setdefault("DATABASE_URL", "postgres://chrono@127.0.0.1:1/none")
# The test client speaks plain http, and to a host of its own.
os.environ.setdefault("CHRONO_HTTPS", "0")
os.environ.setdefault("ALLOWED_HOSTS", "testserver,127.0.0.1,localhost")

from chrono.settings import *  # noqa: F403  (the environment comes first)

CHRONO_CLOCK_SHIFT = float(os.environ.get("CHRONO_CLOCK_SHIFT") or 0)

# No step collects the files before the tests.
STORAGES["staticfiles"] = {  # noqa: F405
    "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
}
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = True
# Hashing a password slowly is not what a test of a page is about.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
