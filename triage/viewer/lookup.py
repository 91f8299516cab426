"""A dump by its id, one module of its report: 404 for what is not there, NotReady for what has no result yet."""
from __future__ import annotations

from django.http import Http404
from django.shortcuts import get_object_or_404

from triage.dumps import storage
from triage.dumps.models import Dump


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
