"""The addresses of the API: no trailing slash anywhere."""

from django.urls import URLPattern, URLResolver

urlpatterns: list[URLPattern | URLResolver] = []
