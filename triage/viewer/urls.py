from django.urls import path

from triage.viewer import views

urlpatterns = [
    path("d/<dump:dump_id>/", views.dump, name="dump"),
    path("d/<dump:dump_id>/m/<int:module>/", views.module, name="module"),
    path("d/<dump:dump_id>/m/<int:module>/s/<int:stage>/", views.stage, name="stage"),
    path("d/<dump:dump_id>/m/<int:module>/s/<int:stage>/text", views.stage_text, name="stage-text"),
]
