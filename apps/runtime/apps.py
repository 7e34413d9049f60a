from typing import override

import psycopg
from django.apps import AppConfig

from apps.runtime import arrays


class Config(AppConfig):
    name = "apps.runtime"
    label = "chrono_runtime"
    default_auto_field = "django.db.models.BigAutoField"

    @override
    def ready(self) -> None:
        """Let every session take packed arrays, Django's own too."""
        arrays.register(psycopg.adapters)
