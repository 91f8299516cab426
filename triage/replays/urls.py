from django.urls import path

from triage.replays import views

urlpatterns = [
    path("d/<dump:dump_id>/m/<int:module>/replay", views.replay, name="replay"),
    path("d/<dump:dump_id>/m/<int:module>/replay/cancel", views.cancel, name="replay-cancel"),
    path("d/<dump:dump_id>/m/<int:module>/reproduce", views.reproduce, name="reproduce"),
    path("d/<dump:dump_id>/m/<int:module>/repro.hlo", views.reproducer_text, name="reproducer-text"),
]
