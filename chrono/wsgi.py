"""The web's entry: `gunicorn chrono.wsgi`."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chrono.settings")
os.environ.setdefault("CHRONO_APPLICATION_NAME", "chrono web")

application = get_wsgi_application()

from apps.runtime.django_session import limit_sessions  # noqa: E402

limit_sessions()
