from django.apps import AppConfig


class Config(AppConfig):
    name = "apps.jobs"
    label = "chrono_jobs"
    default_auto_field = "django.db.models.BigAutoField"
