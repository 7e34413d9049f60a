from django.apps import AppConfig


class Config(AppConfig):
    name = "apps.queue"
    label = "chrono_queue"
    default_auto_field = "django.db.models.BigAutoField"
