"""What Django refuses by itself is told in the service's own words, and costs one line of log."""
from __future__ import annotations

import logging

import pytest
from django.conf import settings
from django.test import Client

from triage.refusals import MALFORMED, TOO_OLD, OneLine

pytestmark = pytest.mark.django_db
BROWSER = "text/html,application/xhtml+xml,*/*;q=0.8"
ID = "x" * 22


def refused(path: str, accept: str, method: str = "POST", **environ: str):
    return Client(enforce_csrf_checks=True).generic(method, path, b"x", content_type="application/octet-stream",
                                                    headers={"Accept": accept}, **environ)


CASES = [("/upload", {}, TOO_OLD, 403), (f"/d/{ID}/retry", {}, TOO_OLD, 403),
         ("/healthz", {"SERVER_NAME": "evil.example"}, MALFORMED, 400),
         ("/", {"SERVER_NAME": "a b"}, MALFORMED, 400),
         (f"/d/{ID}/retry", {"CONTENT_TYPE": "multipart/form-data", "HTTP_COOKIE": f"triage_csrf={'c' * 32}"}, MALFORMED, 400)]


@pytest.mark.parametrize(("path", "environ", "sentence", "status"), CASES)
def test_json_for_scripts_a_page_for_people(path, environ, sentence, status):
    answer = refused(path, "*/*", **environ)
    assert (answer.status_code, answer.json()) == (status, {"error": sentence})
    answer = refused(path, BROWSER, **environ)
    page = answer.content.decode()
    assert answer.status_code == status and "HLO Triage</title>" in page
    assert "CSRF" not in page and "Content-Security-Policy" in answer.headers


@pytest.mark.parametrize(("path", "environ", "sentence", "status"), CASES)
def test_the_log_gets_one_line(path, environ, sentence, status, caplog):
    refused(path, "*/*", **environ)
    assert caplog.records
    formatter = logging.Formatter()
    for record in caplog.records:
        assert OneLine().filter(record)
        assert "\n" not in formatter.format(record)
    assert settings.LOGGING["handlers"]["console"]["filters"] == ["one line"]


def test_our_own_faults_keep_their_traceback():
    try:
        raise KeyError("fault")
    except KeyError as error:
        record = logging.LogRecord("django.request", logging.ERROR, "", 0, "Internal Server Error", (), (KeyError, error, None))
    record.status_code = 500
    assert OneLine().filter(record) and record.exc_info


@pytest.mark.parametrize("cookie", ["\\377", "\xff", '"\\073\\012x"', "x" * 4000, "", "a;b", "x" * 31 + "\xe9"])
def test_a_cookie_that_is_none_of_ours_is_replaced(client, cookie):
    answer = client.get("/", headers={"Cookie": f'triage_owner="{cookie}"' if "\\" in cookie else f"triage_owner={cookie}"})
    assert answer.status_code == 200
    assert len(answer.cookies["triage_owner"].value) == 32
    assert answer.cookies["triage_owner"].value.isascii()
