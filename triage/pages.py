"""Views that answer with what a dump says: nothing in it acts on the reader's screen."""
from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from django.http import HttpRequest, HttpResponse

from triage.engine.printable import printable


def printable_page(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """The page without control characters and marks that turn text around, whichever template let them through.

    Addresses in it are percent-encoded, so links still name what they named.
    """
    @wraps(view)
    def wrapper(request: HttpRequest, *args, **kwargs) -> HttpResponse:
        response = view(request, *args, **kwargs)
        if not response.streaming and response.headers.get("Content-Type", "").startswith("text/html"):
            response.content = printable(response.content.decode()).encode()
        return response
    return wrapper
