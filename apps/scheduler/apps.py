from django.apps import AppConfig


class Config(AppConfig):
    name = "apps.scheduler"
    label = "chrono_scheduler"
    default_auto_field = "django.db.models.BigAutoField"
