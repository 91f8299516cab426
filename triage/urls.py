from django.urls import include, path, register_converter

from triage.dumps.models import IdConverter
from triage.health import healthz

register_converter(IdConverter, "dump")

handler400 = "triage.refusals.bad_request"

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("", include("triage.dumps.urls")),
    path("", include("triage.jobs.urls")),
    path("", include("triage.viewer.urls")),
    path("", include("triage.reports.urls")),
    path("", include("triage.replays.urls")),
]
