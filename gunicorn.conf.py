"""How the web process runs: `gunicorn chrono.wsgi` reads this file by its name."""

import os
from typing import Any

bind = f"0.0.0.0:{os.environ.get('PORT') or 8000}"

# Threads wait for the database side by side; each keeps one session of it.
worker_class = "gthread"
workers = int(os.environ.get("WEB_CONCURRENCY") or 2)
threads = int(os.environ.get("CHRONO_WEB_THREADS") or 8)

# A process that hangs is replaced. No request comes near: a statement ends after 5 s.
timeout = 30
# The platform kills 30 s after its SIGTERM.
graceful_timeout = 25
# Longer than the pause of a client that asks every few seconds.
keepalive = 15
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108

limit_request_line = 8190
limit_request_fields = 64
limit_request_field_size = 8190

# Whether a request came over TLS is for the settings to say: see CHRONO_TRUST_PROXY.
forwarded_allow_ips = ""
secure_scheme_headers: dict[str, str] = {}
forwarder_headers = ""
# No file outside the checkout, and no second way to steer the process.
control_socket_disable = True

# One line a request comes from the web itself, with its id.
accesslog = None
logconfig_dict: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "root": {"level": "INFO", "handlers": ["stdout"]},
    "loggers": {
        "gunicorn.error": {
            "level": "INFO",
            "handlers": ["stdout"],
            "propagate": False,
            "qualname": "gunicorn.error",
        },
        "gunicorn.access": {"level": "INFO", "handlers": [], "propagate": False},
    },
    "formatters": {
        "text": {"()": "chrono.logs.TextFormatter"},
        "json": {"()": "chrono.logs.JsonFormatter"},
    },
    "handlers": {
        "stdout": {
            "class": "logging.StreamHandler",
            "stream": "ext://sys.stdout",
            "formatter": "json" if os.environ.get("CHRONO_LOG") == "json" else "text",
        },
    },
}
