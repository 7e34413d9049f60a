"""Every address of the web: the doors, put together."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    path("", RedirectView.as_view(url="/admin/"), name="home"),
    path("", include("apps.api.urls")),
    path("admin/", admin.site.urls),
]

handler400 = "apps.api.refusals.bad_request"
handler404 = "apps.api.refusals.not_found"
handler500 = "apps.api.refusals.server_error"
