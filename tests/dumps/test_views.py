"""Uploads and what scripts ask, through Django's client; the worker's part is called by hand."""
from __future__ import annotations

import errno
import io
import json
import tarfile

import pytest
from django.core.files.storage import FileSystemStorage
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http.multipartparser import MultiPartParser
from django.test import Client

from triage.dumps import storage
from triage.dumps.intake import BROKEN_OFF, EMPTY, clean_name
from triage.dumps.models import Dump, hash_key
from triage.jobs import analysis, tasks

pytestmark = pytest.mark.django_db(transaction=True)
SMALL = """HloModule jit_small

ENTRY main {
  w = f32[512,1024]{1,0} parameter(0)
  ROOT t = f32[1024,512]{1,0} transpose(w), dimensions={1,0}
}
"""


@pytest.fixture
def queued(monkeypatch) -> list[str]:
    """What was put into the queue, instead of a broker."""
    ids: list[str] = []
    monkeypatch.setattr(tasks.analyse_dump, "delay", ids.append)
    return ids


def archive(text: str = SMALL, **others: str) -> bytes:
    """A dump of one text; `others` are files beside it, by the end of their names."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for ending, content in {"before_optimizations.txt": text, **others}.items():
            member = tarfile.TarInfo(f"d/module_0001.jit_small.{ending}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content.encode()))
    return buffer.getvalue()


def send(client: Client, body: bytes, url: str = "/api/dumps?name=d.tar.gz", **headers: str):
    return client.post(url, body, content_type="application/x-www-form-urlencoded", headers=headers)


def test_curl_gets_a_link_and_a_token(client, queued):
    answer = send(client, archive())
    assert answer.status_code == 201
    data = answer.json()
    dump = Dump.objects.get()
    assert queued == [dump.id]
    assert data["url"] == f"http://testserver/d/{dump.id}/" and len(dump.id) == 22
    assert dump.owner_key_hash == hash_key(data["token"])
    assert data["token"] not in json.dumps(list(Dump.objects.values()), default=str)
    assert (dump.name, dump.bytes, dump.status) == ("d.tar.gz", len(archive()), "queued")


def test_plain_text_is_the_link_alone(client, queued):
    for answer in (send(client, archive(), "/api/dumps?format=text"), send(client, archive(), Accept="text/plain")):
        [line] = answer.content.decode().splitlines()
        assert line.startswith("http://testserver/d/")


def test_a_form_field_works_for_the_api_too(client, queued):
    answer = client.post("/api/dumps", {"file": SimpleUploadedFile("x/y dump.tar.gz", archive())})
    assert answer.status_code == 201 and Dump.objects.get().name == "y dump.tar.gz"


@pytest.mark.parametrize("body, sentence", [(b"", EMPTY), (b"\x7fELF" + b"\0" * 3000, "no archive and no HLO text")])
def test_refused_uploads_leave_nothing(client, queued, settings, body, sentence):
    before = set((settings.MEDIA_ROOT / "dumps").glob("*"))
    answer = send(client, body)
    assert answer.status_code == 400 and sentence in answer.json()["error"]
    assert not Dump.objects.exists() and not queued
    assert set((settings.MEDIA_ROOT / "dumps").glob("*")) <= before


def test_an_upload_over_the_limit_is_refused_with_the_limit(client, queued, settings):
    settings.TRIAGE_MAX_UPLOAD_BYTES = 100
    answer = send(client, archive())
    assert answer.status_code == 413 and "100 B" in answer.json()["error"]
    assert not Dump.objects.exists()


def test_a_form_over_the_limit_is_refused_before_it_is_read(client, queued, settings, monkeypatch):
    settings.TRIAGE_MAX_UPLOAD_BYTES = 100
    monkeypatch.setattr(MultiPartParser, "parse", lambda self: pytest.fail("the form was read"))
    for url in ("/upload", "/api/dumps"):
        answer = client.post(url, {"file": SimpleUploadedFile("d.tar.gz", b"\x1f\x8b" + bytes(200_000))})
        assert answer.status_code == 413 and "100 B" in answer.content.decode()


def test_an_upload_that_breaks_off_leaves_nothing(client, queued, settings):
    before = set((settings.MEDIA_ROOT / "dumps").glob("*"))
    answer = client.generic("POST", "/api/dumps?name=x", archive(), content_type="", CONTENT_LENGTH="5000")
    assert answer.status_code == 400 and answer.json()["error"] == BROKEN_OFF
    assert not Dump.objects.exists() and set((settings.MEDIA_ROOT / "dumps").glob("*")) <= before


def test_a_full_disk_is_said_and_leaves_nothing(client, queued, settings, monkeypatch):
    def full(self, name, content, max_length=None):
        raise OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(FileSystemStorage, "save", full)
    answer = send(client, archive())
    assert answer.status_code == 507 and "no room left" in answer.json()["error"]
    assert not Dump.objects.exists() and not queued


def test_curl_may_put(client, queued):
    assert client.put("/api/dumps?name=x", archive(), content_type="").status_code == 201
    assert client.get("/api/dumps").status_code == 405


def test_a_foreign_cookie_lists_nothing(client, queued):
    send(client, archive(), "/api/dumps?name=theirs")
    for value in ("", "guessed", Dump.objects.get().owner_key_hash, Dump.objects.get().id):
        client.cookies["triage_owner"] = value
        assert "theirs" not in client.get("/").content.decode()


def test_the_owner_cookie_is_out_of_reach_of_scripts_and_other_sites(client):
    cookie = client.get("/").cookies["triage_owner"]
    assert cookie["httponly"] and cookie["samesite"] == "Lax" and not cookie["secure"]
    assert client.get("/", secure=True).cookies["triage_owner"]["secure"]
    assert client.get("/").cookies["triage_owner"].value == cookie.value


def test_the_front_page_says_how_and_shows_the_example(client, queued):
    page = client.get("/").content.decode()
    assert "--xla_dump_to=DIR --xla_dump_hlo_pass_re=.*" in page
    assert "http://testserver/api/dumps?name=DIR" in page
    assert "2.1 GB" in page and "An example" not in page
    example = Dump.objects.create(name="example-decode", is_example=True, status="done")
    page = client.get("/").content.decode()
    assert "An example" in page and f"/d/{example.id}/" in page


def test_browser_uploads_are_remembered_by_that_browser_alone(client, queued):
    answer = client.post("/upload?name=mine.tar.gz", archive(), content_type="application/octet-stream")
    assert answer.status_code == 201
    assert client.get(answer.json()["url"]).status_code == 200
    assert "mine.tar.gz" in client.get("/").content.decode()
    assert "mine.tar.gz" not in Client().get("/").content.decode()
    assert Client().get(answer.json()["url"]).status_code == 200      # who has the link may read


def test_without_script_the_form_leads_to_the_page(client, queued):
    answer = client.post("/upload", {"file": SimpleUploadedFile("d.tar.gz", archive())})
    assert answer.status_code == 302 and answer["Location"] == f"/d/{Dump.objects.get().id}/"
    refused = client.post("/upload", {"file": SimpleUploadedFile("d.bin", b"\x7fELF" + b"\0" * 999)})
    assert refused.status_code == 400 and "no archive" in refused.content.decode()


def test_a_foreign_page_cannot_upload_into_a_browsers_list(queued):
    strict = Client(enforce_csrf_checks=True)
    answer = strict.post("/upload?name=x", archive(), content_type="application/octet-stream")
    assert answer.status_code == 403 and not Dump.objects.exists()
    assert strict.post("/api/dumps?name=x", archive(), content_type="application/octet-stream").status_code == 201


def test_progress_and_report_of_a_dump(client, queued):
    dump = Dump.objects.get(pk=send(client, archive()).json()["id"])
    assert client.get(f"/d/{dump.id}/progress").json()["status"] == "queued"
    assert client.get(f"/d/{dump.id}/report.json").status_code == 409
    analysis.run(dump.id)
    assert client.get(f"/d/{dump.id}/progress").json()["finished"] is True
    report = client.get(f"/d/{dump.id}/report.json").json()
    assert report["schema"] == "hlo-triage/1" and report["modules"][0]["totals"]["copied_bytes"] == 2097152


def test_a_failed_dump_can_be_tried_again(client, queued):
    dump = Dump.objects.get(pk=send(client, archive()).json()["id"])
    Dump.objects.update(status="failed", error="It was interrupted.", attempts=3)
    queued.clear()
    assert client.post(f"/d/{dump.id}/retry").status_code == 302
    assert queued == [dump.id]
    analysis.run(dump.id)
    assert Dump.objects.get().status == "done" and storage.load_report(dump := Dump.objects.get())["modules"]
    assert client.post(f"/d/{dump.id}/retry").status_code == 302 and queued == [dump.id]     # done: nothing to try


@pytest.mark.parametrize("path", ["progress", "report.json"])
def test_unknown_dumps_are_not_found(client, path):
    assert client.get(f"/d/{'x' * 22}/{path}").status_code == 404
    assert client.post(f"/d/{'x' * 22}/retry").status_code == 404


@pytest.mark.parametrize("given, kept", [
    ("../../etc/passwd", "passwd"), ("a\\b\\dump.zip", "dump.zip"), ("x\u202egnp.exe\n", "xgnp.exe"), ("", "dump"),
    ("/", "dump"), ("n" * 500, "n" * 200)])
def test_names_are_cleaned(given, kept):
    assert clean_name(given) == kept


@pytest.mark.parametrize("path", ["", "progress", "report.json", "m/0/", "m/0/s/0/", "m/0/s/0/text", "m/0/issue/",
                                  "m/0/issue/1.md"])
@pytest.mark.parametrize("dump_id", ["%00", "a", "%FF", "%0A" * 22, "a" * 21, "a" * 23, "é" * 22])
def test_what_cannot_be_an_id_is_not_found(client, db, dump_id, path):
    assert client.get(f"/d/{dump_id}/{path}").status_code == 404


@pytest.mark.parametrize("token", ["\xff", "x", "x" * 33, "\x01" * 32, "'" * 32])
def test_a_cookie_that_is_not_ours_is_replaced(client, db, token):
    client.cookies["triage_owner"] = token
    answer = client.get("/")
    assert answer.status_code == 200 and len(answer.cookies["triage_owner"].value) == 32


FORM = "multipart/form-data; boundary=b"
PART = b'--b\r\nContent-Disposition: form-data; name="file"; filename="d.tar"\r\n\r\n'


@pytest.mark.parametrize("kind, body", [
    ("multipart/form-data", b"x"), (FORM, b"garbage"), (FORM, PART + b"half a fi"), (FORM, PART[:20]),
    (FORM, PART.replace(b'"file"', b'"' + b"n" * 100_000 + b'"') + b"\r\n--b--\r\n"),
    (FORM, b"".join(b'--b\r\nContent-Disposition: form-data; name="f%d"\r\n\r\n\r\n' % i for i in range(2000)) + b"--b--\r\n"),
], ids=["no boundary", "garbage", "cut in the file", "cut in the head", "long name", "many fields"])
def test_a_damaged_form_is_refused_in_a_sentence(client, queued, kind, body):
    answer = client.post("/api/dumps", body, content_type=kind)
    assert answer.status_code == 400 and answer.json()["error"].endswith(".") and not Dump.objects.exists()


def test_a_page_that_is_too_old_says_so(db):
    strict = Client(enforce_csrf_checks=True)
    dump = Dump.objects.create(name="d", status=Dump.Status.FAILED)
    script = strict.post(f"/d/{dump.id}/retry")
    assert script.status_code == 403 and "too old" in script.json()["error"]
    person = strict.post(f"/d/{dump.id}/retry", headers={"accept": "text/html"})
    assert person.status_code == 403 and "This was not sent" in person.content.decode()
    assert "DEBUG" not in person.content.decode()


def test_a_dump_whose_message_was_never_sent_is_found_at_once(client, monkeypatch, db):
    """The web process may be killed between the row and the message."""
    monkeypatch.setattr("triage.dumps.intake.enqueue", lambda dump: None)
    dump = Dump.objects.get(pk=send(client, archive()).json()["id"])
    sent: list[str] = []
    monkeypatch.setattr("triage.jobs.analysis.enqueue", lambda dump: sent.append(dump.id))
    assert analysis.requeue_lost() == sent == [dump.id]


def test_so_is_one_that_was_to_be_tried_again(client, monkeypatch, db):
    dump = Dump.objects.create(name="d", status=Dump.Status.FAILED)
    monkeypatch.setattr("triage.dumps.views.enqueue", lambda dump: None)
    client.post(f"/d/{dump.id}/retry")
    sent: list[str] = []
    monkeypatch.setattr("triage.jobs.analysis.enqueue", lambda dump: sent.append(dump.id))
    assert analysis.requeue_lost() == sent == [dump.id]


def test_text_that_no_database_takes_is_stored_all_the_same(client, queued):
    metadata = ', metadata={op_name="a\\000b" source_file="/m\\000.py" source_line=3}'
    text = SMALL.replace("dimensions={1,0}", "dimensions={1,0}" + metadata)
    target = {"gpu_target_config.pbtxt": 'device_description_str: "H' + chr(0) + '100"\n'}
    dump = Dump.objects.get(pk=send(client, archive(text, **target)).json()["id"])
    analysis.run(dump.id)
    dump.refresh_from_db()
    assert (dump.status, dump.error) == ("done", "")
    assert "2.0 MiB" in dump.modules.get().verdict
    assert client.get(dump.get_absolute_url()).status_code == 200
