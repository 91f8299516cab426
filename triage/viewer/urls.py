from django.urls import path

from triage.viewer import views

urlpatterns = [
    path("d/<str:dump_id>/", views.dump, name="dump"),
    path("d/<str:dump_id>/m/<int:module>/", views.module, name="module"),
    path("d/<str:dump_id>/m/<int:module>/s/<int:stage>/", views.stage, name="stage"),
    path("d/<str:dump_id>/m/<int:module>/s/<int:stage>/text", views.stage_text, name="stage-text"),
]
