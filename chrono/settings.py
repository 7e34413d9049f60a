"""Settings of every process, read from the environment.

Values come from the environment, then from `.env`, then from `.local/run.env` (what a
running `make run` left there so that other terminals find its database). The first
source that has a name wins. `CHRONO_ENV_FILES` names other files, colon-separated; set
and empty it means none.
"""

import os
from pathlib import Path

import environ
from django.core.exceptions import ImproperlyConfigured
from django.utils.csp import CSP

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()

_files = os.environ.get("CHRONO_ENV_FILES", ".env:.local/run.env")
for _name in filter(None, _files.split(":")):
    _path = BASE_DIR / _name
    if _path.is_file():
        environ.Env.read_env(_path)


def _required(name: str, hint: str) -> str:
    """Return the variable's text; absent or empty is one clear line."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise ImproperlyConfigured(f"{name} is not set: {hint}")
    return value


DEBUG = env.bool("DEBUG", default=False)
SECRET_KEY = _required(
    "SECRET_KEY",
    "give it a long random text in the environment or in .env (`make run` writes one)",
)
ALLOWED_HOSTS: list[str] = env.list("ALLOWED_HOSTS", default=[])

# The demo is an app of its own, so that no installation carries it by accident.
CHRONO_DEMO = env.bool("CHRONO_DEMO", default=False)

INSTALLED_APPS = [
    "apps.console.apps.SiteConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "apps.runtime",
    "apps.tenants",
    "apps.timers",
    "apps.queue",
    "apps.runs",
    "apps.jobs",
    "apps.scheduler",
    "apps.worker",
    "apps.api",
    "apps.console.apps.Config",
    *(["examples"] if CHRONO_DEMO else []),
]

ROOT_URLCONF = "chrono.urls"
WSGI_APPLICATION = "chrono.wsgi.application"

# The way out is the way in backwards: what stands first sees every answer, so that
# redirects, static files and refusals carry the id and the policy, too.
MIDDLEWARE = [
    "apps.api.request_ids.RequestIds",
    "apps.api.head.NoBodyForHead",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# The admin's pages need no inline script or style; neither do ours.
SECURE_CSP = {
    "default-src": [CSP.SELF],
    "img-src": [CSP.SELF, "data:"],
    "object-src": [CSP.NONE],
    "base-uri": [CSP.NONE],
    "frame-ancestors": [CSP.NONE],
    "form-action": [CSP.SELF],
}
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"

# Everything goes over TLS, unless this is switched off: `make run` does so, since it
# listens on this machine alone.
CHRONO_HTTPS: bool = env.bool("CHRONO_HTTPS", default=not DEBUG)
SECURE_SSL_REDIRECT = CHRONO_HTTPS
# Whoever asks for a process's health may stand behind the proxy that ends TLS.
SECURE_REDIRECT_EXEMPT = [r"^(livez|readyz|status|status/firing)$"]
SECURE_HSTS_SECONDS = 31_536_000 if CHRONO_HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = CHRONO_HTTPS
SECURE_HSTS_PRELOAD = CHRONO_HTTPS
# Only where a proxy stands in front that sets this header itself, as Heroku's does.
if env.bool("CHRONO_TRUST_PROXY", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = CHRONO_HTTPS
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
# Half an hour without a request ends a session.
SESSION_COOKIE_AGE = 1800
SESSION_SAVE_EVERY_REQUEST = True
SESSION_EXPIRE_AT_BROWSER_CLOSE = True

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "admin:login"

# 1 MiB for a body of the API, and so for a form of the admin.
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024
DATA_UPLOAD_MAX_NUMBER_FIELDS = 2000
DATA_UPLOAD_MAX_NUMBER_FILES = 1

STATIC_URL = "/static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
    },
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["apps.api.authentication.KeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["apps.api.permissions.HasScope"],
    "DEFAULT_PARSER_CLASSES": ["apps.api.parsers.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "apps.api.parsers.AlwaysJSON",
    "DEFAULT_SCHEMA_CLASS": "apps.api.schema.Schema",
    "EXCEPTION_HANDLER": "apps.api.errors.answer",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,
}

SPECTACULAR_SETTINGS = {
    "TITLE": "Chrono",
    "DESCRIPTION": "Jobs, their schedules and their runs.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "PREPROCESSING_HOOKS": ["apps.api.schema.only_versioned"],
    "POSTPROCESSING_HOOKS": ["apps.api.schema.complete"],
}

USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False


def _database(url: str, name: str) -> dict[str, object]:
    """Return Django's settings for the database at `url`, a PostgreSQL one."""
    wrong = ImproperlyConfigured(
        f"{name} is not a PostgreSQL address: "
        "write postgres://user:password@host:5432/database"
    )
    # psycopg reads the same text, and knows these two names.
    if not url.startswith(("postgres://", "postgresql://")):
        raise wrong
    try:
        config: dict[str, object] = dict(environ.Env.db_url_config(url))
    except ValueError:
        raise wrong from None
    options = config.setdefault("OPTIONS", {})
    if isinstance(options, dict):
        options.setdefault(
            "application_name", os.environ.get("CHRONO_APPLICATION_NAME", "chrono")
        )
        options.setdefault("connect_timeout", 10)
    config["TIME_ZONE"] = None  # Django then keeps each connection in UTC.
    config["CONN_MAX_AGE"] = 60
    config["CONN_HEALTH_CHECKS"] = True
    # A pooler may hand each transaction another server session.
    config["DISABLE_SERVER_SIDE_CURSORS"] = True
    return config


