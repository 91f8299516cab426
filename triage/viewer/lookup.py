"""A dump by its id, one module of its report: 404 for what is not there, NotReady for what has no result yet; and what
views make of that."""
from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_safe

from triage.dumps import storage
from triage.dumps.models import Dump
from triage.pages import printable_page

View = Callable[..., HttpResponse]


class NotReady(Exception):
    """The dump has no result (yet); `dump` is the row, whose page says why."""

    def __init__(self, dump: Dump) -> None:
        super().__init__(dump.id)
        self.dump = dump


def find_dump(dump_id: str) -> Dump:
    return get_object_or_404(Dump, pk=dump_id)


def find_module(dump_id: str, index: int) -> tuple[Dump, dict]:
    """(dump, module of its report). Raises NotReady or Http404."""
    dump = find_dump(dump_id)
    if dump.status != Dump.Status.DONE:
        raise NotReady(dump)
    modules = storage.load_report(dump)["modules"]
    if index >= len(modules):
        raise Http404("no such module")
    return dump, modules[index]


def page(view: View) -> View:
    """Read-only, compressed (pages of code are large); a dump that is not ready answers with its own page."""
    @gzip_page
    @require_safe
    @printable_page
    @wraps(view)
    def wrapper(request: HttpRequest, *args, **kwargs) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except NotReady as waiting:
            return redirect("dump", waiting.dump.id)
    return wrapper


def download(view: View) -> View:
    """The same for files, which scripts fetch: where a dump is not ready one sentence says so, with status 409."""
    @gzip_page
    @require_safe
    @wraps(view)
    def wrapper(request: HttpRequest, *args, **kwargs) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except NotReady as waiting:
            return HttpResponse(f"{waiting.dump.no_result}\n", status=409, content_type="text/plain; charset=utf-8")
    return wrapper
