from django.apps import AppConfig


class Config(AppConfig):
    name = "apps.timers"
    label = "chrono_timers"
    default_auto_field = "django.db.models.BigAutoField"
