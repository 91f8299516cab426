from django.apps import AppConfig


class TriageConfig(AppConfig):
    name = "triage"

    def ready(self) -> None:
        from . import celery  # noqa: F401  the Celery app must exist before a `shared_task` is sent
