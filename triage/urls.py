from django.urls import include, path

from triage.health import healthz

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("", include("triage.dumps.urls")),
    path("", include("triage.jobs.urls")),
    path("", include("triage.viewer.urls")),
    path("", include("triage.reports.urls")),
]
