from django.apps import AppConfig


class Config(AppConfig):
    name = "apps.runtime"
    label = "chrono_runtime"
    default_auto_field = "django.db.models.BigAutoField"
