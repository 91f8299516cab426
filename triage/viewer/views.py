"""Pages of a dump: load, check, render."""
from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse

from triage.dumps import storage
from triage.dumps.models import Dump
from triage.viewer.lookup import download, find_dump, find_module, page
from triage.viewer.module_page import module_context
from triage.viewer.options import Options
from triage.viewer.stage_page import Texts, stage_context


@page
def dump(request: HttpRequest, dump_id: str) -> HttpResponse:
    """Progress, the reason for a failure, or the modules; a dump of one module shows it at once."""
    found = find_dump(dump_id)
    if found.status != Dump.Status.DONE:
        return render(request, "viewer/waiting.html", {"dump": found})
    report = storage.load_report(found)
    if len(report["modules"]) == 1:
        return render(request, "viewer/module.html", {
            **module_context(found, report["modules"][0]), "alone": True, "dump_notes": report.get("notes", [])})
    return render(request, "viewer/dump.html", {
        "dump": found, "modules": found.modules.all(), "notes": report.get("notes", []),
        "with_copies": sum(1 for module in report["modules"] if module["copies"])})


@page
def module(request: HttpRequest, dump_id: str, module: int) -> HttpResponse:
    found, report = find_module(dump_id, module)
    return render(request, "viewer/module.html", module_context(found, report))


@page
def stage(request: HttpRequest, dump_id: str, module: int, stage: int) -> HttpResponse:
    """The diff against the stage before, or the whole text; see options.Options for what the address can ask."""
    found, report = find_module(dump_id, module)
    if stage >= len(report["stages"]):
        raise Http404("no such stage")
    options = Options.of(request.GET, stage, len(report["stages"]))
    if options.instruction:
        return _to_instruction(found, module, stage, options)
    return render(request, "viewer/stage.html", stage_context(found, report, stage, options))


@download
def stage_text(request: HttpRequest, dump_id: str, module: int, stage: int) -> HttpResponse:
    """The stage's text to the letter."""
    found, report = find_module(dump_id, module)
    if stage >= len(report["stages"]):
        raise Http404("no such stage")
    texts = Texts(found, module)
    chunks = storage.load_stage(found, module, stage).record.chunks
    response = StreamingHttpResponse((text.encode() for text in texts.stream(chunks)),
                                     content_type="text/plain; charset=utf-8")
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in report["stages"][stage]["file"].rsplit("/", 1)[-1])
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _to_instruction(found: Dump, module: int, stage: int, options: Options) -> HttpResponse:
    """An instruction's own line: where it is in the text is only known by looking."""
    texts = Texts(found, module)
    line = texts.find(storage.load_stage(found, module, stage).record.chunks, options.computation, options.instruction)
    address = reverse("stage", args=[found.id, module, stage])
    if line is None:
        return HttpResponseRedirect(address)
    return HttpResponseRedirect(address + options.change(instruction="", at=line) + f"#L{line}")
