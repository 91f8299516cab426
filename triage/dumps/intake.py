"""Taking in an upload: a stream of bytes -> the stored archive, a Dump row, a task in the queue."""
from __future__ import annotations

import errno
import logging
import unicodedata
from datetime import datetime
from typing import Protocol

from django.conf import settings
from django.core.files import File
from django.core.files.storage import storages
from django.core.files.uploadedfile import TemporaryUploadedFile
from django.db import transaction
from django.utils import timezone
from kombu.exceptions import OperationalError

from triage.dumps.models import Dump, hash_key
from triage.dumps.storage import archive_name, delete_files
from triage.engine.archive import not_an_archive, sniff
from triage.engine.cost import human_bytes
from triage.engine.streams import HEAD_BYTES

logger = logging.getLogger(__name__)
CHUNK_BYTES = 256 * 1024
EMPTY = "The upload is empty: no bytes arrived. With curl, check the path behind `tar cz`."
BROKEN_OFF = "The upload broke off before its end. Send it again."
NO_ROOM = "The service has no room left for this upload; tell its operator."


class UploadRefused(Exception):
    """The upload was not taken; `str()` is one sentence for the sender, `status` the HTTP status."""

    def __init__(self, sentence: str, status: int = 400) -> None:
        super().__init__(sentence)
        self.status = status


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def receive(stream: Readable, name: str, *, length: int | None = None, owner_token: str = "",
            is_example: bool = False, wants_replay: bool = False) -> Dump:
    """Stores an upload and queues its analysis. Raises UploadRefused; then nothing is left behind.

    `length` is how many bytes there must be, where the sender said so. `owner_token` is what proves later that the dump
    is the uploader's own; only its hash is kept. `wants_replay`: its remedies are measured without another word.
    """
    dump = Dump(name=clean_name(name), is_example=is_example, wants_replay=wants_replay,
                owner_key_hash=hash_key(owner_token) if owner_token else "")
    check_length(length)
    try:
        # First to a file beside the storage: whatever breaks off, no storage is left with half an upload.
        with TemporaryUploadedFile("archive", "application/octet-stream", 0, None) as spool:
            dump.bytes = _spool(stream, spool, length)
            _check_kind(spool, dump.name)
            storages["default"].save(archive_name(dump), spool)
        dump.save(force_insert=True)
    except BaseException as error:
        delete_files(dump)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UploadRefused(NO_ROOM, 507) from error
        raise
    transaction.on_commit(lambda: enqueue(dump))
    return dump


def check_length(length: int | None) -> None:
    """Raises UploadRefused for a body that is too long, before any of it is read."""
    if length is not None and length > settings.TRIAGE_MAX_UPLOAD_BYTES:
        limit = human_bytes(settings.TRIAGE_MAX_UPLOAD_BYTES)
        raise UploadRefused(f"The upload is larger than {limit}, the limit of this service.", 413)


def _spool(stream: Readable, spool: File, length: int | None) -> int:
    """Copies the upload to a file on disk; its size."""
    size = 0
    while chunk := _read(stream):
        size += len(chunk)
        check_length(size)
        spool.write(chunk)
    spool.flush()
    if not size:
        raise UploadRefused(EMPTY)
    if length is not None and size < length:
        raise UploadRefused(BROKEN_OFF)
    return size


def _read(stream: Readable) -> bytes:
    try:
        return stream.read(CHUNK_BYTES)
    except Exception as error:      # web servers have errors of their own for a connection that ends or a bad chunk
        raise UploadRefused(BROKEN_OFF) from error


def _check_kind(spool: File, name: str) -> None:
    spool.seek(0)
    if sniff(spool.read(HEAD_BYTES)) is None:
        raise UploadRefused(not_an_archive(name))
    spool.seek(0)


def enqueue(dump: Dump) -> None:
    """Puts the analysis into the queue. Where there is no broker the dump stays queued until a worker looks for it."""
    from triage.jobs.tasks import analyse_dump  # the tasks need the models of this app
    sent: datetime | None = timezone.now()
    try:
        analyse_dump.delay(dump.id)
    except OperationalError:
        logger.warning("dump %s: no broker, the analysis waits until a worker looks for lost ones", dump.id)
        sent = None
    Dump.objects.filter(pk=dump.pk, status=Dump.Status.QUEUED).update(heartbeat=sent)


def clean_name(name: str) -> str:
    """The last part of a file name, printable, at most 200 characters; "dump" for none."""
    base = name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    kept = "".join(c for c in base if unicodedata.category(c)[0] != "C")
    return kept.strip()[:200] or "dump"
