from django.apps import AppConfig


class Config(AppConfig):
    name = "apps.worker"
    label = "chrono_worker"
    default_auto_field = "django.db.models.BigAutoField"
