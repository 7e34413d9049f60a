from django.apps import AppConfig


class Config(AppConfig):
    name = "apps.tenants"
    label = "chrono_tenants"
    default_auto_field = "django.db.models.BigAutoField"
