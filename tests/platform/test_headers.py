"""What every response says about security, from the real server."""
from __future__ import annotations

import urllib.error
import urllib.request

import pytest

POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
          "connect-src 'self'; form-action 'self' https://github.com; frame-ancestors 'none'; base-uri 'none'")


def headers(url: str, host: str | None = None) -> tuple[int, dict[str, str]]:
    request = urllib.request.Request(url, headers={"Host": host} if host else {})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
            return answer.status, dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers)


@pytest.mark.parametrize("path, expected", [("/", 200), ("/healthz", 200), ("/no/such/page", 404)])
def test_every_page_carries_the_policy(live_service: str, path: str, expected: int) -> None:
    status, found = headers(live_service + path)
    assert status == expected
    assert found["Content-Security-Policy"] == POLICY
    assert found["X-Content-Type-Options"] == "nosniff"
    assert found["Referrer-Policy"] == "same-origin"
    assert found["X-Frame-Options"] == "DENY"
    assert "noindex" in found["X-Robots-Tag"]


def test_a_foreign_host_name_is_refused(live_service: str) -> None:
    assert headers(live_service + "/healthz", host="evil.example")[0] == 400


def test_static_files_are_named_by_content_and_kept_for_ever(live_service: str) -> None:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{live_service}/", timeout=10) as answer:
        page = answer.read().decode()
    path = page.split('rel="stylesheet" href="')[1].split('"')[0]
    status, found = headers(live_service + path)
    assert status == 200
    assert "immutable" in found["Cache-Control"]
    assert found["Content-Security-Policy"] == POLICY
