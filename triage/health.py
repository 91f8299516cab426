"""`/healthz`: whether this web process reaches what it needs."""
from __future__ import annotations

import logging
from typing import Callable

import redis
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

log = logging.getLogger(__name__)

_REDIS_SECONDS = 3


def _reach_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def _reach_broker() -> None:
    with redis.Redis.from_url(
        settings.REDIS_URL, socket_timeout=_REDIS_SECONDS, socket_connect_timeout=_REDIS_SECONDS
    ) as client:
        client.ping()


_CHECKS: dict[str, Callable[[], None]] = {"database": _reach_database, "broker": _reach_broker}


@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """200 and `{"status": "ok", ...}`, or 503 with the part that is "unreachable"."""
    parts = {}
    for name, check in _CHECKS.items():
        try:
            check()
            parts[name] = "ok"
        except (DatabaseError, redis.RedisError, ValueError) as error:
            log.warning("health check: the %s cannot be reached: %s", name, error)
            parts[name] = "unreachable"
    healthy = set(parts.values()) == {"ok"}
    return JsonResponse({"status": "ok" if healthy else "failing", **parts}, status=200 if healthy else 503)
