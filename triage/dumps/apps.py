from django.apps import AppConfig


class DumpsConfig(AppConfig):
    name = "triage.dumps"
    default_auto_field = "django.db.models.BigAutoField"
