"""Taking in an upload: a stream of bytes -> the stored archive, a Dump row, a task in the queue."""
from __future__ import annotations

import errno
import logging
import unicodedata
from collections.abc import Iterator
from typing import Protocol

from django.conf import settings
from django.core.files import File
from django.core.files.storage import storages
from django.db import transaction
from kombu.exceptions import OperationalError

from triage.dumps.models import Dump, hash_key
from triage.dumps.storage import archive_name, delete_files
from triage.engine.archive import not_an_archive, sniff
from triage.engine.cost import human_bytes

logger = logging.getLogger(__name__)
CHUNK_BYTES = 256 * 1024
HEAD_BYTES = 1024           # enough to tell what kind of archive it is
EMPTY = "The upload is empty: no bytes arrived. With curl, check the path behind `tar cz`."


class UploadRefused(Exception):
    """The upload was not taken; `str()` is one sentence for the sender, `status` the HTTP status."""

    def __init__(self, sentence: str, status: int = 400) -> None:
        super().__init__(sentence)
        self.status = status


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Incoming(File):
    """A stream as a Django file: counted, limited, and looked at before the first byte is stored."""

    def __init__(self, stream: Readable, name: str) -> None:
        super().__init__(stream, name)
        self.bytes = 0

    def chunks(self, chunk_size: int | None = None) -> Iterator[bytes]:
        while chunk := self.file.read(CHUNK_BYTES):
            if not self.bytes:
                while len(chunk) < HEAD_BYTES and (more := self.file.read(HEAD_BYTES)):
                    chunk += more
                if sniff(chunk[:HEAD_BYTES]) is None:
                    raise UploadRefused(not_an_archive(self.name))
            self.bytes += len(chunk)
            if self.bytes > settings.TRIAGE_MAX_UPLOAD_BYTES:
                limit = human_bytes(settings.TRIAGE_MAX_UPLOAD_BYTES)
                raise UploadRefused(f"The upload is larger than {limit}, the limit of this service.", 413)
            yield chunk
        if not self.bytes:
            raise UploadRefused(EMPTY)


def receive(stream: Readable, name: str, *, owner_token: str = "", is_example: bool = False) -> Dump:
    """Stores an upload and queues its analysis. Raises UploadRefused; then nothing is left behind.

    `owner_token` is what proves later that the dump is the uploader's own; only its hash is kept.
    """
    dump = Dump(name=clean_name(name), is_example=is_example, owner_key_hash=hash_key(owner_token) if owner_token else "")
    incoming = _Incoming(stream, dump.name)
    try:
        storages["default"].save(archive_name(dump), incoming)
        dump.bytes = incoming.bytes
        dump.save(force_insert=True)
    except BaseException as error:
        delete_files(dump)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UploadRefused("The service has no room left for this upload; tell its operator.", 507) from error
        raise
    transaction.on_commit(lambda: enqueue(dump))
    return dump


def enqueue(dump: Dump) -> None:
    """Puts the analysis into the queue. Without a broker the dump stays queued: workers look for such rows when they start."""
    from triage.jobs.tasks import analyse_dump  # the tasks need the models of this app
    try:
        analyse_dump.delay(dump.id)
    except OperationalError:
        logger.warning("dump %s: no broker, the analysis waits for a worker's next start", dump.id)


def clean_name(name: str) -> str:
    """The last part of a file name, printable, at most 200 characters; "dump" for none."""
    base = name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    kept = "".join(c for c in base if unicodedata.category(c)[0] != "C")
    return kept.strip()[:200] or "dump"
