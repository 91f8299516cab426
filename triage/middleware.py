"""Headers that every response carries."""
from __future__ import annotations

from typing import Callable

from django.http import HttpRequest, HttpResponseBase

#: Dump text is hostile: even if some of it became markup, it could load, run and send nothing.
CONTENT_SECURITY_POLICY = "; ".join([
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "font-src 'self'",
    "connect-src 'self'",
    "form-action 'self' https://github.com",  # the issue draft opens GitHub's new-issue form
    "frame-ancestors 'none'",
    "base-uri 'none'",
])


def security_headers(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        response.headers["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
        response.headers["Permissions-Policy"] = "camera=(), geolocation=(), microphone=(), payment=(), usb=()"
        response.headers["X-Robots-Tag"] = "noindex, nofollow"  # an address that is a secret is not for an index
        return response

    return middleware
