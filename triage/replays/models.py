"""Replays that were asked for: one run per module, toolchain and GPU, with a trial for each variant."""
from __future__ import annotations

from django.db import models
from django.db.models.signals import post_delete
from django.dispatch import receiver

from triage.dumps import storage
from triage.dumps.models import Dump


class Run(models.Model):
    dump = models.ForeignKey(Dump, related_name="runs", on_delete=models.CASCADE)
    module = models.IntegerField(help_text="position in report['modules']")
    toolchain = models.CharField(max_length=40)
    gpu = models.CharField(max_length=100, blank=True, help_text="chosen by the reader where the dump does not say it")
    created = models.DateTimeField(auto_now_add=True)
    history = models.OneToOneField(Dump, related_name="made_by", null=True, on_delete=models.SET_NULL,
                                   help_text="the baseline's own dump, where the uploaded one has no passes")

    class Meta:
        ordering = ["-created"]
        constraints = [models.UniqueConstraint(fields=["dump", "module", "toolchain", "gpu"], name="one_run_each")]

    def __str__(self) -> str:
        return f"{self.dump_id}/{self.module} with {self.toolchain}"


class Trial(models.Model):
    class Status(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        DONE = "done"               # `row` says with what result
        CANCELLED = "cancelled"

    run = models.ForeignKey(Run, related_name="trials", on_delete=models.CASCADE)
    position = models.IntegerField()
    key = models.CharField(max_length=200)
    variant = models.JSONField(help_text="the fields of a replay.variants.Variant")
    status = models.CharField(max_length=9, choices=Status.choices, default=Status.QUEUED)
    row = models.JSONField(null=True, help_text="what replay.measure says of it")
    attempts = models.IntegerField(default=0)
    lease = models.CharField(max_length=32, blank=True)
    heartbeat = models.DateTimeField(null=True)

    class Meta:
        ordering = ["position"]
        indexes = [models.Index(fields=["status", "heartbeat"])]
        constraints = [models.UniqueConstraint(fields=["run", "key"], name="one_trial_each")]

    def __str__(self) -> str:
        return f"{self.key} of run {self.run_id}"

    @property
    def is_open(self) -> bool:
        return self.status in (self.Status.QUEUED, self.Status.RUNNING)


@receiver(post_delete, sender=Run)
def _forget_history(instance: Run, **kwargs: object) -> None:
    """What was kept for one run goes with it."""
    if instance.history is not None:
        storage.delete_files(instance.history)
        instance.history.delete()
