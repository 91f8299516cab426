"""Whose dump it is: each browser has one secret token in a cookie, each upload by a script is given one of its own.

A cookie and not the session: uploads run at the same time, and of two requests that change a session one is lost.
"""
from __future__ import annotations

import re
import secrets

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase

from triage.dumps.models import Dump, hash_key

COOKIE = "triage_owner"
_TOKEN = re.compile(r"[A-Za-z0-9_-]{32}")


def new_token() -> str:
    return secrets.token_urlsafe(24)


def token_of(request: HttpRequest) -> str | None:
    """This browser's token; None where it has none of ours yet."""
    token = request.COOKIES.get(COOKIE, "")
    return token if _TOKEN.fullmatch(token) else None


def remember(request: HttpRequest, response: HttpResponseBase, token: str) -> None:
    """Has the browser keep the token, for a year from now."""
    response.set_cookie(COOKIE, token, max_age=settings.SESSION_COOKIE_AGE, httponly=True, samesite="Lax",
                        secure=request.is_secure())


def dumps(token: str) -> QuerySet[Dump]:
    """What was uploaded with this token, newest first."""
    return Dump.objects.filter(owner_key_hash=hash_key(token)).prefetch_related("modules")
