from django.apps import AppConfig
from django.contrib.admin.apps import AdminConfig


class Config(AppConfig):
    name = "apps.console"
    label = "chrono_console"
    verbose_name = "Chrono"
    default_auto_field = "django.db.models.BigAutoField"


class SiteConfig(AdminConfig):
    """Django's admin with our site in place of its own."""

    default_site = "apps.console.site.Site"
