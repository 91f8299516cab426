"""Dumps and the summary rows of their modules. The report and the texts are files: see storage.py."""
from __future__ import annotations

import hashlib
import secrets

from django.db import models
from django.urls import reverse

from triage.engine.printable import one_line


def new_id() -> str:
    """22 characters that nobody guesses: whoever has the address of a dump may read it."""
    return secrets.token_urlsafe(16)


class IdConverter:
    """The ids of dumps in addresses; anything else is not found."""
    regex = r"[A-Za-z0-9_-]{22}"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


def hash_key(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class Dump(models.Model):
    class Status(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"

    id = models.CharField(primary_key=True, max_length=22, default=new_id, editable=False)
    name = models.CharField(max_length=200, help_text="of the archive or folder, as the uploader named it")
    status = models.CharField(max_length=8, choices=Status.choices, default=Status.QUEUED)
    error = models.TextField(blank=True, help_text="one sentence for the reader, when failed")
    phase = models.CharField(max_length=200, blank=True)
    done = models.IntegerField(default=0, help_text="of `total` steps of the phase")
    total = models.IntegerField(default=0)
    first = models.JSONField(default=list, blank=True,
                             help_text="modules with what their last stage says, while the passes are still being followed")
    created = models.DateTimeField(auto_now_add=True)
    started = models.DateTimeField(null=True)
    finished = models.DateTimeField(null=True)
    bytes = models.BigIntegerField(default=0, help_text="uploaded bytes")
    files = models.IntegerField(default=0, help_text="useful files in the archive, known after unpacking")
    is_example = models.BooleanField(default=False)
    wants_replay = models.BooleanField(default=False, help_text="its remedies are to be measured as soon as it is analysed")
    attempts = models.IntegerField(default=0)
    owner_key_hash = models.CharField(max_length=64, blank=True, help_text="sha256 of the token given to the uploader")
    lease = models.CharField(max_length=32, blank=True, help_text="of the attempt that may write the result")
    #: While queued: when its message was sent; None until then.
    heartbeat = models.DateTimeField(null=True, help_text="last sign of life of the running attempt")
    generation = models.CharField(max_length=32, blank=True, help_text="folder of the stored result; '' for none")

    class Meta:
        ordering = ["-created"]
        indexes = [models.Index(fields=["status", "heartbeat"]), models.Index(fields=["owner_key_hash"])]

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"

    def get_absolute_url(self) -> str:
        return reverse("dump", args=[self.id])

    @property
    def is_finished(self) -> bool:
        return self.status in (self.Status.DONE, self.Status.FAILED)

    @property
    def no_result(self) -> str:
        """Why there is no result, in one sentence; for dumps that are not done."""
        return one_line(self.error or "The analysis is not finished.")


class DumpModule(models.Model):
    """What a list of modules shows; everything else is in the report. Sizes in bytes."""
    dump = models.ForeignKey(Dump, related_name="modules", on_delete=models.CASCADE)
    index = models.IntegerField(help_text="position in report['modules']")
    name = models.TextField()
    platform = models.CharField(max_length=100, blank=True)
    target = models.CharField(max_length=200, blank=True)
    copies = models.IntegerField(default=0)
    copied_bytes = models.BigIntegerField(default=0)
    hoisted_bytes = models.BigIntegerField(default=0)
    in_loop_bytes = models.BigIntegerField(default=0)
    temp_bytes = models.BigIntegerField(null=True)
    verdict = models.CharField(max_length=400, blank=True)

    class Meta:
        ordering = ["index"]
        constraints = [models.UniqueConstraint(fields=["dump", "index"], name="one_row_per_module")]

    def __str__(self) -> str:
        return self.name
