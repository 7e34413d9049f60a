from django.apps import AppConfig


class Config(AppConfig):
    name = "examples"
    label = "chrono_examples"
