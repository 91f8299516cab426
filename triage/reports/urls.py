from django.urls import path

from triage.reports import views

urlpatterns = [
    path("d/<dump:dump_id>/m/<int:module>/issue/", views.issues, name="issues"),
    path("d/<dump:dump_id>/m/<int:module>/issue/<int:pattern>/", views.issue, name="issue"),
    path("d/<dump:dump_id>/m/<int:module>/issue/<int:pattern>.md", views.issue_markdown, name="issue-md"),
]
