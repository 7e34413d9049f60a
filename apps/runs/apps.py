from django.apps import AppConfig


class Config(AppConfig):
    name = "apps.runs"
    label = "chrono_runs"
    default_auto_field = "django.db.models.BigAutoField"
