"""Forms that are wrong in some way: one sentence for whoever sent them, no traceback in the log, nothing stored."""
from __future__ import annotations

import errno

import pytest
from django.core.files.uploadhandler import TemporaryFileUploadHandler

from tests.dumps.test_views import archive
from triage.dumps import form
from triage.dumps.intake import BROKEN_OFF, NO_ROOM
from triage.dumps.models import Dump
from triage.jobs import tasks

pytestmark = pytest.mark.django_db(transaction=True)
TYPE = "multipart/form-data; boundary=bb"


@pytest.fixture(autouse=True)
def queued(monkeypatch) -> list[str]:
    ids: list[str] = []
    monkeypatch.setattr(tasks.analyse_dump, "delay", ids.append)
    return ids


def body(*parts: tuple[str, bytes]) -> bytes:
    """A form of (attributes of the part's disposition, content)."""
    return b"".join(f"--bb\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + content + b"\r\n"
                    for head, content in parts) + b"--bb--\r\n"


FILE = ('name="file"; filename="a.tar.gz"', archive())
BIG = ('name="other"; filename="x"', bytes(300_000))
WHOLE = body(BIG, FILE)


@pytest.mark.parametrize("url", ["/api/dumps", "/api/dumps?format=text", "/upload"])
@pytest.mark.parametrize(("data", "kind", "sentence"), [
    (body(FILE), "multipart/form-data", form.UNREADABLE),
    (body(FILE), "multipart/form-data; boundary=" + "b" * 300, form.UNREADABLE),
    (body(('name="' + "n" * 100_000 + '"; filename="z"', b"x")), TYPE, form.UNREADABLE),
    (body(*[(f'name="f{n}"', b"") for n in range(2000)]), TYPE, form.UNREADABLE),
    (body(('name="file"', bytes(4_000_000))), TYPE, form.UNREADABLE),
    (body(('name="file"', archive())), TYPE, form.NO_FILE),
    (body(('name="file"; filename=""', archive())), TYPE, form.NO_FILE),
    *[(WHOLE[:cut], TYPE, BROKEN_OFF) for cut in (70, 1000, len(WHOLE) // 2, -200, -9, -5)],
], ids=["no boundary", "another boundary", "long header", "many fields", "a long field", "no file", "no name", *[
    f"cut {number}" for number in range(6)]])
def test_one_sentence_and_no_traceback(client, caplog, url, data, kind, sentence):
    answer = client.generic("POST", url, data, content_type=kind)
    assert answer.status_code == 400
    assert sentence in (answer.json()["error"] if url == "/api/dumps" else answer.content.decode())
    assert not Dump.objects.exists()
    assert not [record for record in caplog.records if record.exc_info]


def test_a_form_in_chunks_is_told_what_to_do(client):
    answer = client.generic("POST", "/api/dumps", body(FILE), content_type=TYPE, CONTENT_LENGTH="")
    assert (answer.status_code, answer.json()["error"]) == (411, form.NO_LENGTH)


@pytest.mark.parametrize("url", ["/api/dumps", "/upload"])
def test_a_disk_that_is_full_before_the_form_is_read_is_said(client, monkeypatch, url):
    def full(self, raw_data, start):
        raise OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(TemporaryFileUploadHandler, "receive_data_chunk", full)
    big = ('name="file"; filename="a"', bytes(3_000_000))
    answer = client.generic("POST", url, body(big), content_type=TYPE)
    assert answer.status_code == 507 and NO_ROOM in answer.content.decode()


def test_a_whole_form_is_taken_with_the_fields_around_its_file(client, queued):
    answer = client.generic("POST", "/api/dumps", body(('name="note"', b"hi"), FILE), content_type=TYPE)
    assert answer.status_code == 201 and queued == [answer.json()["id"]]
