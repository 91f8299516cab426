"""Celery tasks of the queue `replay`. Each calls one plain function."""
from __future__ import annotations

from celery import shared_task

from triage.replays import trials


@shared_task
def measure_trial(trial_id: int) -> None:
    trials.run(trial_id)
