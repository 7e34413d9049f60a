from typing import override

from django.apps import AppConfig
from django.core import checks


class Config(AppConfig):
    name = "apps.worker"
    label = "chrono_worker"
    default_auto_field = "django.db.models.BigAutoField"

    @override
    def ready(self) -> None:
        from apps.worker.checks import check_settings, check_tasks

        checks.register(check_tasks)
        checks.register(check_settings)
