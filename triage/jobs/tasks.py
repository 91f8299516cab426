"""Celery tasks, and what a worker does besides. Each task calls one plain function."""
from __future__ import annotations

import logging

from celery import bootsteps, shared_task
from celery.worker.consumer import Consumer
from django.db import connections

from triage.celery import app
from triage.jobs import analysis
from triage.replays import trials

logger = logging.getLogger(__name__)
SWEEP_SECONDS = 15


@shared_task
def analyse_dump(dump_id: str) -> None:
    analysis.run(dump_id)


class Sweep(bootsteps.StartStopStep):
    """Queues again what was lost: everything when a worker starts or finds the broker again, then what is overdue.

    It runs in the worker's main process, so that it goes on while every pool process is busy.
    """
    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, consumer: Consumer) -> None:
        sweep(all_queued=True)
        self.timer = consumer.timer.call_repeatedly(SWEEP_SECONDS, sweep)

    def stop(self, consumer: Consumer) -> None:
        if timer := getattr(self, "timer", None):
            timer.cancel()


app.steps["consumer"].add(Sweep)


def sweep(all_queued: bool = False) -> None:
    try:
        analysis.clean_scratch()
        analysis.requeue_lost(all_queued)
        trials.requeue_lost(all_queued)
    except Exception:       # a database that is away for a moment must not end the worker
        logger.exception("cannot look for lost analyses; trying again in %d seconds", SWEEP_SECONDS)
    finally:
        connections.close_all()     # pool processes are forked from this one
