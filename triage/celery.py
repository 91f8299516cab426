"""The Celery app: `celery -A triage.celery worker`. Its settings are the `CELERY_...` lines of settings.py."""
from __future__ import annotations

import os

from celery import Celery
from celery.signals import worker_process_init

from triage.tether import die_with_parent

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "triage.settings")

_WORKER = os.getpid()     # pool processes are forked and find their parent's here

app = Celery("triage")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@worker_process_init.connect
def _follow_worker(**kwargs: object) -> None:
    """A pool process in the middle of a long analysis must not outlive the worker it belongs to."""
    die_with_parent(_WORKER)