DATABASE_URL = _required(
    "DATABASE_URL",
    "start `make run`, or write postgres://user:password@host:5432/database",
)
DATABASES = {"default": _database(DATABASE_URL, "DATABASE_URL")}

# Leadership and LISTEN need a session of their own: never a pooler's address.
CHRONO_DIRECT_DATABASE_URL = (
    os.environ.get("CHRONO_DIRECT_DATABASE_URL", "").strip() or DATABASE_URL
)
_database(CHRONO_DIRECT_DATABASE_URL, "CHRONO_DIRECT_DATABASE_URL")

# Networks (and ports) that http targets may reach though they are private, and where
# plain http is allowed: `127.0.0.0/8`, `10.1.0.0/16:8080`. Parsed where it is used.
CHRONO_EGRESS_ALLOW: list[str] = env.list("CHRONO_EGRESS_ALLOW", default=[])

# How many missed and backfilled runs a second the schedulers let in, all together, so
# that live runs keep their second.
CHRONO_CATCHUP_RATE: float = env.float("CHRONO_CATCHUP_RATE", default=50.0)
if not 0.1 <= CHRONO_CATCHUP_RATE <= 100_000:
    raise ImproperlyConfigured(
        "CHRONO_CATCHUP_RATE is a number of runs a second from 0.1 to 100000"
    )

# Modules with tasks beyond each installed app's `tasks.py`.
CHRONO_TASK_MODULES: list[str] = env.list("CHRONO_TASK_MODULES", default=[])

# Signs http targets (Standard Webhooks); empty: requests go out unsigned.
CHRONO_WEBHOOK_SECRET: str = os.environ.get("CHRONO_WEBHOOK_SECRET", "").strip()
if CHRONO_WEBHOOK_SECRET and not CHRONO_WEBHOOK_SECRET.startswith("whsec_"):
    raise ImproperlyConfigured(
        "CHRONO_WEBHOOK_SECRET does not begin with whsec_: "
        "write whsec_ and the base64 of 24 to 64 random bytes"
    )

# Seconds that processes under test add to the database's time; see tests/settings.py.
CHRONO_CLOCK_SHIFT = 0.0
if os.environ.get("CHRONO_CLOCK_SHIFT") and not os.environ.get(
    "DJANGO_SETTINGS_MODULE", ""
).startswith("tests."):
    raise ImproperlyConfigured(
        "CHRONO_CLOCK_SHIFT is set: only test settings may move the clock; unset it"
    )

LOGGING_CONFIG = "logging.config.dictConfig"
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
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
    # The web has its own line for each request; what breaks is told with its trace.
    "loggers": {"django.request": {"level": "ERROR"}},
    "root": {
        "handlers": ["stdout"],
        "level": os.environ.get("CHRONO_LOG_LEVEL", "INFO").upper(),
    },
}
