from django.urls import path

from triage.dumps import views

urlpatterns = [
    path("", views.home, name="home"),
    path("upload", views.upload, name="upload"),
    path("api/dumps", views.api_upload, name="api-upload"),
    path("d/<dump:dump_id>/progress", views.progress, name="dump-progress"),
    path("d/<dump:dump_id>/report.json", views.report_json, name="report-json"),
    path("d/<dump:dump_id>/retry", views.retry, name="dump-retry"),
]
