"""The issue draft of a module: as a page and as a file."""
from __future__ import annotations

import re

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from triage.dumps import storage
from triage.dumps.models import Dump
from triage.reports.draft import Draft, draft
from triage.reports.excerpt import Line, copy_lines
from triage.reports.github import prefilled
from triage.reports.markdown import sentence
from triage.viewer.lookup import download, find_module, page
from triage.viewer.texts import Texts


@page
def issue(request: HttpRequest, dump_id: str, module: int) -> HttpResponse:
    found, report = find_module(dump_id, module)
    text = _draft(found, module, report)
    context = {"dump": found, "module": report, "index": module, "draft": text}
    if text is not None:
        context["github"], context["cut"] = prefilled(text.title, text.body)
    return render(request, "reports/issue.html", context)


@download
def issue_markdown(request: HttpRequest, dump_id: str, module: int) -> HttpResponse:
    """The draft as a file; for a module without copies the sentence that says so."""
    found, report = find_module(dump_id, module)
    text = _draft(found, module, report)
    name = re.sub(r"[^\w.-]", "_", report["name"], flags=re.ASCII)[:100] or "module"
    return HttpResponse(text.text if text else f"{sentence(report['verdict'])}\n", content_type="text/markdown; charset=utf-8",
                        headers={"Content-Disposition": f'attachment; filename="{name}-issue.md"'})


def _draft(found: Dump, module: int, report: dict) -> Draft | None:
    def excerpt(stage: int, copy_id: str) -> list[Line]:
        record = storage.load_stage(found, module, stage).record
        return copy_lines(record, copy_id, Texts(found, module).load)
    return draft(report, storage.load_report(found)["generator"], excerpt)
