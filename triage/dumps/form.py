"""The form an archive may come in, read with an eye on what can be wrong with it."""
from __future__ import annotations

import errno
from typing import BinaryIO

from django.core.exceptions import SuspiciousOperation
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler
from django.http import HttpRequest, UnreadablePostError
from django.http.multipartparser import MultiPartParser, MultiPartParserError

from triage.dumps.intake import BROKEN_OFF, NO_ROOM, UploadRefused

TAIL_BYTES = 4096       # more than the last boundary and what may follow it
NO_FILE = "No file was sent: choose an archive first."
UNREADABLE = ("The form cannot be read: it must hold the archive as its one file. "
              "With curl, send it without a form: --data-binary @ARCHIVE.")
NO_LENGTH = ("A form must say its length, and this one came in chunks. "
             "With curl, send the archive without a form: --data-binary @ARCHIVE.")


def is_form(request: HttpRequest) -> bool:
    return (request.content_type or "").startswith("multipart/")


def read_form(request: HttpRequest) -> None:
    """Reads the form, if it is one, before anything else asks for its fields. Raises UploadRefused."""
    if not is_form(request):
        return
    if not request.META.get("CONTENT_LENGTH"):
        raise UploadRefused(NO_LENGTH, 411)
    request.upload_handlers.insert(0, _Whole(request))
    try:
        request.FILES  # noqa: B018  what reads the body
    except (_BrokenOff, UnreadablePostError) as error:
        raise UploadRefused(BROKEN_OFF) from error
    except (MultiPartParserError, SuspiciousOperation) as error:     # the latter: too many fields or too long ones
        raise UploadRefused(UNREADABLE) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UploadRefused(NO_ROOM, 507) from error
        raise


def sent_file(request: HttpRequest) -> UploadedFile:
    """The first file of the form. Raises UploadRefused where it holds none."""
    sent = next(iter(request.FILES.values()), None)
    if sent is None:
        raise UploadRefused(NO_FILE)
    return sent


class _BrokenOff(MultiPartParserError):
    pass


class _Whole(FileUploadHandler):
    """Parses the form itself, to see whether all of it came: Django takes a form that breaks off for one without files."""

    def handle_raw_input(self, input_data, META, content_length, boundary, encoding=None):  # noqa: N803  Django's name
        body = _Tail(input_data)
        others = [handler for handler in self.request.upload_handlers if handler is not self]
        found = MultiPartParser(META, body, others, encoding).parse()
        if b"--" + boundary + b"--" not in body.tail:
            raise _BrokenOff("the last boundary is missing")
        return found


class _Tail:
    """Remembers the last TAIL_BYTES that were read."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.tail = b""

    def read(self, size: int) -> bytes:
        data = self._source.read(size)
        self.tail = (self.tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        return data
