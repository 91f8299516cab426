from django.apps import AppConfig


class ViewerConfig(AppConfig):
    name = "triage.viewer"
