"""Celery tasks. Each calls one plain function."""
from __future__ import annotations

from celery import shared_task
from celery.signals import worker_ready

from triage.jobs import analysis


@shared_task
def analyse_dump(dump_id: str) -> None:
    analysis.run(dump_id)


@shared_task
def requeue_waiting() -> None:
    """Queues again what the broker may have lost: an analysis that is already done ignores its second message."""
    for dump_id in analysis.waiting():
        analyse_dump.delay(dump_id)


@worker_ready.connect
def _on_start(**kwargs: object) -> None:
    requeue_waiting.delay()
    # An attempt that was killed a moment ago counts as dead only after a while.
    requeue_waiting.apply_async(countdown=analysis.STALE.total_seconds() + 5)
