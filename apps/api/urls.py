"""The addresses of the API: no trailing slash anywhere."""

from django.urls import include, path

from apps.api import docs, health, runs, schedules

app_name = "api"

resources = [
    path("runs", runs.Runs.as_view(), name="runs"),
    path("runs/<str:run_id>", runs.Run.as_view(), name="run"),
    path("runs/<str:run_id>/attempts", runs.Attempts.as_view(), name="attempts"),
    path("runs/<str:run_id>/cancel", runs.Cancel.as_view(), name="cancel"),
    path("schedules/preview", schedules.Preview.as_view(), name="preview"),
]

# The short forms that programs were promised before there was a version.
short = [
    path("runs/<str:run_id>", runs.Run.as_view(), name="short-run"),
]

urlpatterns = [
    path("api/v1/", include(resources)),
    path("", include(short)),
    path("api/v1/openapi.json", docs.schema, name="schema"),
    path("api/v1/docs", docs.page, name="docs"),
    path("livez", health.livez, name="livez"),
    path("readyz", health.readyz, name="readyz"),
    path("status", health.status, name="status"),
]
