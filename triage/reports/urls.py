from django.urls import path

from triage.reports import views

urlpatterns = [
    path("d/<str:dump_id>/m/<int:module>/issue/", views.issue, name="issue"),
    path("d/<str:dump_id>/m/<int:module>/issue.md", views.issue_markdown, name="issue-md"),
]
