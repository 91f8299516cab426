"""Requests that Django refuses by itself: one sentence for whoever sent them, and one line in the log."""
from __future__ import annotations

import logging

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

TOO_OLD = "This page is too old to send from: reload it, then send again. Scripts upload to /api/dumps."
MALFORMED = "The request is malformed, or names a host that this service does not answer for."


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """A form that does not prove where it comes from; the usual cause is a page that is open since yesterday."""
    return _refuse(request, "403_csrf.html", TOO_OLD, 403)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """What Django cannot read, before a view of ours has it: a host's name, the fields of a form."""
    return _refuse(request, "400.html", MALFORMED, 400)


def _refuse(request: HttpRequest, template: str, sentence: str, status: int) -> HttpResponse:
    """A page for who asks for pages, as browsers do; JSON for everybody else."""
    if "text/html" in request.headers.get("Accept", ""):
        return render(request, template, {"sentence": sentence}, status=status)
    return JsonResponse({"error": sentence}, status=status)


class OneLine(logging.Filter):
    """Takes the traceback off what a client did wrong: any client could fill the log with them."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith("django.security.") or 400 <= getattr(record, "status_code", 0) < 500:
            record.exc_info = record.exc_text = None
        return True
